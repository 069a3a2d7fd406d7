//! What can be set about telemetry.

use falaj_base::{Error, HumanDuration, Name, Result, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::QueueName;

/// How often running jobs are looked at, what is kept of it, and what becomes of idle ones.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    pub enabled: bool,
    /// How often what running jobs use is read.
    pub every: HumanDuration,
    /// Whether samples become metrics of the jobs' runs, under MLflow's names for system metrics.
    pub log_metrics: bool,
    /// How often samples and summaries are written; those of a start that ends are written with its
    /// end.
    pub write_every: HumanDuration,
    /// Starts of a pool that are read in one round at most; the others have their turn in the next.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_starts: usize,
    /// Starts that `/metrics` tells of at most.
    #[schemars(range(max = 10_000))]
    pub max_series: usize,
    /// How long summaries of starts that have ended are kept.
    pub keep: HumanDuration,
    /// What becomes of jobs that use their GPUs too little.
    pub idle: IdlePolicy,
    /// The same for some pools, tenants or queues; the first that fits counts.
    pub rule: Vec<IdleRule>,
    /// What jobs should ask for.
    pub hints: HintsConfig,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            every: HumanDuration::from_secs(15),
            log_metrics: true,
            write_every: HumanDuration::from_mins(1),
            max_starts: 1000,
            max_series: 200,
            keep: HumanDuration::from_days(90),
            idle: IdlePolicy::default(),
            rule: Vec::new(),
            hints: HintsConfig::default(),
        }
    }
}

/// What is done about an idle job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IdleAction {
    /// Nothing.
    Ignore,
    /// It is marked, and an event is sent.
    #[default]
    Report,
    /// It saves its work and leaves its nodes, and waits for a while.
    Reclaim,
}

/// When a job is idle, and what is done then.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IdlePolicy {
    /// For how long every reading was below.
    pub after: HumanDuration,
    /// Percent of the time of its GPUs.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub below: f64,
    pub action: IdleAction,
    /// Whether jobs without GPUs are judged by their cores.
    pub cpu: bool,
    /// How long a job that was told to leave its nodes waits before it is in line again.
    pub pause: HumanDuration,
    /// A task that used nothing of what it had from the beginning, so many starts in a row, is ended; 0:
    /// never.
    #[schemars(range(max = 1000))]
    pub tries: u32,
    /// Whether a job may say `reclaim = false` and keep its nodes.
    pub allow_protected: bool,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self {
            after: HumanDuration::from_mins(30),
            below: 5.0,
            action: IdleAction::Report,
            cpu: false,
            pause: HumanDuration::from_mins(10),
            tries: 3,
            allow_protected: false,
        }
    }
}

/// An idle policy for some jobs. What it does not say is as `training.telemetry.idle` says.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IdleRule {
    /// Only jobs of this pool.
    pub pool: Option<Name>,
    /// Only jobs of this tenant.
    pub tenant: Option<Name>,
    /// Only jobs of this queue.
    pub queue: Option<QueueName>,
    pub after: Option<HumanDuration>,
    #[schemars(range(min = 0.0, max = 100.0))]
    pub below: Option<f64>,
    pub action: Option<IdleAction>,
    pub cpu: Option<bool>,
    pub pause: Option<HumanDuration>,
    #[schemars(range(max = 1000))]
    pub tries: Option<u32>,
    pub allow_protected: Option<bool>,
}

/// How hints are made.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HintsConfig {
    /// How many of the last starts of the same name are looked at.
    #[schemars(range(min = 1, max = 1000))]
    pub starts: usize,
    /// Fewer than this say nothing.
    #[schemars(range(min = 1, max = 1000))]
    pub least: usize,
    /// Percent that is put on top of what was used.
    #[schemars(range(min = 0.0, max = 400.0))]
    pub headroom: f64,
}

impl Default for HintsConfig {
    fn default() -> Self {
        Self { starts: 20, least: 3, headroom: 20.0 }
    }
}

/// Whom a rule is asked about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whom<'a> {
    pub(crate) pool: &'a str,
    pub(crate) tenant: &'a str,
    /// The project's own queue has no name.
    pub(crate) queue: &'a str,
}

