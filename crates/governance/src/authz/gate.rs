//! The gate behind [`Ctx::authorize`]: asks the policies, remembers the answer, records refusals.
//!
//! Must hold:
//! - A refusal is committed to the audit log before the caller hears of it. If it cannot be, the
//!   caller hears that instead.
//! - Whoever may not read a resource cannot tell it from one that does not exist. The gate answers
//!   `Error::not_found(resource.kind, resource.shown())` for it, so a service keeps the two equal
//!   by authorising a missing name as [`Resource::absent`] and then answering
//!   `Error::not_found(kind, name)` itself, and by passing the caller's own word for the thing
//!   with `shown_as` whenever that is not the id:
//!
//!   ```text
//!   let Some(thing) = store::find(tx, name)? else {
//!       ctx.authorize(&THING_READ, &Resource::absent("thing", name, scope)).await?;
//!       return Err(Error::not_found("thing", name));
//!   };
//!   ctx.authorize(&THING_READ, &Resource::new("thing", thing.id, scope).shown_as(name)).await?;
//!   ```
//!
//!   Where an outer name of a path is the missing one, the answer still names the innermost thing
//!   that was asked for, as it does when the outer one exists but is somebody else's.
//! - A cached decision is never older than the last change that this server knows of: the key
//!   holds the epoch and the revision of the tenant's policies.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::{Action, Ctx, Error, Gate, Principal, Resource, Result, Scope, code};
use falaj_store::db::Db;
use falaj_store::record::AuditEntry;
use falaj_store::worker::Worker;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::cache::Cache;
use super::config::AuthzConfig;
use super::engine::{Engine, Verdict, failed};
use super::library::{Library, PoliciesInForce};
use super::question::{Key, KeyMaker, Question};
use crate::epoch::Epoch;

/// How often a server that is only asked for lists looks for changed policies.
const REFRESH: Duration = Duration::from_secs(1);

/// Decides by Cedar policies.
#[derive(Debug)]
pub struct CedarGate {
    db: Db,
    epoch: Epoch,
    engine: Arc<Engine>,
    library: Library,
    keys: KeyMaker,
    decisions: Cache<Key, Arc<Verdict>>,
}

