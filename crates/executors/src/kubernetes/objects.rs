//! What is made in the cluster for an attempt: a job, a service that its nodes reach each other by, and
//! a secret with everything that its ranks are told. Pure.
//!
//! A node of an attempt is a pod, and each of its ranks there a container: ranks of a node share its network
//! and memory, and have each their own output, limits and GPUs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::batch::v1::Job;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::names;
use super::settings::KubernetesSettings;
use crate::shared::{Even, LONGEST_GANG_GRACE, quoted};
use crate::shim::millis;
use crate::{Launch, RankPlace, check};

const RUN: &str = include_str!("run.sh");
/// The most bytes in a secret.
const LARGEST: usize = 1 << 20;
/// What the cluster puts on nodes that it does not reach, or that are not well.
const OUT_OF_REACH: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];
/// The most characters of a job's name that are shown.
const LONGEST_NAME: usize = 200;

/// The shape and the limits of an attempt. Written on its job and in its folder: the names are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) nodes: usize,
    pub(super) per_node: usize,
    pub(super) grace_ms: u64,
    pub(super) gang_grace_ms: u64,
    pub(super) time_ms: Option<u64>,
}

impl Kept {
    /// Pods of a job are alike, so nodes must be.
    pub(super) fn of(launch: &Launch) -> Result<Self, String> {
        let Even { nodes, per_node, .. } = Even::of(launch, "Kubernetes")?;
        Ok(Self {
            nodes,
            per_node,
            grace_ms: millis(launch.grace),
            gang_grace_ms: millis(launch.gang_grace.min(LONGEST_GANG_GRACE)),
            time_ms: launch.limits.time.map(millis),
        })
    }
}

/// Why a launch can never be started here.
pub(super) fn refuses(launch: &Launch, settings: &KubernetesSettings) -> Option<String> {
    if let Some(why) = check::refuses_but_images(launch) {
        return Some(why);
    }
    let Some(image) = launch.image.as_ref().or(settings.image.as_ref()) else {
        return Some("image: is absent, and its pool has none of its own".to_owned());
    };
    let fits = (1..=500).contains(&image.len())
        && image.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/:@".contains(&b))
        && image.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if !fits {
        return Some(format!(
            "image: `{image}` is no image: letters, digits and ._-/:@, a letter or digit first, at most 500"
        ));
    }
    if let Some(slice) = &launch.slice
        && !settings.slices.contains_key(slice)
    {
        let known: Vec<&str> = settings.slices.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none" } else { &known.join(", ") };
        return Some(format!("mig: `{slice}` has no resource in its pool, which has: {known}"));
    }
    let kept = match Kept::of(launch) {
        Ok(kept) => kept,
        Err(why) => return Some(why),
    };
    // What a container has, no other has.
    let shares = |node: &[RankPlace]| {
        let mut gpus: Vec<u8> = node.iter().flat_map(|rank| &rank.gpus).copied().collect();
        let all = gpus.len();
        gpus.sort_unstable();
        gpus.dedup();
        gpus.len() < all
    };
    if launch.ranks.chunks(kept.per_node.max(1)).any(shares) {
        return Some("ranks: on Kubernetes, those of a node have each their own GPUs".to_owned());
    }
    if launch.slice.is_some() && kept.per_node > 1 {
        return Some("ranks: a slice of a GPU is for one rank on each node".to_owned());
    }
    let size: usize = files(launch).values().map(|text| text.len()).sum();
    (size > LARGEST).then(|| {
        format!(
            "env: the environments of all ranks and the command have {size} bytes; a secret of Kubernetes \
             holds {LARGEST}"
        )
    })
}

/// What ranks read when they start: scripts of quoted words, which a shell takes as they are.
fn files(launch: &Launch) -> BTreeMap<String, Zeroizing<String>> {
    let mut env = String::new();
    let set = |text: &mut String, name: &str, value: &str| {
        // As a command: a name that the shell keeps to itself is then an error, and not the end.
        let _ = writeln!(text, "command export {name}={}", quoted(value));
    };
    for (name, value) in &launch.env {
        set(&mut env, name, value);
    }
    for (name, value) in &launch.secrets {
        set(&mut env, name, value.expose());
    }
    if launch.slice.is_none() && launch.ranks.first().is_none_or(|rank| rank.gpus.is_empty()) {
        set(&mut env, "CUDA_VISIBLE_DEVICES", "");
    }
    set(&mut env, "FALAJ_ATTEMPT", launch.attempt.as_str());
    let folder =
        launch.folder.as_deref().map_or_else(|| "/falaj/work".into(), |f| f.to_string_lossy());
    let mut command = format!("set -- {}", quoted(&folder));
    for word in &launch.command {
        command.push(' ');
        command.push_str(&quoted(word));
    }
    command.push('\n');
    let mut files = BTreeMap::from([
        ("run.sh".to_owned(), Zeroizing::new(RUN.to_owned())),
        ("env".to_owned(), Zeroizing::new(env)),
        ("command".to_owned(), Zeroizing::new(command)),
    ]);
    for (number, rank) in launch.ranks.iter().enumerate() {
        let mut own = String::new();
        for (name, value) in &rank.env {
            set(&mut own, name, value);
        }
        set(&mut own, "FALAJ_RANK", &number.to_string());
        files.insert(format!("rank-{number}"), Zeroizing::new(own));
    }
    files
}

