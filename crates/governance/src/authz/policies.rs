//! The verbs on tenants' policies, and the one that explains a decision.

use std::net::IpAddr;

use falaj_base::{
    Action, Attributes, AuthMethod, Ctx, Destination, Error, Grant, Name, Page, PageQuery,
    Principal, Resource, Result, Role, Scope, TenantId, code,
};
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::actions::{POLICY_DELETE, POLICY_READ, POLICY_TEST, POLICY_WRITE};
use super::bindings::{Subject, TenantPolicy};
use super::gate::reason;
use super::matrix::{MatrixRow, matrix};
use super::place::Place;
use super::question::{Question, Situation};
use super::service::Authz;
use super::{store, upload};
use crate::epoch::Epoch;
use crate::listing::visible;

/// What is asked of the policies, and about whom.
#[derive(Clone, Debug)]
pub struct Case {
    /// A name or an id; the caller itself if absent.
    pub principal: Option<String>,
    /// The groups its identity provider would put it into.
    pub groups: Vec<String>,
    pub mfa: bool,
    pub action: String,
    pub kind: String,
    pub id: String,
    pub tenant: Option<Name>,
    pub project: Option<Name>,
    pub attributes: Attributes,
    pub source: Option<IpAddr>,
    pub purpose: Option<String>,
    pub destination: Option<Destination>,
}

/// Whether it would be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Allow,
    Deny,
}

/// A role that counts for the case.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EffectiveRole {
    pub role: Role,
    /// Where it is bound: `platform`, `tenant` or `project`.
    pub on: String,
}

/// A decision and its reasons.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Explanation {
    pub decision: Outcome,
    /// Why, in words.
    pub reason: String,
    /// The policies that made it so; empty if nothing allows it.
    pub determining_policies: Vec<String>,
    /// What went wrong in the evaluation.
    pub errors: Vec<String>,
    /// The roles that the principal holds where the resource lies.
    pub roles: Vec<EffectiveRole>,
    /// The lowest role that would allow it.
    pub role_needed: Role,
}

impl Authz {
    /// Stores a policy, new or in place of the one of that name.
    pub async fn put_policy(
        &self,
        ctx: &Ctx,
        tenant: Name,
        name: Name,
        source: String,
    ) -> Result<TenantPolicy> {
        let place = self.db.read(move |tx| Place::find(tx, Some(tenant), None)).await?;
        let resource = place.authorize(ctx, &POLICY_WRITE, "policy", &name).await?;
        let tenant = tenant_of(&resource)?;
        let statements = self.check(source.clone()).await?;
        let (ctx, config) = (ctx.clone(), self.config.clone());
        let (moved, policy) = self
            .db
            .write(move |tx| {
                let moved = Epoch::bump(tx)?;
                let (others, bytes) = store::other_policies(tx, tenant, &name)?;
                if others + statements > config.policies_per_tenant {
                    let limit = config.policies_per_tenant;
                    let text = format!("a tenant may have {limit} policy statements in all");
                    return Err(Error::new(&code::TOO_LARGE, text).at("source"));
                }
                if bytes + source.len() > config.policy_bytes_in_all {
                    let text = "the platform holds as much policy text as it may";
                    return Err(Error::new(&code::CONFLICT, text));
                }
                let before = store::find_policy(tx, tenant, &name)?;
                let count = u32::try_from(statements).map_err(Error::internal)?;
                let by = ctx.principal.id;
                store::put_policy(
                    tx,
                    &store::new_policy(tenant, &name, source, count, by, tx.now()),
                )?;
                let policy = store::find_policy(tx, tenant, &name)?
                    .ok_or_else(|| Error::internal("a new policy is not there"))?;
                let mut change = Change::new(&POLICY_WRITE, &resource)
                    .event("policy.written", &json!({ "name": name }))
                    .after(&policy);
                if let Some(before) = &before {
                    change = change.before(before);
                }
                tx.record(&ctx, change)?;
                Ok((moved, policy))
            })
            .await?;
        self.epoch.publish(moved);
        self.gate.refresh().await?;
        Ok(policy)
    }

    /// Runs the checks of an upload off the threads that serve requests.
    async fn check(&self, source: String) -> Result<usize> {
        let (engine, limit) = (self.gate.engine().clone(), self.config.policy_bytes);
        let checked =
            tokio::task::spawn_blocking(move || upload::check(&engine, &source, limit)).await;
        Ok(checked.map_err(Error::internal)??.statements.len())
    }

    pub async fn policy(&self, ctx: &Ctx, tenant: Name, name: Name) -> Result<TenantPolicy> {
        let (place, found) = self.find_policy(tenant, name.clone()).await?;
        let name = name.to_string();
        let found = place.authorize_named(ctx, &POLICY_READ, "policy", &name, found).await;
        found.map(|(policy, _)| policy)
    }

    pub async fn delete_policy(&self, ctx: &Ctx, tenant: Name, name: Name) -> Result<()> {
        let (place, found) = self.find_policy(tenant, name.clone()).await?;
        let name = name.to_string();
        let (policy, resource) =
            place.authorize_named(ctx, &POLICY_DELETE, "policy", &name, found).await?;
        let ctx = ctx.clone();
        let moved = self
            .db
            .write(move |tx| {
                let moved = Epoch::bump(tx)?;
                if store::delete_policy(tx, policy.tenant_id, &policy.name)? == 0 {
                    return Err(Error::not_found("policy", &policy.name));
                }
                let change = Change::new(&POLICY_DELETE, &resource)
                    .event("policy.deleted", &json!({ "name": policy.name }))
                    .before(&policy);
                tx.record(&ctx, change)?;
                Ok(moved)
            })
            .await?;
        self.epoch.publish(moved);
        self.gate.refresh().await
    }

