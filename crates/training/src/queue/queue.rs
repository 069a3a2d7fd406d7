//! What a queue is.

use std::collections::BTreeMap;

use falaj_base::{ByteSize, Error, Result, Timestamp};
use falaj_scheduler::model::{Dimension, GPU_PARTS};
use falaj_scheduler::{Amounts, Quota};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{GpuTypeName, QueueName};
use crate::pool::Pools;

/// The name under which a tenant's own quota is set.
pub const TENANT: &str = "tenant";

/// An amount of some resources; no limit where one is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// GPUs of all types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<f64>,
    /// GPUs of single types.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_types: BTreeMap<GpuTypeName, f64>,
}

impl Limits {
    fn check(&self, field: &str) -> Result<()> {
        let numbers = [("cpu", self.cpu), ("gpus", self.gpus)];
        let types = self.gpu_types.values().map(|count| ("gpu_types", Some(*count)));
        for (name, number) in numbers.into_iter().chain(types) {
            if let Some(number) = number.filter(|n| !(0.0..=1e9).contains(n)) {
                return Err(Error::invalid(format!("{field}.{name}"), number, "0 to 1000000000"));
            }
        }
        Ok(())
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "checked to be 0 to 1e9"
    )]
    fn amounts(&self, pools: &Pools) -> Amounts {
        let mut amounts = Amounts::UNLIMITED;
        let mut set = |dimension, amount: Option<f64>| {
            if let Some(amount) = amount {
                amounts = amounts.with(dimension, amount.round() as u64);
            }
        };
        set(Dimension::Cpu, self.cpu.map(|cores| cores * 1000.0));
        set(Dimension::Memory, self.memory.map(|memory| (memory.bytes() >> 20) as f64));
        set(Dimension::Gpu, self.gpus.map(|gpus| gpus * GPU_PARTS as f64));
        for (name, count) in &self.gpu_types {
            if let Some(kind) = pools.gpu_type(name) {
                set(Dimension::GpuOf(kind), Some(count * GPU_PARTS as f64));
            }
        }
        amounts
    }
}

/// What is said of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueueSet {
    /// The queue above it; the tenant itself if absent. It cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<QueueName>,
    /// What is its own.
    pub quota: Limits,
    /// How much more it may take of what others leave unused; all of it if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrow: Option<Limits>,
    /// How much of its own others may use meanwhile; all of it if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lend: Option<Limits>,
    /// Its weight among its siblings where shares are compared; 1 if absent.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

impl QueueSet {
    pub(crate) fn check(&self, pools: &Pools) -> Result<()> {
        self.quota.check("quota")?;
        for (field, limits) in [("borrow", &self.borrow), ("lend", &self.lend)] {
            limits.as_ref().map_or(Ok(()), |limits| limits.check(field))?;
        }
        if let Some(weight) = self.weight.filter(|weight| !(1..=1_000_000).contains(weight)) {
            return Err(Error::invalid("weight", weight, "1 to 1000000"));
        }
        let all = [Some(&self.quota), self.borrow.as_ref(), self.lend.as_ref()];
        let named = all.into_iter().flatten().flat_map(|limits| limits.gpu_types.keys());
        match named.into_iter().find(|name| pools.gpu_type(name).is_none()) {
            Some(unknown) => Err(Error::invalid("gpu_types", unknown, "a type that some pool has")),
            None => Ok(()),
        }
    }

    pub(crate) fn to_quota(&self, pools: &Pools) -> Quota {
        let some = |limits: &Option<Limits>| {
            limits.as_ref().map_or(Amounts::UNLIMITED, |limits| limits.amounts(pools))
        };
        Quota {
            nominal: self.quota.amounts(pools),
            borrowing: some(&self.borrow),
            lending: some(&self.lend),
        }
    }
}

/// A queue as it is shown.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Queue {
    pub name: QueueName,
    #[serde(flatten)]
    pub set: QueueSet,
    /// What its jobs hold now, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    pub updated_at: Timestamp,
    pub updated_by: String,
}

/// What the jobs of a queue, and of those below it, hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Held {
    pub cpu: f64,
    pub memory_mib: u64,
    pub gpus: f64,
    /// The largest share of any resource of the cluster that this is.
    pub share: f64,
    /// The same of what they have used of late: see `training.fair_share`.
    pub used: f64,
}

impl Held {
    #[allow(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
    pub(crate) fn of(amounts: &Amounts, (share, used): (f64, f64)) -> Self {
        Self {
            cpu: amounts.get(Dimension::Cpu) as f64 / 1000.0,
            memory_mib: amounts.get(Dimension::Memory),
            gpus: amounts.get(Dimension::Gpu) as f64 / GPU_PARTS as f64,
            share,
            used,
        }
    }
}
