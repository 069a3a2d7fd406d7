//! Whose turn it is: tenants that wait are served in turn, however much one of them asks for.

use std::collections::HashMap;

use falaj_base::TenantId;

/// Who was served last, and who is being served.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    served: HashMap<TenantId, Served>,
    turn: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Served {
    now: usize,
    last: u64,
}

impl Turns {
    /// Of those that wait, one for each tenant, the one whose turn it is: of the tenant that has
    /// least under way, and of several such the one that waits longest for its turn.
    pub(crate) fn next<T>(&self, waiting: Vec<(TenantId, T)>) -> Option<(TenantId, T)> {
        let turn = |tenant: &TenantId| {
            let served = self.served.get(tenant).copied().unwrap_or_default();
            (served.now, served.last)
        };
        waiting.into_iter().min_by_key(|(tenant, _)| turn(tenant))
    }

    pub(crate) fn begin(&mut self, tenant: TenantId) {
        self.turn += 1;
        let served = self.served.entry(tenant).or_default();
        *served = Served { now: served.now + 1, last: self.turn };
    }

    pub(crate) fn end(&mut self, tenant: TenantId) {
        if let Some(served) = self.served.get_mut(&tenant) {
            served.now = served.now.saturating_sub(1);
        }
        // Who is not under way and was served before all others need not be remembered.
        if self.served.len() > REMEMBERED {
            self.served.retain(|_, served| served.now > 0);
        }
    }
}

const REMEMBERED: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tenant_cannot_keep_the_others_waiting() {
        let [a, b, c] = [TenantId::new(), TenantId::new(), TenantId::new()];
        let mut left = HashMap::from([(a, 10), (b, 2), (c, 1)]);
        let mut turns = Turns::default();
        let mut order = Vec::new();
        loop {
            let mut waiting: Vec<_> =
                left.iter().filter(|it| *it.1 > 0).map(|it| (*it.0, ())).collect();
            waiting.sort_by_key(|it| [a, b, c].iter().position(|one| *one == it.0));
            let Some((tenant, ())) = turns.next(waiting) else { break };
            turns.begin(tenant);
            turns.end(tenant);
            *left.get_mut(&tenant).unwrap() -= 1;
            order.push(tenant);
        }
        assert_eq!(order[..5], [a, b, c, a, b]);
        assert!(order[5..].iter().all(|tenant| *tenant == a) && order.len() == 13);
    }

    #[test]
    fn who_has_least_under_way_is_next() {
        let [a, b] = [TenantId::new(), TenantId::new()];
        let mut turns = Turns::default();
        turns.begin(b);
        turns.end(b);
        turns.begin(a);
        // Served longer ago, and still under way.
        turns.begin(a);
        turns.end(a);
        assert_eq!(turns.next(vec![(a, 1), (b, 2)]), Some((b, 2)));
        turns.begin(b);
        turns.begin(b);
        assert_eq!(turns.next(vec![(a, 1), (b, 2)]), Some((a, 1)));
        assert_eq!(turns.next(Vec::<(TenantId, ())>::new()), None);
    }
}
