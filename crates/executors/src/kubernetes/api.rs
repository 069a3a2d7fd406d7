//! The API of a cluster, asked from any thread, each time for a bounded time.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::AsyncBufRead;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    ApiResource, AttachParams, DeleteParams, DynamicObject, GroupVersionKind, ListParams,
    LogParams, Patch, PatchParams, PostParams, PropagationPolicy, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api as Objects, Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::names;
use super::settings::KubernetesSettings;
use super::watch::{self, Watch};
use crate::ExecutorError;

const LONGEST: Duration = Duration::from_secs(20);
const CONNECT: Duration = Duration::from_secs(5);
/// How long a command in a pod may take; it sends a signal.
const COMMAND: Duration = Duration::from_secs(5);
/// How many objects are asked for at a time, and how often: more than that are not ours to watch.
const PAGE: u32 = 500;
const PAGES: usize = 400;
/// How long it may take until all of them are here.
const LISTED_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to hear what pods use: others wait for that.
const METERED_WITHIN: Duration = Duration::from_secs(5);
/// The most of an answer that is repeated in an error.
const SHOWN: usize = 500;

pub(super) struct Api {
    /// A thread of its own: callers may wait in threads that belong to another runtime.
    runtime: Option<Runtime>,
    client: Client,
    /// For answers that go on for minutes.
    patient: Client,
    namespace: String,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Why something was not answered.
#[derive(Debug)]
pub(super) enum Fault {
    /// There is no such thing.
    Absent(String),
    /// There is one of that name already.
    Present,
    /// It is refused, and would be again.
    Never(String),
    Away(String),
}

impl From<Fault> for ExecutorError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Never(text) => Self::Refused(text),
            Fault::Present => Self::Away("Kubernetes: there is one of that name".to_owned()),
            // Where something is made, it is the namespace that is not there: an affair of the pool.
            Fault::Absent(text) | Fault::Away(text) => Self::Away(text),
        }
    }
}

impl Fault {
    /// The same where nothing is being asked for that could be refused: it may be answered later.
    pub(super) fn away(self) -> ExecutorError {
        match ExecutorError::from(self) {
            ExecutorError::Refused(text) => ExecutorError::Away(text),
            other => other,
        }
    }
}

