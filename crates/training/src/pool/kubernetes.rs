//! What can be set about a pool of Kubernetes.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use falaj_base::HumanDuration;
use falaj_executors::kubernetes::owner;
use falaj_executors::{KubernetesSettings, Toleration, Volume};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::MigSlice;

/// Things of one kind at most.
const MOST: usize = 64;
/// What every pod has of ours.
const OURS: [&str; 2] = ["/falaj", "/dev/shm"];
const LONGEST_SECONDS: u64 = 30 * 86_400;

/// Which cluster, and what every pod there has in common.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesConfig {
    /// A kubeconfig; the account of the pod that the server runs in if absent.
    pub kubeconfig: Option<PathBuf>,
    /// One of its contexts; the current one if absent.
    pub context: Option<String>,
    /// The namespace that jobs run in; that of the context if absent. One of their own is best.
    pub namespace: Option<String>,
    /// Marks what belongs to this pool, where several share a namespace; made of this installation's id and the
    /// name of the pool if absent. A copy of an installation that runs beside it needs one of its own.
    pub owner: Option<String>,
    /// The image of jobs that name none. It needs `/bin/sh`.
    pub image: Option<String>,
    /// Names of secrets that images are fetched with.
    pub image_pull_secrets: Vec<String>,
    /// The account of the pods. Without one they have no token of the cluster.
    pub service_account: Option<String>,
    /// Labels that nodes must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that pods do not mind.
    pub toleration: Vec<TolerationConfig>,
    pub priority_class: Option<String>,
    pub runtime_class: Option<String>,
    /// A queue of Kueue in the namespace: jobs start when it lets them.
    pub queue: Option<String>,
    /// What the cluster calls a GPU; `nvidia.com/gpu` if absent.
    pub gpu_resource: Option<String>,
    /// What it calls slices of GPUs, such as `1g = "nvidia.com/mig-1g.10gb"`.
    pub mig: BTreeMap<String, String>,
    /// The user that jobs run as; that of the image if absent.
    #[schemars(range(min = 0, max = 4_294_967_295_i64))]
    pub run_as: Option<i64>,
    /// Whether the nodes of the pool are named as in the cluster, and jobs run on those that were chosen
    /// and on no others. Their names are a wish otherwise.
    pub pin: bool,
    /// Volumes of the cluster that every pod has.
    pub volume: Vec<VolumeConfig>,
    /// How long a node may be out of reach before the jobs there are given up; 30 seconds if absent.
    pub unreachable_after: Option<HumanDuration>,
    /// How long a start may wait in the cluster, its queue apart, before it is given up as lost; without end if
    /// absent.
    pub start_within: Option<HumanDuration>,
}

/// A taint of nodes that pods do not mind.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TolerationConfig {
    /// Any taint if absent.
    #[serde(default)]
    pub key: Option<String>,
    /// Any value if absent.
    #[serde(default)]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; all of them if absent.
    #[serde(default)]
    pub effect: Option<String>,
}

/// A volume of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// The claim for it, in the namespace.
    pub claim: String,
    /// Where pods see it.
    pub path: PathBuf,
    #[serde(default)]
    pub read_only: bool,
}

