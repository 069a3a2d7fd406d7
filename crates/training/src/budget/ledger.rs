//! All budgets as the one who schedules has them in mind, with what was spent of each and what runs.
//! Pure.

use std::collections::HashMap;

use falaj_base::{ProjectId, TenantId, Timestamp};

use super::budget::Overrun;
use super::meter::{Meter, Running, in_currency, millionths};
use super::period::{Period, Window};
use super::store::Kept;

/// One budget in one period of it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) tenant: TenantId,
    /// None if it is about all of the tenant.
    pub(crate) project: Option<ProjectId>,
    pub(crate) period: Period,
    pub(crate) window: Window,
    pub(crate) action: Overrun,
    pub(crate) amount: i128,
    warn_at: Vec<u16>,
    /// Percentages that were told in this period.
    pub(crate) told: Vec<u16>,
    meter: Meter,
    /// The same in the period after this one, in which what starts now may end.
    next: Option<(Window, Meter)>,
}

impl Entry {
    fn meters(&mut self) -> impl Iterator<Item = &mut Meter> {
        std::iter::once(&mut self.meter).chain(self.next.iter_mut().map(|(_, meter)| meter))
    }

    /// What a start would add beyond what is left, after `more` was promised to others, and whether that
    /// lies in the next period. What has no time limit may start while anything is left.
    fn lacks(&self, start: &Running, more: i128, now: Timestamp) -> Option<(i128, bool)> {
        if !self.action.is_hard() {
            return None;
        }
        let needs = self.meter.would_add(start);
        let left = self.amount - self.meter.committed(now) - more;
        if left <= 0 || needs > left {
            return Some((needs, false));
        }
        let (_, next) = self.next.as_ref()?;
        let needs = next.would_add(start);
        (needs > 0 && needs > self.amount - next.committed(now)).then_some((needs, true))
    }

    pub(crate) fn so_far(&self, now: Timestamp) -> f64 {
        in_currency(self.meter.so_far(now))
    }
}

/// Which budget leaves too little, and for what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shortage {
    at: usize,
    /// What a start would add, in millionths.
    pub(crate) needs: i128,
    /// Whether it is the next period that leaves too little.
    next: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    of_tenant: HashMap<TenantId, Vec<usize>>,
    of_project: HashMap<ProjectId, Vec<usize>>,
    /// Grows with every change.
    version: u64,
}

/// Whose jobs it is about.
type Place = (TenantId, ProjectId);

impl Ledger {
    /// Of budgets as they are kept, each with what ended starts have spent in its period.
    pub(crate) fn new(kept: Vec<(Kept, i128)>, now: Timestamp) -> Self {
        let mut ledger = Self::default();
        for (kept, spent) in kept {
            let window = kept.period.window(now);
            let at = ledger.entries.len();
            let lists = match kept.project {
                None => ledger.of_tenant.entry(kept.tenant).or_default(),
                Some(project) => ledger.of_project.entry(project).or_default(),
            };
            lists.push(at);
            ledger.entries.push(Entry {
                tenant: kept.tenant,
                project: kept.project,
                period: kept.period,
                window,
                action: kept.set.action,
                amount: millionths(kept.set.amount),
                told: kept.told_in(&window),
                warn_at: kept.set.warn_at,
                meter: Meter::new(window.from, window.to, spent),
                next: kept.period.next(&window).map(|it| (it, Meter::new(it.from, it.to, 0))),
            });
        }
        ledger
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn about(&self, tenant: TenantId, project: ProjectId) -> impl Iterator<Item = usize> + '_ {
        let of_tenant = self.of_tenant.get(&tenant).into_iter().flatten();
        of_tenant.chain(self.of_project.get(&project).into_iter().flatten()).copied()
    }

