//! What a job is asked to be: a definition, read strictly and checked as a whole.
//!
//! Must hold: a definition that passed [`Definition::check`] says one thing only; what it leaves open
//! has one default. The first thing that is wrong is named with its field, its value and what is
//! allowed.

use std::collections::BTreeMap;

use falaj_base::{ByteSize, Error, HumanDuration, Name, Result, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{GpuTypeName, JobName, QueueName};

/// All of it, as JSON: it is kept for every job that has not ended.
const MAX_DEFINITION: usize = 64 << 10;
const MAX_WORDS: usize = 4096;
const MAX_ENV: usize = 512;
const MAX_VALUE: usize = 32 << 10;
const MAX_NAMES: usize = 256;
const MAX_PATH: usize = 4096;
const MAX_NODES: u16 = 4096;
const MAX_RANKS: u16 = 256;
const MAX_RETRIES: u32 = 100;
const MAX_TEXT: usize = 500;

/// A job, as it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub name: JobName,
    /// The program and its arguments, the same for every rank.
    #[serde(default)]
    pub command: Vec<String>,
    /// A container image, in pools of Kubernetes; refused in others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Where it starts, on its node; a folder of its own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    #[serde(default)]
    pub resources: Resources,
    /// So many tasks that differ only in `FALAJ_TASK`: an array.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub count: u32,
    /// The project's own queue if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// `training.default_pool` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
    /// Higher goes first, and may stop lower ones of its own queue.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i16,
    /// When it must have finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Each start is ended after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<HumanDuration>,
    /// All its starts together may cost so much; then it is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Its token may submit jobs of its project, and cancel others than itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_submit: bool,
    #[serde(default)]
    pub spot: SpotUse,
    /// How often a task that failed is started again.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub retries: u32,
    /// Whether it may lose its nodes when it does not use them; `false` only where the rule of its pool
    /// and queue allows that.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub reclaim: bool,
    /// Whether it may go to another pool that takes jobs of its own when it has waited for long: one
    /// where its data may be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub burst: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables whose values are secrets of the configuration, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// The zones it may run in; all that residency rules allow if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<Name>,
    /// What it reads, for its run: names of datasets, with `@version` or `@tag`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<String>,
    /// The same for features and training sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    #[serde(default)]
    pub framework: Framework,
    /// The experiment of its run; `training` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// Parameters of its run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// Tags of its run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// What each node of the job has for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// Cores.
    pub cpu: f64,
    pub memory: ByteSize,
    /// Whole GPUs.
    #[schemars(range(max = 16))]
    pub gpus: u8,
    /// A part of one GPU, such as 0.5. It is shared and not isolated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_fraction: Option<f64>,
    /// A slice of one GPU: `1g`, `2g`, `3g`, `4g` or `7g`. In pools of Kubernetes that have such slices;
    /// refused in others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigSlice>,
    /// Any type if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<GpuTypeName>,
    /// How many nodes; the least of an elastic job.
    #[schemars(range(min = 1, max = 4096))]
    pub nodes: u16,
    /// An elastic job takes up to so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u16>,
    /// Processes on each node; one for each whole GPU if absent, and at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_per_node: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyAsk>,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            cpu: 1.0,
            memory: ByteSize::mib(512),
            gpus: 0,
            gpu_fraction: None,
            mig: None,
            gpu_type: None,
            nodes: 1,
            max_nodes: None,
            ranks_per_node: None,
            topology: None,
        }
    }
}

impl Resources {
    /// Thousandths of a core.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
    pub(crate) fn cpu_millis(&self) -> u32 {
        (self.cpu * 1000.0).round() as u32
    }

    /// MiB, never too few.
    pub(crate) fn memory_mib(&self) -> u32 {
        u32::try_from(self.memory.bytes().div_ceil(1 << 20)).unwrap_or(u32::MAX)
    }

    pub(crate) fn ranks(&self) -> u16 {
        self.ranks_per_node.unwrap_or_else(|| u16::from(self.gpus).max(1))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MigSlice {
    #[serde(rename = "1g")]
    G1,
    #[serde(rename = "2g")]
    G2,
    #[serde(rename = "3g")]
    G3,
    #[serde(rename = "4g")]
    G4,
    #[serde(rename = "7g")]
    G7,
}

impl MigSlice {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::G1 => "1g",
            Self::G2 => "2g",
            Self::G3 => "3g",
            Self::G4 => "4g",
            Self::G7 => "7g",
        }
    }

    /// The slice of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::G1, Self::G2, Self::G3, Self::G4, Self::G7]
            .into_iter()
            .find(|it| it.as_str() == name)
    }
}

