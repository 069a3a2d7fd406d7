//! `/v1/role-bindings`, group roles, policies, and the vocabulary of authorisation.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use falaj_base::{
    Access, Attributes, BindingId, Ctx, Destination, Error, Name, Page, PageQuery, PrincipalId,
    Resource, Result, Role, Scope,
};
use falaj_web::{Created, Input, NoContent, Ok200, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actions::{
    GROUP_ROLE_CREATE, GROUP_ROLE_DELETE, GROUP_ROLE_READ, POLICY_DELETE, POLICY_READ, POLICY_TEST,
    POLICY_WRITE, ROLE_BINDING_CREATE, ROLE_BINDING_DELETE, ROLE_BINDING_READ, SELF_ACTIONS,
    SELF_ROLES,
};
use super::bindings::{GroupRole, RoleBinding, TenantPolicy};
use super::matrix::MatrixRow;
use super::policies::{Case, Explanation};
use super::service::{Authz, NewBinding, NewGroupRole};
use crate::text;

const BINDINGS: &str = "/v1/role-bindings";
const BINDING: &str = "/v1/role-bindings/{id}";
const GROUP_ROLES: &str = "/v1/tenants/{tenant}/group-roles";
const GROUP_ROLE: &str = "/v1/tenants/{tenant}/group-roles/{id}";
const POLICIES: &str = "/v1/tenants/{tenant}/policies";
const POLICY: &str = "/v1/tenants/{tenant}/policies/{name}";

#[must_use]
pub fn routes(service: Arc<Authz>) -> Routes<Authz> {
    Routes::new(service)
        .post(BINDINGS, &ROLE_BINDING_CREATE, "Give a role to a principal", bind)
        .get(BINDINGS, &ROLE_BINDING_READ, "List the role bindings you may see", bindings)
        .delete(BINDING, &ROLE_BINDING_DELETE, "Take a role away", unbind)
        .post(GROUP_ROLES, &GROUP_ROLE_CREATE, "Give a role to a group", bind_group)
        .get(GROUP_ROLES, &GROUP_ROLE_READ, "List the roles of groups", group_roles)
        .delete(GROUP_ROLE, &GROUP_ROLE_DELETE, "Take a role from a group", unbind_group)
        .get(POLICIES, &POLICY_READ, "List the policies of a tenant", policies)
        .put(POLICY, &POLICY_WRITE, "Store a policy", put_policy)
        .get(POLICY, &POLICY_READ, "Show a policy", get_policy)
        .delete(POLICY, &POLICY_DELETE, "Remove a policy", delete_policy)
        .post("/v1/policies/test", &POLICY_TEST, "Explain a decision", explain)
        .get("/v1/roles", &SELF_ROLES, "Show which role may do what", roles)
        .get("/v1/actions", &SELF_ACTIONS, "List all actions", actions)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct BindingPath {
    id: BindingId,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TenantPath {
    tenant: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct GroupRolePath {
    tenant: Name,
    id: BindingId,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct PolicyPath {
    tenant: Name,
    name: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BindingBody {
    /// A name or an id.
    #[schemars(length(min = 1, max = 512))]
    principal: String,
    role: Role,
    /// Absent for a role on the whole platform.
    tenant: Option<Name>,
    /// Absent for a role on the whole tenant.
    project: Option<Name>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BindingQuery {
    /// Only those on this tenant and its projects.
    tenant: Option<Name>,
    /// Only those of this principal.
    principal: Option<PrincipalId>,
    /// How many items at most, 1 to 1000; 100 if absent.
    #[schemars(range(min = 1, max = 1000))]
    page_size: Option<u32>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 512))]
    page_token: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GroupRoleBody {
    /// The identity provider, exactly as its tokens spell it.
    #[schemars(length(min = 1, max = 512))]
    issuer: String,
    #[schemars(length(min = 1, max = 256))]
    group: String,
    role: Role,
    /// Absent for a role on the whole tenant.
    project: Option<Name>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PolicyBody {
    /// One or more statements in the Cedar language.
    source: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CaseBody {
    /// A name or an id; the caller itself if absent.
    #[schemars(length(min = 1, max = 512))]
    principal: Option<String>,
    #[schemars(length(min = 1, max = 128))]
    action: String,
    resource: CaseResource,
    #[serde(default)]
    context: CaseContext,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CaseResource {
    /// A plain noun: `project`, `object`.
    #[schemars(length(min = 1, max = 64))]
    kind: String,
    #[schemars(length(min = 1, max = 1024))]
    id: String,
    tenant: Option<Name>,
    project: Option<Name>,
    #[serde(default)]
    attributes: CaseAttributes,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct CaseAttributes {
    zone: Option<Name>,
    #[schemars(length(max = 64))]
    classification: Option<String>,
    #[schemars(length(max = 256))]
    purpose: Option<String>,
    #[schemars(extend("maxProperties" = 64))]
    tags: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct CaseContext {
    /// The address the request would come from.
    source: Option<IpAddr>,
    #[schemars(length(max = 256))]
    purpose: Option<String>,
    /// Where data would go.
    dest_zone: Option<Name>,
    /// What the residency rules say to that; no, if absent.
    dest_allowed: bool,
    /// The groups that the identity provider would name.
    #[schemars(length(max = 100))]
    groups: Vec<String>,
    /// Whether a second factor was shown.
    mfa: bool,
}

/// The roles, and what each allows.
#[derive(Debug, Serialize, JsonSchema)]
struct Roles {
    roles: Vec<Role>,
    actions: Vec<MatrixRow>,
}

/// One action, as policies and tokens name it.
#[derive(Debug, Serialize, JsonSchema)]
struct ActionView {
    name: &'static str,
    about: &'static str,
    /// Whether it changes something.
    write: bool,
    /// The lowest role that allows it.
    role: Role,
    /// Whether an auditor may do it too.
    auditor: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Actions {
    items: Vec<ActionView>,
}

async fn bind(
    s: Arc<Authz>,
    ctx: Ctx,
    input: Input<(), (), BindingBody>,
) -> Result<Created<RoleBinding>> {
    let BindingBody { principal, role, tenant, project } = input.body;
    let principal = text::bounded("principal", principal, 1, 512)?;
    s.bind(&ctx, NewBinding { principal, role, tenant, project }).await.map(Created)
}

async fn bindings(
    s: Arc<Authz>,
    ctx: Ctx,
    input: Input<(), BindingQuery>,
) -> Result<Ok200<Page<RoleBinding>>> {
    let BindingQuery { tenant, principal, page_size, page_token } = input.query;
    let page = PageQuery { page_size, page_token };
    s.bindings(&ctx, tenant, principal, page).await.map(Ok200)
}

async fn unbind(s: Arc<Authz>, ctx: Ctx, input: Input<BindingPath>) -> Result<NoContent> {
    s.unbind(&ctx, input.path.id).await.map(|()| NoContent)
}

async fn bind_group(
    s: Arc<Authz>,
    ctx: Ctx,
    input: Input<TenantPath, (), GroupRoleBody>,
) -> Result<Created<GroupRole>> {
    let GroupRoleBody { issuer, group, role, project } = input.body;
    let issuer = text::bounded("issuer", issuer, 1, 512)?;
    let group = text::bounded("group", group, 1, 256)?;
    let new = NewGroupRole { issuer, group, role, project };
    s.bind_group(&ctx, input.path.tenant, new).await.map(Created)
}

async fn group_roles(
    s: Arc<Authz>,
    ctx: Ctx,
    input: Input<TenantPath, PageQuery>,
) -> Result<Ok200<Page<GroupRole>>> {
    s.group_roles(&ctx, input.path.tenant, input.query).await.map(Ok200)
}

async fn unbind_group(s: Arc<Authz>, ctx: Ctx, input: Input<GroupRolePath>) -> Result<NoContent> {
    s.unbind_group(&ctx, input.path.tenant, input.path.id).await.map(|()| NoContent)
}

async fn policies(
    s: Arc<Authz>,
    ctx: Ctx,
    input: Input<TenantPath, PageQuery>,
) -> Result<Ok200<Page<TenantPolicy>>> {
    s.policies(&ctx, input.path.tenant, input.query).await.map(Ok200)
}

async fn put_policy(
    s: Arc<Authz>,
    ctx: Ctx,
    input: Input<PolicyPath, (), PolicyBody>,
) -> Result<Ok200<TenantPolicy>> {
    s.put_policy(&ctx, input.path.tenant, input.path.name, input.body.source).await.map(Ok200)
}

async fn get_policy(
    s: Arc<Authz>,
    ctx: Ctx,
    input: Input<PolicyPath>,
) -> Result<Ok200<TenantPolicy>> {
    s.policy(&ctx, input.path.tenant, input.path.name).await.map(Ok200)
}

async fn delete_policy(s: Arc<Authz>, ctx: Ctx, input: Input<PolicyPath>) -> Result<NoContent> {
    s.delete_policy(&ctx, input.path.tenant, input.path.name).await.map(|()| NoContent)
}

async fn explain(
    s: Arc<Authz>,
    ctx: Ctx,
    input: Input<(), (), CaseBody>,
) -> Result<Ok200<Explanation>> {
    s.explain(&ctx, case(input.body)?).await.map(Ok200)
}

fn case(body: CaseBody) -> Result<Case> {
    let CaseBody { principal, action, resource, context } = body;
    let of = resource.attributes;
    if context.groups.len() > 100 {
        return Err(Error::invalid("context.groups", context.groups.len(), "at most 100 groups"));
    }
    let principal = principal.map(|p| text::bounded("principal", p, 1, 512)).transpose()?;
    let groups = context.groups.into_iter().map(|g| text::bounded("context.groups", g, 1, 256));
    Ok(Case {
        principal,
        groups: groups.collect::<Result<_>>()?,
        mfa: context.mfa,
        action,
        kind: text::bounded("resource.kind", resource.kind, 1, 64)?,
        id: text::bounded("resource.id", resource.id, 1, 1024)?,
        tenant: resource.tenant,
        project: resource.project,
        attributes: Attributes {
            zone: of.zone.map(|zone| zone.to_string()),
            classification: text::optional("classification", of.classification, 64)?,
            purpose: text::optional("purpose", of.purpose, 256)?,
            tags: text::tags(of.tags)?,
        },
        source: context.source,
        purpose: text::optional("context.purpose", context.purpose, 256)?,
        destination: context
            .dest_zone
            .map(|zone| Destination { zone: zone.to_string(), allowed: context.dest_allowed }),
    })
}

/// The caller's own account: what everybody may ask about.
fn own(ctx: &Ctx) -> Resource {
    let home = ctx.principal.home.map_or(Scope::Platform, Scope::Tenant);
    Resource::new("principal", ctx.principal.id, home)
}

async fn roles(s: Arc<Authz>, ctx: Ctx, _: Input) -> Result<Ok200<Roles>> {
    ctx.authorize(&SELF_ROLES, &own(&ctx)).await?;
    Ok(Ok200(Roles { roles: Role::ALL.to_vec(), actions: s.matrix().to_vec() }))
}

async fn actions(s: Arc<Authz>, ctx: Ctx, _: Input) -> Result<Ok200<Actions>> {
    ctx.authorize(&SELF_ACTIONS, &own(&ctx)).await?;
    Ok(Ok200(Actions { items: s.actions().map(view).collect() }))
}

fn view(action: &'static falaj_base::Action) -> ActionView {
    ActionView {
        name: action.name,
        about: action.about,
        write: action.access == Access::Write,
        role: action.role,
        auditor: action.auditor,
    }
}
