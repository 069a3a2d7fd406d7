//! What can be set about training.

use std::path::PathBuf;

use falaj_base::{ByteSize, Error, HumanDuration, Name, Result, code};
use falaj_scheduler::model::MAX_GPUS;
use falaj_scheduler::order::{NAMES, by_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::autoscale::config::AutoscaleConfig;
use crate::name::GpuTypeName;
use crate::pool::kubernetes::KubernetesConfig;
use crate::telemetry::config::TelemetryConfig;

/// Jobs: where they run, in which order, and how much of everything there may be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// In which order jobs run; `falaj simulate` compares the policies. One of fifo, fifo-backfill,
    /// las, drf, tiresias, tiresias-calm, falaj. (srtf and themis know durations, and are for
    /// simulations.)
    pub policy: String,
    /// How often running jobs may be displaced by the order.
    pub round: HumanDuration,
    /// The pool of jobs that name none.
    pub default_pool: Name,
    /// Where jobs reach this server; the address it listens on if absent.
    pub server_url: Option<String>,
    /// The machine that the server runs on.
    pub local: LocalConfig,
    /// Further pools.
    pub pool: Vec<PoolConfig>,
    /// Secrets that jobs may name.
    pub secret: Vec<SecretConfig>,
    /// Tasks of one job at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_array: u32,
    /// Tasks of a project that have not ended at most.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_unfinished: u64,
    /// Queues of a tenant at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_queues: usize,
    /// How long a job has between being told to end and being killed.
    pub grace: HumanDuration,
    /// How long a job may take to save its work before it is stopped for another.
    pub checkpoint_grace: HumanDuration,
    /// How long the ranks of a job outlive the first that fails.
    pub gang_grace: HumanDuration,
    /// A rank that reported steps and has reported none for this long, and for five times the usual,
    /// hangs: its job starts again from its checkpoint.
    pub hang_after: HumanDuration,
    /// How often a task whose node or process vanished is started again.
    #[schemars(range(max = 1000))]
    pub max_losses: u32,
    /// How long the token of a start works that has no time limit, unless it is renewed: that is done
    /// for as long as the start goes on.
    pub token_life: HumanDuration,
    /// The most of a rank's output that is kept: of a longer one, its beginning and its end.
    pub max_log: ByteSize,
    /// How long decisions are kept, for `falaj job why`.
    pub keep_decisions: HumanDuration,
    /// Whose turn it is among queues that live on what others own.
    pub fair_share: FairShareConfig,
    /// How long jobs that have ended are kept; for ever if absent. What they cost stays.
    pub keep_ended: Option<HumanDuration>,
    /// Reports that a start may send in a second, all its ranks together.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_reports: u32,
    /// Prices by the hour, where a node has none of its own.
    pub prices: PriceBook,
    /// What running jobs use, and what follows from it.
    pub telemetry: TelemetryConfig,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            policy: "falaj".to_owned(),
            round: HumanDuration::from_mins(5),
            default_pool: local_name(),
            server_url: None,
            local: LocalConfig::default(),
            pool: Vec::new(),
            secret: Vec::new(),
            max_array: 100_000,
            max_unfinished: 1_000_000,
            max_queues: 1000,
            grace: HumanDuration::from_secs(30),
            checkpoint_grace: HumanDuration::from_mins(2),
            gang_grace: HumanDuration::from_secs(5),
            hang_after: HumanDuration::from_mins(2),
            max_losses: 3,
            token_life: HumanDuration::from_days(1),
            max_log: ByteSize::mib(256),
            keep_decisions: HumanDuration::from_days(30),
            fair_share: FairShareConfig::default(),
            keep_ended: None,
            max_reports: 200,
            prices: PriceBook::default(),
            telemetry: TelemetryConfig::default(),
        }
    }
}

/// Queues that borrow go in the order of what they hold and have used, by their weights: whoever has had
/// less goes first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FairShareConfig {
    /// After this long, half of what a queue has used is forgotten. `0s` turns the comparison off.
    pub half_life: HumanDuration,
}