/// What should hold the nodes of a job together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyAsk {
    pub level: TopologyLevel,
    /// Rather wait than be spread.
    #[serde(default)]
    pub required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TopologyLevel {
    Rack,
    Block,
}

/// Whether capacity that may vanish will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpotUse {
    #[default]
    Never,
    Allowed,
    /// Waits for spot until its deadline could not be met otherwise.
    UntilDeadlineNears,
}

/// What the ranks are told about each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    /// Ranks, sizes and an address to meet, as `torch.distributed` reads them.
    #[default]
    Torch,
    Horovod,
    Tensorflow,
    None,
}

/// Where a job saves its work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// A folder that every node of the pool sees; one below the data folder if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// How often it means to save, for `CHECKPOINT_EVERY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<HumanDuration>,
    /// How many whole checkpoints are kept in the folder; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
}

impl Definition {
    /// Refuses what cannot be meant.
    pub fn check(&self, most_tasks: u32) -> Result<()> {
        if self.command.is_empty() && self.image.is_none() {
            return Err(Error::invalid("command", "empty", "a program and its arguments"));
        }
        if self.command.len() > MAX_WORDS {
            let allowed = format!("at most {MAX_WORDS} words");
            return Err(Error::invalid("command", self.command.len(), allowed));
        }
        if let Some(place) = self.command.iter().position(|word| word.contains('\0')) {
            return Err(Error::invalid(format!("command[{place}]"), "a NUL", "text without NUL"));
        }
        if self.command.first().is_some_and(String::is_empty) {
            return Err(Error::invalid("command[0]", "", "the name of a program"));
        }
        optional("image", self.image.as_ref(), MAX_TEXT)?;
        absolute("folder", self.folder.as_ref())?;
        optional("experiment", self.experiment.as_ref(), MAX_TEXT)?;
        self.resources.check().map_err(|error| error.within("resources"))?;
        if !(1..=most_tasks).contains(&self.count) {
            let allowed = format!("1 to {most_tasks} (`training.max_array`)");
            return Err(Error::invalid("count", self.count, allowed));
        }
        if !(-1000..=1000).contains(&self.priority) {
            return Err(Error::invalid("priority", self.priority, "-1000 to 1000"));
        }
        if self.retries > MAX_RETRIES {
            return Err(Error::invalid("retries", self.retries, format!("0 to {MAX_RETRIES}")));
        }
        if let Some(limit) = self.time_limit.filter(|limit| limit.get().as_millis() < 1000) {
            return Err(Error::invalid("time_limit", limit, "at least 1s"));
        }
        if let Some(budget) = self.budget.filter(|budget| !(budget.is_finite() && *budget > 0.0)) {
            return Err(Error::invalid("budget", budget, "a number above 0"));
        }
        let bounded = self.deadline.is_some() && self.time_limit.is_some();
        if self.spot == SpotUse::UntilDeadlineNears && !bounded {
            let allowed = "`until_deadline_nears` only beside `deadline` and `time_limit`";
            return Err(Error::invalid("spot", "until_deadline_nears", allowed));
        }
        if let Some(checkpoint) = &self.checkpoint {
            absolute("checkpoint.dir", checkpoint.dir.as_ref())?;
            if checkpoint.keep == Some(0) {
                return Err(Error::invalid("checkpoint.keep", 0, "at least 1"));
            }
        }
        self.check_variables()?;
        self.check_lists()?;
        let size = serde_json::to_string(self).map_err(Error::internal)?.len();
        if size > MAX_DEFINITION {
            let given = format!("{size} bytes");
            let allowed =
                format!("at most {MAX_DEFINITION} bytes of JSON; larger things go into files");
            return Err(Error::invalid("definition", given, allowed));
        }
        Ok(())
    }

    fn check_variables(&self) -> Result<()> {
        for (field, map) in [("env", &self.env), ("secrets", &self.secrets)] {
            if map.len() > MAX_ENV {
                return Err(Error::invalid(field, map.len(), format!("at most {MAX_ENV}")));
            }
            for (name, value) in map {
                if !is_variable(name) {
                    let allowed = "a letter or _, then letters, digits and _, 128 at most";
                    return Err(Error::invalid(field, name, allowed));
                }
                if is_ours(name) {
                    let allowed = "names that Falaj does not set itself";
                    return Err(Error::invalid(format!("{field}.{name}"), name, allowed));
                }
                if value.len() > MAX_VALUE || value.contains('\0') {
                    let allowed = format!("at most {MAX_VALUE} bytes of text without NUL");
                    return Err(Error::invalid(format!("{field}.{name}"), value, allowed));
                }
            }
        }
        match self.secrets.keys().find(|name| self.env.contains_key(*name)) {
            Some(both) => Err(Error::invalid(
                format!("secrets.{both}"),
                both,
                "a variable that `env` does not set as well",
            )),
            None => Ok(()),
        }
    }

