//! The verbs on jobs.

use std::time::Duration;

use falaj_base::{
    Action, Error, Name, Page, PageQuery, PrincipalKind, Resource, Result, Scope, Timestamp, code,
};
use falaj_executors::MOST_RANKS;
use falaj_governance::residency::{Residency, on_record};
use falaj_governance::tenancy::Project;
use falaj_mlflow::Call;
use falaj_mlflow::asked::not_a_page;
use falaj_scheduler::JobId as Number;
use falaj_store::db::Tx;
use falaj_store::record::Change;

use super::attempt::{Attempt, Decided};
use super::definition::Definition;
use super::job::{Job, Owner, resource};
use super::spec::{explain, millis, to_spec};
use super::state::{State, Tally};
use super::store;
use crate::config::PoolKind;
use crate::live::Why;
use crate::live::inbox::{self, Note};
use crate::name::JobId;
use crate::pool::Pool;
use crate::{JOB_CANCEL, JOB_LOSE, JOB_READ, JOB_SUBMIT, POOL_USE, Training};

/// Decisions that are shown at most.
const DECISIONS: usize = 1000;
/// For how long a count of tasks is believed, and of how many projects.
const COUNTED: Duration = Duration::from_secs(1);
const REMEMBERED: usize = 10_000;

impl Training {
    /// The job if the caller may do this to it. One that is not there, and one that the caller may not
    /// know of, are refused alike.
    pub(crate) async fn seen(&self, call: &Call, id: &str, action: &'static Action) -> Result<Job> {
        let found = match id.parse::<JobId>() {
            Ok(id) => {
                let project = call.place.id;
                self.db().read(move |tx| store::find(tx, project, id)).await?
            }
            // What no job can be called is the name of none.
            Err(_) => None,
        };
        call.ctx.authorize(action, &resource(&call.place, id, found.is_none())).await?;
        found.ok_or_else(|| Error::not_found("job", id))
    }

