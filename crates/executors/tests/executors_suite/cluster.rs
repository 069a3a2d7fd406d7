//! The cluster that tests run on: that of `KUBECONFIG`, or what one answered when the same tests were
//! recorded.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use falaj_executors::KubernetesSettings;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::front::Front;
use crate::tape::{Player, Recorder};

/// What tests start; it has a shell, bash and the tools of GNU.
const IMAGE: &str = "debian:bookworm-slim";
/// The namespace of recordings.
const NAMESPACE: &str = "training";

pub(crate) struct Cluster {
    kubeconfig: PathBuf,
    owner: String,
    /// What stands between a test and its cluster, or for it.
    front: Option<Front>,
}

impl Cluster {
    pub(crate) fn of(folder: &Path) -> Self {
        let real = std::env::var_os("KUBECONFIG").map(PathBuf::from);
        if let Some(kubeconfig) = &real
            && std::env::var_os("FALAJ_TEST_RECORD").is_none()
        {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
            let owner = format!("test-{}-{count}-{since}", std::process::id());
            return Self { kubeconfig: kubeconfig.clone(), owner, front: None };
        }
        // Names are the same each time, or nothing would be found again.
        crate::engine::fix_names();
        let test = std::thread::current().name().unwrap_or_default().replace("::", "-");
        let tape = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/kubernetes/recorded")
            .join(format!("{test}.json"));
        let front = match real {
            Some(kubeconfig) => Front::recording(&kubeconfig, Recorder::new(tape)),
            None => Front::replaying(Player::open(&tape)),
        };
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, text(&front.url())).unwrap();
        // A label has 63 letters at most.
        let owner: String = test.rsplit('-').next().unwrap().chars().take(60).collect();
        Self { kubeconfig, owner: owner.trim_matches('_').to_owned(), front: Some(front) }
    }

    /// Whether it is one, and nothing stands between.
    pub(crate) fn is_real(&self) -> bool {
        self.front.is_none()
    }

    /// Asks it as somebody else would: the status, and what it says.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let (client, namespace) = client(&self.kubeconfig).await;
            let uri = path.replace("NAMESPACE", &format!("namespaces/{namespace}"));
            let kind =
                if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let asked =
                http::Request::builder().method(method).uri(uri).header("content-type", kind);
            let asked = asked.body(serde_json::to_vec(body).unwrap()).unwrap();
            match client.request::<Value>(asked).await {
                Ok(answer) => (200, answer),
                Err(kube::Error::Api(status)) => (status.code, Value::Null),
                Err(error) => panic!("{error}"),
            }
        })
    }

    pub(crate) fn settings(&self) -> KubernetesSettings {
        settings(self.kubeconfig.clone(), self.owner.clone())
    }
}

pub(crate) fn settings(kubeconfig: PathBuf, owner: String) -> KubernetesSettings {
    let image = std::env::var("FALAJ_TEST_IMAGE").unwrap_or_else(|_| IMAGE.to_owned());
    KubernetesSettings {
        kubeconfig: Some(kubeconfig),
        owner,
        image: Some(image),
        ..KubernetesSettings::default()
    }
}

/// A client of the cluster of a kubeconfig, and the namespace of its context.
pub(crate) async fn client(kubeconfig: &Path) -> (Client, String) {
    let found = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(found, &options).await.unwrap();
    config.proxy_url = None;
    let namespace = config.default_namespace.clone();
    (Client::try_from(config).unwrap(), namespace)
}

fn text(url: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
        "current-context": "x",
    })
    .to_string()
}