/// Makes things go with a job.
pub(super) fn belonging(job: &Job) -> Value {
    json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name, "uid": job.metadata.uid,
    }])
}

/// The secret of an attempt.
pub(super) fn secret(launch: &Launch, settings: &KubernetesSettings, owners: &Value) -> Value {
    let files = files(launch);
    let text: BTreeMap<&str, &str> =
        files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let mut metadata = about(launch, settings);
    metadata["ownerReferences"] = owners.clone();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "falaj.dev/launch",
        "stringData": text,
    })
}

/// The service by which nodes of an attempt reach each other; one node needs none.
pub(super) fn service(
    launch: &Launch,
    settings: &KubernetesSettings,
    kept: &Kept,
    owners: &Value,
) -> Option<Value> {
    (kept.nodes > 1).then(|| {
        let mut metadata = about(launch, settings);
        metadata["ownerReferences"] = owners.clone();
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": "None",
                // They look for each other before any of them is ready.
                "publishNotReadyAddresses": true,
                "selector": {names::JOB_NAME: names::job(&launch.attempt)},
            },
        })
    })
}

/// The job of an attempt.
pub(super) fn job(launch: &Launch, settings: &KubernetesSettings, kept: &Kept) -> Value {
    let mut metadata = about(launch, settings);
    let labels = metadata["labels"].clone();
    metadata["annotations"][names::LAUNCH] = json!(json!(kept).to_string());
    if let Some(queue) = &settings.queue {
        metadata["labels"][names::KUEUE] = json!(queue);
    }
    let mut spec = json!({
        "completionMode": "Indexed",
        "completions": kept.nodes,
        "parallelism": kept.nodes,
        // A pod that fails is not replaced, and the others are not removed for it: their output would go
        // with them. They are ended by us.
        "backoffLimitPerIndex": 0,
        "podReplacementPolicy": "Failed",
        "template": {
            "metadata": {
                // Without its queue: Kueue would take each pod for a job of its own.
                "labels": labels,
                "annotations": {names::ATTEMPT: launch.attempt.as_str()},
                "finalizers": [names::KEEPS],
            },
            "spec": pod(launch, settings, kept),
        },
    });
    if settings.queue.is_some() {
        spec["suspend"] = json!(true);
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
}

fn about(launch: &Launch, settings: &KubernetesSettings) -> Value {
    let name: String = launch.name.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect();
    json!({
        "name": names::job(&launch.attempt),
        "labels": {
            "app.kubernetes.io/managed-by": "falaj",
            names::OWNER: settings.owner,
            names::ATTEMPT: names::job(&launch.attempt),
        },
        "annotations": {names::ATTEMPT: launch.attempt.as_str(), "falaj.dev/name": name},
    })
}

fn pod(launch: &Launch, settings: &KubernetesSettings, kept: &Kept) -> Value {
    let containers: Vec<Value> =
        (0..kept.per_node).map(|number| container(launch, settings, kept, number)).collect();
    let mut spec = json!({
        "restartPolicy": "Never",
        // A program that is the first of its own processes would not end by the signals that end others.
        "shareProcessNamespace": true,
        "enableServiceLinks": false,
        "automountServiceAccountToken": settings.service_account.is_some(),
        "terminationGracePeriodSeconds": kept.grace_ms.div_ceil(1000).max(1),
        "securityContext": security(settings),
        "containers": containers,
        "volumes": volumes(launch, settings),
    });
    if kept.nodes > 1 {
        spec["subdomain"] = json!(names::job(&launch.attempt));
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": if settings.pin { "DoNotSchedule" } else { "ScheduleAnyway" },
            "labelSelector": {"matchLabels": {names::ATTEMPT: names::job(&launch.attempt)}},
        }]);
    }
    spec["affinity"] = json!({"nodeAffinity": affinity(launch, settings)});
    let named = [
        ("serviceAccountName", &settings.service_account),
        ("priorityClassName", &settings.priority_class),
        ("runtimeClassName", &settings.runtime_class),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            spec[name] = json!(value);
        }
    }
    if !settings.node_selector.is_empty() {
        spec["nodeSelector"] = json!(settings.node_selector);
    }
    if !settings.image_pull_secrets.is_empty() {
        let secrets = settings.image_pull_secrets.iter().map(|name| json!({"name": name}));
        spec["imagePullSecrets"] = secrets.collect();
    }
    spec["tolerations"] = tolerations(settings);
    spec
}

