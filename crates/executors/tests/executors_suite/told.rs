//! A cluster that tells of changes, as far as that goes: it has what it was given, and one can see how often it is
//! asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use falaj_executors::{
    AttemptId, End, Executor, KubernetesExecutor, KubernetesSettings, Notice, Phase,
};
use serde_json::{Value, json};

use crate::engine::until;

#[derive(Default)]
struct Told {
    /// How often it was asked for everything.
    lists: AtomicU32,
    /// How long that takes.
    takes: Mutex<Duration>,
    /// Those who want to be told.
    watches: Mutex<Vec<TcpStream>>,
    /// Its jobs and pods.
    jobs: Mutex<Vec<Value>>,
    pods: Mutex<Vec<Value>>,
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
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            if reader.read_exact(&mut vec![0; length]).is_err() {
                return;
            }
            if first.contains("watch=true") {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                            transfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).unwrap();
                self.watches.lock().unwrap().push(stream.try_clone().unwrap());
                continue;
            }
            let (mut status, mut body) = (200, String::new());
            if first.contains("/metrics.k8s.io/") {
                let labels = json!({"falaj.dev/attempt": JOB_1});
                let usage = json!({"cpu": "2", "memory": "1Mi"});
                let containers = json!([{"name": "rank-0", "usage": usage}]);
                let metadata = json!({"name": "x", "labels": labels});
                let pod = json!({"metadata": metadata, "window": "15s", "containers": containers});
                body = json!({"metadata": {}, "items": [pod]}).to_string();
            } else if !first.contains("/log?") {
                self.lists.fetch_add(1, Ordering::Relaxed);
                let takes = *self.takes.lock().unwrap();
                std::thread::sleep(takes);
                let kind = if first.contains("/jobs") { &self.jobs } else { &self.pods };
                (status, body) = answer(&first, &kind.lock().unwrap());
            }
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    }

    /// Gives it an attempt of one rank that runs, made by an earlier version.
    fn has(&self, attempt: &str, job: &str, owner: &str) {
        let metadata = |name: &str| {
            json!({
                "name": name,
                "creationTimestamp": START,
                "labels": {
                    "falaj.dev/owner": owner, "falaj.dev/attempt": job,
                    "batch.kubernetes.io/job-completion-index": "0",
                },
                "annotations": {"falaj.dev/attempt": attempt, "falaj.dev/launch": LAUNCH},
            })
        };
        let state = json!({
            "name": "rank-0", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": START}},
        });
        self.jobs.lock().unwrap().push(json!({"metadata": metadata(job), "status": {}}));
        self.pods.lock().unwrap().push(json!({
            "metadata": metadata(&format!("{job}-0")),
            "spec": {"containers": [], "nodeName": "n1"},
            "status": {"phase": "Running", "startTime": START, "containerStatuses": [state]},
        }));
    }

    /// Tells everybody that something came, has changed or went, as a cluster did.
    fn tell(&self, how: &str) {
        let event = WATCHED.lines().find(|line| line.contains(how)).unwrap();
        let event = format!("{event}\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        for stream in self.watches.lock().unwrap().iter_mut() {
            stream.write_all(chunk.as_bytes()).unwrap();
        }
    }

    fn lists(&self) -> u32 {
        self.lists.load(Ordering::Relaxed)
    }
}

/// What a cluster told of changes when that was recorded.
const WATCHED: &str = include_str!("../../../../tests/kubernetes/recorded/watched.jsonl");
const START: &str = "2026-01-01T00:00:00Z";
const LAUNCH: &str =
    r#"{"nodes": 1, "per_node": 1, "grace_ms": 1000, "gang_grace_ms": 1000, "time_ms": null}"#;
const JOB_1: &str = "f-job-1-f2c2e8802008f4f6";