    pub async fn submit(&self, call: &Call, definition: Definition) -> Result<Job> {
        let id = JobId::new();
        let of = resource(&call.place, &id.to_string(), false);
        call.ctx.authorize(&JOB_SUBMIT, &of).await?;
        self.may_act_on_others(call, "submits no jobs").await?;
        definition.check(self.config().max_array)?;
        let pool = self.usable_pool(call, &definition).await?;
        self.could_start(&definition, pool)?;
        self.may_keep(call, &definition, pool)?;
        self.secrets(&call.place, &definition)?;
        let zones = self.usable_zones(call, &definition, pool, &of).await?;
        self.could_run(&call.place, &definition, pool, &zones).await?;
        self.affords(&call.place, &definition, (pool, &zones)).await?;
        self.count_in(&call.place, definition.count).await?;
        let (run, experiment) = self.track(call, id, &definition).await?;
        let principal = &call.ctx.principal;
        let job = Job {
            id,
            name: definition.name.to_string(),
            state: State::Pending,
            reason: None,
            pool: self.pool_list().list[pool].name.clone(),
            zones,
            tasks: Tally { count: definition.count, ..Tally::default() },
            run_id: Some(run.id().to_string()),
            experiment_id: Some(experiment),
            created_at: self.db().now(),
            created_by: principal.name.clone(),
            started_at: None,
            ended_at: None,
            cancel_requested_at: None,
            idle_since: None,
            definition,
            tenant: call.place.tenant_id,
            project: call.place.id,
            owner: Owner {
                id: principal.id,
                home: principal.home,
                is_system: principal.kind == PrincipalKind::System,
            },
        };
        let (ctx, planned) = (call.ctx.clone(), run.clone());
        let write = move |tx: &mut Tx<'_>| {
            let made = planned.write(tx, &ctx)?;
            store::insert(tx, &job)?;
            inbox::note(tx, &Note::Submitted(job.id))?;
            let change = Change::new(&JOB_SUBMIT, &of)
                .event("job.submitted", &job)
                .after(&job)
                .reply(200, &job);
            tx.record(&ctx, change)?;
            Ok((job, made))
        };
        let (job, made) = self.db().write(write).await?;
        run.is_made(made);
        self.live().wake();
        Ok(job)
    }

    /// Whether a job acts with the token of one of its own starts.
    async fn is_itself(&self, call: &Call, job: JobId) -> Result<bool> {
        let token = call.ctx.principal.token.as_ref().filter(|token| token.of_job);
        let Some(token) = token.map(|token| token.id.to_string()) else { return Ok(false) };
        self.db().read(move |tx| store::has_token(tx, job, &token)).await
    }

    /// Refuses the token of a job, unless its definition lets it act on others. All other tokens may do
    /// what their owners may.
    async fn may_act_on_others(&self, call: &Call, what: &str) -> Result<()> {
        let token = call.ctx.principal.token.as_ref().filter(|token| token.of_job);
        let Some(token) = token.map(|token| token.id.to_string()) else { return Ok(()) };
        let read = move |tx: &mut Tx<'_>| store::job_of_token(tx, &token);
        let owner = self.db().read(read).await?;
        if owner.is_some_and(|job| job.definition.may_submit) {
            return Ok(());
        }
        let text = format!("the token of a job {what}, unless its definition says `may_submit`");
        Err(Error::new(&code::FORBIDDEN, text))
    }

    /// Counts tasks that are about to be taken in, and refuses those that are too many. How many there
    /// are is read once in a while: adding up a million rows for each would take longer than all else.
    async fn count_in(&self, project: &Project, count: u32) -> Result<()> {
        let (id, now, most) = (project.id, self.db().now(), self.config().max_unfinished);
        let counted = |known: &(Timestamp, u64)| now.since(known.0) < COUNTED && known.0 <= now;
        let known = self.counted().get(&id).copied().filter(counted);
        let (at, there) = match known {
            Some(known) => known,
            None => (now, self.db().read(move |tx| store::unfinished(tx, id)).await?),
        };
        let mut all = self.counted();
        if all.len() >= REMEMBERED {
            all.clear();
        }
        let entry = all.entry(id).or_insert((at, there));
        if known.is_none() {
            *entry = (at, there);
        }
        if entry.1 + u64::from(count) > most {
            let text = format!(
                "a project has at most {most} tasks that have not ended \
                 (`training.max_unfinished`), and there are {}",
                entry.1
            );
            return Err(Error::new(&code::CONFLICT, text).at("count"));
        }
        entry.1 += u64::from(count);
        Ok(())
    }

    /// The pool of a job, if its project may use it.
    async fn usable_pool(&self, call: &Call, definition: &Definition) -> Result<usize> {
        let wanted = definition.pool.as_ref().unwrap_or(&self.config().default_pool);
        let pools = self.pool_list();
        let open = |pool: &Pool| {
            let tenant = &call.place.tenant;
            pool.is_server || pool.tenants.as_ref().is_none_or(|them| them.contains(tenant))
        };
        let found = pools.by_name(wanted.as_str()).filter(|at| open(&pools.list[*at]));
        let Some(at) = found else {
            let names: Vec<&str> = pools
                .list
                .iter()
                .filter(|pool| open(pool))
                .map(|pool| pool.name.as_str())
                .collect();
            let there = if names.is_empty() { "none: there is no pool" } else { &names.join(", ") };
            return Err(Error::invalid("pool", wanted, there));
        };
        let pool = &pools.list[at];
        let trusted = |them: &Vec<Name>| them.contains(&call.place.tenant);
        if pool.is_server && !pool.tenants.as_ref().is_some_and(trusted) {
            // Whoever runs a command there is the server's own user.
            let of = Resource::new("pool", &pool.name, Scope::Platform);
            call.ctx.authorize(&POOL_USE, &of).await.map_err(|error| {
                if error.kind().is_ours() {
                    return error;
                }
                let text = format!(
                    "jobs in pool `{}` run as the server's own user: only platform admins may, and \
                     tenants that its configuration names",
                    pool.name
                );
                Error::new(&code::FORBIDDEN, text).at("pool")
            })?;
        }
        Ok(at)
    }

    /// Refuses what the executor of a pool would refuse whenever it starts.
    pub(crate) fn could_start(&self, definition: &Definition, pool: usize) -> Result<()> {
        let pool = &self.pool_list().list[pool];
        let (name, resources) = (&pool.name, &definition.resources);
        let runs_images = pool.kind == PoolKind::Kubernetes;
        if let Some(image) = definition.image.as_ref().filter(|_| !runs_images) {
            let allowed = format!("absent: pool `{name}` starts programs, not containers");
            return Err(Error::invalid("image", image, allowed));
        }
        if let Some(slice) = resources.mig.filter(|_| !runs_images) {
            let allowed = format!("absent: pool `{name}` cannot hand over slices of GPUs");
            return Err(Error::invalid("resources.mig", slice.as_str(), allowed));
        }
        if let Some(part) = resources.gpu_fraction.filter(|_| runs_images) {
            let allowed = format!("absent: pool `{name}` hands over whole GPUs and slices");
            return Err(Error::invalid("resources.gpu_fraction", part, allowed));
        }
        self.can_save(definition, pool)?;
        let nodes = usize::from(resources.max_nodes.unwrap_or(resources.nodes));
        let ranks = nodes.saturating_mul(usize::from(resources.ranks()));
        if ranks > MOST_RANKS {
            let given = format!("{ranks} ranks on {nodes} nodes");
            let allowed = format!("at most {MOST_RANKS} ranks together");
            return Err(Error::invalid("resources.ranks_per_node", given, allowed));
        }
        self.shape_is_made(definition, pool)
    }

    /// Refuses to keep the work of a job in a folder that its nodes do not see.
    fn can_save(&self, definition: &Definition, pool: &Pool) -> Result<()> {
        let own = definition.checkpoint.as_ref().is_some_and(|it| it.dir.is_none());
        let config = self.config().pool.iter().find(|it| it.name == pool.name);
        let has_folder = config.is_some_and(|it| it.folder.is_some());
        if pool.kind == PoolKind::Kubernetes && own && !has_folder {
            let allowed = format!("a folder in a volume: pool `{}` has none of its own", pool.name);
            return Err(Error::invalid("checkpoint.dir", "absent", allowed));
        }
        Ok(())
    }

    /// The zones of the pool in which a job may run. Where a rule leaves none, its refusal is on
    /// record.
    async fn usable_zones(
        &self,
        call: &Call,
        definition: &Definition,
        pool: usize,
        of: &Resource,
    ) -> Result<Vec<Name>> {
        let placed = self.objects().check_zone(&call.place.zone);
        on_record(self.db(), &call.ctx, &JOB_SUBMIT, of, placed).await?;
        let zones = self.pool_list().zones_of(pool);
        let wanted: Vec<Name> = zones
            .iter()
            .filter(|zone| definition.zones.is_empty() || definition.zones.contains(zone))
            .cloned()
            .collect();
        if wanted.is_empty() {
            let given: Vec<_> = definition.zones.iter().map(Name::as_str).collect();
            let there: Vec<_> = zones.iter().map(Name::as_str).collect();
            let allowed = format!("zones of the pool: {}", there.join(", "));
            return Err(Error::invalid("zones", given.join(", "), allowed));
        }
        let from = call.place.zone.clone();
        let judge = move |tx: &mut Tx<'_>| {
            let mut allowed = Vec::new();
            let mut refused = None;
            for to in wanted {
                match Residency::require(tx, &from, &to) {
                    Ok(_) => allowed.push(to),
                    Err(error) if *error.code() == code::RESIDENCY => refused = Some(error),
                    Err(error) => return Err(error),
                }
            }
            match refused {
                Some(error) if allowed.is_empty() => Err(error.at("zones")),
                _ => Ok(allowed),
            }
        };
        let judged = self.db().glance(judge).await;
        on_record(self.db(), &call.ctx, &JOB_SUBMIT, of, judged).await
    }

    /// Refuses what could never run, were everything idle.
    async fn could_run(
        &self,
        project: &Project,
        definition: &Definition,
        pool: usize,
        zones: &[Name],
    ) -> Result<()> {
        let now = self.db().now();
        self.with_judge(|judge, pools| {
            let queue = definition.queue.as_ref();
            let (queue, events) = judge.tree.of_job(project.tenant_id, project.id, queue);
            for event in events {
                judge.scheduler.apply(millis(now), event);
            }
            let Some(queue) = queue else {
                let given = definition.queue.as_ref().map_or("", |name| name.as_str());
                return Err(Error::invalid("queue", given, "a queue of the tenant"));
            };
            judge.scheduler.apply(millis(now), falaj_scheduler::Event::Tick);
            let set = pools.zone_set(pool, zones);
            let spec = to_spec(definition, Number(0), queue, set, pools)?;
            let name = pools.list[pool].name.as_str();
            judge
                .scheduler
                .check(&spec)
                .map_err(|refusal| explain(&refusal, definition, name, (&judge.tree, pools)))
        })
        .await
    }

    /// The jobs of a project, the newest first, without what makes them large.
    pub async fn jobs(
        &self,
        call: &Call,
        filter: (Option<State>, bool),
        query: PageQuery,
    ) -> Result<Page<Job>> {
        call.ctx.authorize(&JOB_READ, &call.place.resource()).await?;
        let (project, limit, before) = (call.place.id, query.limit()?, query.after().to_owned());
        if !before.is_empty() && before.parse::<JobId>().is_err() {
            return Err(not_a_page(&query));
        }
        let read = move |tx: &mut Tx<'_>| store::list(tx, project, &before, filter, limit + 1);
        let found = self.db().read(read).await?;
        let mut page = Page::cut(found, limit, |job| job.id.to_string());
        page.items.retain(|job| {
            call.ctx.allows(&JOB_READ, &resource(&call.place, &job.id.to_string(), false))
        });
        let idle = self.idle_jobs(call).await?;
        for job in &mut page.items {
            job.definition.env.clear();
            job.idle_since = idle.get(&job.id).copied();
        }
        Ok(page)
    }

    /// Asks for the end of a job. What waits is over at once, what runs is told to end.
    pub async fn cancel_job(&self, call: &Call, id: &str) -> Result<Job> {
        let job = self.seen(call, id, &JOB_CANCEL).await?;
        if !self.is_itself(call, job.id).await? {
            self.may_act_on_others(call, "cancels no other job").await?;
        }
        let of = resource(&call.place, &job.id.to_string(), false);
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        let write = move |tx: &mut Tx<'_>| {
            let first = store::ask_to_cancel(tx, job.id)?;
            let now = store::find(tx, project, job.id)?;
            let now = now.ok_or_else(|| Error::not_found("job", job.id))?;
            if !first && now.cancel_requested_at.is_none() {
                let text = format!("the job is over: it is {}", now.state.as_str());
                return Err(Error::new(&code::CONFLICT, text));
            }
            if first {
                inbox::note(tx, &Note::Cancelled(job.id))?;
            }
            let told = serde_json::json!({ "job": job.id });
            let change = Change::new(&JOB_CANCEL, &of)
                .event("job.cancel-requested", &told)
                .before(&job)
                .after(&now)
                .reply(200, &now);
            tx.record(&ctx, change)?;
            Ok(now)
        };
        let job = self.db().write(write).await?;
        self.live().wake();
        Ok(job)
    }

    /// Says that what a server ran of a job that is away is gone for good: it may start again.
    pub async fn lose_job(&self, call: &Call, id: &str) -> Result<Job> {
        let job = self.seen(call, id, &JOB_LOSE).await?;
        let of = resource(&call.place, &job.id.to_string(), false);
        let ctx = call.ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            if !store::is_away(tx, job.id)? {
                let text = "no start of it is on the machine of a server that is away";
                return Err(Error::new(&code::CONFLICT, text));
            }
            inbox::note(tx, &Note::Lost(job.id))?;
            let told = serde_json::json!({ "job": job.id });
            let change =
                Change::new(&JOB_LOSE, &of).event("job.lost", &told).before(&job).reply(200, &job);
            tx.record(&ctx, change)?;
            Ok(job)
        };
        let job = self.db().write(write).await?;
        self.live().wake();
        Ok(job)
    }

    /// Why a task of a job is where it is; the first that is not over if none is named.
    pub async fn why(&self, call: &Call, id: &str, task: Option<u32>) -> Result<Why> {
        let job = self.seen(call, id, &JOB_READ).await?;
        if let Some(task) = task.filter(|task| *task >= job.tasks.count) {
            return Err(Error::invalid("task", task, format!("below {}", job.tasks.count)));
        }
        self.why_is(&job, task.unwrap_or(0)).await
    }

    /// The starts of a job, the oldest first.
    pub async fn attempts(
        &self,
        call: &Call,
        id: &str,
        task: Option<u32>,
        query: PageQuery,
    ) -> Result<Page<Attempt>> {
        let job = self.seen(call, id, &JOB_READ).await?;
        let limit = query.limit()?;
        let after = match query.after() {
            "" => None,
            text => Some(
                text.split_once('-')
                    .and_then(|(task, attempt)| Some((task.parse().ok()?, attempt.parse().ok()?)))
                    .ok_or_else(|| not_a_page(&query))?,
            ),
        };
        let after = after.unwrap_or((0, 0));
        let read = move |tx: &mut Tx<'_>| store::starts(tx, job.id, task, after, limit + 1);
        let found = self.db().read(read).await?;
        let shown = found.into_iter().map(|start| start.shown).collect();
        Ok(Page::cut(shown, limit, |it: &Attempt| format!("{}-{}", it.task, it.attempt)))
    }

    /// What was decided about a job, the oldest first.
    pub async fn decisions(
        &self,
        call: &Call,
        id: &str,
        task: Option<u32>,
    ) -> Result<Vec<Decided>> {
        let job = self.seen(call, id, &JOB_READ).await?;
        self.db().read(move |tx| store::decisions(tx, job.id, task, DECISIONS)).await
    }
}