    fn check_lists(&self) -> Result<()> {
        if self.zones.len() > MAX_NAMES {
            return Err(Error::invalid("zones", self.zones.len(), format!("at most {MAX_NAMES}")));
        }
        for (field, list) in [("datasets", &self.datasets), ("features", &self.features)] {
            if list.len() > MAX_NAMES {
                return Err(Error::invalid(field, list.len(), format!("at most {MAX_NAMES}")));
            }
            for (place, text) in list.iter().enumerate() {
                required(&format!("{field}[{place}]"), text, MAX_TEXT)?;
            }
        }
        for (field, map) in [("params", &self.params), ("tags", &self.tags)] {
            if map.len() > MAX_NAMES {
                return Err(Error::invalid(field, map.len(), format!("at most {MAX_NAMES}")));
            }
            for (key, value) in map {
                required(field, key, 250)?;
                if value.len() > 6000 || value.contains('\0') {
                    let allowed = "at most 6000 bytes of text without NUL";
                    return Err(Error::invalid(format!("{field}.{key}"), value, allowed));
                }
            }
        }
        Ok(())
    }
}

impl Resources {
    fn check(&self) -> Result<()> {
        if !(self.cpu.is_finite() && (0.001..=4096.0).contains(&self.cpu)) {
            return Err(Error::invalid("cpu", self.cpu, "cores, 0.001 to 4096"));
        }
        if !(ByteSize::mib(1)..=ByteSize::gib(64 << 10)).contains(&self.memory) {
            return Err(Error::invalid("memory", self.memory, "1MiB to 64TiB"));
        }
        if self.gpus > falaj_scheduler::model::MAX_GPUS {
            return Err(Error::invalid("gpus", self.gpus, "0 to 16 on each node"));
        }
        let asked = [self.gpus > 0, self.gpu_fraction.is_some(), self.mig.is_some()];
        if asked.into_iter().filter(|one| *one).count() > 1 {
            let allowed = "one of `gpus`, `gpu_fraction` and `mig`";
            return Err(Error::invalid("gpus", self.gpus, allowed));
        }
        if let Some(part) = self.gpu_fraction.filter(|part| !(0.01..1.0).contains(part)) {
            return Err(Error::invalid("gpu_fraction", part, "0.01 to 0.99"));
        }
        if let (Some(kind), true) = (&self.gpu_type, asked == [false; 3]) {
            return Err(Error::invalid("gpu_type", kind, "absent where no GPU is asked for"));
        }
        if !(1..=MAX_NODES).contains(&self.nodes) {
            return Err(Error::invalid("nodes", self.nodes, format!("1 to {MAX_NODES}")));
        }
        if let Some(most) = self.max_nodes.filter(|most| !(self.nodes..=MAX_NODES).contains(most)) {
            let allowed = format!("`nodes`, {}, to {MAX_NODES}", self.nodes);
            return Err(Error::invalid("max_nodes", most, allowed));
        }
        match self.ranks_per_node {
            Some(ranks) if !(1..=MAX_RANKS).contains(&ranks) => {
                Err(Error::invalid("ranks_per_node", ranks, format!("1 to {MAX_RANKS}")))
            }
            _ => Ok(()),
        }
    }
}

fn required(field: &str, text: &str, most: usize) -> Result<()> {
    if text.is_empty() || text.len() > most || text.contains('\0') {
        return Err(Error::invalid(field, text, format!("1 to {most} bytes of text")));
    }
    Ok(())
}

fn optional(field: &str, text: Option<&String>, most: usize) -> Result<()> {
    text.map_or(Ok(()), |text| required(field, text, most))
}

fn absolute(field: &str, path: Option<&String>) -> Result<()> {
    optional(field, path, MAX_PATH)?;
    match path {
        Some(path) if !path.starts_with('/') || path.split('/').any(|step| step == "..") => {
            Err(Error::invalid(field, path, "a path from / on without .."))
        }
        _ => Ok(()),
    }
}

fn is_variable(name: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&name.len())
        && name.bytes().all(word)
        && !name.as_bytes()[0].is_ascii_digit()
}