impl CedarGate {
    /// Fails if the actions or the built-in policies do not make a sound schema.
    pub async fn open(
        db: Db,
        epoch: Epoch,
        actions: &[&'static Action],
        config: &AuthzConfig,
    ) -> Result<Self> {
        let engine = Arc::new(Engine::new(actions)?);
        let library = Library::new(db.clone(), engine.clone(), config.policy_cache);
        let decisions = Cache::new(config.decision_cache);
        let gate = Self { db, epoch, engine, library, keys: KeyMaker::default(), decisions };
        gate.refresh().await?;
        Ok(gate)
    }

    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Reads policies that changed, here or on another server.
    pub async fn refresh(&self) -> Result<()> {
        self.library.refresh(self.epoch.current()).await
    }

    /// Keeps lists up to date on a server that is asked for nothing else.
    #[must_use]
    pub fn refresher(self: &Arc<Self>) -> Worker {
        let gate = self.clone();
        Worker::new("policy-refresh", REFRESH, move || {
            let gate = gate.clone();
            async move { gate.refresh().await }
        })
        .on_every_server()
    }

    /// Decides without looking at remembered decisions, and remembers nothing.
    #[must_use]
    pub fn decide_uncached(&self, question: &Question<'_>) -> Verdict {
        self.evaluate(question, &self.policies_for(question))
    }

    /// Decides, from memory if the same was asked before.
    #[must_use]
    pub fn decide(&self, question: &Question<'_>) -> Arc<Verdict> {
        let epoch = self.epoch.current();
        let policies = self.policies_for(question);
        let version = (epoch, policies.revision);
        let key = self.keys.key(question, version, policies.looks);
        if let Some(verdict) = self.decisions.get(&key) {
            return verdict;
        }
        let verdict = Arc::new(self.evaluate(question, &policies));
        if verdict.errors.is_empty() {
            self.decisions.insert(key, verdict.clone());
        }
        verdict
    }

    fn policies_for(&self, question: &Question<'_>) -> Arc<PoliciesInForce> {
        if question.beyond_tenant_policies() {
            self.library.built_in()
        } else {
            self.library.in_force(question.scope.tenant())
        }
    }

    fn evaluate(&self, question: &Question<'_>, policies: &PoliciesInForce) -> Verdict {
        let verdict = match policies.for_action(&self.engine, question.action) {
            Ok(policies) => self.engine.decide(question, &policies),
            Err(error) => failed(&error),
        };
        if !verdict.errors.is_empty() {
            tracing::error!(
                action = question.action.name,
                resource = question.kind,
                errors = ?verdict.errors,
                "a policy failed to evaluate; the request is refused",
            );
        }
        verdict
    }

    /// Whether the caller may know that the resource exists.
    fn is_visible(&self, question: &Question<'_>, resource: &Resource) -> bool {
        if resource.absent {
            return false;
        }
        let read = self.engine.vocabulary().action(&format!("{}:read", question.kind));
        if read.is_some_and(|read| self.decide(&question.about(read)).allowed) {
            return true;
        }
        // Who holds a role on a scope knows of the scope, and of what comes with every scope.
        // Other kinds have their existence kept secret by having a `read` action.
        let open = read.is_none() || stands_for_scope(resource);
        open && knows(question.principal, &question.scope)
    }

    async fn refuse(
        &self,
        ctx: &Ctx,
        question: &Question<'_>,
        resource: &Resource,
        verdict: &Verdict,
    ) -> Error {
        let reason = reason(verdict);
        let entry = AuditEntry::denied(
            ctx,
            question.action,
            resource,
            self.db.now(),
            reason.clone(),
            verdict.policies.clone(),
        );
        if let Err(error) = self.db.write(move |tx| tx.append_audit(&entry)).await {
            return error;
        }
        if !self.is_visible(question, resource) {
            return Error::not_found(resource.kind, resource.shown());
        }
        let hint = if verdict.policies.is_empty() && verdict.errors.is_empty() {
            format!("; the role {} would", question.action.role)
        } else {
            String::new()
        };
        let name = question.action.name;
        Error::new(&code::FORBIDDEN, format!("`{name}` on this {}: {reason}{hint}", resource.kind))
    }
}

impl Gate for CedarGate {
    fn authorize<'a>(
        &'a self,
        ctx: &'a Ctx,
        action: &'static Action,
        resource: &'a Resource,
    ) -> BoxFuture<'a, Result<()>> {
        // The usual answer waits for nothing, and makes no room for waiting.
        if self.library.is_fresh(self.epoch.current())
            && self.decide(&Question::new(ctx, action, resource)).allowed
        {
            return std::future::ready(Ok(())).boxed();
        }
        async move {
            self.refresh().await?;
            let question = Question::new(ctx, action, resource);
            let verdict = self.decide(&question);
            if verdict.allowed {
                return Ok(());
            }
            Err(self.refuse(ctx, &question, resource, &verdict).await)
        }
        .boxed()
    }

    fn allows(&self, ctx: &Ctx, action: &'static Action, resource: &Resource) -> bool {
        self.decide(&Question::new(ctx, action, resource)).allowed
    }
}

/// Why, in words that fit both the audit log and a caller who may know of the resource.
pub(super) fn reason(verdict: &Verdict) -> String {
    if !verdict.errors.is_empty() {
        return "a policy failed to evaluate, so nothing is allowed".to_owned();
    }
    match verdict.policies.as_slice() {
        [] => "no role and no policy allows it".to_owned(),
        [policy] => format!("policy `{policy}` forbids it"),
        several => format!("policies `{}` forbid it", several.join("`, `")),
    }
}

/// Whether the resource is a tenant, a project or the platform itself, or something that each of
/// these has exactly one of, such as its audit log.
fn stands_for_scope(resource: &Resource) -> bool {
    match resource.scope {
        Scope::Platform => resource.id == "platform",
        Scope::Tenant(tenant) => resource.id == tenant.to_string(),
        Scope::Project(_, project) => resource.id == project.to_string(),
    }
}

/// Whether the principal holds a role on the scope, seen through its token, and so may know that
/// the scope exists.
pub(super) fn knows(principal: &Principal, scope: &Scope) -> bool {
    let at_home = principal.home.is_none_or(|home| scope.tenant() == Some(home));
    let in_token = principal.token.as_ref().is_none_or(|token| token.scope.contains(scope));
    at_home && in_token && principal.grants.iter().any(|grant| grant.scope.contains(scope))
}
