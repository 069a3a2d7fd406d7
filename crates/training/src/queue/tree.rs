//! Queues as the scheduler knows them: by number, parents before children.

use std::collections::{HashMap, HashSet};

use falaj_base::{ProjectId, TenantId};
use falaj_scheduler::{Amounts, Event, QueueId, QueueSpec, Quota};

use super::queue::{Queue, TENANT};
use crate::name::QueueName;
use crate::pool::Pools;

/// One queue of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueueKey {
    Tenant(TenantId),
    Named(TenantId, QueueName),
    /// That of a project, which is kept nowhere.
    Own(TenantId, ProjectId),
}

impl QueueKey {
    pub(crate) fn tenant(&self) -> TenantId {
        match self {
            Self::Tenant(tenant) | Self::Named(tenant, _) | Self::Own(tenant, _) => *tenant,
        }
    }

    /// The name to use towards people.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Tenant(_) => "the tenant".to_owned(),
            Self::Named(_, name) => format!("queue `{name}`"),
            Self::Own(..) => "the project's own queue".to_owned(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct QueueTree {
    ids: HashMap<QueueKey, QueueId>,
    keys: Vec<QueueKey>,
    /// Tenants that have a quota: what their projects' own queues use is taken from that.
    governed: HashSet<TenantId>,
}

const NOTHING: Quota =
    Quota { nominal: Amounts::ZERO, borrowing: Amounts::ZERO, lending: Amounts::ZERO };

impl QueueTree {
    pub(crate) fn key(&self, id: QueueId) -> Option<&QueueKey> {
        self.keys.get(usize::try_from(id.0).ok()?)
    }

    pub(crate) fn id(&self, key: &QueueKey) -> Option<QueueId> {
        self.ids.get(key).copied()
    }

    fn number(&mut self, key: QueueKey) -> QueueId {
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let id = QueueId(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
        self.keys.push(key.clone());
        self.ids.insert(key, id);
        id
    }

    /// Brings the tree in line with what is kept. What is not there any more has nothing.
    pub(crate) fn update(&mut self, kept: &[(TenantId, Queue)], pools: &Pools) -> Vec<Event> {
        let own_of_tenant: HashMap<TenantId, &Queue> = kept
            .iter()
            .filter(|(_, queue)| queue.name.as_str() == TENANT)
            .map(|(tenant, queue)| (*tenant, queue))
            .collect();
        self.governed = own_of_tenant.keys().copied().collect();
        let mut tenants: Vec<TenantId> = kept.iter().map(|(tenant, _)| *tenant).collect();
        tenants.extend(self.keys.iter().filter_map(|key| match key {
            QueueKey::Tenant(tenant) => Some(*tenant),
            _ => None,
        }));
        tenants.sort_unstable();
        tenants.dedup();
        let mut events = Vec::new();
        for &tenant in &tenants {
            let set = own_of_tenant.get(&tenant).map(|queue| &queue.set);
            // A tenant's quota is a limit: it borrows from no other tenant unless that is said.
            let quota = set.map_or(Quota::of_children(), |set| {
                let quota = set.to_quota(pools);
                let borrowing = if set.borrow.is_some() { quota.borrowing } else { Amounts::ZERO };
                Quota { borrowing, ..quota }
            });
            let weight = set.and_then(|set| set.weight).unwrap_or(1);
            let id = self.number(QueueKey::Tenant(tenant));
            events.push(Event::QueueSet(QueueSpec { id, parent: None, quota, weight }));
        }
        // Each round adds those whose parent is there; the tree is not deep.
        let mut left: Vec<&(TenantId, Queue)> =
            kept.iter().filter(|(_, queue)| queue.name.as_str() != TENANT).collect();
        let mut placed: HashSet<(TenantId, &QueueName)> = HashSet::new();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|(tenant, queue)| {
                let parent = queue.set.parent.as_ref();
                if parent.is_some_and(|parent| !placed.contains(&(*tenant, parent))) {
                    return true;
                }
                let above = match parent {
                    Some(parent) => QueueKey::Named(*tenant, parent.clone()),
                    None => QueueKey::Tenant(*tenant),
                };
                let spec = QueueSpec {
                    parent: Some(self.number(above)),
                    id: self.number(QueueKey::Named(*tenant, queue.name.clone())),
                    quota: queue.set.to_quota(pools),
                    weight: queue.set.weight.unwrap_or(1),
                };
                events.push(Event::QueueSet(spec));
                placed.insert((*tenant, &queue.name));
                false
            });
            if left.len() == before {
                break;
            }
        }
        for (at, key) in self.keys.clone().into_iter().enumerate() {
            let id = QueueId(u32::try_from(at).unwrap_or(u32::MAX));
            match &key {
                QueueKey::Named(tenant, name) if !placed.contains(&(*tenant, name)) => {
                    events.push(Event::QuotaChanged(id, NOTHING));
                }
                QueueKey::Own(tenant, _) => {
                    events.push(Event::QuotaChanged(id, self.own_quota(*tenant)));
                }
                _ => {}
            }
        }
        events
    }

    /// A project's own queue has what its tenant has, or anything where that has no quota.
    fn own_quota(&self, tenant: TenantId) -> Quota {
        if self.governed.contains(&tenant) { Quota::of_children() } else { Quota::NONE }
    }

    /// The queue of a job, and what the scheduler must be told first. `None` if it is not there.
    pub(crate) fn of_job(
        &mut self,
        tenant: TenantId,
        project: ProjectId,
        queue: Option<&QueueName>,
    ) -> (Option<QueueId>, Vec<Event>) {
        if let Some(name) = queue {
            return (self.id(&QueueKey::Named(tenant, name.clone())), Vec::new());
        }
        let key = QueueKey::Own(tenant, project);
        if let Some(id) = self.id(&key) {
            return (Some(id), Vec::new());
        }
        let mut events = Vec::new();
        let above = QueueKey::Tenant(tenant);
        let known = self.id(&above).is_some();
        let parent = self.number(above);
        if !known {
            let (quota, weight) = (Quota::of_children(), 1);
            events.push(Event::QueueSet(QueueSpec { id: parent, parent: None, quota, weight }));
        }
        let (id, quota) = (self.number(key), self.own_quota(tenant));
        let spec = QueueSpec { id, parent: Some(parent), quota, weight: 1 };
        events.push(Event::QueueSet(spec));
        (Some(id), events)
    }
}

#[cfg(test)]
mod tests {
    use falaj_base::Timestamp;
    use falaj_scheduler::order::by_name;
    use falaj_scheduler::{JobSpec, Refusal, Scheduler, Settings};

