//! Annotations on an object of a cluster, for whoever in it acts on them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Client, Config};
use serde_json::json;

use super::api;
use super::settings::KubernetesSettings;

const CONNECT: Duration = Duration::from_secs(5);
/// The most of an answer that is repeated.
const SHOWN: usize = 300;

/// An object of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterObject {
    /// A kubeconfig; the account of the pod that this process runs in if absent.
    pub kubeconfig: Option<PathBuf>,
    /// One of its contexts; the current one if absent.
    pub context: Option<String>,
    /// Such as `apps/v1`, or `v1`.
    pub api_version: String,
    pub kind: String,
    /// What the API calls many of them; made of the kind if absent.
    pub plural: Option<String>,
    /// None if it is the cluster's.
    pub namespace: Option<String>,
    pub name: String,
}

/// Sets annotations of an object that is there, within a time, and leaves its others. What went wrong is
/// told in words.
pub async fn annotate(
    object: &ClusterObject,
    notes: &BTreeMap<String, String>,
    longest: Duration,
) -> Result<(), String> {
    let asked = ask(object, notes, longest);
    match tokio::time::timeout(longest, asked).await {
        Ok(answer) => answer,
        Err(_) => Err("it did not answer in time".to_owned()),
    }
}

async fn ask(
    object: &ClusterObject,
    notes: &BTreeMap<String, String>,
    longest: Duration,
) -> Result<(), String> {
    let settings = KubernetesSettings {
        kubeconfig: object.kubeconfig.clone(),
        context: object.context.clone(),
        ..KubernetesSettings::default()
    };
    let mut config: Config = api::config(&settings).await.map_err(|error| error.to_string())?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(longest);
    config.write_timeout = Some(longest);
    // What is configured is what is asked: no variable of the environment leads elsewhere.
    config.proxy_url = None;
    let client = Client::try_from(config).map_err(|error| api::innermost(&error))?;
    let (group, version) = object.api_version.split_once('/').unwrap_or(("", &object.api_version));
    let kind = GroupVersionKind::gvk(group, version, &object.kind);
    let resource = match &object.plural {
        Some(plural) => ApiResource::from_gvk_with_plural(&kind, plural),
        None => ApiResource::from_gvk(&kind),
    };
    let objects: Api<DynamicObject> = match &object.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let change = json!({ "metadata": { "annotations": notes } });
    let patched =
        objects.patch_metadata(&object.name, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.map(drop).map_err(|error| match &error {
        kube::Error::Api(status) => {
            let said: String = status.message.chars().take(SHOWN).collect();
            format!("it answered {}: {said}", status.code)
        }
        error => api::innermost(error).chars().take(SHOWN).collect(),
    })
}