/// What a rank is told by us, and nobody else may say.
fn is_ours(name: &str) -> bool {
    const OURS: [&str; 17] = [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TF_CONFIG",
        "CHECKPOINT_DIR",
        "CHECKPOINT_EVERY",
        "RESUME_FROM",
        "MLFLOW_TRACKING_URI",
        "MLFLOW_TRACKING_TOKEN",
        "MLFLOW_RUN_ID",
        "MLFLOW_EXPERIMENT_ID",
        "CUDA_VISIBLE_DEVICES",
    ];
    OURS.contains(&name)
        || ["FALAJ_", "TORCHELASTIC_", "HOROVOD_"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(mut change: Value) -> std::result::Result<Definition, String> {
        let mut body = json!({ "name": "train", "command": ["python", "train.py"] });
        let (Some(body), Some(change)) = (body.as_object_mut(), change.as_object_mut()) else {
            return Err("no object".to_owned());
        };
        body.append(change);
        let body = Value::Object(body.clone());
        let read: Definition = serde_json::from_value(body).map_err(|error| error.to_string())?;
        read.check(1000)
            .map(|()| read)
            .map_err(|error| error.field().unwrap_or_default().to_owned())
    }

    #[test]
    fn what_is_left_open_has_one_meaning() {
        let read = check(json!({})).unwrap();
        assert_eq!((read.count, read.priority, read.retries), (1, 0, 0));
        assert_eq!((read.resources.cpu_millis(), read.resources.memory_mib()), (1000, 512));
        assert_eq!((read.resources.nodes, read.resources.ranks()), (1, 1));
        let gpus = check(json!({ "resources": { "gpus": 4, "cpu": 0.25 } })).unwrap();
        assert_eq!((gpus.resources.ranks(), gpus.resources.cpu_millis()), (4, 250));
        let again: Definition =
            serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }

    #[test]
    fn the_first_thing_that_is_wrong_is_named() {
        for (change, field) in [
            (json!({ "command": [] }), "command"),
            (json!({ "command": ["a\0"] }), "command[0]"),
            (json!({ "command": [""] }), "command[0]"),
            (json!({ "folder": "here" }), "folder"),
            (json!({ "folder": "/a/../b" }), "folder"),
            (json!({ "count": 0 }), "count"),
            (json!({ "count": 1001 }), "count"),
            (json!({ "priority": 2000 }), "priority"),
            (json!({ "retries": 101 }), "retries"),
            (json!({ "time_limit": "10ms" }), "time_limit"),
            (json!({ "budget": 0.0 }), "budget"),
            (json!({ "spot": "until_deadline_nears" }), "spot"),
            (json!({ "checkpoint": { "dir": "x" } }), "checkpoint.dir"),
            (json!({ "checkpoint": { "keep": 0 } }), "checkpoint.keep"),
            (json!({ "env": { "1A": "x" } }), "env"),
            (json!({ "env": { "RANK": "1" } }), "env.RANK"),
            (json!({ "env": { "FALAJ_X": "1" } }), "env.FALAJ_X"),
            (json!({ "secrets": { "MLFLOW_RUN_ID": "x" } }), "secrets.MLFLOW_RUN_ID"),
            (json!({ "env": { "A": "1" }, "secrets": { "A": "x" } }), "secrets.A"),
            (json!({ "resources": { "cpu": 0.0 } }), "resources.cpu"),
            (json!({ "resources": { "memory": "1KiB" } }), "resources.memory"),
            (json!({ "resources": { "gpus": 17 } }), "resources.gpus"),
            (json!({ "resources": { "gpus": 1, "gpu_fraction": 0.5 } }), "resources.gpus"),
            (json!({ "resources": { "gpu_fraction": 1.5 } }), "resources.gpu_fraction"),
            (json!({ "resources": { "gpu_type": "a100" } }), "resources.gpu_type"),
            (json!({ "resources": { "nodes": 0 } }), "resources.nodes"),
            (json!({ "resources": { "nodes": 3, "max_nodes": 2 } }), "resources.max_nodes"),
            (json!({ "resources": { "ranks_per_node": 0 } }), "resources.ranks_per_node"),
            (json!({ "datasets": [""] }), "datasets[0]"),
            (json!({ "params": { "": "x" } }), "params"),
            (
                json!({ "env": { "A": "x".repeat(30_000), "B": "x".repeat(30_000),
                "C": "x".repeat(10_000) } }),
                "definition",
            ),
            (json!({ "command": ["x".repeat(65_536)] }), "definition"),
        ] {
            assert_eq!(check(change.clone()).unwrap_err(), field, "{change}");
        }
        for unknown in [json!({ "gpu": 1 }), json!({ "resources": { "gpu": 1 } })] {
            assert!(check(unknown).unwrap_err().contains("unknown field `gpu`"));
        }
    }
}
