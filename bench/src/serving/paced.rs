//! As many requests as are wanted, however fast they are answered.
//!
//! One thread drives all connections and sends each request when it is due over one that is free, so
//! that the client takes as little as it can of the processors that it shares with the server. The
//! latency of an answer counts from when its request was due: one that found no connection free
//! waited too. That of a refusal counts from when its request was sent.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::models::Random;
use super::target::Target;
use super::wires::Wires;

/// How long before the first request is due: time for the connections to be made.
const LEAD: Duration = Duration::from_millis(50);

/// When requests come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// One after the other at equal distances.
    Even,
    /// At times that are drawn, as those of many callers who know nothing of each other.
    Drawn,
}

/// What came of requests at a pace. Times are in seconds.
#[derive(Debug, Default)]
pub(super) struct Paced {
    pub(super) answered: Vec<f64>,
    pub(super) refused: Vec<f64>,
    /// How long it took.
    pub(super) took: Duration,
}

/// Sends requests at a rate, over so many connections.
pub(super) fn paced(
    target: &Target,
    connections: usize,
    pace: Pace,
    rate: f64,
    time: Duration,
) -> Result<Paced> {
    let due = arrivals(pace, rate, time);
    // A timer may else be late by 50 microseconds, which is most of what is measured.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let sent = Client::new(target, connections, time).and_then(|client| client.send(&due));
    rustix::thread::set_current_timer_slack(None)?;
    sent
}

/// When requests at a pace are due.
pub(super) fn arrivals(pace: Pace, rate: f64, time: Duration) -> Vec<Duration> {
    let mut random = Random(3);
    let mut at = LEAD.as_secs_f64();
    let mut due = Vec::new();
    while at < time.as_secs_f64() {
        due.push(Duration::from_secs_f64(at));
        at += match pace {
            Pace::Even => 1.0 / rate,
            // The times between requests are drawn from an exponential distribution.
            Pace::Drawn => -(1.0 - random.share()).ln() / rate,
        };
    }
    due
}

struct Client<'a> {
    target: &'a Target,
    wires: Wires<'a>,
    /// When the request of each connection was due, and when it was sent.
    sent: Vec<(Duration, Duration)>,
    free: VecDeque<usize>,
    time: Duration,
    began: Instant,
    paced: Paced,
}

impl<'a> Client<'a> {
    fn new(target: &'a Target, connections: usize, time: Duration) -> Result<Self> {
        let wires = Wires::connect(target, connections)?;
        let sent = vec![(Duration::ZERO, Duration::ZERO); connections];
        let (free, began) = ((0..connections).collect(), Instant::now());
        let paced = Paced { took: time, ..Paced::default() };
        Ok(Self { target, wires, sent, free, time, began, paced })
    }

    fn send(mut self, due: &[Duration]) -> Result<Paced> {
        let mut next = 0;
        loop {
            next = self.send_due(due, next)?;
            let over = next == due.len() || self.began.elapsed() >= self.time;
            if over && self.free.len() == self.wires.len() {
                return Ok(self.paced);
            }
            // With no connection free there is nothing to wake up for but an answer.
            let waits = !over && !self.free.is_empty();
            let wait = waits.then(|| due[next].saturating_sub(self.began.elapsed()));
            for number in 0..self.wires.wait(wait)? {
                self.receive(self.wires.heard(number)?)?;
            }
        }
    }

    /// Sends what is due over what is free; the place of the first request that was not sent.
    fn send_due(&mut self, due: &[Duration], mut next: usize) -> Result<usize> {
        while let Some(&at) = due.get(next) {
            let now = self.began.elapsed();
            if at > now || now >= self.time {
                break;
            }
            let Some(place) = self.free.pop_front() else { break };
            self.sent[place] = (at, now);
            self.wires.send(place, next)?;
            next += 1;
        }
        Ok(next)
    }

    fn receive(&mut self, place: usize) -> Result<()> {
        let Some(reply) = self.wires.receive(place)? else { return Ok(()) };
        let (done, (due, sent)) = (self.began.elapsed(), self.sent[place]);
        match reply.status {
            200 => self.paced.answered.push(done.saturating_sub(due).as_secs_f64()),
            429 | 503 => {
                ensure!(reply.says_when, "a refusal that does not say when to come again");
                self.paced.refused.push(done.saturating_sub(sent).as_secs_f64());
            }
            other => bail!("{}: {other} {}", self.target.server, self.wires.body(place, reply)),
        }
        self.free.push_back(place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_paces_send_as_many() {
        let time = Duration::from_secs(10);
        let even = arrivals(Pace::Even, 1000.0, time);
        let drawn = arrivals(Pace::Drawn, 1000.0, time);
        assert!(even.len().abs_diff(9950) <= 1, "{}", even.len());
        assert!(drawn.len().abs_diff(9950) < 400, "{}", drawn.len());
        assert!(drawn.is_sorted() && even.is_sorted());
    }
}
