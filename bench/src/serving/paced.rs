//! As many requests as are wanted, however fast they are answered.
//!
//! One thread drives all connections and sends each request when it is due over one that is free, so
//! that the client takes as little as it can of the processors that it shares with the server. The
//! latency of an answer counts from when its request was due: one that found no connection free
//! waited too. That of a refusal counts from when its request was sent.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::models::Random;
use super::reply::parse;
use super::target::Target;

/// How long before the first request is due: time for the connections to be made.
const LEAD: Duration = Duration::from_millis(50);
/// What the timer is known by among the connections.
const TIMER: u64 = u64::MAX;

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
    lanes: Vec<Lane>,
    free: VecDeque<usize>,
    poll: OwnedFd,
    timer: OwnedFd,
    time: Duration,
    began: Instant,
    paced: Paced,
}

/// A connection, and the request that it carries.
struct Lane {
    stream: TcpStream,
    buffer: Vec<u8>,
    due: Duration,
    sent: Duration,
}

impl<'a> Client<'a> {
    fn new(target: &'a Target, connections: usize, time: Duration) -> Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        let watch = |fd: &dyn std::os::fd::AsFd, place| -> Result<()> {
            let data = epoll::EventData::new_u64(place);
            Ok(epoll::add(&poll, fd.as_fd(), data, epoll::EventFlags::IN)?)
        };
        watch(&timer, TIMER)?;
        let mut lanes = Vec::new();
        for place in 0..connections {
            let stream = target.connect()?;
            stream.set_nonblocking(true)?;
            watch(&stream, place as u64)?;
            let (due, sent) = (Duration::ZERO, Duration::ZERO);
            lanes.push(Lane { stream, buffer: Vec::with_capacity(16 * 1024), due, sent });
        }
        let (free, began) = ((0..connections).collect(), Instant::now());
        let paced = Paced { took: time, ..Paced::default() };
        Ok(Self { target, lanes, free, poll, timer, time, began, paced })
    }

    fn send(mut self, due: &[Duration]) -> Result<Paced> {
        let mut next = 0;
        let mut events = Vec::with_capacity(self.lanes.len() + 1);
        loop {
            next = self.send_due(due, next)?;
            let over = next == due.len() || self.began.elapsed() >= self.time;
            if over && self.free.len() == self.lanes.len() {
                return Ok(self.paced);
            }
            // With no connection free there is nothing to wake up for but an answer.
            if !over && !self.free.is_empty() {
                self.wake_in(due[next].saturating_sub(self.began.elapsed()))?;
            }
            events.clear();
            epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), None)?;
            for event in &events {
                match event.data.u64() {
                    TIMER => {
                        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                    }
                    lane => self.receive(usize::try_from(lane)?)?,
                }
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
            let lane = &mut self.lanes[place];
            (lane.due, lane.sent) = (at, now);
            lane.buffer.clear();
            let request = &self.target.requests[next % self.target.requests.len()];
            // A free connection has room for a request.
            lane.stream.write_all(request).context("a request was not taken at once")?;
            next += 1;
        }
        Ok(next)
    }

    fn wake_in(&self, wait: Duration) -> Result<()> {
        // Nothing at all would switch the timer off.
        let wait = wait.max(Duration::from_nanos(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value =
            Timespec { tv_sec: wait.as_secs().try_into()?, tv_nsec: wait.subsec_nanos().into() };
        let once = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    fn receive(&mut self, place: usize) -> Result<()> {
        let lane = &mut self.lanes[place];
        let mut piece = [0; 16 * 1024];
        match lane.stream.read(&mut piece) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(read) => lane.buffer.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let Some(reply) = parse(&lane.buffer)? else { return Ok(()) };
        let done = self.began.elapsed();
        match reply.status {
            200 => self.paced.answered.push(done.saturating_sub(lane.due).as_secs_f64()),
            429 | 503 => {
                ensure!(reply.says_when, "a refusal that does not say when to come again");
                self.paced.refused.push(done.saturating_sub(lane.sent).as_secs_f64());
            }
            other => {
                let shown = String::from_utf8_lossy(&lane.buffer[reply.body.0..reply.body.1]);
                bail!("{}: {other} {shown}", self.target.server);
            }
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
