//! Telling whoever brings nodes what a pool should have.
//!
//! A request says everything that should be there, so one that is lost or comes twice does no harm; its
//! key is the same whenever the same is told. The answer may say how many nodes there will be. An annotation
//! says the same to whoever looks at it.

use std::collections::BTreeMap;
use std::time::Duration;

use falaj_base::{Secret, Timestamp};
use falaj_executors::{ClusterObject, annotate};
use falaj_registry::webhook::signature;
use reqwest::{Client, header, redirect};
use serde::{Deserialize, Serialize};

use super::config::{AnnotationConfig, AutoscaleConfig, WebhookConfig};
use crate::pool::kubernetes::KubernetesConfig;

/// The most of an answer that is read.
const MOST: usize = 64 << 10;
/// The most of a problem that is kept.
const MOST_TEXT: usize = 300;
/// The annotation with everything that should be there, and the most that fits into it: all annotations of
/// an object together have 256 KiB.
const WISH: &str = "falaj.dev/wish";
const MOST_NOTE: usize = 128 << 10;

/// What a pool should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Wish {
    pub(crate) pool: String,
    /// Grows with every change.
    pub(crate) generation: u64,
    /// How many nodes there should be.
    pub(crate) target: usize,
    /// All of them.
    pub(crate) nodes: Vec<Wished>,
    /// Those of them that are not there yet.
    pub(crate) add: Vec<String>,
    /// Those that may go: nothing runs there, and nothing will.
    pub(crate) remove: Vec<String>,
}

/// A node that should be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Wished {
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) spot: bool,
    pub(crate) cpu_millis: u32,
    pub(crate) memory_mib: u32,
    pub(crate) gpus: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu_type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    /// How many nodes there will be.
    target: Option<u64>,
}

/// Who is told of a pool.
#[derive(Clone, Debug)]
pub(crate) enum Provider {
    Webhook(WebhookConfig),
    Annotation(Box<AnnotationConfig>, ClusterObject),
}

impl Provider {
    /// The one that the configuration names; `cluster` is that of the pool itself.
    pub(crate) fn of(config: &AutoscaleConfig, cluster: Option<&KubernetesConfig>) -> Option<Self> {
        if let Some(webhook) = &config.webhook {
            return Some(Self::Webhook(webhook.clone()));
        }
        let noted = config.annotation.as_ref()?;
        let own = noted.kubeconfig.is_some();
        let cluster = cluster.filter(|_| !own);
        let object = ClusterObject {
            kubeconfig: noted.kubeconfig.clone().or_else(|| cluster?.kubeconfig.clone()),
            context: noted.context.clone().or_else(|| cluster?.context.clone()),
            api_version: noted.api_version.clone(),
            kind: noted.kind.clone(),
            plural: noted.plural.clone(),
            namespace: noted.namespace.clone(),
            name: noted.name.clone(),
        };
        Some(Self::Annotation(Box::new(noted.clone()), object))
    }

    /// Tells it, once. What it took, or why it did not.
    pub(crate) async fn tell(&self, wish: &Wish, now: Timestamp) -> Result<Option<u64>, String> {
        match self {
            Self::Webhook(webhook) => tell(webhook, wish, now).await,
            Self::Annotation(config, object) => {
                let notes = notes(config, wish)?;
                annotate(object, &notes, config.timeout.get()).await.map(|()| None)
            }
        }
    }
}

/// What an object is told.
fn notes(config: &AnnotationConfig, wish: &Wish) -> Result<BTreeMap<String, String>, String> {
    let mut notes = BTreeMap::from([(config.key.clone(), wish.target.to_string())]);
    let whole = serde_json::to_string(wish).map_err(|error| error.to_string())?;
    if whole.len() <= MOST_NOTE && config.key != WISH {
        notes.insert(WISH.to_owned(), whole);
    }
    Ok(notes)
}

async fn tell(config: &WebhookConfig, wish: &Wish, now: Timestamp) -> Result<Option<u64>, String> {
    let secret = match config.secret_file.clone() {
        None => None,
        Some(path) => {
            let read = tokio::fs::read_to_string(&path).await;
            let text = read.map_err(|error| format!("{}: {error}", path.display()))?;
            // Anybody could sign with an empty one.
            if text.trim().is_empty() {
                return Err(format!("{}: the secret is empty", path.display()));
            }
            Some(Secret::new(text.trim()))
        }
    };
    let payload = serde_json::to_string(wish).map_err(|error| error.to_string())?;
    let (id, time) = (key(wish), (now.micros() / 1_000_000).to_string());
    let timeout = config.timeout.get().max(Duration::from_millis(100));
    let client = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .timeout(timeout)
        .user_agent(concat!("falaj/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| why(&error))?;
    let mut request = client
        .post(&config.url)
        .header(header::CONTENT_TYPE, "application/json")
        .header("idempotency-key", &id)
        .header("x-falaj-delivery-id", &id)
        .header("x-falaj-timestamp", &time);
    if let Some(secret) = &secret {
        let signed = signature(secret.expose().as_bytes(), &id, &time, &payload);
        request = request.header("x-falaj-signature", signed);
    }
    let mut response = request.body(payload).send().await.map_err(|error| why(&error))?;
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < MOST {
        match response.chunk().await.map_err(|error| why(&error))? {
            Some(piece) => body.extend_from_slice(&piece),
            None => break,
        }
    }
    if !status.is_success() {
        let text = String::from_utf8_lossy(&body);
        let text: String = text.chars().filter(|c| !c.is_control()).take(MOST_TEXT).collect();
        return Err(format!("it answered {}: {text}", status.as_u16()));
    }
    // An answer that says nothing, or nothing that is understood, is taken for a yes.
    Ok(serde_json::from_slice::<Answer>(&body).unwrap_or_default().target)
}

/// The same whenever the same is told.
pub(crate) fn key(wish: &Wish) -> String {
    format!("{}-{}", wish.pool, wish.generation)
}

/// The innermost cause: the outer ones repeat the URL, which may be a secret.
fn why(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it did not answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string().chars().take(MOST_TEXT).collect()
}

/// How long after so many failures it is told again.
pub(crate) fn pause(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.min(8)).min(Duration::from_mins(5))
}