impl Default for FairShareConfig {
    fn default() -> Self {
        Self { half_life: HumanDuration::from_days(7) }
    }
}

impl FairShareConfig {
    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.half_life.get().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The name of the pool that this machine is.
pub const LOCAL: &str = "local";

#[allow(clippy::expect_used, reason = "a constant that is a name")]
fn local_name() -> Name {
    Name::new(LOCAL).expect("a constant that is a name")
}

/// The server's own machine as a pool. Jobs there are commands of the server's own user: only
/// platform admins and those who are trusted with that may run some.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LocalConfig {
    pub enabled: bool,
    /// Tenants whose contributors may run commands as the server's own user, beside platform admins.
    pub tenants: Vec<Name>,
    /// Cores that jobs may have; all if absent.
    pub cpu: Option<f64>,
    /// Memory that jobs may have; three quarters if absent.
    pub memory: Option<ByteSize>,
    /// GPUs that jobs may have; those that are found if absent.
    #[schemars(range(max = 16))]
    pub gpus: Option<u8>,
    /// What type they are of; what the driver says if absent.
    pub gpu_type: Option<GpuTypeName>,
    /// Whether they may be cut into MIG slices.
    pub mig: bool,
    /// Into how many nodes of equal size the machine is divided.
    #[schemars(range(min = 1, max = 64))]
    pub nodes: u8,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            tenants: Vec::new(),
            cpu: None,
            memory: None,
            gpus: None,
            gpu_type: None,
            mig: false,
            nodes: 1,
        }
    }
}

/// What runs the jobs of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolKind {
    #[default]
    Local,
    Slurm,
    Ray,
    Kubernetes,
}

impl PoolKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
            Self::Ray => "ray",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// A pool: nodes that one executor reaches.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    pub name: Name,
    #[serde(default)]
    pub kind: PoolKind,
    /// A folder that this server and all nodes see under the same path. Slurm and Ray need one, outside
    /// of the data folder: whoever runs jobs there sees all of it. On Kubernetes it lies in one of the
    /// volumes, and jobs save their work there.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// Ray's dashboard, such as `http://ray-head:8265`.
    #[serde(default)]
    pub url: Option<String>,
    /// A file with the token that Ray asks for.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// The Python on Ray's nodes that has Ray; `python` if absent.
    #[serde(default)]
    pub python: Option<String>,
    /// Slurm's configuration, unless it lies where Slurm looks for it.
    #[serde(default)]
    pub conf: Option<PathBuf>,
    /// The folder of Slurm's programs, unless they are found by `PATH`.
    #[serde(default)]
    pub programs: Option<PathBuf>,
    #[serde(default)]
    pub partition: Option<String>,
    #[serde(default)]
    pub account: Option<String>,
    #[serde(default)]
    pub qos: Option<String>,
    /// Which cluster of Kubernetes, and how pods are made there.
    #[serde(default)]
    pub kubernetes: Option<KubernetesConfig>,
    /// Tenants whose contributors may use it. All but local pools need it: jobs of all of them run there
    /// with the same rights, and are not kept apart.
    #[serde(default)]
    pub tenants: Option<Vec<Name>>,
    #[serde(default)]
    pub node: Vec<NodeConfig>,
    /// Its nodes come and go: how many there should be, and who is told.
    #[serde(default)]
    pub autoscale: Option<AutoscaleConfig>,
}

/// Nodes of a pool that are alike.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Its name; with `count`, what comes before the number.
    pub name: String,
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100_000))]
    pub count: u32,
    pub cpu: f64,
    pub memory: ByteSize,
    #[serde(default)]
    #[schemars(range(max = 16))]
    pub gpus: u8,
    #[serde(default)]
    pub gpu_type: Option<GpuTypeName>,
    #[serde(default)]
    pub mig: bool,
    /// The residency zone; that of the platform if absent.
    #[serde(default)]
    pub zone: Option<Name>,
    #[serde(default)]
    pub rack: Option<String>,
    /// What is joined more closely than a rack, such as by `NVLink`.
    #[serde(default)]
    pub block: Option<String>,
    /// May be taken away at any time.
    #[serde(default)]
    pub spot: bool,
    /// Of a GPU for an hour, or of a core where it has none.
    #[serde(default)]
    pub price: Option<f64>,
    /// Where its ranks reach each other; its name if absent.
    #[serde(default)]
    pub address: Option<String>,
}

