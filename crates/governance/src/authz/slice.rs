//! The entities of one decision: who asks, what it is about, and the roles that connect the two.
//!
//! A slice holds four entities, built from the request's own principal and resource, so a decision
//! costs the same however many tenants, users and bindings there are. Half of that cost is Cedar
//! closing the hierarchy over them, which is why they name their ancestors outright and the
//! ancestors themselves are left out.
//!
//! A role held on a scope is held on everything below, so every role that reaches the resource is
//! told as a role on the resource's own scope.
//!
//! Must hold: a decision over a slice equals one over a store with every entity in it. That is why
//! tenants' policies may name neither a `Role` nor the `Platform`: they could ask about roles that
//! do not reach the resource, or about the ancestors of what was left out.

use std::collections::HashSet;

use cedar_policy::{Context, Entities, Entity, EntityUid, RestrictedExpression as Expr};
use falaj_base::{Error, Principal, PrincipalKind, Result, Role, Scope};

use super::question::Question;
use super::schema::{Types, Vocabulary, uid};

const PLATFORM: &str = "platform";

/// The role entity of `role` on `scope`.
pub(super) fn role_uid(types: &Types, scope: &Scope, role: Role) -> EntityUid {
    uid(&types.role, format!("{scope}/{role}"))
}

pub(super) fn principal_uid(types: &Types, principal: &Principal) -> EntityUid {
    let kind = match principal.kind {
        PrincipalKind::User => &types.user,
        PrincipalKind::Agent => &types.agent,
        // The platform's workers do not pass this gate; if one does, it is judged like any account.
        PrincipalKind::ServiceAccount | PrincipalKind::System => &types.service_account,
    };
    uid(kind, principal.id.to_string())
}

pub(super) fn resource_uid(types: &Types, question: &Question<'_>) -> EntityUid {
    uid(&types.resource, format!("{}/{}", question.kind, question.id))
}

/// The scope itself and every scope around it, innermost first.
pub(super) fn around(scope: &Scope) -> Vec<Scope> {
    match *scope {
        Scope::Platform => vec![Scope::Platform],
        Scope::Tenant(_) => vec![*scope, Scope::Platform],
        Scope::Project(tenant, _) => vec![*scope, Scope::Tenant(tenant), Scope::Platform],
    }
}

pub(super) fn scope_uid(types: &Types, scope: &Scope) -> EntityUid {
    match scope {
        Scope::Platform => uid(&types.platform, PLATFORM),
        Scope::Tenant(tenant) => uid(&types.tenant, tenant.to_string()),
        Scope::Project(_, project) => uid(&types.project, project.to_string()),
    }
}

/// Builds the slice for `question`.
pub(super) fn entities(vocabulary: &Vocabulary, question: &Question<'_>) -> Result<Entities> {
    let types = &vocabulary.types;
    let scopes = around(&question.scope);
    let holds = |role: &Role| question.reaching_grants().any(|grant| grant.role.includes(*role));
    let held = Role::ALL.into_iter().filter(holds);
    let roles = held.map(|role| role_uid(types, &question.scope, role));
    let mut entities = vec![
        vocabulary.entity(question.action)?.entity.clone(),
        principal_entity(types, question.principal, roles)?,
        resource_entity(types, question, &scopes)?,
    ];
    if let [project @ Scope::Project(..), tenant, ..] = scopes.as_slice() {
        let tenant = HashSet::from([scope_uid(types, tenant)]);
        entities.push(Entity::new_no_attrs(scope_uid(types, project), tenant));
    }
    Entities::from_entities(entities, None).map_err(Error::internal)
}

pub(super) fn principal_entity(
    types: &Types,
    principal: &Principal,
    roles: impl Iterator<Item = EntityUid>,
) -> Result<Entity> {
    let groups = principal.groups.iter().map(|group| Expr::new_string(group.clone()));
    let mut attributes = vec![
        ("id".to_owned(), Expr::new_string(principal.id.to_string())),
        ("name".to_owned(), Expr::new_string(principal.name.clone())),
        ("groups".to_owned(), Expr::new_set(groups)),
        ("mfa".to_owned(), Expr::new_bool(principal.mfa)),
    ];
    if let Some(home) = principal.home {
        let home = scope_uid(types, &Scope::Tenant(home));
        attributes.push(("tenant".to_owned(), Expr::new_entity_uid(home)));
    }
    Entity::new_with_tags(principal_uid(types, principal), attributes, roles, [])
        .map_err(Error::internal)
}

pub(super) fn resource_entity(
    types: &Types,
    question: &Question<'_>,
    scopes: &[Scope],
) -> Result<Entity> {
    let text = |value: &str| Expr::new_string(value.to_owned());
    let holders = |role| Expr::new_entity_uid(role_uid(types, &question.scope, role));
    let mut attributes = vec![
        ("id".to_owned(), text(question.id)),
        ("kind".to_owned(), text(question.kind)),
        ("viewers".to_owned(), holders(Role::Viewer)),
        ("contributors".to_owned(), holders(Role::Contributor)),
        ("operators".to_owned(), holders(Role::Operator)),
        ("admins".to_owned(), holders(Role::Admin)),
        ("auditors".to_owned(), holders(Role::Auditor)),
    ];
    for scope in scopes {
        let name = match scope {
            Scope::Platform => continue,
            Scope::Tenant(_) => "tenant",
            Scope::Project(..) => "project",
        };
        attributes.push((name.to_owned(), Expr::new_entity_uid(scope_uid(types, scope))));
    }
    let of = question.attributes;
    let optional =
        [("zone", &of.zone), ("classification", &of.classification), ("purpose", &of.purpose)];
    for (name, value) in optional {
        if let Some(value) = value {
            attributes.push((name.to_owned(), text(value)));
        }
    }
    let tags = of.tags.iter().map(|(key, value)| (key.clone(), text(value)));
    let parents = scopes.iter().map(|scope| scope_uid(types, scope));
    Entity::new_with_tags(resource_uid(types, question), attributes, parents, tags)
        .map_err(Error::internal)
}

/// The circumstances of the request.
pub(super) fn context(question: &Question<'_>) -> Result<Context> {
    let situation = &question.situation;
    let mut pairs = vec![
        ("within_token".to_owned(), Expr::new_bool(question.within_token())),
        ("method".to_owned(), Expr::new_string(question.method().to_owned())),
        (
            "dest_allowed".to_owned(),
            Expr::new_bool(situation.destination.is_none_or(|to| to.allowed)),
        ),
    ];
    if let Some(to) = situation.destination {
        pairs.push(("dest_zone".to_owned(), Expr::new_string(to.zone.clone())));
    }
    if let Some(source) = situation.source {
        pairs.push(("source".to_owned(), Expr::new_ip(source.to_canonical().to_string())));
    }
    if let Some(purpose) = situation.purpose {
        pairs.push(("purpose".to_owned(), Expr::new_string(purpose.to_owned())));
    }
    Context::from_pairs(pairs).map_err(Error::internal)
}