/// Ours first: of several that fit a taint the first one counts, and one that fits all would wait for ever for a
/// node that is gone.
fn tolerations(settings: &KubernetesSettings) -> Value {
    let within = settings.unreachable_after.as_secs();
    let gone = OUT_OF_REACH.iter().map(|key| {
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": within})
    });
    let own = settings.tolerations.iter().map(|one| {
        let operator = if one.value.is_some() { "Equal" } else { "Exists" };
        let mut shown = json!({"operator": operator});
        let parts = [("key", &one.key), ("value", &one.value), ("effect", &one.effect)];
        for (name, value) in parts {
            if let Some(value) = value {
                shown[name] = json!(value);
            }
        }
        shown
    });
    gone.chain(own).collect()
}

fn volumes(launch: &Launch, settings: &KubernetesSettings) -> Vec<Value> {
    let secret = json!({"secretName": names::job(&launch.attempt), "defaultMode": 0o444});
    let mut volumes = vec![
        json!({"name": "launch", "secret": secret}),
        json!({"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
        json!({"name": "work", "emptyDir": {}}),
        // What processes share among themselves is counted as their memory.
        json!({"name": "shm", "emptyDir": {"medium": "Memory"}}),
    ];
    for (number, volume) in settings.volumes.iter().enumerate() {
        let claim = json!({"claimName": volume.claim, "readOnly": volume.read_only});
        volumes.push(json!({"name": format!("own-{number}"), "persistentVolumeClaim": claim}));
    }
    volumes
}

fn mounts(settings: &KubernetesSettings) -> Vec<Value> {
    let mut mounts = vec![
        json!({"name": "launch", "mountPath": "/falaj/launch", "readOnly": true}),
        json!({"name": "run", "mountPath": "/falaj/run"}),
        json!({"name": "work", "mountPath": "/falaj/work"}),
        json!({"name": "shm", "mountPath": "/dev/shm"}),
    ];
    for (number, volume) in settings.volumes.iter().enumerate() {
        let name = format!("own-{number}");
        mounts.push(json!({"name": name, "mountPath": volume.path, "readOnly": volume.read_only}));
    }
    mounts
}

/// The nodes that were decided on, as a demand or a wish.
fn affinity(launch: &Launch, settings: &KubernetesSettings) -> Value {
    let mut nodes: Vec<&str> = launch.ranks.iter().map(|rank| rank.node.as_str()).collect();
    nodes.dedup();
    let term = json!({
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}],
    });
    if settings.pin {
        let required = json!({"nodeSelectorTerms": [term]});
        return json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
    }
    let preferred = json!([{"weight": 100, "preference": term}]);
    json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred})
}

fn security(settings: &KubernetesSettings) -> Value {
    let mut context = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    if let Some(user) = settings.run_as {
        context["runAsUser"] = json!(user);
        context["runAsNonRoot"] = json!(user != 0);
        // So that volumes are the user's to write to.
        context["fsGroup"] = json!(user);
        // Not file by file at every start.
        context["fsGroupChangePolicy"] = json!("OnRootMismatch");
    }
    context
}

fn container(launch: &Launch, settings: &KubernetesSettings, kept: &Kept, number: usize) -> Value {
    let image = launch.image.as_ref().or(settings.image.as_ref());
    let mut limits = BTreeMap::new();
    if launch.limits.cpu_millis > 0 {
        limits.insert("cpu".to_owned(), format!("{}m", launch.limits.cpu_millis));
    }
    if launch.limits.memory_mib > 0 {
        limits.insert("memory".to_owned(), format!("{}Mi", launch.limits.memory_mib));
    }
    let gpus = launch.ranks.first().map_or(0, |rank| rank.gpus.len());
    let slice = launch.slice.as_ref().and_then(|slice| settings.slices.get(slice));
    if let Some(resource) = slice {
        limits.insert(resource.clone(), "1".to_owned());
    } else if gpus > 0 {
        limits.insert(settings.gpu_resource.clone(), gpus.to_string());
    }
    let mut security = json!({"allowPrivilegeEscalation": false});
    if settings.run_as.is_some_and(|user| user != 0) {
        security["capabilities"] = json!({"drop": ["ALL"]});
    }
    let mut container = json!({
        "name": names::container(number),
        "image": image,
        "command": ["/bin/sh", "/falaj/launch/run.sh", number.to_string(), kept.per_node.to_string()],
        "securityContext": security,
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": mounts(settings),
    });
    if gpus == 0 && slice.is_none() {
        // Many images ask for all GPUs of a node by this variable, whatever they were given.
        container["env"] = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]);
    }
    container
}
