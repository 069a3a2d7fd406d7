//! Who asked for what how often: audited by the second, not by the request.
//!
//! Thousands of answers a second cannot each be an entry of the audit log. Each caller's requests
//! for a resource are counted, and a second of them is one entry with their number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use falaj_base::{Action, Ctx, PrincipalId, Resource, Timestamp, TokenId};
use falaj_store::record::AuditEntry;
use falaj_store::worker::Worker;

use super::read_log::ReadLog;

const EVERY: Duration = Duration::from_secs(1);

/// The most callers and resources counted at a time; beyond it the counts become entries early.
const MAX_COUNTED: usize = 10_000;

/// Counts requests. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub struct Tally(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    action: &'static Action,
    reads: ReadLog,
    counts: Mutex<Counts>,
}

/// A caller, by the token it came with.
type Who = (PrincipalId, Option<TokenId>);

/// The first request of each caller for each resource, by its id, and how many there were.
#[derive(Debug, Default)]
struct Counts {
    callers: HashMap<Who, HashMap<String, (AuditEntry, u64)>>,
    different: usize,
}

impl Tally {
    /// Counts requests to do this.
    #[must_use]
    pub fn new(action: &'static Action, reads: ReadLog) -> Self {
        Self(Arc::new(Inner { action, reads, counts: Mutex::default() }))
    }

    /// Counts a request that was allowed.
    pub fn count(&self, ctx: &Ctx, resource: &Resource, now: Timestamp) {
        let who = (ctx.principal.id, ctx.principal.token.as_ref().map(|token| token.id));
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = counts.callers.get_mut(&who).and_then(|all| all.get_mut(&resource.id));
        if let Some((_, count)) = known {
            *count += 1;
            return;
        }
        if counts.different >= MAX_COUNTED {
            self.note(std::mem::take(&mut *counts));
        }
        let first = AuditEntry::allowed(ctx, self.0.action, resource, now);
        counts.callers.entry(who).or_default().insert(resource.id.clone(), (first, 1));
        counts.different += 1;
    }

    /// Makes entries of what was counted.
    pub fn flush(&self) {
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = std::mem::take(&mut *counts);
        self.note(counts);
    }

    fn note(&self, counts: Counts) {
        for (mut entry, count) in counts.callers.into_values().flat_map(HashMap::into_values) {
            entry.details.insert("requests".to_owned(), count.to_string());
            self.0.reads.note(entry);
        }
    }

    /// Runs on every server: each has its own counts.
    #[must_use]
    pub fn worker(&self, name: &'static str) -> Worker {
        let tally = self.clone();
        Worker::new(name, EVERY, move || {
            tally.flush();
            async { Ok(()) }
        })
        .on_every_server()
    }
}
