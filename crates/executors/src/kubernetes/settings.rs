//! Which cluster, and how the pods of attempts are made there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Which cluster, and what every pod there has in common.
#[derive(Clone, Debug)]
pub struct KubernetesSettings {
    /// A kubeconfig; the account of the pod that this process runs in if absent.
    pub kubeconfig: Option<PathBuf>,
    /// One of its contexts; the current one if absent.
    pub context: Option<String>,
    /// The namespace; that of the context if absent.
    pub namespace: Option<String>,
    /// Whose attempts these are: several executors may share a namespace, and each sees its own alone.
    pub owner: String,
    /// What its attempts were marked with before. Of those with that mark, it sees the ones that it knows already, and
    /// no others.
    pub former_owner: Option<String>,
    /// The image of attempts that name none.
    pub image: Option<String>,
    pub image_pull_secrets: Vec<String>,
    /// The account of the pods. Without one they have no token of the cluster's.
    pub service_account: Option<String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    pub priority_class: Option<String>,
    pub runtime_class: Option<String>,
    /// A queue of Kueue's: attempts are handed over suspended, and start when it lets them.
    pub queue: Option<String>,
    /// What the cluster calls a whole GPU.
    pub gpu_resource: String,
    /// What it calls slices of GPUs, by the names that launches have for them.
    pub slices: BTreeMap<String, String>,
    /// The user that ranks run as; that of the image if absent.
    pub run_as: Option<i64>,
    /// Whether the nodes of ranks are nodes of the cluster, and no others will do. They are a wish otherwise.
    pub pin: bool,
    /// Volumes that every pod has.
    pub volumes: Vec<Volume>,
    /// Bytes of output that are kept for each rank.
    pub keep_output: u64,
    /// How long a node may be out of reach before what runs there is given up.
    pub unreachable_after: Duration,
    /// How long an attempt may wait in the cluster before it is given up; without end if absent.
    pub start_within: Option<Duration>,
}

impl Default for KubernetesSettings {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            namespace: None,
            owner: "falaj".to_owned(),
            former_owner: None,
            image: None,
            image_pull_secrets: Vec::new(),
            service_account: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            priority_class: None,
            runtime_class: None,
            queue: None,
            gpu_resource: "nvidia.com/gpu".to_owned(),
            slices: BTreeMap::new(),
            run_as: None,
            pin: false,
            volumes: Vec::new(),
            keep_output: 256 << 20,
            unreachable_after: Duration::from_secs(30),
            start_within: None,
        }
    }
}

/// A taint of nodes that pods do not mind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// Any taint if absent.
    pub key: Option<String>,
    /// Any value if absent.
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; all of them if absent.
    pub effect: Option<String>,
}

/// A volume of the cluster, by its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub claim: String,
    /// Where pods see it.
    pub path: String,
    pub read_only: bool,
}
