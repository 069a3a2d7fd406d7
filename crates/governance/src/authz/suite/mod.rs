//! The gate and the service over a real database, on both engines.

mod hiding;
mod policies;
mod roles;

use std::sync::Arc;

use falaj_base::{
    Action, AuthMethod, Ctx, Error, Grant, Name, Principal, PrincipalId, PrincipalKind, ProjectId,
    RequestInfo, Role, Scope, TenantId,
};
use falaj_store::db::{Db, params};

use crate::authz::bindings::RoleBinding;
use crate::authz::service::{Authz, NewBinding};
use crate::authz::{AuthzConfig, CedarGate, store};
use crate::epoch::{self, Epoch};
use crate::{identity, residency, tenancy};

static THING_READ: Action = Action::read("thing:read", Role::Viewer, "");
static THING_WRITE: Action = Action::write("thing:write", Role::Contributor, "");

/// Two tenants of two projects each, and the people in them.
struct World {
    db: Db,
    authz: Arc<Authz>,
    gate: Arc<CedarGate>,
    tenants: [TenantId; 2],
    projects: [[ProjectId; 2]; 2],
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn world(db: Db) -> World {
    let modules = [
        ("store", falaj_store::record::MIGRATIONS),
        ("epoch", epoch::MIGRATIONS),
        ("residency", residency::MIGRATIONS),
        ("tenancy", tenancy::MIGRATIONS),
        ("identity", identity::MIGRATIONS),
        ("authz", crate::authz::MIGRATIONS),
    ];
    db.migrate(&modules).await.unwrap();
    let tenants = [TenantId::new(), TenantId::new()];
    let projects = [[ProjectId::new(), ProjectId::new()], [ProjectId::new(), ProjectId::new()]];
    db.write(move |tx| {
        tx.execute(
            "INSERT INTO zone (name, jurisdiction, created_at) VALUES ('home', 'AE', 1)",
            &[],
        )?;
        for (t, tenant) in tenants.into_iter().enumerate() {
            tx.execute(
                "INSERT INTO tenant (id, name, zone, created_at) VALUES ($1, $2, 'home', 1)",
                &params![tenant, format!("t{t}")],
            )?;
            for (p, project) in projects[t].into_iter().enumerate() {
                tx.execute(
                    "INSERT INTO project (id, tenant, name, zone, tags, created_at)
                     VALUES ($1, $2, $3, 'home', '{}', 1)",
                    &params![project, tenant, format!("p{p}")],
                )?;
            }
        }
        Ok(())
    })
    .await
    .unwrap();
    let epoch = Epoch::load(db.clone()).await.unwrap();
    let mut actions = crate::authz::tests::all_actions();
    actions.extend([&THING_READ, &THING_WRITE]);
    let config = AuthzConfig { bindings_per_tenant: 50, ..AuthzConfig::default() };
    let gate = CedarGate::open(db.clone(), epoch.clone(), &actions, &config).await.unwrap();
    let gate = Arc::new(gate);
    let authz = Arc::new(Authz::new(db.clone(), epoch, gate.clone(), config));
    World { db, authz, gate, tenants, projects }
}

impl World {
    /// Adds a principal to the database and signs it in.
    async fn person(&self, called: &str, home: Option<usize>, grants: &[(Scope, Role)]) -> Ctx {
        let (id, home) = (PrincipalId::new(), home.map(|t| self.tenants[t]));
        let (row, held) = (called.to_owned(), grants.to_vec());
        self.db
            .write(move |tx| {
                tx.execute(
                    "INSERT INTO principal
                         (id, kind, name, tenant, issuer, subject, disabled, created_at)
                     VALUES ($1, 'user', $2, $3, '', $2, 0, 1)",
                    &params![id, row, home],
                )?;
                for (scope, role) in held {
                    store::bind(tx, id, scope, role, id)?;
                }
                Ok(())
            })
            .await
            .unwrap();
        self.sign_in(Principal {
            id,
            kind: PrincipalKind::User,
            name: called.to_owned(),
            home,
            grants: grants
                .iter()
                .map(|(scope, role)| Grant { scope: *scope, role: *role })
                .collect(),
            groups: Arc::new([]),
            token: None,
            method: AuthMethod::Session,
            mfa: false,
        })
    }

    fn sign_in(&self, principal: Principal) -> Ctx {
        Ctx::new(Arc::new(principal), RequestInfo::internal(), self.gate.clone())
    }

    fn tenant(&self, t: usize) -> Scope {
        Scope::Tenant(self.tenants[t])
    }

    fn project(&self, t: usize, p: usize) -> Scope {
        Scope::Project(self.tenants[t], self.projects[t][p])
    }

    async fn audited(&self) -> Vec<serde_json::Value> {
        let rows = self
            .db
            .read(|tx| tx.query("SELECT entry FROM audit_entry ORDER BY tx, seq", &[]))
            .await
            .unwrap();
        let text = |row: &falaj_store::db::Row| row.get::<String>("entry").unwrap();
        rows.iter().map(|row| serde_json::from_str(&text(row)).unwrap()).collect()
    }

    async fn bind(
        &self,
        ctx: &Ctx,
        principal: &str,
        role: Role,
        place: &str,
    ) -> Result<RoleBinding, Error> {
        let mut names = place.split('/').filter(|name| !name.is_empty()).map(name);
        let new = NewBinding {
            principal: principal.to_owned(),
            role,
            tenant: names.next(),
            project: names.next(),
        };
        self.authz.bind(ctx, new).await
    }
}

fn said(error: &Error) -> (&'static str, String, Option<String>) {
    (error.code().id, error.message().to_owned(), error.field().map(str::to_owned))
}
