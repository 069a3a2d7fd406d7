//! One entry of the audit log: who did what to which thing, when, from where, and on what grounds.
//!
//! The text of an entry is a leaf of a hash tree that outlives this version: fields are only ever
//! added, optional ones are left out when absent, and the keys are in sorted order.

use std::borrow::Cow;
use std::collections::BTreeMap;

use falaj_base::{
    Action, AuthMethod, Ctx, Error, PrincipalId, RequestInfo, Resource, Result, TenantId,
    Timestamp, TokenId,
};
use serde::{Deserialize, Serialize};

/// Whether the policy let it pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allow,
    Deny,
}

/// Who acted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Actor {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<PrincipalId>,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mfa: bool,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenId>,
}

/// What was acted on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Target {
    pub id: String,
    pub kind: String,
    /// Where in the tree: `platform`, a tenant id, or `tenant/project`.
    pub scope: String,
}

/// The entry. Field order is the sorted key order, so that serialising gives the canonical text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuditEntry {
    pub action: String,
    pub actor: Actor,
    /// SHA-256 of the state after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    pub at: Timestamp,
    /// SHA-256 of the state before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    pub decision: Decision,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
    /// The policies that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub request: String,
    pub resource: Target,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl AuditEntry {
    /// Something the policy allowed.
    #[must_use]
    pub fn allowed(ctx: &Ctx, action: &Action, resource: &Resource, at: Timestamp) -> Self {
        let principal = &ctx.principal;
        let actor = Actor {
            id: Some(principal.id),
            kind: principal.kind.as_str().to_owned(),
            method: Some(method(principal.method).to_owned()),
            mfa: principal.mfa,
            name: principal.name.clone(),
            token: principal.token.as_ref().map(|token| token.id),
        };
        let target = Target {
            id: resource.id.clone(),
            kind: resource.kind.to_owned(),
            scope: resource.scope.to_string(),
        };
        Self {
            tenant: resource.scope.tenant(),
            ..Self::new(actor, action.name, target, &ctx.request, at)
        }
    }

    /// Something the policy refused, and why.
    #[must_use]
    pub fn denied(
        ctx: &Ctx,
        action: &Action,
        resource: &Resource,
        at: Timestamp,
        reason: impl Into<String>,
        policies: Vec<String>,
    ) -> Self {
        Self {
            decision: Decision::Deny,
            reason: Some(reason.into()),
            policies,
            ..Self::allowed(ctx, action, resource, at)
        }
    }

    /// A request whose sender could not be told: a bad token, a failed sign-in. `claimed` is what
    /// it said about itself, already bounded and free of secrets.
    #[must_use]
    pub fn unauthenticated(
        request: &RequestInfo,
        claimed: impl Into<String>,
        at: Timestamp,
        reason: impl Into<String>,
    ) -> Self {
        let actor = Actor {
            id: None,
            kind: "unknown".to_owned(),
            method: None,
            mfa: false,
            name: claimed.into(),
            token: None,
        };
        let target = Target {
            id: "platform".to_owned(),
            kind: "platform".to_owned(),
            scope: "platform".to_owned(),
        };
        Self {
            decision: Decision::Deny,
            reason: Some(reason.into()),
            ..Self::new(actor, "authenticate", target, request, at)
        }
    }

    fn new(
        actor: Actor,
        action: &str,
        resource: Target,
        request: &RequestInfo,
        at: Timestamp,
    ) -> Self {
        Self {
            action: action.to_owned(),
            actor,
            after: None,
            at,
            before: None,
            decision: Decision::Allow,
            details: BTreeMap::new(),
            policies: Vec::new(),
            reason: None,
            request: request.id.to_string(),
            resource,
            source: request.source.map(|address| address.to_string()),
            tenant: None,
            trace: request.trace.clone(),
        }
    }

    /// The text that is stored, exported and hashed.
    pub fn canonical(&self) -> Result<String> {
        serde_json::to_string(self).map_err(Error::internal)
    }

    /// The entry with every text a caller may have chosen cut to a bounded length: a log that can
    /// be made unreadable by those it watches proves nothing.
    pub(super) fn bounded(&self) -> Cow<'_, Self> {
        if self.texts().all(|text| text.len() <= LONGEST) {
            return Cow::Borrowed(self);
        }
        let mut entry = self.clone();
        let texts = [&mut entry.actor.name, &mut entry.resource.id, &mut entry.resource.scope]
            .into_iter()
            .chain(&mut entry.reason)
            .chain(&mut entry.trace)
            .chain(&mut entry.policies)
            .chain(entry.details.values_mut());
        for text in texts {
            cut(text);
        }
        Cow::Owned(entry)
    }

    /// Every text a caller may have chosen.
    fn texts(&self) -> impl Iterator<Item = &String> {
        [&self.actor.name, &self.resource.id, &self.resource.scope]
            .into_iter()
            .chain(&self.reason)
            .chain(&self.trace)
            .chain(&self.policies)
            .chain(self.details.values())
    }
}

/// The longest text in an entry, in characters.
const LONGEST: usize = 1024;

fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
}

fn method(method: AuthMethod) -> &'static str {
    match method {
        AuthMethod::Token => "token",
        AuthMethod::Session => "session",
        AuthMethod::Oidc => "oidc",
        AuthMethod::Internal => "internal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use falaj_base::Role;

    #[test]
    fn nobody_can_write_a_long_entry() {
        static ACTION: Action = Action::read("thing:read", Role::Viewer, "");
        let resource = Resource::new("thing", "é".repeat(2_000_000), falaj_base::Scope::Platform);
        let at = Timestamp::from_micros(0);
        let entry = AuditEntry::allowed(&Ctx::system("test"), &ACTION, &resource, at);
        assert!(entry.bounded().canonical().unwrap().len() < 10_000);
    }

    /// Frozen: old entries must hash to the same leaf for ever.
    #[test]
    fn the_canonical_text_has_sorted_keys_and_no_absent_fields() {
        static ACTION: Action = Action::write("thing:make", Role::Admin, "");
        let ctx = Ctx::system("test");
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        let mut entry = AuditEntry::allowed(&ctx, &ACTION, &Resource::platform(), at);
        entry.request = "req_1".to_owned();
        insta::assert_snapshot!(entry.canonical().unwrap(), @r#"{"action":"thing:make","actor":{"id":"pri_00000000000000000000000000000000","kind":"system","method":"internal","name":"test"},"at":"2023-11-14T22:13:20.000000Z","decision":"allow","request":"req_1","resource":{"id":"platform","kind":"platform","scope":"platform"}}"#);
        let back: AuditEntry = serde_json::from_str(&entry.canonical().unwrap()).unwrap();
        assert_eq!(back, entry);
    }
}
