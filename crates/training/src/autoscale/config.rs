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
    /// Who is told, over HTTP.
    pub webhook: Option<WebhookConfig>,
    /// Or an object of a Kubernetes cluster that is told by an annotation.
    pub annotation: Option<AnnotationConfig>,
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
            annotation: None,
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

/// An object of a Kubernetes cluster that stands for a group of nodes: an annotation of it says how many
/// there should be, for whoever in the cluster acts on that.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnnotationConfig {
    /// A kubeconfig; that of the pool, or the account of the pod that the server runs in, if absent.
    #[serde(default)]
    pub kubeconfig: Option<PathBuf>,
    /// One of its contexts; the current one if absent.
    #[serde(default)]
    pub context: Option<String>,
    /// Such as `cluster.x-k8s.io/v1beta1`, or `v1`.
    pub api_version: String,
    /// Such as `MachineDeployment`, or `ConfigMap`.
    pub kind: String,
    /// What the API calls many of them, where that is not made of the kind.
    #[serde(default)]
    pub plural: Option<String>,
    /// Absent if it is in none.
    #[serde(default)]
    pub namespace: Option<String>,
    pub name: String,
    /// The annotation that holds the number of nodes.
    #[serde(default = "target")]
    pub key: String,
    /// How long an answer may take.
    #[serde(default = "ten_seconds")]
    pub timeout: HumanDuration,
}

fn target() -> String {
    "falaj.dev/target".to_owned()
}

impl AnnotationConfig {
    /// What cannot be part of a path, or of an annotation, by its field.
    fn lacks(&self) -> Option<(&'static str, String)> {
        let plain = |text: &str| {
            (1..=253).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let parts = |text: &str| text.split('/').count() <= 2 && text.split('/').all(plain);
        let none = |text: &Option<String>| text.as_deref().is_none_or(plain);
        let all = [
            ("annotation.api_version", &self.api_version, parts(&self.api_version)),
            ("annotation.kind", &self.kind, plain(&self.kind)),
            ("annotation.name", &self.name, plain(&self.name)),
            ("annotation.key", &self.key, parts(&self.key)),
        ];
        if let Some((field, given, _)) = all.into_iter().find(|(_, _, fits)| !fits) {
            let text = format!("is `{given}`; letters, digits and -._ are allowed, 253 at most");
            return Some((field, text));
        }
        let odd = !none(&self.plural) || !none(&self.namespace);
        odd.then(|| ("annotation.namespace", "or `plural` is no name of Kubernetes".to_owned()))
    }
}

fn ten_seconds() -> HumanDuration {
    HumanDuration::from_secs(10)
}

impl AutoscaleConfig {
    /// Whether somebody is told what the pool should have.
    pub(crate) fn has_provider(&self) -> bool {
        self.webhook.is_some() || self.annotation.is_some()
    }

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
        if self.webhook.is_some() && self.annotation.is_some() {
            return Some(("annotation", "is set beside `webhook`; one is told".to_owned()));
        }
        if let Some(found) = self.annotation.as_ref().and_then(AnnotationConfig::lacks) {
            return Some(found);
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
        let noted = |more: &str| {
            let object = r#""api_version": "apps/v1", "kind": "Deployment", "name": "nodes""#;
            field(&format!(r#"{{"annotation": {{{object}{more}}}}}"#))
        };
        assert_eq!(noted(""), None);
        assert_eq!(noted(r#", "namespace": "kube-system", "key": "acme.com/nodes""#), None);
        assert_eq!(noted(r#", "namespace": "../x""#), Some("annotation.namespace"));
        assert_eq!(noted(r#", "key": "a/b/c""#), Some("annotation.key"));
        assert_eq!(noted(r#"}, "webhook": {"url": "https://x""#), Some("annotation"));
    }
}
