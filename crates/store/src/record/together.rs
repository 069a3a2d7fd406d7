//! Audit entries of small changes that share a commit, as few.
//!
//! A caller that logs a metric a thousand times a second would have as many entries, each hashed, sealed
//! and indexed on its own: more work than the metrics. Where several of its requests share a commit, one
//! entry stands for all of them.
//!
//! Must hold: nothing is left out but the time of those between the first and the last, which are at most
//! a second apart. The details of a shared entry are lists in the order of `request_ids`, so that each
//! request has what its own entry would have had.

use std::time::Duration;

use falaj_base::Timestamp;

use super::AuditEntry;

/// The detail that names the requests of a shared entry.
pub const REQUEST_IDS: &str = "request_ids";
/// The detail that says when the last of them was; `at` is the time of the first.
pub const UNTIL: &str = "until";
/// No list becomes longer, in bytes: longer texts would be cut in the entry.
const LONGEST_LIST: usize = 1000;
/// How much later than the first a request may come.
const LATEST: Duration = Duration::from_secs(1);
/// How many entries are looked at for one that fits.
const LOOKED_AT: usize = 16;

/// The entries of a transaction that further ones may be taken into.
#[derive(Debug, Default)]
pub(crate) struct Entries(Vec<Shared>);

/// An entry, and what it does not tell of others that were taken into it.
#[derive(Debug)]
struct Shared {
    entry: AuditEntry,
    request_ids: String,
    until: Timestamp,
    /// Whether it has taken any in: its details are lists then.
    is_list: bool,
}

impl Entries {
    pub(crate) fn add(&mut self, entry: AuditEntry) {
        let recent = self.0.iter_mut().rev().take(LOOKED_AT);
        match recent.into_iter().find(|shared| shared.takes(&entry)) {
            Some(shared) => shared.take_in(&entry),
            None => self.0.push(Shared::of(entry)),
        }
    }

    /// Adds what another write of the transaction recorded.
    pub(crate) fn extend(&mut self, other: Self) {
        other.into_vec().into_iter().for_each(|entry| self.add(entry));
    }

    pub(crate) fn into_vec(self) -> Vec<AuditEntry> {
        self.0.into_iter().map(Shared::into_entry).collect()
    }
}

impl Shared {
    fn of(entry: AuditEntry) -> Self {
        let (request_ids, until) = (entry.request.clone(), entry.at);
        Self { entry, request_ids, until, is_list: false }
    }

    /// Whether both say the same but for the request, its time and its details.
    fn takes(&self, other: &AuditEntry) -> bool {
        let own = &self.entry;
        let AuditEntry {
            action,
            actor,
            after,
            at,
            before,
            decision,
            details,
            policies,
            reason,
            request,
            resource,
            source,
            tenant,
            trace,
        } = other;
        let fits = |list: &String, more: &String| list.len() + 1 + more.len() <= LONGEST_LIST;
        // A value with a comma could not be told from a list.
        let plain = |value: &String| !value.contains(',');
        own.action == *action
            && own.resource == *resource
            && own.actor == *actor
            && own.decision == *decision
            && own.source == *source
            && own.tenant == *tenant
            && own.trace == *trace
            && own.reason == *reason
            && own.policies == *policies
            && [&own.after, &own.before, after, before].iter().all(|state| state.is_none())
            && own.details.keys().eq(details.keys())
            && [REQUEST_IDS, UNTIL].iter().all(|name| !details.contains_key(*name))
            && (self.is_list || own.details.values().all(plain))
            && details.values().all(plain)
            && own.details.values().zip(details.values()).all(|(list, more)| fits(list, more))
            && fits(&self.request_ids, request)
            && *at <= own.at + LATEST
    }

    fn take_in(&mut self, other: &AuditEntry) {
        self.is_list = true;
        self.until = self.until.max(other.at);
        let details = self.entry.details.values_mut().zip(other.details.values());
        for (list, more) in details.chain([(&mut self.request_ids, &other.request)]) {
            list.push(',');
            list.push_str(more);
        }
    }

    fn into_entry(self) -> AuditEntry {
        let mut entry = self.entry;
        if self.is_list {
            entry.details.insert(REQUEST_IDS.to_owned(), self.request_ids);
            entry.details.insert(UNTIL.to_owned(), self.until.to_string());
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use falaj_base::{Action, Ctx, Resource, Role};

    use super::*;

    static LOG: Action = Action::write("thing:log", Role::Contributor, "");

    fn entry(request: usize, name: &str, details: &[(&str, &str)]) -> AuditEntry {
        let at = Timestamp::from_micros(i64::try_from(request).unwrap_or(0) * 100);
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
        let until = Timestamp::from_micros(400).to_string();
        let details = [
            ("metrics", "1,5,1"),
            ("request_ids", "req_1,req_3,req_4"),
            ("run", "x,y,x"),
            ("until", until.as_str()),
        ];
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
            entry(20_000, "a", &plain),
            changed,
            traced,
        ] {
            let both = [entry(1, "a", &plain), other];
            assert_eq!(shared(both.clone()), both);
        }
        let listed = [("request_ids", "x"), ("run", "x")];
        let both = [entry(1, "a", &listed), entry(2, "a", &listed)];
        assert_eq!(shared(both.clone()), both);
        let both = [entry(1, "a", &[("run", "x,y")]), entry(2, "a", &plain)];
        assert_eq!(shared(both.clone()), both);
    }

    #[test]
    fn no_list_grows_so_long_that_it_would_be_cut() {
        let all = shared((0..1000).map(|n| entry(n, "a", &[("run", "0123456789abcdef")])));
        assert!(all.len() > 10, "{}", all.len());
        let mut found = 0;
        for entry in &all {
            let (runs, requests) = (&entry.details["run"], &entry.details[REQUEST_IDS]);
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
