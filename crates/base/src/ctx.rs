//! The context value that every verb takes first: who acts, from where, and the gate that must
//! be asked before anything is done.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::action::{Action, Role};
use crate::error::Result;
use crate::id::{PrincipalId, RequestId, TenantId, TokenId};
use crate::resource::{Resource, Scope};

/// What kind of actor a principal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    User,
    ServiceAccount,
    Agent,
    /// The platform's own workers.
    System,
}

impl PrincipalKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::ServiceAccount => "service_account",
            Self::Agent => "agent",
            Self::System => "system",
        }
    }
}

/// How the principal proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    Token,
    Session,
    Oidc,
    Internal,
}

/// A role held on a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    pub scope: Scope,
    pub role: Role,
}

/// The ceiling an API token puts over its owner's roles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenLimit {
    pub id: TokenId,
    pub scope: Scope,
    pub role: Role,
    /// Whether a job acts with it, which may do less than its owner: see [`Action::jobs`].
    pub of_job: bool,
}

impl TokenLimit {
    /// Whether the token's own scope and role reach this far, whatever its owner may do.
    #[must_use]
    pub fn reaches(&self, action: &Action, scope: &Scope) -> bool {
        self.scope.contains(scope) && action.permits(self.role) && (action.jobs || !self.of_job)
    }
}

/// Whoever acts.
#[derive(Clone, Debug)]
pub struct Principal {
    pub id: PrincipalId,
    pub kind: PrincipalKind,
    /// For people: the sign-in name.
    pub name: String,
    /// The tenant it belongs to; none for the platform's own staff.
    pub home: Option<TenantId>,
    pub grants: Arc<[Grant]>,
    pub groups: Arc<[String]>,
    pub token: Option<TokenLimit>,
    pub method: AuthMethod,
    /// Whether the identity provider vouched for a second factor.
    pub mfa: bool,
}

impl Principal {
    /// The platform acting on its own behalf, in a worker.
    #[must_use]
    pub fn system(worker: &str) -> Self {
        Self {
            id: PrincipalId::from_uuid(uuid::Uuid::nil()),
            kind: PrincipalKind::System,
            name: worker.to_owned(),
            home: None,
            grants: Arc::new([Grant { scope: Scope::Platform, role: Role::Admin }]),
            groups: Arc::new([]),
            token: None,
            method: AuthMethod::Internal,
            mfa: false,
        }
    }
}

/// Where the request came from.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    pub id: RequestId,
    pub source: Option<IpAddr>,
    /// The W3C trace id, if the caller sent one.
    pub trace: Option<String>,
    /// The caller's Idempotency-Key, on creating calls.
    pub idempotency_key: Option<String>,
    /// Binds an idempotency key to one request: method, path and body.
    pub fingerprint: Option<[u8; 32]>,
}

impl RequestInfo {
    /// A request that no client made.
    #[must_use]
    pub fn internal() -> Self {
        Self {
            id: RequestId::new(),
            source: None,
            trace: None,
            idempotency_key: None,
            fingerprint: None,
        }
    }
}

/// Decides. The live one evaluates Cedar policies and records every denial; the platform's own
/// workers pass through [`Internal`].
pub trait Gate: Send + Sync {
    /// Allows, or refuses with the error the caller is to see. A refusal is on the audit log
    /// before this returns, and a caller who may not even know of the resource reads *not found*.
    fn authorize<'a>(
        &'a self,
        ctx: &'a Ctx,
        action: &'static Action,
        resource: &'a Resource,
    ) -> BoxFuture<'a, Result<()>>;

    /// The same decision, silently: for filtering lists.
    fn allows(&self, ctx: &Ctx, action: &'static Action, resource: &Resource) -> bool;
}

/// The gate of the platform's own workers: they act by the code's authority, not by a policy.
#[derive(Debug)]
pub struct Internal;

impl Gate for Internal {
    fn authorize<'a>(
        &'a self,
        ctx: &'a Ctx,
        _: &'static Action,
        _: &'a Resource,
    ) -> BoxFuture<'a, Result<()>> {
        debug_assert!(ctx.principal.kind == PrincipalKind::System);
        Box::pin(async { Ok(()) })
    }

    fn allows(&self, ctx: &Ctx, _: &'static Action, _: &Resource) -> bool {
        ctx.principal.kind == PrincipalKind::System
    }
}

/// What this request has been allowed, and what it has put on record.
#[derive(Debug, Default)]
struct Ledger {
    authorized: Vec<(&'static str, String)>,
    recorded: Vec<&'static str>,
    denied: Vec<&'static str>,
}

/// The context of one request or one worker run. Cheap to clone; clones share the ledger.
#[derive(Clone)]
pub struct Ctx {
    pub principal: Arc<Principal>,
    pub request: Arc<RequestInfo>,
    gate: Arc<dyn Gate>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Ctx {
    #[must_use]
    pub fn new(principal: Arc<Principal>, request: RequestInfo, gate: Arc<dyn Gate>) -> Self {
        Self { principal, request: Arc::new(request), gate, ledger: Arc::default() }
    }

    /// The context of one run of a worker.
    #[must_use]
    pub fn system(worker: &str) -> Self {
        Self::new(Arc::new(Principal::system(worker)), RequestInfo::internal(), Arc::new(Internal))
    }

    /// Asks whether the principal may do `action` to `resource`. Every id that a request names
    /// passes through here, not only the one in its path.
    pub async fn authorize(&self, action: &'static Action, resource: &Resource) -> Result<()> {
        self.gate.authorize(self, action, resource).await?;
        self.ledger().authorized.push((action.name, resource.id.clone()));
        Ok(())
    }

    /// Whether a list may show `resource`: the answer `authorize` would give, without a trace.
    #[must_use]
    pub fn allows(&self, action: &'static Action, resource: &Resource) -> bool {
        self.gate.allows(self, action, resource)
    }

    /// Notes a list whose items were each checked by [`Ctx::allows`]: there is no single resource
    /// to authorise, and an empty list is the refusal.
    pub fn filtered(&self, action: &'static Action) {
        self.ledger().authorized.push((action.name, String::new()));
    }

    /// Whether `action` was allowed on `resource` in this context.
    #[must_use]
    pub fn is_authorized(&self, action: &Action, resource: &Resource) -> bool {
        let ledger = self.ledger();
        ledger.authorized.iter().any(|(name, id)| *name == action.name && *id == resource.id)
    }

    /// Whether `action` was allowed at all in this context.
    #[must_use]
    pub fn has_authorized(&self, action: &Action) -> bool {
        self.ledger().authorized.iter().any(|(name, _)| *name == action.name)
    }

    /// Notes that a change by `action` is on the audit log; called by the store alone.
    pub fn note_recorded(&self, action: &Action) {
        self.ledger().recorded.push(action.name);
    }

    #[must_use]
    pub fn has_recorded(&self, action: &Action) -> bool {
        self.ledger().recorded.contains(&action.name)
    }

    /// Notes that a refusal of `action`, made after the gate had allowed it, is on the audit log.
    pub fn note_denied(&self, action: &Action) {
        self.ledger().denied.push(action.name);
    }

    #[must_use]
    pub fn has_denied(&self, action: &Action) -> bool {
        self.ledger().denied.contains(&action.name)
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx")
            .field("principal", &self.principal.id)
            .field("request", &self.request.id)
            .finish_non_exhaustive()
    }
}