/// All of them that have a wanted mark, or the one that is named.
fn answer(first: &str, all: &[Value]) -> (u16, String) {
    let path = first.split(' ').nth(1).unwrap();
    let Some((_, query)) = path.split_once('?').filter(|(_, query)| !query.is_empty()) else {
        let name = path.trim_end_matches('?').rsplit('/').next().unwrap();
        if let Some(one) = all.iter().find(|one| one["metadata"]["name"] == name) {
            return (200, one.to_string());
        }
        let status = json!({
            "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
            "message": "there is none",
        });
        return (404, status.to_string());
    };
    let is_wanted = |one: &&Value| {
        one["metadata"]["labels"]["falaj.dev/owner"].as_str().is_some_and(|it| query.contains(it))
    };
    let items: Vec<&Value> = all.iter().filter(is_wanted).collect();
    (200, json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string())
}

fn executor(folder: &Path, url: &str) -> KubernetesExecutor {
    owned(folder, url, "falaj", None)
}

fn owned(folder: &Path, url: &str, owner: &str, former: Option<&str>) -> KubernetesExecutor {
    let kubeconfig = folder.join("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    });
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let settings = KubernetesSettings {
        kubeconfig: Some(kubeconfig),
        owner: owner.to_owned(),
        former_owner: former.map(str::to_owned),
        ..Default::default()
    };
    KubernetesExecutor::new(folder.join("attempts"), settings).unwrap()
}

#[test]
fn a_cluster_that_tells_of_changes_is_not_asked_again_and_again() {
    let told = Arc::new(Told::default());
    let url = told.start();
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(folder.path(), &url);
    let before = listens(&told, &executor);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        executor.observe().unwrap();
        executor.wait(Duration::from_millis(100));
    }
    assert_eq!(told.lists(), before);
    // A change is heard of, and looked at.
    for how in ["ADDED", "MODIFIED", "DELETED"] {
        let before = listens(&told, &executor);
        told.tell(how);
        let begun = Instant::now();
        while told.lists() == before {
            assert!(begun.elapsed() < Duration::from_secs(5), "nobody has looked");
            executor.wait(Duration::from_millis(500));
            executor.observe().unwrap();
        }
    }
    // One that nobody can look at wakes once, and not again and again.
    let _ = listens(&told, &executor);
    told.tell("MODIFIED");
    let (begun, mut woken) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(1) {
        executor.wait(Duration::from_millis(100));
        woken += 1;
    }
    assert!(woken <= 14, "{woken}");
}

/// Looks until it is told of changes and need not ask any more; how often it has asked.
fn listens(told: &Told, executor: &KubernetesExecutor) -> u32 {
    executor.observe().unwrap();
    until("nobody watches", || told.watches.lock().unwrap().len() == 2);
    // What was asked before it listened is asked once more, when what is known is not new any more.
    until("it goes on asking", || {
        let before = told.lists();
        std::thread::sleep(Duration::from_millis(500));
        executor.observe().unwrap();
        told.lists() == before
    });
    told.lists()
}

fn phases(executor: &KubernetesExecutor) -> Vec<(String, Phase)> {
    let found = executor.observe().unwrap();
    found.into_iter().map(|one| (one.attempt.to_string(), one.phase)).collect()
}

/// The folder of an attempt that was launched before.
fn launched(folder: &Path, attempt: &str) {
    let own = folder.join("attempts").join(attempt);
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("launch.json"), LAUNCH).unwrap();
    std::fs::write(own.join("submitted"), "").unwrap();
}

