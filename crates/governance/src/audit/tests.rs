//! The log on real databases: sealing, reading, and what the check at start refuses.

mod reading;
mod sealing;
mod starting;

use std::path::Path;
use std::sync::Arc;

use falaj_base::ctx::RequestInfo;
use falaj_base::{
    Action, AuthMethod, Ctx, Error, Gate, Grant, Principal, PrincipalId, PrincipalKind, Resource,
    Result, Role, Scope, TenantId,
};
use falaj_store::db::Db;
use falaj_store::record::AuditEntry;
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryStreamExt as _};

use super::{Audit, AuditConfig, ExportQuery, MIGRATIONS};

static MAKE: Action = Action::write("thing:make", Role::Contributor, "Make a thing");

/// A log over a fresh schema.
async fn open(db: &Db, folder: &Path) -> Result<Arc<Audit>> {
    open_with(db, folder, &AuditConfig::default()).await
}

async fn open_with(db: &Db, folder: &Path, config: &AuditConfig) -> Result<Arc<Audit>> {
    let mut modules = falaj_store::migrations();
    modules.push(("audit", MIGRATIONS));
    db.migrate(&modules).await?;
    Audit::with_seed(config, db.clone(), &[5; 32], folder).await
}

fn entry(db: &Db, ctx: &Ctx, id: u64, scope: Scope) -> AuditEntry {
    AuditEntry::allowed(ctx, &MAKE, &Resource::new("thing", id, scope), db.now())
}

/// Appends `count` entries in one transaction.
async fn append(db: &Db, count: u64) {
    let ctx = Ctx::system("test");
    let entries: Vec<_> = (0..count).map(|id| entry(db, &ctx, id, Scope::Platform)).collect();
    let write = db.write(move |tx| entries.iter().try_for_each(|entry| tx.append_audit(entry)));
    write.await.unwrap();
}

/// Runs one statement behind the platform's back.
async fn tamper(db: &Db, sql: &'static str) {
    db.write(move |tx| tx.execute(sql, &[])).await.unwrap();
}

async fn export(audit: &Audit, ctx: &Ctx, query: ExportQuery) -> Result<Vec<u8>> {
    let stream = audit.export(ctx, query).await?;
    stream.map_ok(|piece| piece.to_vec()).try_concat().await
}

/// Allows what the caller's roles allow, and nothing else.
#[derive(Debug)]
struct RolesOnly;

impl Gate for RolesOnly {
    fn authorize<'a>(
        &'a self,
        ctx: &'a Ctx,
        action: &'static Action,
        resource: &'a Resource,
    ) -> BoxFuture<'a, Result<()>> {
        let allowed = self.allows(ctx, action, resource);
        let refusal = || Error::not_found(resource.kind, &resource.id);
        async move { if allowed { Ok(()) } else { Err(refusal()) } }.boxed()
    }

    fn allows(&self, ctx: &Ctx, action: &'static Action, resource: &Resource) -> bool {
        let grants = &ctx.principal.grants;
        grants
            .iter()
            .any(|grant| grant.scope.contains(&resource.scope) && action.permits(grant.role))
    }
}

/// Somebody with one role.
fn person(name: &str, home: Option<TenantId>, scope: Scope, role: Role) -> Ctx {
    let principal = Principal {
        id: PrincipalId::new(),
        kind: PrincipalKind::User,
        name: name.to_owned(),
        home,
        grants: Arc::new([Grant { scope, role }]),
        groups: Arc::new([]),
        token: None,
        method: AuthMethod::Token,
        mfa: false,
    };
    Ctx::new(Arc::new(principal), RequestInfo::internal(), Arc::new(RolesOnly))
}

fn auditor() -> Ctx {
    person("aya", None, Scope::Platform, Role::Auditor)
}