impl Api {
    pub(super) fn new(settings: &KubernetesSettings) -> Result<Self, ExecutorError> {
        let away = |error: &dyn fmt::Display| ExecutorError::Away(format!("Kubernetes: {error}"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("kubernetes")
            .enable_all()
            .build()
            .map_err(|error| away(&error))?;
        // Not waited for by the runtime: whoever starts this may be in another, which forbids that.
        let (tell, heard) = std::sync::mpsc::channel();
        let wanted = settings.clone();
        runtime.spawn(async move { tell.send(config(&wanted).await) });
        let mut config = heard.recv_timeout(LONGEST).map_err(|error| away(&error))??;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(LONGEST);
        config.write_timeout = Some(LONGEST);
        // What is configured is what is asked: no variable of the environment leads elsewhere.
        config.proxy_url = None;
        let namespace =
            settings.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let (client, patient) = {
            let _inside = runtime.enter();
            let client = Client::try_from(config.clone()).map_err(|error| away(&error))?;
            config.read_timeout = None;
            (client, Client::try_from(config).map_err(|error| away(&error))?)
        };
        Ok(Self { runtime: Some(runtime), client, patient, namespace })
    }

    fn of<K>(&self) -> Objects<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Objects::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits for answers, for so long at most.
    pub(super) fn within<T>(
        &self,
        longest: Duration,
        asked: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        let Some(runtime) = &self.runtime else {
            return Err(Fault::Away("Kubernetes: closed".to_owned()));
        };
        runtime
            .block_on(async { tokio::time::timeout(longest, asked).await })
            .map_err(|_| Fault::Away(format!("Kubernetes: no answer within {longest:?}")))
    }

    fn ask<T>(&self, asked: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Fault> {
        self.within(LONGEST, asked)?.map_err(|error| fault(&error))
    }

    pub(super) fn create<K>(&self, object: Value) -> Result<K, Fault>
    where
        K: Resource<Scope = NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + fmt::Debug,
        K::DynamicType: Default,
    {
        let object: K = serde_json::from_value(object)
            .map_err(|error| Fault::Never(format!("Kubernetes: no such object: {error}")))?;
        self.ask(self.of::<K>().create(&PostParams::default(), &object))
    }

    /// `None` if there is none.
    pub(super) fn get<K>(&self, name: &str) -> Result<Option<K>, Fault>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Clone + fmt::Debug,
        K::DynamicType: Default,
    {
        self.ask(self.of::<K>().get_opt(name))
    }

    /// Changes some fields; whether there is one to change.
    pub(super) fn patch<K>(&self, name: &str, change: &Value) -> Result<bool, Fault>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Clone + fmt::Debug,
        K::DynamicType: Default,
    {
        let params = PatchParams::default();
        match self.ask(self.of::<K>().patch(name, &params, &Patch::Merge(change))) {
            Ok(_) => Ok(true),
            Err(Fault::Absent(_)) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Lets a pod go that was kept until its end was known.
    pub(super) fn release(&self, pod: &str) -> Result<(), Fault> {
        let change = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [names::KEEPS]}});
        let params = PatchParams::default();
        match self.ask(self.of::<Pod>().patch(pod, &params, &Patch::Strategic(&change))) {
            Ok(_) | Err(Fault::Absent(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Removes one, and what belongs to it; one that is not there is gone. `grace` is that of pods.
    pub(super) fn delete<K>(&self, name: &str, grace: Option<u32>) -> Result<(), Fault>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Clone + fmt::Debug,
        K::DynamicType: Default,
    {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        match self.ask(self.of::<K>().delete(name, &params)) {
            Ok(_) | Err(Fault::Absent(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// All that have these labels.
    pub(super) fn list<K>(&self, labels: &str) -> Result<Vec<K>, Fault>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Clone + fmt::Debug,
        K::DynamicType: Default,
    {
        let objects = self.of::<K>();
        let until = Instant::now() + LISTED_WITHIN;
        let mut params = ListParams::default().labels(labels).limit(PAGE);
        let mut all = Vec::new();
        for _ in 0..PAGES {
            let left = until.saturating_duration_since(Instant::now()).min(LONGEST);
            let page = self.within(left, objects.list(&params))?.map_err(|error| fault(&error))?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
        Err(Fault::Away(format!("Kubernetes: more than {} objects", PAGES * PAGE as usize)))
    }

    /// What pods with these labels use, if the cluster knows. That it does not, or does not let us see, is no
    /// [`Fault::Away`].
    pub(super) fn metrics(&self, labels: &str) -> Result<Vec<DynamicObject>, Fault> {
        let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics");
        let kind = ApiResource::from_gvk_with_plural(&kind, "pods");
        let client = self.client.clone();
        let objects: Objects<DynamicObject> =
            Objects::namespaced_with(client, &self.namespace, &kind);
        let params = ListParams::default().labels(labels);
        let listed = self.within(METERED_WITHIN, objects.list(&params))?;
        listed.map(|list| list.items).map_err(|error| match fault(&error) {
            Fault::Away(text) if is_forbidden(&error) => Fault::Never(text),
            other => other,
        })
    }

    /// Has changes of everything with these labels told, for as long as this is there.
    pub(super) fn watch<K>(&self, labels: &str, watch: Arc<Watch>)
    where
        K: Resource<Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + fmt::Debug
            + Send
            + Sync
            + 'static,
        K::DynamicType: Default,
    {
        let Some(runtime) = &self.runtime else { return };
        let objects: Objects<K> = Objects::namespaced(self.patient.clone(), &self.namespace);
        let params = WatchParams::default().labels(labels).timeout(watch::TURN);
        runtime.spawn(async move {
            // From how things are: what changed before is asked for in any case.
            watch::follow(watch, || objects.watch_metadata(&params, "")).await;
        });
    }

    /// The output of a container so far, each line with its time before it.
    pub(super) async fn log(
        &self,
        pod: &str,
        container: &str,
        since: Option<k8s_openapi::jiff::Timestamp>,
    ) -> Result<impl AsyncBufRead + use<>, Fault> {
        let params = LogParams {
            container: Some(container.to_owned()),
            since_time: since,
            timestamps: true,
            ..LogParams::default()
        };
        self.of::<Pod>().log_stream(pod, &params).await.map_err(|error| fault(&error))
    }

    /// Runs a line of shell in a container; whether it ended well.
    pub(super) async fn run(&self, pod: &str, container: &str, line: &str) -> Result<bool, Fault> {
        let params =
            AttachParams::default().container(container).stdin(false).stdout(true).stderr(true);
        let pods = self.of::<Pod>();
        let asked = async {
            let mut process = pods.exec(pod, ["/bin/sh", "-c", line], &params).await?;
            let status = match process.take_status() {
                Some(ended) => ended.await,
                None => None,
            };
            Ok(status.and_then(|status| status.status).as_deref() == Some("Success"))
        };
        match tokio::time::timeout(COMMAND, asked).await {
            Ok(answer) => answer.map_err(|error: kube::Error| fault(&error)),
            Err(_) => Err(Fault::Away(format!("Kubernetes: {pod} does not answer"))),
        }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        // Waiting for it is not allowed everywhere, and nothing of it matters any more.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(super) async fn config(settings: &KubernetesSettings) -> Result<Config, ExecutorError> {
    let refused = |text: String| ExecutorError::Refused(format!("kubeconfig: {text}"));
    let Some(path) = &settings.kubeconfig else {
        return Config::incluster().map_err(|error| {
            refused(format!("is absent, and this is no pod of a cluster: {error}"))
        });
    };
    let found = Kubeconfig::read_from(path)
        .map_err(|error| refused(format!("`{}`: {}", path.display(), innermost(&error))))?;
    let options = KubeConfigOptions { context: settings.context.clone(), ..Default::default() };
    let shown = |path: &Path| path.display().to_string();
    Config::from_custom_kubeconfig(found, &options)
        .await
        .map_err(|error| refused(format!("`{}`: {}", shown(path), innermost(&error))))
}

pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut source = error;
    while let Some(next) = source.source() {
        source = next;
    }
    source.to_string()
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn fault(error: &kube::Error) -> Fault {
    let kube::Error::Api(status) = error else {
        return Fault::Away(format!("Kubernetes: {}", innermost(error)));
    };
    let said: String = status.message.chars().take(SHOWN).collect();
    let text = format!("Kubernetes: {said}");
    match status.code {
        404 => Fault::Absent(text),
        409 if status.reason == "AlreadyExists" => Fault::Present,
        // What rules for this job alone forbid. Rights that are missing may be given again, and a quota that is
        // used up may be free again.
        403 if ["admission webhook", "violates PodSecurity", "maximum"]
            .iter()
            .any(|rule| said.contains(rule)) =>
        {
            Fault::Never(text)
        }
        400 | 405 | 413 | 422 => Fault::Never(text),
        _ => Fault::Away(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, reason: &str, message: &str) -> ExecutorError {
        let status = serde_json::from_value(serde_json::json!({
            "code": code, "reason": reason, "message": message,
        }));
        fault(&kube::Error::Api(Box::new(status.unwrap()))).into()
    }

    #[test]
    fn what_never_changes_is_a_refusal() {
        for (code, reason, message, never) in [
            (422, "Invalid", "Job is invalid: spec", true),
            (403, "Forbidden", "jobs is forbidden: User cannot create", false),
            (
                403,
                "Forbidden",
                "pods \"a\" is forbidden: violates PodSecurity \"restricted\"",
                true,
            ),
            (404, "NotFound", "namespaces \"x\" not found", false),
            (403, "Forbidden", "jobs \"a\" is forbidden: exceeded quota: q", false),
            (401, "Unauthorized", "Unauthorized", false),
            (409, "Conflict", "the object has been modified", false),
            (429, "TooManyRequests", "later", false),
            (500, "InternalError", "etcd", false),
            (503, "ServiceUnavailable", "", false),
        ] {
            let refused = matches!(of(code, reason, message), ExecutorError::Refused(_));
            assert_eq!(refused, never, "{code} {message}");
        }
    }
}
