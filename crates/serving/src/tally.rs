//! Who asked which endpoint how often: audited by the second, not by the request.
//!
//! Thousands of answers a second cannot each be an entry of the audit log. Each caller's requests
//! to an endpoint are counted, and a second of them is one entry with their number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use falaj_base::{Ctx, PrincipalId, Resource, Timestamp, TokenId};
use falaj_governance::audit::ReadLog;
use falaj_store::record::AuditEntry;
use falaj_store::worker::Worker;

use crate::ENDPOINT_PREDICT;

const EVERY: Duration = Duration::from_secs(1);

/// The most callers and endpoints counted at a time; beyond it the counts become entries early.
const MAX_COUNTED: usize = 10_000;

/// Counts requests. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Tally(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reads: ReadLog,
    counts: Mutex<Counts>,
}

/// A caller, by the token it came with.
type Who = (PrincipalId, Option<TokenId>);

/// The first request of each caller to each endpoint, by its id, and how many there were.
#[derive(Debug, Default)]
struct Counts {
    callers: HashMap<Who, HashMap<String, (AuditEntry, u64)>>,
    different: usize,
}

impl Counts {
    fn of(&mut self, who: &Who, endpoint: &str) -> Option<&mut u64> {
        self.callers.get_mut(who)?.get_mut(endpoint).map(|(_, count)| count)
    }
}

impl Tally {
    pub(crate) fn new(reads: ReadLog) -> Self {
        Self(Arc::new(Inner { reads, counts: Mutex::default() }))
    }

    /// Counts a request that was allowed.
    pub(crate) fn count(&self, ctx: &Ctx, endpoint: &Resource, now: Timestamp) {
        let token = ctx.principal.token.as_ref().map(|token| token.id);
        let who = (ctx.principal.id, token);
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.of(&who, &endpoint.id) {
            *count += 1;
            return;
        }
        if counts.different >= MAX_COUNTED {
            self.note(std::mem::take(&mut *counts));
        }
        let first = AuditEntry::allowed(ctx, &ENDPOINT_PREDICT, endpoint, now);
        counts.callers.entry(who).or_default().insert(endpoint.id.clone(), (first, 1));
        counts.different += 1;
    }

    /// Makes entries of what was counted.
    pub(crate) fn flush(&self) {
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = std::mem::take(&mut *counts);
        self.note(counts);
    }

    fn note(&self, counts: Counts) {
        let all = counts.callers.into_values().flat_map(HashMap::into_values);
        for (mut entry, count) in all {
            entry.details.insert("requests".to_owned(), count.to_string());
            self.0.reads.note(entry);
        }
    }

    /// Runs on every server: each has its own counts.
    pub(crate) fn worker(&self) -> Worker {
        let tally = self.clone();
        Worker::new("prediction-tally", EVERY, move || {
            tally.flush();
            async { Ok(()) }
        })
        .on_every_server()
    }
}
