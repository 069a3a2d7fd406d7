//! Audit entries of small changes that share a commit, as few.
//!
//! A caller that logs a metric a thousand times a second would have as many entries, each hashed, sealed
//! and indexed on its own: more work than the metrics. Where several of its requests share a commit, one
//! entry stands for all of them.
//!
//! Must hold: nothing is left out. The details of a shared entry are lists in the order of `requests`, so
//! that each request has what its own entry would have had.

use super::AuditEntry;

/// The detail that names the requests of a shared entry.
const REQUESTS: &str = "requests";
/// No list becomes longer, in bytes: longer texts would be cut in the entry.
const LONGEST_LIST: usize = 1000;
/// How many entries are looked at for one that fits.
const LOOKED_AT: usize = 16;

/// The entries of a transaction that further ones may be taken into.
#[derive(Debug, Default)]
pub(crate) struct Entries(Vec<AuditEntry>);

impl Entries {
    pub(crate) fn add(&mut self, entry: AuditEntry) {
        let recent = self.0.iter_mut().rev().take(LOOKED_AT);
        match recent.into_iter().find(|shared| takes(shared, &entry)) {
            Some(shared) => take_in(shared, entry),
            None => self.0.push(entry),
        }
    }

    /// Adds what another write of the transaction recorded.
    pub(crate) fn extend(&mut self, other: Self) {
        other.0.into_iter().for_each(|entry| self.add(entry));
    }

    pub(crate) fn into_vec(self) -> Vec<AuditEntry> {
        self.0
    }
}

/// Whether both say the same but for the request, its time and its details.
fn takes(shared: &AuditEntry, other: &AuditEntry) -> bool {
    let AuditEntry {
        action,
        actor,
        after,
        at: _,
        before,
        decision,
        details,
        policies,
        reason,
        request: _,
        resource,
        source,
        tenant,
        trace,
    } = other;
    let own = shared.details.keys().filter(|key| *key != REQUESTS);
    let fits = |list: &String, more: &str| list.len() + 1 + more.len() <= LONGEST_LIST;
    // A value with a comma, or a detail of that name, could not be told from a list.
    let plain = |value: &String| !value.contains(',');
    shared.action == *action
        && shared.resource == *resource
        && shared.actor == *actor
        && shared.decision == *decision
        && shared.source == *source
        && shared.tenant == *tenant
        && shared.trace == *trace
        && shared.reason == *reason
        && shared.policies == *policies
        && [&shared.after, &shared.before, after, before].iter().all(|state| state.is_none())
        && own.eq(details.keys())
        && details.iter().all(|(key, value)| {
            key != REQUESTS && plain(value) && fits(&shared.details[key], value)
        })
        && shared.details.get(REQUESTS).is_none_or(|requests| fits(requests, &other.request))
        && (shared.details.contains_key(REQUESTS) || shared.details.values().all(plain))
}

fn take_in(shared: &mut AuditEntry, other: AuditEntry) {
    let first = &shared.request;
    shared.details.entry(REQUESTS.to_owned()).or_insert_with(|| first.clone());
    for (key, more) in other
        .details
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .chain([(REQUESTS, &other.request)])
    {
        if let Some(list) = shared.details.get_mut(key) {
            list.push(',');
            list.push_str(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use falaj_base::{Action, Ctx, Resource, Role, Timestamp};

    use super::*;

    static LOG: Action = Action::write("thing:log", Role::Contributor, "");

    fn entry(request: usize, name: &str, details: &[(&str, &str)]) -> AuditEntry {
        let at = Timestamp::from_micros(0);
        let mut entry = AuditEntry::allowed(&Ctx::system(name), &LOG, &Resource::platform(), at);
        entry.request = format!("req_{request}");
        entry.details = details.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        entry
    }

    fn shared(entries: impl IntoIterator<Item = AuditEntry>) -> Vec<AuditEntry> {
        let mut all = Entries::default();
        entries.into_iter().for_each(|entry| all.add(entry));
        all.into_vec()
    }

    #[test]
    fn requests_of_one_caller_are_one_entry_that_tells_of_each() {
        let all = shared([
            entry(1, "a", &[("metrics", "1"), ("run", "x")]),
            entry(2, "b", &[("metrics", "1"), ("run", "x")]),
            entry(3, "a", &[("metrics", "5"), ("run", "y")]),
            entry(4, "a", &[("metrics", "1"), ("run", "x")]),
        ]);
        let details = [("metrics", "1,5,1"), ("requests", "req_1,req_3,req_4"), ("run", "x,y,x")];
        let [first, second] = &all[..] else { panic!("{all:?}") };
        assert_eq!(*first, entry(1, "a", &details));
        assert_eq!(*second, entry(2, "b", &[("metrics", "1"), ("run", "x")]));
    }

    #[test]
    fn what_could_not_be_told_apart_stays_apart() {
        let plain = [("run", "x")];
        let mut changed = entry(2, "a", &plain);
        changed.before = Some("digest".to_owned());
        let mut traced = entry(2, "a", &plain);
        traced.trace = Some("trace".to_owned());
        for other in [
            entry(2, "a", &[("run", "x,y")]),
            entry(2, "a", &[("run", "x"), ("tags", "1")]),
            entry(2, "a", &[("requests", "x")]),
            changed,
            traced,
        ] {
            let both = [entry(1, "a", &plain), other];
            assert_eq!(shared(both.clone()), both);
            let [first, other] = both;
            assert_eq!(shared([other.clone(), first.clone()]), [other, first]);
        }
    }

    #[test]
    fn no_list_grows_so_long_that_it_would_be_cut() {
        let all = shared((0..1000).map(|n| entry(n, "a", &[("run", "0123456789abcdef")])));
        assert!(all.len() > 10, "{}", all.len());
        let mut found = 0;
        for entry in &all {
            let (runs, requests) = (&entry.details["run"], &entry.details[REQUESTS]);
            assert!(runs.len() <= LONGEST_LIST && requests.len() <= LONGEST_LIST);
            assert_eq!(runs.split(',').count(), requests.split(',').count());
            for request in requests.split(',') {
                assert_eq!(request, format!("req_{found}"));
                found += 1;
            }
        }
        assert_eq!(found, 1000);
    }
}