fn one() -> u32 {
    1
}

impl PoolConfig {
    /// What an engine of others needs and is not there. All its jobs run as one user, so who may use
    /// it, and what that user sees, is said and not guessed.
    fn lacks(&self) -> Option<(&'static str, String)> {
        let kind = match self.kind {
            PoolKind::Local => return None,
            kind => kind.as_str(),
        };
        if self.tenants.is_none() {
            let text = format!(
                "is absent; a {kind} pool names the tenants that may use it, because it does not keep \
                 their jobs apart"
            );
            return Some(("tenants", text));
        }
        if self.kind == PoolKind::Kubernetes {
            return self.kubernetes.as_ref().and_then(|it| it.lacks(self.folder.as_deref()));
        }
        match &self.folder {
            None => {
                let text = format!(
                    "is absent; a {kind} pool needs a folder that its nodes see, outside of the data \
                     folder"
                );
                Some(("folder", text))
            }
            Some(folder) if !folder.is_absolute() => {
                Some(("folder", format!("is `{}`; a path from / on is needed", folder.display())))
            }
            Some(_) => None,
        }
    }
}

/// A secret that jobs may have in their environment, read from a file when they start.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretConfig {
    pub name: String,
    pub file: String,
    /// Projects that may use it, as `tenant/project`, or `tenant` for all of a tenant.
    pub projects: Vec<String>,
}

/// Prices by the hour. The currency is the operator's.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PriceBook {
    pub core: f64,
    pub gpu: f64,
    /// What spot costs of that.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub spot: f64,
}

impl Default for PriceBook {
    fn default() -> Self {
        Self { core: 0.0, gpu: 0.0, spot: 0.4 }
    }
}