    pub async fn policies(
        &self,
        ctx: &Ctx,
        tenant: Name,
        page: PageQuery,
    ) -> Result<Page<TenantPolicy>> {
        let limit = page.limit()?;
        let place = self.db.read(move |tx| Place::find(tx, Some(tenant), None)).await?;
        let scope = place.to_list(ctx, &POLICY_READ, "policy").await?;
        let tenant = scope.tenant().ok_or_else(|| Error::internal("a place outside tenants"))?;
        let caller = ctx.clone();
        let seen = self
            .db
            .read(move |tx| {
                visible(
                    limit,
                    page.after(),
                    |after, count| store::list_policies(tx, tenant, after, count),
                    |p| caller.allows(&POLICY_READ, &Resource::new("policy", &p.name, scope)),
                    |p| p.name.clone(),
                )
            })
            .await?;
        if seen.items.is_empty() {
            place.nothing_visible(ctx, &POLICY_READ, "policy").await?;
        }
        ctx.filtered(&POLICY_READ);
        Ok(seen)
    }

    async fn find_policy(
        &self,
        tenant: Name,
        name: Name,
    ) -> Result<(Place, Option<(TenantPolicy, Scope)>)> {
        self.db
            .read(move |tx| {
                let place = Place::find(tx, Some(tenant), None)?;
                let Some(tenant) = place.tenant_id() else { return Ok((place, None)) };
                let found = store::find_policy(tx, tenant, &name)?;
                Ok((place, found.map(|policy| (policy, Scope::Tenant(tenant)))))
            })
            .await
    }

    /// Says whether the case would be allowed, and why. Decides by the same code as a request.
    pub async fn explain(&self, ctx: &Ctx, case: Case) -> Result<Explanation> {
        let action = self.gate.engine().vocabulary().action(&case.action).ok_or_else(|| {
            Error::invalid("action", &case.action, "the name of an action; see /v1/actions")
        })?;
        let (tenant, project) = (case.tenant.clone(), case.project.clone());
        let (given, groups) = (case.principal.clone(), case.groups.clone());
        let (place, subject) = self
            .db
            .read(move |tx| {
                let place = Place::find(tx, tenant, project)?;
                let subject = match &given {
                    None => None,
                    Some(given) => store::find_subject(tx, given)?,
                };
                let Some(subject) = subject else { return Ok((place, None)) };
                let issuer = subject.issuer.as_deref();
                let grants = store::grants_of(tx, subject.id, &groups, issuer)?;
                Ok((place, Some((subject, grants))))
            })
            .await?;
        let resource = place.authorize(ctx, &POLICY_TEST, "policy", "test").await?;
        let principal = match (&case.principal, subject) {
            (None, _) => (*ctx.principal).clone(),
            (Some(_), Some((subject, grants))) if may_ask_about(ctx, &subject) => {
                imagined(subject, grants, &case)
            }
            (Some(given), _) => return Err(Error::not_found("principal", given)),
        };
        let question = Question {
            principal: &principal,
            action,
            kind: &case.kind,
            id: &case.id,
            scope: resource.scope,
            attributes: &case.attributes,
            situation: Situation {
                source: case.source,
                purpose: case.purpose.as_deref(),
                destination: case.destination.as_ref(),
            },
        };
        let verdict = self.gate.decide_uncached(&question);
        let roles = question.reaching_grants().map(effective).collect();
        Ok(Explanation {
            decision: if verdict.allowed { Outcome::Allow } else { Outcome::Deny },
            reason: if verdict.allowed {
                format!("allowed by {}", verdict.policies.join(", "))
            } else {
                reason(&verdict)
            },
            determining_policies: verdict.policies,
            errors: verdict.errors,
            roles,
            role_needed: action.role,
        })
    }

    /// The table of roles and actions; it changes only with the program.
    #[must_use]
    pub fn matrix(&self) -> &[MatrixRow] {
        self.matrix.get_or_init(|| matrix(self.gate.engine()))
    }

    /// All actions there are, by name.
    pub fn actions(&self) -> impl Iterator<Item = &'static Action> + '_ {
        self.gate.engine().vocabulary().actions()
    }
}

fn tenant_of(resource: &Resource) -> Result<TenantId> {
    resource.scope.tenant().ok_or_else(|| Error::internal("a policy outside tenants"))
}

/// Whether the caller may ask what this principal can do: as for any case where the principal is
/// at home.
fn may_ask_about(ctx: &Ctx, subject: &Subject) -> bool {
    let home = subject.home.map_or(Scope::Platform, Scope::Tenant);
    subject.id == ctx.principal.id
        || ctx.allows(&POLICY_TEST, &Resource::new("policy", "test", home))
}

/// The principal as it would be after signing in.
fn imagined(subject: Subject, grants: Vec<Grant>, case: &Case) -> Principal {
    Principal {
        id: subject.id,
        kind: subject.kind,
        name: subject.name,
        home: subject.home,
        grants: grants.into(),
        groups: case.groups.clone().into(),
        token: None,
        method: AuthMethod::Session,
        mfa: case.mfa,
    }
}

fn effective(grant: Grant) -> EffectiveRole {
    let on = match grant.scope {
        Scope::Platform => "platform",
        Scope::Tenant(_) => "tenant",
        Scope::Project(..) => "project",
    };
    EffectiveRole { role: grant.role, on: on.to_owned() }
}
