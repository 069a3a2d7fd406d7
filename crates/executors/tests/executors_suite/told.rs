//! A cluster that tells of changes, as far as that goes: it has nothing, and one can see how often it is asked.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use falaj_executors::{Executor, KubernetesExecutor, KubernetesSettings};
use serde_json::json;

use crate::engine::until;

#[derive(Default)]
struct Told {
    /// How often it was asked for everything.
    lists: AtomicU32,
    /// How long that takes.
    takes: Mutex<Duration>,
    /// Those who want to be told.
    watches: Mutex<Vec<TcpStream>>,
}

impl Told {
    fn start(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let told = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let told = told.clone();
                std::thread::spawn(move || told.serve(stream));
            }
        });
        format!("http://{address}")
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut first = String::new();
            if reader.read_line(&mut first).unwrap_or(0) == 0 {
                return;
            }
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                line.clear();
            }
            if first.contains("watch=true") {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                            transfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).unwrap();
                self.watches.lock().unwrap().push(stream.try_clone().unwrap());
                continue;
            }
            let body = if first.contains("/metrics.k8s.io/") {
                let labels = json!({"falaj.dev/attempt": "f-job-1-f2c2e8802008f4f6"});
                let usage = json!({"cpu": "2", "memory": "1Mi"});
                let containers = json!([{"name": "rank-0", "usage": usage}]);
                let metadata = json!({"name": "x", "labels": labels});
                let pod = json!({"metadata": metadata, "window": "15s", "containers": containers});
                json!({"metadata": {}, "items": [pod]}).to_string()
            } else {
                self.lists.fetch_add(1, Ordering::Relaxed);
                let takes = *self.takes.lock().unwrap();
                std::thread::sleep(takes);
                json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string()
            };
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    }

    /// Tells everybody that something has changed.
    fn tell(&self) {
        let object = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "x", "resourceVersion": "2"},
        });
        let event = format!("{}\n", json!({"type": "MODIFIED", "object": object}));
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        for stream in self.watches.lock().unwrap().iter_mut() {
            stream.write_all(chunk.as_bytes()).unwrap();
        }
    }

    fn lists(&self) -> u32 {
        self.lists.load(Ordering::Relaxed)
    }
}

fn executor(folder: &Path, url: &str) -> KubernetesExecutor {
    let kubeconfig = folder.join("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    });
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let settings = KubernetesSettings { kubeconfig: Some(kubeconfig), ..Default::default() };
    KubernetesExecutor::new(folder.join("attempts"), settings).unwrap()
}

#[test]
fn a_cluster_that_tells_of_changes_is_not_asked_again_and_again() {
    let told = Arc::new(Told::default());
    let url = told.start();
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(folder.path(), &url);
    executor.observe().unwrap();
    until("nobody watches", || told.watches.lock().unwrap().len() == 2);
    // What was asked before anybody listened is asked once more, and then nothing.
    std::thread::sleep(Duration::from_millis(500));
    executor.observe().unwrap();
    let before = told.lists();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        executor.observe().unwrap();
        executor.wait(Duration::from_millis(100));
    }
    assert_eq!(told.lists(), before);
    // A change is heard of, and looked at.
    told.tell();
    let begun = Instant::now();
    while told.lists() == before {
        assert!(begun.elapsed() < Duration::from_secs(5), "nobody has looked");
        executor.wait(Duration::from_millis(500));
        executor.observe().unwrap();
    }
}

#[test]
fn what_the_cluster_measures_is_told() {
    let told = Arc::new(Told::default());
    let url = told.start();
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(folder.path(), &url);
    let attempt = falaj_executors::AttemptId::new("job-1").unwrap();
    assert!(executor.usage(&attempt).is_err(), "nobody knows of it");
    std::fs::create_dir(folder.path().join("attempts/job-1")).unwrap();
    let used = executor.usage(&attempt).unwrap().unwrap();
    assert_eq!((used.memory_bytes, used.peak_memory_bytes), (1 << 20, 1 << 20));
    assert!(used.cpu_seconds > 1.0, "{used:?}");
    // The same is not counted twice, nor is it lost with this process.
    assert_eq!(executor.usage(&attempt).unwrap(), Some(used));
    drop(executor);
    let executor = self::executor(folder.path(), "http://127.0.0.1:9");
    assert_eq!(executor.usage(&attempt).unwrap(), Some(used));
}

#[test]
fn those_who_wait_for_the_same_answer_share_it() {
    let told = Arc::new(Told::default());
    let url = told.start();
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(folder.path(), &url);
    *told.takes.lock().unwrap() = Duration::from_millis(300);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| executor.observe().unwrap());
        }
    });
    // Those who came while it was answered waited for the next answer, all for the same.
    assert!(told.lists() <= 6, "{}", told.lists());
}