impl TrainingConfig {
    /// Refuses what a schema cannot tell.
    pub fn check(&self) -> Result<()> {
        let bad = |field: String, text: String| {
            Err(Error::new(&code::INVALID_CONFIG, format!("`{field}` {text}")).at(field))
        };
        if by_name(&self.policy).is_none() {
            let text = format!("is `{}`; allowed: {}", self.policy, NAMES.join(", "));
            return bad("training.policy".to_owned(), text);
        }
        let mut names: Vec<&str> = if self.local.enabled { vec![LOCAL] } else { Vec::new() };
        for (place, pool) in self.pool.iter().enumerate() {
            let field = |rest: &str| format!("training.pool[{place}].{rest}");
            if names.contains(&pool.name.as_str()) {
                return bad(field("name"), format!("is `{}`, as another pool is", pool.name));
            }
            names.push(pool.name.as_str());
            if pool.node.is_empty() {
                return bad(field("node"), "is empty; a pool has nodes".to_owned());
            }
            if pool.kind != PoolKind::Kubernetes && pool.kubernetes.is_some() {
                let text = format!("is set; a {} pool has none", pool.kind.as_str());
                return bad(field("kubernetes"), text);
            }
            if pool.kind == PoolKind::Ray && pool.url.is_none() {
                return bad(field("url"), "is absent; ray needs it".to_owned());
            }
            if let Some((what, text)) = pool.lacks() {
                return bad(field(what), text);
            }
            let meets = |other: &&PoolConfig| {
                let both = pool.kubernetes.as_ref().zip(other.kubernetes.as_ref());
                both.is_some_and(|(one, other)| one.meets(other))
            };
            if let Some(other) = self.pool[..place].iter().find(meets) {
                let text = format!(
                    "is that of pool `{}` too, which may be in the same namespace; each needs its own",
                    other.name
                );
                return bad(field("kubernetes.owner"), text);
            }
            let nodes =
                pool.node.iter().fold(0u32, |sum, node| sum.saturating_add(node.count.max(1)));
            if let Some((what, text)) = pool.autoscale.as_ref().and_then(|it| it.lacks(nodes)) {
                return bad(field(&format!("autoscale.{what}")), text);
            }
            for node in &pool.node {
                let fits = node.cpu.is_finite() && (0.001..=4096.0).contains(&node.cpu);
                if !fits || node.gpus > MAX_GPUS {
                    let text = format!("has `{}`, of no possible size", node.name);
                    return bad(field("node"), text);
                }
                if node.price.is_some_and(|price| !(price.is_finite() && price >= 0.0)) {
                    return bad(field("node"), format!("has `{}` with no price", node.name));
                }
            }
        }
        self.telemetry.check()?;
        let prices = [self.prices.core, self.prices.gpu, self.prices.spot];
        if prices.iter().any(|price| !(price.is_finite() && *price >= 0.0)) {
            return bad("training.prices".to_owned(), "has a price below 0".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_itself_is_refused() {
        TrainingConfig::default().check().unwrap();
        let field = |change: fn(&mut TrainingConfig)| {
            let mut config = TrainingConfig::default();
            change(&mut config);
            config.check().unwrap_err().field().unwrap_or_default().to_owned()
        };
        assert_eq!(field(|config| config.policy = "best".to_owned()), "training.policy");
        assert_eq!(field(|config| config.prices.gpu = -1.0), "training.prices");
        let text = r#"{"name": "local", "node": [{"name": "a", "cpu": 1.0, "memory": "1GiB"}]}"#;
        let twice: PoolConfig = serde_json::from_str(text).unwrap();
        let config = TrainingConfig { pool: vec![twice], ..TrainingConfig::default() };
        assert_eq!(config.check().unwrap_err().field(), Some("training.pool[0].name"));
        let empty: PoolConfig =
            serde_json::from_str(r#"{"name": "hpc", "kind": "slurm"}"#).unwrap();
        let config = TrainingConfig { pool: vec![empty], ..TrainingConfig::default() };
        assert_eq!(config.check().unwrap_err().field(), Some("training.pool[0].node"));
    }

    #[test]
    fn an_engine_of_others_says_who_may_use_it_and_where_its_folder_is() {
        let check = |more: &str| {
            let text = format!(
                r#"{{"name": "hpc", "kind": "slurm", {more}
                    "node": [{{"name": "a", "cpu": 1.0, "memory": "1GiB"}}]}}"#
            );
            let pool: PoolConfig = serde_json::from_str(&text).unwrap();
            let config = TrainingConfig { pool: vec![pool], ..TrainingConfig::default() };
            config.check().map_err(|error| error.field().unwrap_or_default().to_owned())
        };
        let (tenants, folder) = ("training.pool[0].tenants", "training.pool[0].folder");
        assert_eq!(check(r#""folder": "/shared","#).unwrap_err(), tenants);
        assert_eq!(check(r#""tenants": ["a"],"#).unwrap_err(), folder);
        assert_eq!(check(r#""tenants": ["a"], "folder": "shared","#).unwrap_err(), folder);
        check(r#""tenants": [], "folder": "/shared","#).unwrap();
    }

    #[test]
    fn two_pools_do_not_take_each_others_jobs() {
        let pool = |name: &str, owner: &str| -> PoolConfig {
            let text = format!(
                r#"{{"name": "{name}", "kind": "kubernetes", "tenants": [], "kubernetes": {{"owner": "{owner}"}},
                    "node": [{{"name": "a", "cpu": 1.0, "memory": "1GiB"}}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let check = |pool| TrainingConfig { pool, ..TrainingConfig::default() }.check();
        check(vec![pool("a", "x"), pool("b", "y")]).unwrap();
        let error = check(vec![pool("a", "x"), pool("b", "x")]).unwrap_err();
        assert_eq!(error.field(), Some("training.pool[1].kubernetes.owner"));
    }
}
