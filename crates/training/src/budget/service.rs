//! The verbs on budgets.

use std::time::Duration;

use falaj_base::{Error, Name, ProjectId, Resource, Result, Scope, TenantId, Timestamp, code};
use falaj_governance::tenancy::Project;
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;

use super::budget::{Budget, BudgetSet, Whose};
use super::meter::{Meter, Running, in_currency, millionths};
use super::period::Period;
use super::store::{self, Kept};
use crate::cost::cheapest;
use crate::job::Definition;
use crate::live::inbox::{self, Note};
use crate::{BUDGET_READ, BUDGET_WRITE, TENANT_BUDGET_WRITE, Training};

/// For how long what a project has spent is believed, and of how many.
const BELIEVED: Duration = Duration::from_secs(2);
const REMEMBERED: usize = 10_000;

/// What is asked for when a budget is set: it is the tenant's to say what its projects may spend, and
/// the platform's what a tenant may.
fn resource(tenant: TenantId, whose: Whose, period: Period, absent: bool) -> Resource {
    let scope = Scope::Tenant(tenant);
    let (id, shown) = (
        format!("{tenant}/{}/{}", whose.as_str(), period.as_str()),
        format!("{}/{}", whose.as_str(), period.as_str()),
    );
    let resource = if absent {
        Resource::absent("budget", id, scope)
    } else {
        Resource::new("budget", id, scope)
    };
    resource.shown_as(shown)
}

async fn authorize(call: &Call, whose: Whose, period: Period, absent: bool) -> Result<Resource> {
    let tenant = call.place.tenant_id;
    let of = resource(tenant, whose, period, absent);
    call.ctx.authorize(&BUDGET_WRITE, &of).await?;
    if whose == Whose::Tenant {
        let all = Resource::new("tenant-budget", tenant, Scope::Platform).shown_as(period.as_str());
        call.ctx.authorize(&TENANT_BUDGET_WRITE, &all).await?;
    }
    Ok(of)
}

fn project_of(place: &Project, whose: Whose) -> Option<ProjectId> {
    (whose == Whose::Project).then_some(place.id)
}

/// Budgets of one tenant with what was spent of each.
fn all_shown(tx: &mut Tx<'_>, all: &[Kept], now: Timestamp) -> Result<Vec<Budget>> {
    let Some(tenant) = all.first().map(|kept| kept.tenant) else { return Ok(Vec::new()) };
    // What runs is read once for all of them.
    let running = store::running(tx, tenant)?;
    all.iter().map(|kept| shown(tx, kept, &running, now)).collect()
}

fn one_shown(tx: &mut Tx<'_>, kept: &Kept, now: Timestamp) -> Result<Budget> {
    let running = store::running(tx, kept.tenant)?;
    shown(tx, kept, &running, now)
}

/// A budget with what was spent of it.
fn shown(
    tx: &mut Tx<'_>,
    kept: &Kept,
    running: &[(ProjectId, Running)],
    now: Timestamp,
) -> Result<Budget> {
    let window = kept.period.window(now);
    let spent = store::spent(tx, (kept.tenant, kept.project), &window)?;
    let mut meter = Meter::new(window.from, window.to, spent);
    for (project, start) in running {
        if kept.project.is_none_or(|own| own == *project) {
            meter.begin(start);
        }
    }
    let project = match kept.project {
        Some(project) => store::name_of(tx, project)?,
        None => None,
    };
    Ok(Budget {
        whose: if kept.project.is_some() { Whose::Project } else { Whose::Tenant },
        project,
        period: kept.period,
        now: window.label(),
        set: kept.set.clone(),
        spent: in_currency(meter.so_far(now)),
        updated_at: kept.updated_at,
        updated_by: kept.updated_by.clone(),
    })
}

