//! What is said about a change when it is put on record.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{Action, Ctx, Resource, Timestamp, hex};
use serde::Serialize;

use super::entry::AuditEntry;

/// A change about to be recorded. Built where the change is made, spent by [`crate::db::Tx::record`].
#[derive(Debug)]
pub struct Change<'a> {
    pub(super) action: &'static Action,
    pub(super) resource: &'a Resource,
    pub(super) event: Option<(&'static str, String)>,
    pub(super) reply: Option<(u16, String)>,
    before: Option<String>,
    after: Option<String>,
    details: BTreeMap<String, String>,
    pub(super) shares_entry: bool,
}

impl<'a> Change<'a> {
    #[must_use]
    pub fn new(action: &'static Action, resource: &'a Resource) -> Self {
        Self {
            action,
            resource,
            event: None,
            reply: None,
            before: None,
            after: None,
            details: BTreeMap::new(),
            shares_entry: false,
        }
    }

    /// One of many small ones: those of one caller to one thing that share a commit are one audit
    /// entry, which tells of each request what its own would have told.
    #[must_use]
    pub fn share_entry(mut self) -> Self {
        self.shares_entry = true;
        self
    }

    /// Tells the other domains: `tenant.created` becomes the CloudEvents type
    /// `falaj.tenant.created`. The data is seen by everyone who may read the resource's scope.
    #[must_use]
    pub fn event(mut self, kind: &'static str, data: &impl Serialize) -> Self {
        self.event = Some((kind, json(data)));
        self
    }

    /// What it was before: only its digest is kept.
    #[must_use]
    pub fn before(mut self, old: &impl Serialize) -> Self {
        self.before = Some(fingerprint(old));
        self
    }

    /// What it is now: only its digest is kept.
    #[must_use]
    pub fn after(mut self, new: &impl Serialize) -> Self {
        self.after = Some(fingerprint(new));
        self
    }

    /// It was found so and stays so.
    #[must_use]
    pub fn unchanged(mut self, same: &impl Serialize) -> Self {
        let digest = fingerprint(same);
        (self.before, self.after) = (Some(digest.clone()), Some(digest));
        self
    }

    /// The reply to remember, sealed, for a caller that repeats its Idempotency-Key.
    #[must_use]
    pub fn reply(mut self, status: u16, body: &impl Serialize) -> Self {
        self.reply = Some((status, json(body)));
        self
    }

    /// A small fact for the audit entry. Never a secret: the entry is read by auditors.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl ToString) -> Self {
        self.details.insert(key.to_owned(), value.to_string());
        self
    }

    pub(super) fn audit_entry(&self, ctx: &Ctx, at: Timestamp) -> AuditEntry {
        let mut entry = AuditEntry::allowed(ctx, self.action, self.resource, at);
        entry.before.clone_from(&self.before);
        entry.after.clone_from(&self.after);
        entry.details.clone_from(&self.details);
        entry
    }
}

/// Our own types always serialise; one that does not is recorded as `null`, which a reader of the
/// event notices, rather than failing a change that is otherwise sound.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

fn fingerprint(value: &impl Serialize) -> String {
    hex(digest(&SHA256, json(value).as_bytes()).as_ref())
}
