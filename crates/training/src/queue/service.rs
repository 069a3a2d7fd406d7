//! The verbs on queues.

use falaj_base::{Action, Error, Resource, Result, Scope, code};
use falaj_governance::tenancy::Project;
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;

use super::queue::{Queue, QueueSet, TENANT};
use super::store;
use super::tree::QueueKey;
use crate::job::store as jobs;
use crate::live::inbox::{self, Note};
use crate::name::QueueName;
use crate::{QUEUE_READ, QUEUE_WRITE, TENANT_QUOTA_WRITE, Training};

/// How deep the queues of a tenant may be below each other.
const MAX_DEPTH: usize = 4;

fn resource(project: &Project, name: &str, absent: bool) -> Resource {
    let scope = Scope::Tenant(project.tenant_id);
    let id = format!("{}/{name}", project.tenant_id);
    let resource = if absent {
        Resource::absent("queue", id, scope)
    } else {
        Resource::new("queue", id, scope)
    };
    resource.shown_as(name)
}

/// A tenant's own quota is set by the platform's own staff.
async fn authorize(call: &Call, name: &str, absent: bool) -> Result<(&'static Action, Resource)> {
    let of = resource(&call.place, name, absent);
    call.ctx.authorize(&QUEUE_WRITE, &of).await?;
    if name == TENANT {
        let id = call.place.tenant_id;
        let quota = Resource::new("tenant-quota", id, Scope::Platform).shown_as(name);
        call.ctx.authorize(&TENANT_QUOTA_WRITE, &quota).await?;
    }
    Ok((&QUEUE_WRITE, of))
}

impl Training {
    /// The queues of the tenant.
    pub async fn queues(&self, call: &Call) -> Result<Vec<Queue>> {
        let tenant = call.place.tenant_id;
        let of = Resource::new("queue", tenant, Scope::Tenant(tenant));
        call.ctx.authorize(&QUEUE_READ, &of).await?;
        let mut found = self.db().read(move |tx| store::of_tenant(tx, tenant)).await?;
        for queue in &mut found {
            let key = if queue.name.as_str() == TENANT {
                QueueKey::Tenant(tenant)
            } else {
                QueueKey::Named(tenant, queue.name.clone())
            };
            queue.held = self.live().held(&key).await;
        }
        Ok(found)
    }

    /// Makes a queue, or says anew what it has.
    pub async fn set_queue(&self, call: &Call, name: &str, set: QueueSet) -> Result<Queue> {
        let (action, of) = authorize(call, name, false).await?;
        let queue = Queue {
            name: QueueName::new(name)?,
            set,
            held: None,
            updated_at: self.db().now(),
            updated_by: call.ctx.principal.name.clone(),
        };
        queue.set.check(self.pool_list())?;
        if queue.name.as_str() == TENANT && queue.set.parent.is_some() {
            return Err(Error::invalid("parent", "set", "absent for the tenant itself"));
        }
        let (ctx, tenant, most) =
            (call.ctx.clone(), call.place.tenant_id, self.config().max_queues);
        let write = move |tx: &mut Tx<'_>| {
            store::lock(tx, tenant)?;
            let all = store::of_tenant(tx, tenant)?;
            let before = all.iter().find(|other| other.name == queue.name);
            place(&all, &queue, before)?;
            if before.is_none() && all.len() >= most {
                let text = format!("a tenant has at most {most} queues (`training.max_queues`)");
                return Err(Error::new(&code::CONFLICT, text));
            }
            if let Some(parent) = &queue.set.parent
                && before.is_none()
                && jobs::unfinished_in(tx, tenant, parent)? > 0
            {
                let text = format!("queue `{parent}` has jobs, and jobs are in leaves only");
                return Err(Error::new(&code::CONFLICT, text).at("parent"));
            }
            store::put(tx, tenant, &queue)?;
            inbox::note(tx, &Note::Queues)?;
            let mut change = Change::new(action, &of)
                .event("queue.set", &queue)
                .after(&queue)
                .reply(200, &queue);
            if let Some(before) = before {
                change = change.before(before);
            }
            tx.record(&ctx, change)?;
            Ok(queue)
        };
        let queue = self.db().write(write).await?;
        self.live().wake();
        self.forget_queues();
        Ok(queue)
    }

    /// Removes a queue that has neither jobs nor queues below it.
    pub async fn remove_queue(&self, call: &Call, name: &str) -> Result<Queue> {
        let tenant = call.place.tenant_id;
        let wanted = name.to_owned();
        let found = self.db().read(move |tx| store::find(tx, tenant, &wanted)).await?;
        let (action, of) = authorize(call, name, found.is_none()).await?;
        let queue = found.ok_or_else(|| Error::not_found("queue", name))?;
        let ctx = call.ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            store::lock(tx, tenant)?;
            let all = store::of_tenant(tx, tenant)?;
            let below = all.iter().find(|other| other.set.parent.as_ref() == Some(&queue.name));
            if let Some(below) = below {
                let text = format!("queue `{}` is below it", below.name);
                return Err(Error::new(&code::IN_USE, text));
            }
            let jobs = jobs::unfinished_in(tx, tenant, &queue.name)?;
            if jobs > 0 {
                let text = format!("it has {jobs} jobs that have not ended");
                return Err(Error::new(&code::IN_USE, text));
            }
            store::delete(tx, tenant, &queue.name)?;
            inbox::note(tx, &Note::Queues)?;
            let change = Change::new(action, &of)
                .event("queue.removed", &queue)
                .before(&queue)
                .reply(200, &queue);
            tx.record(&ctx, change)?;
            Ok(queue)
        };
        let queue = self.db().write(write).await?;
        self.live().wake();
        self.forget_queues();
        Ok(queue)
    }
}

/// Whether the queue may stand where it says.
fn place(all: &[Queue], queue: &Queue, before: Option<&Queue>) -> Result<()> {
    if let Some(before) = before
        && before.set.parent != queue.set.parent
    {
        let was = before.set.parent.as_ref().map_or(TENANT, |name| name.as_str());
        let given = queue.set.parent.as_ref().map_or(TENANT, |name| name.as_str());
        let allowed = format!("`{was}`, where it is: a queue does not move");
        return Err(Error::invalid("parent", given, allowed));
    }
    let mut depth = 1;
    let mut above = queue.set.parent.as_ref();
    while let Some(name) = above {
        let found = all.iter().find(|other| other.name == *name && name.as_str() != TENANT);
        let Some(found) = found.filter(|found| found.name != queue.name) else {
            return Err(Error::invalid("parent", name, "another queue of the tenant"));
        };
        depth += 1;
        if depth > MAX_DEPTH {
            let allowed = format!("a queue that is at most {} deep", MAX_DEPTH - 1);
            return Err(Error::invalid("parent", name, allowed));
        }
        above = found.set.parent.as_ref();
    }
    Ok(())
}