impl Training {
    /// The budgets that the jobs of a project live by: its own and those of its tenant.
    pub async fn budgets(&self, call: &Call) -> Result<Vec<Budget>> {
        let of = Resource::new("budget", call.place.id, call.place.scope());
        call.ctx.authorize(&BUDGET_READ, &of.with(call.place.attributes())).await?;
        let (tenant, project) = (call.place.tenant_id, call.place.id);
        let read = move |tx: &mut Tx<'_>| {
            let now = tx.now();
            let kept = store::about(tx, tenant, project)?;
            all_shown(tx, &kept, now)
        };
        self.db().read(read).await
    }

    pub async fn set_budget(
        &self,
        call: &Call,
        whose: &str,
        period: &str,
        set: BudgetSet,
    ) -> Result<Budget> {
        let (whose, period) = (Whose::parse(whose)?, Period::parse(period)?);
        let of = authorize(call, whose, period, false).await?;
        set.check()?;
        let kept = Kept {
            tenant: call.place.tenant_id,
            project: project_of(&call.place, whose),
            period,
            set,
            told: String::new(),
            updated_at: self.db().now(),
            updated_by: call.ctx.principal.name.clone(),
        };
        let ctx = call.ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            store::lock(tx, kept.tenant)?;
            let now = tx.now();
            let before = store::find(tx, kept.tenant, kept.project, period)?;
            // What was told of one that is another only in what happens at its end stays told.
            let told = before
                .as_ref()
                .filter(|before| millionths(before.set.amount) == millionths(kept.set.amount));
            let told = told.map_or_else(String::new, |before| before.told.clone());
            store::put(tx, &Kept { told, ..kept.clone() })?;
            inbox::note(tx, &Note::Budgets)?;
            let made = one_shown(tx, &kept, now)?;
            let mut change = Change::new(&BUDGET_WRITE, &of)
                .event("budget.set", &made)
                .after(&kept.set)
                .reply(200, &made);
            if let Some(before) = before {
                change = change.before(&before.set);
            }
            tx.record(&ctx, change)?;
            Ok(made)
        };
        let made = self.db().write(write).await?;
        self.afforded().clear();
        self.live().wake();
        Ok(made)
    }

    pub async fn remove_budget(&self, call: &Call, whose: &str, period: &str) -> Result<Budget> {
        let (whose, period) = (Whose::parse(whose)?, Period::parse(period)?);
        let (tenant, project) = (call.place.tenant_id, project_of(&call.place, whose));
        let read = move |tx: &mut Tx<'_>| store::find(tx, tenant, project, period);
        let found = self.db().read(read).await?;
        let of = authorize(call, whose, period, found.is_none()).await?;
        let name = format!("{}/{}", whose.as_str(), period.as_str());
        let kept = found.ok_or_else(|| Error::not_found("budget", name))?;
        let ctx = call.ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            store::lock(tx, tenant)?;
            let now = tx.now();
            let gone = one_shown(tx, &kept, now)?;
            store::delete(tx, tenant, project, period)?;
            inbox::note(tx, &Note::Budgets)?;
            let change = Change::new(&BUDGET_WRITE, &of)
                .event("budget.removed", &gone)
                .before(&kept.set)
                .reply(200, &gone);
            tx.record(&ctx, change)?;
            Ok(gone)
        };
        let gone = self.db().write(write).await?;
        self.afforded().clear();
        self.live().wake();
        Ok(gone)
    }

    /// Refuses a job whose project or tenant has spent what it may, and one of which a start could never
    /// be paid. How much was spent is read once in a while.
    pub(crate) async fn affords(
        &self,
        project: &Project,
        definition: &Definition,
        (pool, zones): (usize, &[Name]),
    ) -> Result<()> {
        let now = self.db().now();
        let fresh = |at: Timestamp| now.since(at) < BELIEVED && at <= now;
        let known = self.afforded().get(&project.id).filter(|(at, _)| fresh(*at)).cloned();
        let budgets = if let Some((_, known)) = known {
            known
        } else {
            let (tenant, id) = (project.tenant_id, project.id);
            let read = move |tx: &mut Tx<'_>| {
                let mut kept = store::about(tx, tenant, id)?;
                kept.retain(|kept| kept.set.action.is_hard());
                all_shown(tx, &kept, now)
            };
            let read = std::sync::Arc::new(self.db().read(read).await?);
            let mut all = self.afforded();
            if all.len() >= REMEMBERED {
                all.retain(|_, (at, _)| fresh(*at));
            }
            all.insert(project.id, (now, read.clone()));
            read
        };
        if budgets.is_empty() {
            return Ok(());
        }
        self.could_ever_pay(definition, (pool, zones), &budgets)?;
        let spent = |budget: &&Budget| millionths(budget.spent) >= millionths(budget.set.amount);
        let Some(budget) = budgets.iter().find(spent) else { return Ok(()) };
        let text = format!(
            "the budget of the {} for {} is spent: {:.2} of {:.2}",
            budget.whose.as_str(),
            budget.now,
            budget.spent,
            budget.set.amount
        );
        Err(Error::new(&code::CONFLICT, text))
    }

    /// Refuses a time limit that not even the cheapest nodes could be paid for with all of a budget, whenever
    /// it began: what reaches into the next month or quarter is paid from both.
    fn could_ever_pay(
        &self,
        definition: &Definition,
        place: (usize, &[Name]),
        budgets: &[Budget],
    ) -> Result<()> {
        let Some(limit) = definition.time_limit else { return Ok(()) };
        let price = cheapest(definition, place, self.pool_list(), self.config());
        let needs = |budget: &Budget| {
            let since = Timestamp::from_micros(0);
            let until = Some(since + budget.period.least_part(limit.get()));
            Meter::whole(0).would_add(&Running { price: price.unwrap_or(0), since, until })
        };
        // One of nothing is told as spent.
        let short = |budget: &&Budget| {
            let amount = millionths(budget.set.amount);
            amount > 0 && needs(budget) > amount
        };
        let Some(budget) = budgets.iter().find(short) else { return Ok(()) };
        let within = match budget.period {
            Period::Total => "until then",
            Period::Month => "whenever it begins, in one month of it",
            Period::Quarter => "whenever it begins, in one quarter of it",
        };
        let allowed = format!(
            "a shorter one: {within} a start may cost {:.2} on the cheapest nodes that would do, and all \
             of the budget of the {} for {} is {:.2}",
            in_currency(needs(budget)),
            budget.whose.as_str(),
            budget.now,
            budget.set.amount
        );
        Err(Error::invalid("time_limit", limit, allowed))
    }
}