impl IdleRule {
    fn fits(&self, whom: &Whom<'_>) -> bool {
        self.pool.as_ref().is_none_or(|it| it.as_str() == whom.pool)
            && self.tenant.as_ref().is_none_or(|it| it.as_str() == whom.tenant)
            && self.queue.as_ref().is_none_or(|it| it.as_str() == whom.queue)
    }

    fn over(&self, under: &IdlePolicy) -> IdlePolicy {
        IdlePolicy {
            after: self.after.unwrap_or(under.after),
            below: self.below.unwrap_or(under.below),
            action: self.action.unwrap_or(under.action),
            cpu: self.cpu.unwrap_or(under.cpu),
            pause: self.pause.unwrap_or(under.pause),
            tries: self.tries.unwrap_or(under.tries),
            allow_protected: self.allow_protected.unwrap_or(under.allow_protected),
        }
    }
}

impl TelemetryConfig {
    /// The policy of some jobs.
    pub(crate) fn policy(&self, whom: &Whom<'_>) -> IdlePolicy {
        let rule = self.rule.iter().find(|rule| rule.fits(whom));
        rule.map_or(self.idle, |rule| rule.over(&self.idle))
    }

    /// Refuses what a schema cannot tell.
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |field: String, text: String| {
            let field = format!("training.telemetry.{field}");
            Err(Error::new(&code::INVALID_CONFIG, format!("`{field}` {text}")).at(field))
        };
        for (field, time) in [("every", self.every), ("write_every", self.write_every)] {
            if !(1..=86_400).contains(&time.get().as_secs()) {
                return bad(field.to_owned(), format!("is `{time}`; allowed: 1s to 1d"));
            }
        }
        let rules = self.rule.iter().enumerate();
        let rules = rules.map(|(at, rule)| (format!("rule[{at}]"), rule.over(&self.idle)));
        for (field, policy) in std::iter::once(("idle".to_owned(), self.idle)).chain(rules) {
            if !(0.0..=100.0).contains(&policy.below) {
                let text = format!("is {}; allowed: 0 to 100 percent", policy.below);
                return bad(format!("{field}.below"), text);
            }
            if policy.after.get() < self.every.get() {
                let text = format!("is `{}`; allowed: no less than `every`", policy.after);
                return bad(format!("{field}.after"), text);
            }
        }
        let hints = &self.hints;
        if hints.least == 0 || hints.least > hints.starts || hints.starts > 1000 {
            let text = "allowed: 1 ≤ `least` ≤ `starts` ≤ 1000".to_owned();
            return bad("hints.least".to_owned(), format!("is {}; {text}", hints.least));
        }
        if !(0.0..=400.0).contains(&hints.headroom) {
            let text = format!("is {}; allowed: 0 to 400 percent", hints.headroom);
            return bad("hints.headroom".to_owned(), text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_is_put_over_the_default() {
        let rules = r#"[{"pool": "local", "queue": "research", "action": "reclaim"},
                        {"tenant": "acme", "below": 20.0, "action": "ignore"}]"#;
        let config = TelemetryConfig {
            rule: serde_json::from_str(rules).unwrap(),
            ..TelemetryConfig::default()
        };
        config.check().unwrap();
        let of = |pool, tenant, queue| config.policy(&Whom { pool, tenant, queue });
        let first = of("local", "acme", "research");
        assert_eq!((first.action, first.below), (IdleAction::Reclaim, 5.0));
        let second = of("local", "acme", "");
        assert_eq!((second.action, second.below), (IdleAction::Ignore, 20.0));
        assert_eq!(of("hpc", "other", "research").action, IdleAction::Report);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_name() {
        let field = |change: fn(&mut TelemetryConfig)| {
            let mut config = TelemetryConfig::default();
            change(&mut config);
            config.check().unwrap_err().field().unwrap_or_default().to_owned()
        };
        let short = HumanDuration::from_secs(1);
        assert_eq!(field(|it| it.every = HumanDuration::from_secs(0)), "training.telemetry.every");
        assert_eq!(field(|it| it.idle.below = 101.0), "training.telemetry.idle.below");
        assert_eq!(field(|it| it.hints.least = 21), "training.telemetry.hints.least");
        let rule = IdleRule { after: Some(short), ..IdleRule::default() };
        let config = TelemetryConfig { rule: vec![rule], ..TelemetryConfig::default() };
        let refused = config.check().unwrap_err();
        assert_eq!(refused.field(), Some("training.telemetry.rule[0].after"));
    }
}
