//! The CPU time of one authorisation, evaluated and remembered.

use std::sync::Arc;

use anyhow::{Result, ensure};
use falaj_base::{
    Action, Attributes, AuthMethod, Ctx, Grant, Principal, PrincipalId, PrincipalKind, ProjectId,
    RequestInfo, Resource, Role, Scope, TenantId,
};
use falaj_governance::authz::{AuthzConfig, CedarGate, question::Question};
use falaj_governance::{authz, epoch, residency, tenancy};
use falaj_testkit::database::Database;
use rustix::time::{ClockId, clock_gettime};

use crate::report::{Goal, Report, median, p99};

const SAMPLES: usize = 20_000;
/// Reading the thread's clock costs as much as a remembered decision: several share one reading.
const REMEMBERED_PER_SAMPLE: usize = 16;

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let place = Database::sqlite()?;
    let db = place.open().await?;
    let mut modules = falaj_store::migrations();
    modules.extend([
        ("epoch", epoch::MIGRATIONS),
        ("residency", residency::MIGRATIONS),
        ("tenancy", tenancy::MIGRATIONS),
        ("authz", authz::MIGRATIONS),
    ]);
    db.migrate(&modules).await?;
    let actions: Vec<&'static Action> =
        tenancy::ACTIONS.iter().chain(authz::ACTIONS).copied().collect();
    let epoch = epoch::Epoch::load(db.clone()).await?;
    let gate = Arc::new(CedarGate::open(db, epoch, &actions, &AuthzConfig::default()).await?);

    let (tenant, project) = (TenantId::new(), ProjectId::new());
    let ctx = Ctx::new(Arc::new(somebody(tenant, project)), RequestInfo::internal(), gate.clone());
    let resource = Resource::new("project", project, Scope::Project(tenant, project))
        .with(Attributes { zone: Some("local".to_owned()), ..Attributes::default() });
    let question = Question::new(&ctx, &tenancy::PROJECT_READ, &resource);
    ensure!(ctx.allows(&tenancy::PROJECT_READ, &resource), "the question is one with a yes");

    let mut fresh = samples(1, || drop(gate.decide_uncached(&question)));
    let mut remembered = samples(REMEMBERED_PER_SAMPLE, || drop(gate.decide(&question)));
    report.note("decision: evaluated, median", median(&mut fresh), "µs CPU");
    report.goal("decision: evaluated, p99", p99(&mut fresh), "µs CPU", Goal::AtMost(200.0));
    report.note("decision: remembered, median", median(&mut remembered), "µs CPU");
    report.goal("decision: remembered, p99", p99(&mut remembered), "µs CPU", Goal::AtMost(5.0));
    Ok(())
}

/// A person with the roles of a busy one.
fn somebody(tenant: TenantId, project: ProjectId) -> Principal {
    let others = (0..6).map(|_| Scope::Project(tenant, ProjectId::new()));
    let scopes = [Scope::Project(tenant, project)].into_iter().chain(others);
    Principal {
        id: PrincipalId::new(),
        kind: PrincipalKind::User,
        name: "somebody".to_owned(),
        home: Some(tenant),
        grants: scopes.map(|scope| Grant { scope, role: Role::Contributor }).collect(),
        groups: Arc::new(["data".to_owned(), "research".to_owned()]),
        token: None,
        method: AuthMethod::Token,
        mfa: false,
    }
}

/// Microseconds of CPU time per call.
#[allow(clippy::cast_precision_loss, reason = "a handful of calls per sample")]
fn samples(calls: usize, mut call: impl FnMut()) -> Vec<f64> {
    for _ in 0..1000 {
        call();
    }
    (0..SAMPLES)
        .map(|_| {
            let before = thread_micros();
            for _ in 0..calls {
                call();
            }
            (thread_micros() - before) / calls as f64
        })
        .collect()
}

#[allow(clippy::cast_precision_loss, reason = "a run is far shorter than 2^52 microseconds")]
pub(crate) fn thread_micros() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}
