//! What something has cost so far, and what it may come to: sums that follow starts, so that no one
//! looks at each of them. Pure.

use falaj_base::Timestamp;

/// Prices are millionths for an hour, times are millionths of a second.
const HOUR: i128 = 3_600_000_000;
const MILLIONTHS: f64 = 1_000_000.0;

/// A start that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// For an hour, in millionths.
    pub(crate) price: u64,
    pub(crate) since: Timestamp,
    /// When its time limit ends it.
    pub(crate) until: Option<Timestamp>,
}

/// A sum of products of prices and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    price: i128,
    since: i128,
    until: i128,
}

/// What was spent between two moments, and what runs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meter {
    from: Timestamp,
    to: Timestamp,
    /// Of what has ended, in millionths.
    spent: i128,
    /// What starts may cost that were decided and have not been made.
    promised: i128,
    endless: Rates,
    limited: Rates,
}

impl Meter {
    pub(crate) fn new(from: Timestamp, to: Timestamp, spent: i128) -> Self {
        let none = Rates::default();
        Self { from, to, spent, promised: 0, endless: none, limited: none }
    }

    /// Of all of the time.
    pub(crate) fn whole(spent: i128) -> Self {
        Self::new(Timestamp::from_micros(0), Timestamp::from_micros(i64::MAX), spent)
    }

    pub(crate) fn begin(&mut self, start: &Running) {
        self.shift(start, 1);
    }

    /// It ended, and is to be paid until then.
    pub(crate) fn end(&mut self, start: &Running, at: Timestamp) {
        self.withdraw(start);
        let from = self.within(start.since);
        self.spent += i128::from(start.price) * between(from, self.within(at)) / HOUR;
    }

    /// It came to nothing.
    pub(crate) fn withdraw(&mut self, start: &Running) {
        self.shift(start, -1);
    }

    /// It was decided, and is to have its money when it is made.
    pub(crate) fn promise(&mut self, start: &Running) {
        self.promised += self.would_add(start);
    }

    /// It is made now, or never.
    pub(crate) fn release(&mut self, start: &Running) {
        self.promised -= self.would_add(start);
    }

    fn shift(&mut self, start: &Running, sign: i128) {
        let (since, until) = (self.within(start.since), start.until.map(|at| self.within(at)));
        let rates = if until.is_some() { &mut self.limited } else { &mut self.endless };
        let price = i128::from(start.price) * sign;
        rates.price += price;
        rates.since += price * i128::from(since.micros());
        rates.until += price * i128::from(until.map_or(0, Timestamp::micros));
    }

    fn within(&self, at: Timestamp) -> Timestamp {
        at.clamp(self.from, self.to)
    }

    /// What has been spent by now, in millionths.
    pub(crate) fn so_far(&self, now: Timestamp) -> i128 {
        let now = i128::from(self.within(now).micros());
        let runs = |rates: &Rates| rates.price * now - rates.since;
        self.spent + (runs(&self.endless) + runs(&self.limited)).max(0) / HOUR
    }

    /// What will have been spent if what runs, and what was promised, uses up its time limits, in
    /// millionths. Engines count a limit from when the process begins, which may be hours after it was handed over: what has been
    /// spent by now is the least.
    pub(crate) fn committed(&self, at: Timestamp) -> i128 {
        let now = i128::from(self.within(at).micros());
        let endless = self.endless.price * now - self.endless.since;
        let limited = self.limited.until - self.limited.since;
        (self.spent + (endless + limited).max(0) / HOUR).max(self.so_far(at)) + self.promised
    }

    /// What a start would add to that, in millionths: nothing that is known if it has no time limit.
    pub(crate) fn would_add(&self, start: &Running) -> i128 {
        let Some(until) = start.until else { return 0 };
        i128::from(start.price) * between(self.within(start.since), self.within(until)) / HOUR
    }
}

fn between(from: Timestamp, to: Timestamp) -> i128 {
    i128::from(to.micros()).saturating_sub(i128::from(from.micros())).max(0)
}

/// Millionths of the currency, as they are shown.
#[allow(clippy::cast_precision_loss, reason = "sums of money are far below 2^52 millionths")]
pub(crate) fn in_currency(millionths: i128) -> f64 {
    millionths as f64 / MILLIONTHS
}

/// The reverse.
#[allow(clippy::cast_possible_truncation, reason = "amounts were checked")]
pub(crate) fn millionths(amount: f64) -> i128 {
    (amount * MILLIONTHS).round() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: u64 = 10_000_000;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_micros(hours * 3_600_000_000)
    }

    fn start(since: i64, until: Option<i64>) -> Running {
        Running { price: TEN, since: at(since), until: until.map(at) }
    }

    #[test]
    fn what_runs_counts_until_now_or_until_its_limit() {
        let mut meter = Meter::new(at(100), at(200), 5_000_000);
        let (endless, limited) = (start(110, None), start(110, Some(114)));
        meter.begin(&endless);
        meter.begin(&limited);
        assert_eq!(meter.so_far(at(111)), 25_000_000);
        assert_eq!(meter.committed(at(111)), 55_000_000);
        meter.end(&limited, at(112));
        assert_eq!(meter.so_far(at(112)), 45_000_000);
        assert_eq!(meter.committed(at(112)), 45_000_000);
        meter.withdraw(&endless);
        assert_eq!(meter.so_far(at(150)), 25_000_000);
        assert_eq!(meter.would_add(&start(120, Some(122))), 20_000_000);
        assert_eq!(meter.would_add(&start(120, None)), 0);
    }

    #[test]
    fn what_outlives_its_limit_goes_on_to_count() {
        let mut meter = Meter::new(at(100), at(200), 0);
        let queued = start(110, Some(114));
        meter.begin(&queued);
        assert_eq!(meter.committed(at(112)), 40_000_000);
        assert_eq!(meter.so_far(at(120)), 100_000_000);
        assert_eq!(meter.committed(at(120)), 100_000_000);
    }

    #[test]
    fn what_was_promised_is_not_spent_and_not_free() {
        let mut meter = Meter::new(at(100), at(200), 5_000_000);
        let decided = start(110, Some(114));
        meter.promise(&decided);
        assert_eq!((meter.so_far(at(112)), meter.committed(at(112))), (5_000_000, 45_000_000));
        meter.release(&decided);
        meter.begin(&decided);
        assert_eq!((meter.so_far(at(112)), meter.committed(at(112))), (25_000_000, 45_000_000));
    }

    #[test]
    fn only_what_lies_between_its_moments_counts() {
        let mut meter = Meter::new(at(100), at(200), 0);
        let early = start(90, Some(110));
        meter.begin(&early);
        assert_eq!(meter.so_far(at(105)), 50_000_000);
        assert_eq!(meter.committed(at(105)), 100_000_000);
        meter.end(&early, at(104));
        assert_eq!(meter.so_far(at(104)), 40_000_000);
        let late = start(190, Some(290));
        meter.begin(&late);
        assert_eq!(meter.committed(at(190)), 140_000_000);
        meter.end(&late, at(250));
        assert_eq!(meter.so_far(at(250)), 140_000_000);
    }
}
