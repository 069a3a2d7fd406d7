//! Roles as data: who holds which role where, directly or through a group.
//!
//! Must hold:
//! - Nobody gives away, or takes away, more than they hold themselves on that scope.
//! - A principal of a tenant is bound inside that tenant only.
//! - One enabled platform admin always remains.

use falaj_base::{
    BindingId, Error, PolicyId, Principal, PrincipalId, PrincipalKind, ProjectId, Result, Role,
    Scope, TenantId, Timestamp, code,
};
use schemars::JsonSchema;
use serde::Serialize;

/// A role bound to a principal.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RoleBinding {
    pub id: BindingId,
    pub principal: PrincipalId,
    pub principal_name: String,
    pub role: Role,
    /// The tenant it holds in, by name; absent for the whole platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The project it holds in, by name; absent for the whole tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    pub created_at: Timestamp,
    pub created_by: PrincipalId,
    #[serde(skip)]
    pub scope: Scope,
}

/// A role bound to everybody whom an identity provider puts into a group.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GroupRole {
    pub id: BindingId,
    /// The identity provider, exactly as its tokens spell it.
    pub issuer: String,
    pub group: String,
    pub role: Role,
    pub tenant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    pub created_at: Timestamp,
    pub created_by: PrincipalId,
    #[serde(skip)]
    pub scope: Scope,
}

/// A policy that a tenant wrote.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TenantPolicy {
    pub id: PolicyId,
    pub name: String,
    pub tenant: String,
    /// The text, in the Cedar language.
    pub source: String,
    /// How many statements it has.
    pub statements: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub updated_by: PrincipalId,
    #[serde(skip)]
    pub tenant_id: TenantId,
}

/// What a binding needs to know of the principal it is for.
#[derive(Clone, Debug)]
pub struct Subject {
    pub id: PrincipalId,
    pub kind: PrincipalKind,
    pub name: String,
    pub home: Option<TenantId>,
    pub issuer: Option<String>,
    pub disabled: bool,
}

pub(super) fn scope(tenant: Option<TenantId>, project: Option<ProjectId>) -> Scope {
    match (tenant, project) {
        (None, _) => Scope::Platform,
        (Some(tenant), None) => Scope::Tenant(tenant),
        (Some(tenant), Some(project)) => Scope::Project(tenant, project),
    }
}

/// Whether the principal, seen through its token, holds `role` on all of `scope`.
#[must_use]
pub fn holds(principal: &Principal, scope: &Scope, role: Role) -> bool {
    let granted = principal.grants.iter().any(|g| g.scope.contains(scope) && g.role.includes(role));
    let within = principal
        .token
        .as_ref()
        .is_none_or(|token| token.scope.contains(scope) && token.role.includes(role));
    granted && within
}

/// Refuses to give or take away what the giver does not hold.
pub(super) fn may_deal_in(giver: &Principal, scope: &Scope, role: Role) -> Result<()> {
    if holds(giver, scope, role) {
        return Ok(());
    }
    Err(Error::new(
        &code::FORBIDDEN,
        format!("only who holds the role {role} here can give it or take it away"),
    ))
}

/// Refuses to bind a tenant's principal outside its tenant.
pub(super) fn may_be_bound(subject: &Subject, scope: &Scope) -> Result<()> {
    match subject.home {
        Some(home) if scope.tenant() != Some(home) => Err(Error::invalid(
            "tenant",
            scope,
            "the tenant that the principal belongs to, or a project of it",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use falaj_base::{Grant, TokenId, TokenLimit};

    use super::*;

    #[test]
    fn nobody_gives_more_than_they_hold() {
        let (tenant, project) = (TenantId::new(), ProjectId::new());
        let (inside, all) = (Scope::Project(tenant, project), Scope::Tenant(tenant));
        let mut giver = Principal::system("giver");
        giver.grants = Arc::new([Grant { scope: inside, role: Role::Operator }]);
        assert!(may_deal_in(&giver, &inside, Role::Operator).is_ok());
        assert!(may_deal_in(&giver, &inside, Role::Viewer).is_ok());
        for (scope, role) in [
            (inside, Role::Admin),
            (inside, Role::Auditor),
            (all, Role::Viewer),
            (Scope::Platform, Role::Viewer),
        ] {
            assert!(may_deal_in(&giver, &scope, role).is_err(), "{role} on {scope}");
        }
    }

    #[test]
    fn a_token_lowers_what_its_owner_can_give() {
        let mut giver = Principal::system("giver");
        giver.token = Some(TokenLimit {
            id: TokenId::new(),
            scope: Scope::Platform,
            role: Role::Operator,
            of_job: false,
        });
        assert!(holds(&giver, &Scope::Platform, Role::Operator));
        assert!(!holds(&giver, &Scope::Platform, Role::Admin));
    }

    #[test]
    fn a_tenants_principal_is_bound_at_home_only() {
        let home = TenantId::new();
        let mut subject = Subject {
            id: PrincipalId::new(),
            kind: PrincipalKind::User,
            name: "mona".to_owned(),
            home: Some(home),
            issuer: None,
            disabled: false,
        };
        assert!(may_be_bound(&subject, &Scope::Project(home, ProjectId::new())).is_ok());
        assert!(may_be_bound(&subject, &Scope::Tenant(TenantId::new())).is_err());
        assert!(may_be_bound(&subject, &Scope::Platform).is_err());
        subject.home = None;
        assert!(may_be_bound(&subject, &Scope::Platform).is_ok());
    }
}
