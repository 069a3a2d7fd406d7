//! API tokens: what programs sign in with.
//!
//! Must hold:
//! - The secret half exists in the holder's hands only; we keep its MAC under a key that is not in
//!   the database.
//! - A token reaches no further than its maker did when making it, and never further than its
//!   owner does now.
//! - Every token ends.

pub mod job;
pub mod service;
pub(in crate::identity) mod store;
pub mod text;

use falaj_base::{
    Principal, PrincipalId, Resource, Role, Scope, Secret, TenantId, Timestamp, TokenId,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::principal::home_scope;
use super::refusal::Refusal;

/// How a token came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Asked for by name.
    Made,
    /// Given for a password; it ends when the password changes.
    SignIn,
    /// Given to a job, which it does not outlive.
    Job,
}

impl Origin {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::SignIn => "sign-in",
            Self::Job => "job",
        }
    }
}

/// An API token, without what proves it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    pub id: TokenId,
    /// The name of the principal it acts as.
    pub owner: String,
    /// The tenant it is confined to, by name; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The project it is confined to, by name; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The highest role it can act in.
    pub role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// Written within a minute of use, not at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    #[serde(skip, default = "PrincipalId::new")]
    pub owner_id: PrincipalId,
    #[serde(skip)]
    pub owner_home: Option<TenantId>,
    #[serde(skip, default = "platform")]
    pub scope: Scope,
}

const fn platform() -> Scope {
    Scope::Platform
}

/// A token just made, with its text: shown now and never again.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NewToken {
    #[serde(flatten)]
    pub token: Token,
    /// The whole token, `flj_…`. Keep it now; it cannot be shown again.
    #[serde(serialize_with = "expose")]
    #[schemars(with = "String")]
    pub secret: Secret,
}

/// The one place where a new secret goes out: to whoever asked for it.
pub(super) fn expose<S: serde::Serializer>(secret: &Secret, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(secret.expose())
}

impl Token {
    /// Whether the token still stands, whatever its owner.
    pub fn check(&self, now: Timestamp) -> Result<(), Refusal> {
        if self.revoked_at.is_some() {
            Err(Refusal::TokenRevoked)
        } else if self.expires_at <= now {
            Err(Refusal::TokenExpired)
        } else {
            Ok(())
        }
    }

    /// What the gate is asked when someone else's token is meant. Whoever may not manage it must
    /// not learn that it exists, whatever else they may read there.
    pub(super) fn as_anothers(&self) -> Resource {
        let mut resource = Resource::new("token", self.id, home_scope(self.owner_home));
        resource.absent = true;
        resource
    }

    /// What the gate is asked when `owner` means its own token: it lies where it reaches. A
    /// sign-in token can span more than its owner holds any role on; such a one lies where the
    /// owner does hold one.
    pub(super) fn as_own(&self, owner: &Principal) -> Resource {
        Resource::new("token", self.id, own_scope(owner, self.scope))
    }

    /// Whether `principal` may treat this as its own: as the owner, and not through a lesser token.
    pub(super) fn is_own(&self, principal: &Principal) -> bool {
        let limit = principal.token.as_ref();
        self.owner_id == principal.id
            && limit.is_none_or(|limit| limit.id == self.id || limit.role.includes(self.role))
    }
}

/// `scope`, if the principal holds a role on all of it; else the first place inside it where the
/// principal holds one.
fn own_scope(owner: &Principal, scope: Scope) -> Scope {
    if owner.grants.iter().any(|grant| grant.scope.contains(&scope)) {
        return scope;
    }
    let inside = owner.grants.iter().find(|grant| scope.contains(&grant.scope));
    inside.map_or(scope, |grant| grant.scope)
}

/// The narrowest scope that holds everything the principal holds: what signing in reaches.
pub(super) fn sign_in_scope(home: Option<TenantId>, grants: &[falaj_base::Grant]) -> Scope {
    let mut scopes = grants.iter().map(|grant| grant.scope);
    let first = scopes.next().unwrap_or_else(|| home_scope(home));
    scopes.fold(first, |all, one| match (all, one) {
        _ if all.contains(&one) => all,
        _ if one.contains(&all) => one,
        _ if all.tenant() == one.tenant() => home_scope(all.tenant()),
        _ => Scope::Platform,
    })
}

#[cfg(test)]
mod tests {
    use falaj_base::{Grant, ProjectId};

    use super::*;

    #[test]
    fn signing_in_reaches_what_one_holds_and_no_more() {
        let (a, b) = (TenantId::new(), TenantId::new());
        let (p, q) = (ProjectId::new(), ProjectId::new());
        let of = |scopes: &[Scope]| {
            let grants: Vec<_> =
                scopes.iter().map(|scope| Grant { scope: *scope, role: Role::Viewer }).collect();
            sign_in_scope(Some(a), &grants)
        };
        assert_eq!(of(&[]), Scope::Tenant(a));
        assert_eq!(of(&[Scope::Project(a, p)]), Scope::Project(a, p));
        assert_eq!(of(&[Scope::Project(a, p), Scope::Project(a, q)]), Scope::Tenant(a));
        assert_eq!(of(&[Scope::Project(a, p), Scope::Tenant(a)]), Scope::Tenant(a));
        assert_eq!(of(&[Scope::Tenant(a), Scope::Tenant(b)]), Scope::Platform);
        assert_eq!(of(&[Scope::Tenant(a), Scope::Platform]), Scope::Platform);
    }
}