    /// Which changes are in it: while this is the same, so is everything but the time.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn change(&mut self, (tenant, project): Place, mut what: impl FnMut(&mut Meter)) {
        self.version += 1;
        let about: Vec<usize> = self.about(tenant, project).collect();
        for at in about {
            self.entries[at].meters().for_each(&mut what);
        }
    }

    pub(crate) fn begin(&mut self, place: Place, start: &Running) {
        self.change(place, |meter| meter.begin(start));
    }

    pub(crate) fn withdraw(&mut self, place: Place, start: &Running) {
        self.change(place, |meter| meter.withdraw(start));
    }

    /// Keeps money for a start that was decided.
    pub(crate) fn promise(&mut self, place: Place, start: &Running) {
        self.change(place, |meter| meter.promise(start));
    }

    pub(crate) fn release(&mut self, place: Place, start: &Running) {
        self.change(place, |meter| meter.release(start));
    }

    pub(crate) fn end(&mut self, place: Place, start: &Running, at: Timestamp) {
        self.change(place, |meter| meter.end(start, at));
    }

    /// The first hard budget that a start would overrun, in this period or the next.
    pub(crate) fn shortage(
        &self,
        (tenant, project): Place,
        start: &Running,
        now: Timestamp,
    ) -> Option<Shortage> {
        self.about(tenant, project).find_map(|at| {
            let (needs, next) = self.entries[at].lacks(start, 0, now)?;
            Some(Shortage { at, needs, next })
        })
    }

    /// Whether a start that was refused would be taken now, after `more` was promised to others.
    pub(crate) fn has_room(
        &self,
        (tenant, project): Place,
        start: &Running,
        more: i128,
        now: Timestamp,
    ) -> bool {
        self.about(tenant, project).all(|at| self.entries[at].lacks(start, more, now).is_none())
    }

    /// A shortage in words.
    pub(crate) fn in_words(&self, short: Shortage, now: Timestamp) -> String {
        let entry = &self.entries[short.at];
        let next = entry.next.as_ref().filter(|_| short.next);
        let (window, meter) =
            next.map_or((&entry.window, &entry.meter), |(window, meter)| (window, meter));
        let whose = if entry.project.is_some() { "its project" } else { "its tenant" };
        let (amount, spent) = (in_currency(entry.amount), meter.so_far(now));
        let rest = meter.committed(now) - spent;
        let mut text = format!(
            "of the budget of {whose} for {}, {amount:.2}, {:.2} is spent",
            window.label(),
            in_currency(spent)
        );
        if rest > 0 {
            let rest = in_currency(rest);
            text = format!("{text}, what runs may cost {rest:.2} more until its time limits");
        }
        if short.needs > 0 {
            let needs = in_currency(short.needs);
            text = format!("{text}, and it may cost {needs:.2} until its own");
        }
        text
    }

    /// Budgets of which more percent are spent than was told, and the shares that are to be.
    pub(crate) fn reached(&self, now: Timestamp) -> Vec<(Entry, Vec<u16>)> {
        let newly = |entry: &Entry| {
            let spent = entry.meter.so_far(now);
            // Of nothing, nothing is spent before something is.
            let is_new = |share: &&u16| {
                spent > 0
                    && !entry.told.contains(share)
                    && spent * 100 >= entry.amount * i128::from(**share)
            };
            let mut shares: Vec<u16> = entry.warn_at.iter().filter(is_new).copied().collect();
            shares.sort_unstable();
            shares.dedup();
            shares
        };
        let all = self.entries.iter().map(|entry| (entry, newly(entry)));
        let new = all.filter(|(_, shares)| !shares.is_empty());
        new.map(|(entry, shares)| (entry.clone(), shares)).collect()
    }

    /// Notes that shares were told.
    pub(crate) fn told(&mut self, entry: &Entry, shares: &[u16]) {
        let same = |other: &&mut Entry| {
            (other.tenant, other.project, other.period)
                == (entry.tenant, entry.project, entry.period)
        };
        if let Some(entry) = self.entries.iter_mut().find(same) {
            entry.told.extend(shares);
        }
    }

    /// What becomes of what runs there, if a budget is spent that says so: the strictest one.
    pub(crate) fn overrun(
        &self,
        (tenant, project): Place,
        now: Timestamp,
    ) -> Option<(Overrun, Shortage)> {
        let spent = self.about(tenant, project).filter(|at| {
            let entry = &self.entries[*at];
            entry.meter.so_far(now) >= entry.amount
        });
        let strict =
            spent.map(|at| (self.entries[at].action, Shortage { at, needs: 0, next: false }));
        strict
            .filter(|(action, _)| matches!(action, Overrun::Preempt | Overrun::Stop))
            .max_by_key(|(action, _)| *action == Overrun::Stop)
    }

    /// Whether any budget ends what runs, and is spent.
    pub(crate) fn overruns(&self, now: Timestamp) -> bool {
        self.entries.iter().any(|entry| {
            matches!(entry.action, Overrun::Preempt | Overrun::Stop)
                && entry.meter.so_far(now) >= entry.amount
        })
    }

    /// Whether a period is over, and the figures are of the one before.
    pub(crate) fn is_stale(&self, now: Timestamp) -> bool {
        self.entries.iter().any(|entry| !(entry.window.from..entry.window.to).contains(&now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::BudgetSet;
    use super::*;

    fn hour(hours: i64) -> Timestamp {
        let day: Timestamp = "2026-11-10T00:00:00Z".parse().unwrap();
        Timestamp::from_micros(day.micros() + hours * 3_600_000_000)
    }

    fn kept(project: Option<ProjectId>, tenant: TenantId, amount: f64, action: Overrun) -> Kept {
        Kept {
            tenant,
            project,
            period: Period::Month,
            set: BudgetSet { amount, action, warn_at: vec![50, 100] },
            told: String::new(),
            updated_at: hour(0),
            updated_by: String::new(),
        }
    }

    fn start(since: i64, until: Option<i64>) -> Running {
        Running { price: 10_000_000, since: hour(since), until: until.map(hour) }
    }

    #[test]
    fn what_starts_together_does_not_overrun_it() {
        let (tenant, project, other) = (TenantId::new(), ProjectId::new(), ProjectId::new());
        let rows = vec![(kept(Some(project), tenant, 45.0, Overrun::Hold), 0)];
        let mut ledger = Ledger::new(rows, hour(0));
        let two_hours = start(0, Some(2));
        for _ in 0..2 {
            assert_eq!(ledger.shortage((tenant, project), &two_hours, hour(0)), None);
            ledger.begin((tenant, project), &two_hours);
        }
        let short = ledger.shortage((tenant, project), &two_hours, hour(0)).unwrap();
        let words = ledger.in_words(short, hour(0));
        assert!(words.contains("45.00, 0.00 is spent, what runs may cost 40.00 more"), "{words}");
        assert!(ledger.shortage((tenant, other), &two_hours, hour(0)).is_none());
        // One that ends early leaves room for another.
        ledger.end((tenant, project), &two_hours, hour(1));
        assert!(!ledger.has_room((tenant, project), &start(1, Some(3)), 0, hour(1)));
        let one_hour = start(1, Some(2));
        assert_eq!(ledger.shortage((tenant, project), &one_hour, hour(1)), None);
        assert!(ledger.has_room((tenant, project), &one_hour, 0, hour(1)));
        assert!(!ledger.has_room((tenant, project), &one_hour, 10_000_000, hour(1)));
        // What was promised to one is not there for another, and was not spent.
        let before = ledger.version();
        ledger.promise((tenant, project), &one_hour);
        assert!(!ledger.has_room((tenant, project), &one_hour, 0, hour(1)));
        assert!(ledger.version() > before);
        ledger.release((tenant, project), &one_hour);
        assert!(ledger.has_room((tenant, project), &one_hour, 0, hour(1)));
    }

    #[test]
    fn what_has_no_limit_runs_while_anything_is_left() {
        let (tenant, project) = (TenantId::new(), ProjectId::new());
        let rows = vec![(kept(None, tenant, 15.0, Overrun::Stop), 0)];
        let mut ledger = Ledger::new(rows, hour(0));
        ledger.begin((tenant, project), &start(0, None));
        assert_eq!(ledger.shortage((tenant, project), &start(1, None), hour(1)), None);
        assert!(!ledger.overruns(hour(1)));
        assert!(ledger.shortage((tenant, project), &start(2, None), hour(2)).is_some());
        assert!(ledger.overruns(hour(2)));
        let (action, _) = ledger.overrun((tenant, project), hour(2)).unwrap();
        assert_eq!(action, Overrun::Stop);
    }

    #[test]
    fn what_lies_in_the_next_period_is_asked_for_there() {
        let (tenant, project) = (TenantId::new(), ProjectId::new());
        let rows = vec![(kept(Some(project), tenant, 60.0, Overrun::Hold), 0)];
        // The month ends in four hours: 40 of the first lie in this one, and 30 in the next.
        let now = 24 * 20 + 20;
        let mut ledger = Ledger::new(rows, hour(now));
        let first = start(now, Some(now + 7));
        assert_eq!(ledger.shortage((tenant, project), &first, hour(now)), None);
        ledger.begin((tenant, project), &first);
        let second = start(now + 3, Some(now + 8));
        let short = ledger.shortage((tenant, project), &second, hour(now + 3)).unwrap();
        assert_eq!(short.needs, 40_000_000);
        let words = ledger.in_words(short, hour(now + 3));
        assert!(
            words.contains("2026-12, 60.00, 0.00 is spent, what runs may cost 30.00"),
            "{words}"
        );
        assert!(!ledger.has_room((tenant, project), &second, 0, hour(now + 3)));
        // One that ends before, or has no limit, is asked for this period alone.
        assert_eq!(
            ledger.shortage((tenant, project), &start(now + 3, Some(now + 4)), hour(now + 3)),
            None
        );
        assert_eq!(ledger.shortage((tenant, project), &start(now + 3, None), hour(now + 3)), None);
    }

    #[test]
    fn of_nothing_nothing_is_told_before_something_is_spent() {
        let (tenant, project) = (TenantId::new(), ProjectId::new());
        let mut ledger = Ledger::new(vec![(kept(None, tenant, 0.0, Overrun::Warn), 0)], hour(0));
        assert!(ledger.reached(hour(1)).is_empty());
        ledger.begin((tenant, project), &start(1, None));
        assert_eq!(ledger.reached(hour(2)).remove(0).1, [50, 100]);
    }

    #[test]
    fn each_share_is_told_once_and_a_soft_one_stops_nobody() {
        let (tenant, project) = (TenantId::new(), ProjectId::new());
        let rows = vec![(kept(Some(project), tenant, 20.0, Overrun::Warn), 9_000_000)];
        let mut ledger = Ledger::new(rows, hour(0));
        assert!(ledger.reached(hour(0)).is_empty());
        ledger.begin((tenant, project), &start(0, None));
        let (entry, shares) = ledger.reached(hour(1)).remove(0);
        assert_eq!(shares, [50]);
        ledger.told(&entry, &shares);
        assert!(ledger.reached(hour(1)).is_empty());
        assert_eq!(ledger.reached(hour(3)).remove(0).1, [100]);
        assert!(ledger.shortage((tenant, project), &start(3, Some(9)), hour(3)).is_none());
        assert!(!ledger.overruns(hour(3)) && !ledger.is_stale(hour(3)));
        assert!(ledger.is_stale(hour(24 * 21)), "the month is over");
    }
}