    use super::super::queue::{Limits, QueueSet};
    use super::*;
    use crate::pool::{Machine, no_engine};

    fn queue(name: &str, parent: Option<&str>, cpu: Option<f64>, borrows: bool) -> Queue {
        let borrow = (!borrows).then(|| Limits { cpu: Some(0.0), ..Limits::default() });
        Queue {
            name: QueueName::new(name).unwrap(),
            set: QueueSet {
                parent: parent.map(|name| QueueName::new(name).unwrap()),
                quota: Limits { cpu, ..Limits::default() },
                borrow,
                ..QueueSet::default()
            },
            held: None,
            updated_at: Timestamp::from_micros(0),
            updated_by: String::new(),
        }
    }

    fn most(scheduler: &mut Scheduler, id: QueueId) -> Option<u64> {
        let mut spec = JobSpec::plain(1, id.0, 1);
        spec.per_node.gpu = falaj_scheduler::GpuAsk::None;
        spec.per_node.cpu = 4_000_000_000;
        match scheduler.check(&spec) {
            Err(Refusal::OverQuota { at_most, .. }) => Some(at_most),
            _ => None,
        }
    }

    #[test]
    fn quotas_hold_in_the_order_of_the_tree_whatever_the_order_of_the_rows() {
        let config = crate::config::TrainingConfig {
            local: crate::config::LocalConfig { enabled: false, ..Default::default() },
            ..Default::default()
        };
        let home = falaj_base::Name::new("home").unwrap();
        let machine = Machine { cpu: 1.0, memory_mib: 1, gpus: 0, gpu_type: None };
        let pools = Pools::new(&config, &home, &machine, &mut no_engine).unwrap();
        let (tenant, project) = (TenantId::new(), ProjectId::new());
        let mut scheduler = Scheduler::new(Settings::default(), by_name("falaj").unwrap());
        let mut tree = QueueTree::default();
        let rows = [
            (tenant, queue("deep", Some("team"), Some(2.0), false)),
            (tenant, queue("team", None, Some(4.0), false)),
            (tenant, queue("orphan", Some("nowhere"), Some(1.0), false)),
        ];
        for event in tree.update(&rows, &pools) {
            scheduler.apply(0, event);
        }
        let name = |text: &str| QueueName::new(text).unwrap();
        let (deep, events) = tree.of_job(tenant, project, Some(&name("deep")));
        assert!(events.is_empty());
        assert_eq!(most(&mut scheduler, deep.unwrap()), Some(2000));
        assert_eq!(tree.of_job(tenant, project, Some(&name("orphan"))).0, None);
        // Without a quota a project's own queue is not limited, and with one of its tenant it is.
        let (own, events) = tree.of_job(tenant, project, None);
        for event in events {
            scheduler.apply(0, event);
        }
        assert_eq!(most(&mut scheduler, own.unwrap()), None);
        let rows = [(tenant, queue(TENANT, None, Some(3.0), true))];
        for event in tree.update(&rows, &pools) {
            scheduler.apply(0, event);
        }
        assert_eq!(most(&mut scheduler, own.unwrap()), Some(3000));
        assert_eq!(most(&mut scheduler, deep.unwrap()), Some(0), "it is not there any more");
    }
}