impl KubernetesConfig {
    /// What contradicts itself: the field and why.
    pub(crate) fn lacks(&self, folder: Option<&Path>) -> Option<(&'static str, String)> {
        if let Some(volume) = self.volume.iter().find(|volume| !volume.path.is_absolute()) {
            let text = format!("has `{}`; a path from / on is needed", volume.path.display());
            return Some(("kubernetes.volume", text));
        }
        if let Some(text) = self.volume.iter().enumerate().find_map(|(at, volume)| {
            let (path, known) = (&volume.path, &self.volume[..at]);
            let is_odd = path == Path::new("/")
                || path.components().any(|part| part == Component::ParentDir)
                || OURS.iter().any(|ours| path.starts_with(ours) || Path::new(ours).starts_with(path));
            let is_twice = known.iter().any(|other| other.path == *path);
            let shown = path.display();
            if is_odd {
                Some(format!("has `{shown}`; neither /, /falaj and /dev/shm nor what is in them or holds them is allowed"))
            } else {
                is_twice.then(|| format!("has `{shown}` twice; each needs a path of its own"))
            }
        }) {
            return Some(("kubernetes.volume", text));
        }
        let times = [
            ("kubernetes.unreachable_after", self.unreachable_after),
            ("kubernetes.start_within", self.start_within),
        ];
        for (field, time) in times {
            let seconds = time.map_or(1, |time| time.get().as_secs());
            if !(1..=LONGEST_SECONDS).contains(&seconds) {
                return Some((field, format!("is {seconds} s; 1 s to 30 days are allowed")));
            }
        }
        let within = |folder: &Path| self.volume.iter().any(|it| folder.starts_with(&it.path));
        if let Some(folder) = folder.filter(|folder| !within(folder)) {
            let text = format!("is `{}`; a path in one of its volumes is needed", folder.display());
            return Some(("folder", text));
        }
        for slice in self.mig.keys() {
            if MigSlice::named(slice).is_none() {
                let text = format!("has `{slice}`; allowed: 1g, 2g, 3g, 4g, 7g");
                return Some(("kubernetes.mig", text));
            }
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let odd = |it: &&TolerationConfig| {
            it.effect.as_deref().is_some_and(|effect| !effects.contains(&effect))
                || it.key.is_none() && it.value.is_some()
        };
        if self.toleration.iter().any(|it| odd(&it)) {
            let text =
                format!("has a value without a key, or an effect that is none of {effects:?}");
            return Some(("kubernetes.toleration", text));
        }
        let counts = [
            ("kubernetes.volume", self.volume.len()),
            ("kubernetes.toleration", self.toleration.len()),
            ("kubernetes.node_selector", self.node_selector.len()),
            ("kubernetes.image_pull_secrets", self.image_pull_secrets.len()),
        ];
        let (field, count) = counts.into_iter().find(|(_, count)| *count > MOST)?;
        Some((field, format!("has {count}; at most {MOST} are allowed")))
    }

    /// Whether two pools may be told apart by nobody: the same mark, and for all that is known the same place. They
    /// would take each other's jobs for theirs.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let may_be = |one: &Option<String>, other: &Option<String>| {
            one.is_none() || other.is_none() || one == other
        };
        self.owner.is_some()
            && self.owner == other.owner
            && self.kubeconfig == other.kubeconfig
            && may_be(&self.context, &other.context)
            && may_be(&self.namespace, &other.namespace)
    }

    /// The same as its executor takes it.
    pub(crate) fn settings(
        &self,
        installation: &str,
        pool: &str,
        keep_output: u64,
    ) -> KubernetesSettings {
        let defaults = KubernetesSettings::default();
        KubernetesSettings {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            namespace: self.namespace.clone(),
            owner: self.owner.clone().unwrap_or_else(|| owner(installation, pool)),
            // Earlier versions marked with the name alone.
            former_owner: self.owner.is_none().then(|| pool.to_owned()),
            image: self.image.clone(),
            image_pull_secrets: self.image_pull_secrets.clone(),
            service_account: self.service_account.clone(),
            node_selector: self.node_selector.clone(),
            tolerations: self
                .toleration
                .iter()
                .cloned()
                .map(|TolerationConfig { key, value, effect }| Toleration { key, value, effect })
                .collect(),
            priority_class: self.priority_class.clone(),
            runtime_class: self.runtime_class.clone(),
            queue: self.queue.clone(),
            gpu_resource: self.gpu_resource.clone().unwrap_or(defaults.gpu_resource),
            slices: self.mig.clone(),
            run_as: self.run_as,
            pin: self.pin,
            volumes: self
                .volume
                .iter()
                .map(|it| Volume {
                    claim: it.claim.clone(),
                    path: it.path.to_string_lossy().into_owned(),
                    read_only: it.read_only,
                })
                .collect(),
            keep_output,
            unreachable_after: self
                .unreachable_after
                .map_or(defaults.unreachable_after, HumanDuration::get),
            start_within: self.start_within.map(HumanDuration::get),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_itself_is_told_by_its_field() {
        let lacks = |text: &str, folder: Option<&str>| {
            let config: KubernetesConfig = serde_json::from_str(text).unwrap();
            config.lacks(folder.map(Path::new)).map(|(field, _)| field)
        };
        let volume = r#"{"volume": [{"claim": "shared", "path": "/shared"}]}"#;
        assert_eq!(lacks(volume, Some("/shared/falaj")), None);
        assert_eq!(lacks(volume, None), None);
        assert_eq!(lacks(volume, Some("/sharedfalaj")), Some("folder"));
        assert_eq!(lacks("{}", Some("/shared")), Some("folder"));
        for (text, field) in [
            (r#"{"volume": [{"claim": "a", "path": "b"}]}"#, "kubernetes.volume"),
            (r#"{"volume": [{"claim": "a", "path": "/"}]}"#, "kubernetes.volume"),
            (r#"{"volume": [{"claim": "a", "path": "/falaj/run"}]}"#, "kubernetes.volume"),
            (r#"{"volume": [{"claim": "a", "path": "/dev"}]}"#, "kubernetes.volume"),
            (r#"{"volume": [{"claim": "a", "path": "/a/../falaj"}]}"#, "kubernetes.volume"),
            (
                r#"{"volume": [{"claim": "a", "path": "/a"}, {"claim": "b", "path": "/a/"}]}"#,
                "kubernetes.volume",
            ),
            (r#"{"start_within": "0s"}"#, "kubernetes.start_within"),
            (r#"{"unreachable_after": "90d"}"#, "kubernetes.unreachable_after"),
            (r#"{"mig": {"9g": "nvidia.com/mig-9g"}}"#, "kubernetes.mig"),
            (r#"{"toleration": [{"value": "a"}]}"#, "kubernetes.toleration"),
            (r#"{"toleration": [{"key": "a", "effect": "Never"}]}"#, "kubernetes.toleration"),
        ] {
            assert_eq!(lacks(text, None), Some(field), "{text}");
        }
        let pool: KubernetesConfig =
            serde_json::from_str(r#"{"mig": {"1g": "nvidia.com/mig-1g.10gb"}}"#).unwrap();
        let settings = pool.settings("falaj/1", "gpus", 7);
        assert_eq!(settings.keep_output, 7);
        // Another installation has another mark, and this one always the same.
        let mark = |installation: &str| pool.settings(installation, "gpus", 7).owner;
        assert_eq!(mark("falaj/1"), "gpus.b38dd9792aad3833");
        assert_ne!(mark("falaj/2"), settings.owner);
        assert_eq!(settings.former_owner.as_deref(), Some("gpus"));
        let own: KubernetesConfig = serde_json::from_str(r#"{"owner": "mine"}"#).unwrap();
        let own = own.settings("falaj/1", "gpus", 7);
        assert_eq!((own.owner.as_str(), own.former_owner), ("mine", None));
        assert_eq!(settings.slices["1g"], "nvidia.com/mig-1g.10gb");
        assert_eq!(settings.gpu_resource, "nvidia.com/gpu");
    }

    #[test]
    fn two_pools_of_one_mark_and_place_meet() {
        let of = |text: &str| serde_json::from_str::<KubernetesConfig>(text).unwrap();
        let one = of(r#"{"owner": "a", "namespace": "n"}"#);
        for (other, meets) in [
            (r#"{"owner": "a", "namespace": "n"}"#, true),
            // That of its context may be the same one.
            (r#"{"owner": "a"}"#, true),
            (r#"{"owner": "a", "namespace": "m"}"#, false),
            (r#"{"owner": "b", "namespace": "n"}"#, false),
            (r#"{"owner": "a", "namespace": "n", "kubeconfig": "/k"}"#, false),
            (r#"{"namespace": "n"}"#, false),
        ] {
            assert_eq!((one.meets(&of(other)), of(other).meets(&one)), (meets, meets), "{other}");
        }
    }
}