#[test]
fn what_has_the_former_mark_is_seen_if_it_is_known() {
    let told = Arc::new(Told::default());
    let url = told.start();
    told.has("job-1", JOB_1, "gpus");
    told.has("job-2", "f-job-2-f2c2e7802008f343", "gpus");
    let folder = tempfile::tempdir().unwrap();
    let executor = owned(folder.path(), &url, "gpus.1", Some("gpus"));
    // They may be another's.
    assert_eq!(phases(&executor), []);
    drop(executor);
    launched(folder.path(), "job-1");
    let executor = owned(folder.path(), &url, "gpus.1", Some("gpus"));
    assert_eq!(phases(&executor), [("job-1".to_owned(), Phase::Running)]);
    let found = executor.observe().unwrap();
    assert!(found[0].started.is_some(), "{found:?}");
    // It ends as any other.
    let state = json!({"terminated": {"exitCode": 0, "startedAt": START, "finishedAt": START}});
    let status = json!({"phase": "Succeeded", "startTime": START, "containerStatuses": [{
        "name": "rank-0", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    }]});
    told.pods.lock().unwrap()[0]["status"] = status;
    told.tell("MODIFIED");
    until("it goes on", || {
        phases(&executor) == [("job-1".to_owned(), Phase::Ended(End::Succeeded))]
    });
}

#[test]
fn what_has_another_mark_has_not_ended_when_it_is_told_to() {
    let told = Arc::new(Told::default());
    let url = told.start();
    told.has("job-1", JOB_1, "gpus");
    let folder = tempfile::tempdir().unwrap();
    let executor = owned(folder.path(), &url, "other", None);
    launched(folder.path(), "job-1");
    let running = vec![("job-1".to_owned(), Phase::Running)];
    assert_eq!(phases(&executor), running);
    executor.tell(&AttemptId::new("job-1").unwrap(), Notice::Stop).unwrap();
    assert_eq!(phases(&executor), running);
    // Once it is gone, it is.
    told.jobs.lock().unwrap().clear();
    until("it goes on", || phases(&executor) == [("job-1".to_owned(), Phase::Ended(End::Stopped))]);
}

#[test]
fn what_an_earlier_version_made_is_whole_once_it_runs() {
    let told = Arc::new(Told::default());
    let url = told.start();
    told.has("job-1", JOB_1, "falaj");
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(folder.path(), &url);
    assert_eq!(phases(&executor), [("job-1".to_owned(), Phase::Running)]);
    // Of one that waits, nobody knows.
    let folder = tempfile::tempdir().unwrap();
    let executor = self::executor(folder.path(), &url);
    let waits = json!({"waiting": {"reason": "ContainerCreating"}});
    told.pods.lock().unwrap()[0]["status"]["containerStatuses"][0]["state"] = waits;
    assert_eq!(phases(&executor), []);
}

#[test]
fn what_the_cluster_measures_is_told() {
    let told = Arc::new(Told::default());
    let url = told.start();
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(folder.path(), &url);
    let attempt = AttemptId::new("job-1").unwrap();
    assert!(executor.usage(&attempt).is_err(), "nobody knows of it");
    std::fs::create_dir(folder.path().join("attempts/job-1")).unwrap();
    let used = executor.usage(&attempt).unwrap().unwrap();
    assert_eq!((used.memory_bytes, used.peak_memory_bytes), (1 << 20, 1 << 20));
    assert!(used.cpu_seconds > 1.0, "{used:?}");
    // The same is not counted twice, nor is it lost with this process. That it has used no more since is not so: as
    // long as it runs and nothing new was measured, nobody knows.
    assert_eq!(executor.usage(&attempt).unwrap(), None);
    drop(executor);
    let executor = self::executor(folder.path(), "http://127.0.0.1:9");
    assert_eq!(executor.usage(&attempt).unwrap(), None);
    let end = json!({"end": "succeeded", "started": 1, "ended": 2}).to_string();
    std::fs::write(folder.path().join("attempts/job-1/end.json"), end).unwrap();
    assert_eq!(executor.usage(&attempt).unwrap(), Some(used));
}

#[test]
fn those_who_wait_for_the_same_answer_share_it() {
    let told = Arc::new(Told::default());
    let url = told.start();
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(folder.path(), &url);
    *told.takes.lock().unwrap() = Duration::from_millis(300);
    let together = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                together.wait();
                executor.observe().unwrap()
            });
        }
    });
    // Those who came while it was answered waited for the next answer, all for the same.
    assert!(told.lists() <= 6, "{}", told.lists());
}
