//! What can be set about a pool whose nodes come and go.

use std::path::PathBuf;

use falaj_base::{HumanDuration, Name};
use falaj_scheduler::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::Limits;

/// How many nodes of a pool there should be, and who is told. The nodes of the pool are those that may
/// be there; none is before it says so.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AutoscaleConfig {
    /// Nodes that are always there.
    pub min: u32,
    /// Nodes that are there at most; all of the pool's if absent.
    pub max: Option<u32>,
    /// Nodes that are asked for or given up at a time, unless one job alone needs more.
    #[schemars(range(min = 1, max = 10_000))]
    pub step: u32,
    /// What all nodes together may cost by the hour.
    pub max_price: Option<f64>,
    /// How long jobs must have waited before nodes are asked for.
    pub up_after: HumanDuration,
    /// The shortest time between two askings.
    pub up_pause: HumanDuration,
    /// How long a node must have been empty before it is given up.
    pub down_after: HumanDuration,
    /// The shortest time between nodes coming or going and others being given up.
    pub down_pause: HumanDuration,
    /// A node that was asked for and is not there after this long is asked for anew.
    pub boot: HumanDuration,
    /// Pools whose waiting jobs come here when they may, and allow it with `burst = true`.
    pub burst_for: Vec<Name>,
    /// How long they must have waited there.
    pub burst_after: HumanDuration,
    /// Who is told.
    pub webhook: Option<WebhookConfig>,
}

impl Default for AutoscaleConfig {
    fn default() -> Self {
        Self {
            min: 0,
            max: None,
            step: 10,
            max_price: None,
            up_after: HumanDuration::from_secs(30),
            up_pause: HumanDuration::from_mins(1),
            down_after: HumanDuration::from_mins(10),
            down_pause: HumanDuration::from_mins(5),
            boot: HumanDuration::from_mins(15),
            burst_for: Vec::new(),
            burst_after: HumanDuration::from_mins(5),
            webhook: None,
        }
    }
}

/// A provider of nodes that is told over HTTP.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// Where it is told, such as `https://nodes.example.com/falaj`.
    pub url: String,
    /// A file with the secret that requests are signed with; not signed if absent.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// How long an answer may take.
    #[serde(default = "ten_seconds")]
    pub timeout: HumanDuration,
}

fn ten_seconds() -> HumanDuration {
    HumanDuration::from_secs(10)
}

impl AutoscaleConfig {
    /// What is wrong with it, by its field; `nodes` is how many the pool has.
    pub(crate) fn lacks(&self, nodes: u32) -> Option<(&'static str, String)> {
        let max = self.max.unwrap_or(nodes);
        if max > nodes {
            return Some((
                "max",
                format!("is {max}; allowed: at most {nodes}, which the pool has"),
            ));
        }
        if self.min > max {
            return Some(("min", format!("is {}; allowed: at most {max}", self.min)));
        }
        if self.step == 0 {
            return Some(("step", "is 0; allowed: at least 1".to_owned()));
        }
        if let Some(price) = self.max_price.filter(|price| !(price.is_finite() && *price >= 0.0)) {
            return Some(("max_price", format!("is {price}; allowed: 0 or more")));
        }
        let url = &self.webhook.as_ref()?.url;
        let fits = url.starts_with("https://") || url.starts_with("http://");
        (!fits || url.len() > 2048)
            .then(|| ("webhook.url", "is no http or https URL of at most 2048 bytes".to_owned()))
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "prices were checked"
    )]
    pub(crate) fn limits(&self, nodes: usize) -> Limits {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let millis =
            |time: HumanDuration| Millis::try_from(time.get().as_millis()).unwrap_or(Millis::MAX);
        Limits {
            min: count(self.min),
            max: self.max.map_or(nodes, count).min(nodes),
            step: count(self.step),
            max_price: self.max_price.map(|price| (price * 1e6).round() as u64),
            up_after: millis(self.up_after),
            up_pause: millis(self.up_pause),
            down_after: millis(self.down_after),
            down_pause: millis(self.down_pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_named() {
        let field = |text: &str| {
            let config: AutoscaleConfig = serde_json::from_str(text).unwrap();
            config.lacks(4).map(|(field, _)| field)
        };
        assert_eq!(field(r#"{"min": 1, "max": 4}"#), None);
        assert_eq!(field(r#"{"max": 5}"#), Some("max"));
        assert_eq!(field(r#"{"min": 3, "max": 2}"#), Some("min"));
        assert_eq!(field(r#"{"step": 0}"#), Some("step"));
        assert_eq!(field(r#"{"max_price": -1.0}"#), Some("max_price"));
        assert_eq!(field(r#"{"webhook": {"url": "ftp://x"}}"#), Some("webhook.url"));
        assert_eq!(field(r#"{"webhook": {"url": "https://x/y"}}"#), None);
    }
}
