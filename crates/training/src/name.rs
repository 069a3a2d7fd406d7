//! Names of jobs and queues, and the id of a job.

use std::fmt;
use std::str::FromStr;

use falaj_base::name::foreign::{ALLOWED, MAX_LEN, PATTERN, fits};
use falaj_base::{Error, Result};
use falaj_executors::AttemptId;
use falaj_store::db::{FromValue, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

falaj_base::names! {
    /// The name of a job. Several may have the same one.
    JobName, "name", fits, MAX_LEN, PATTERN, ALLOWED;
    /// The name of a queue, one in its tenant.
    QueueName, "queue", fits, MAX_LEN, PATTERN, ALLOWED;
    /// The name of a type of GPUs, such as `a100`.
    GpuTypeName, "gpu_type", fits, MAX_LEN, PATTERN, ALLOWED;
}

/// A job: `job_` and 32 hex digits, which sort by time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(Uuid);

const PREFIX: &str = "job_";

impl JobId {
    #[must_use]
    #[allow(clippy::new_without_default, reason = "an id has no default value")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0.simple())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for JobId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let canonical = |digits: &&str| {
            digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let digits = text.strip_prefix(PREFIX).filter(canonical);
        let uuid = digits.and_then(|digits| Uuid::try_parse(digits).ok());
        uuid.map(Self)
            .ok_or_else(|| Error::invalid("job", text, "`job_` followed by 32 hex digits"))
    }
}

impl Serialize for JobId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for JobId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "JobId".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^job_[0-9a-f]{32}$" })
    }
}

impl From<JobId> for Value {
    fn from(id: JobId) -> Self {
        Self::Text(id.to_string())
    }
}

impl FromValue for JobId {
    fn from_value(value: &Value) -> Option<Self> {
        String::from_value(value)?.parse().ok()
    }
}

/// One task of a job: what is scheduled. A job that is no array has the task 0 alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    pub job: JobId,
    pub task: u32,
}

/// One start of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StartId {
    pub task: TaskId,
    /// Counted from 1.
    pub attempt: u32,
}

impl StartId {
    /// What executors call it.
    pub(crate) fn outside(&self) -> Result<AttemptId> {
        let Self { task: TaskId { job, task }, attempt } = self;
        AttemptId::new(format!("{job}-{task}-{attempt}"))
            .ok_or_else(|| Error::internal("a start has no name for executors"))
    }

    /// The start that an executor calls so, if it is one of ours.
    pub(crate) fn of_outside(id: &AttemptId) -> Option<Self> {
        let mut parts = id.as_str().splitn(3, '-');
        let job = parts.next()?.parse().ok()?;
        let task = parts.next()?.parse().ok()?;
        let attempt = parts.next()?.parse().ok()?;
        Some(Self { task: TaskId { job, task }, attempt })
    }
}

impl fmt::Display for StartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task: TaskId { job, task }, attempt } = self;
        write!(f, "{job}-{task}-{attempt}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_text_and_a_start_is_found_by_its_name() {
        let job = JobId::new();
        assert_eq!(job.to_string().parse::<JobId>().unwrap(), job);
        let upper = job.to_string().to_uppercase();
        for bad in ["", "job_", "job_1", "run_00000000000000000000000000000000", upper.as_str()] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
        let start = StartId { task: TaskId { job, task: 99_999 }, attempt: 12 };
        assert_eq!(StartId::of_outside(&start.outside().unwrap()), Some(start));
        for bad in ["x", "job_1-0-1", "a-b-c-d"] {
            assert_eq!(StartId::of_outside(&AttemptId::new(bad).unwrap()), None, "{bad}");
        }
    }
}
