//! An engine with a folder of its own, and attempts that are easy to write.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use falaj_executors::{
    AttemptId, End, Executor, ExecutorError, KubernetesExecutor, Launch, Limits, LocalExecutor,
    Observed, Phase, RankPlace, RayExecutor, RaySettings, SlurmExecutor, SlurmSettings,
};
use tempfile::TempDir;

use crate::cluster::Cluster;

/// How long anything is waited for. Engines have work of their own before a job's.
const PATIENCE: Duration = Duration::from_secs(90);

/// Ray is started in the background, and takes its time.
const RAY_PATIENCE: Duration = Duration::from_mins(3);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Local,
    Slurm,
    Ray,
    Kubernetes,
}

pub(crate) struct Engine {
    pub(crate) kind: Kind,
    pub(crate) folder: TempDir,
    /// Where Kubernetes is, if that is the engine.
    pub(crate) cluster: Option<Cluster>,
}

impl Engine {
    /// `None` if the engine is not running here.
    pub(crate) fn of(kind: Kind) -> Option<Self> {
        let needs = match kind {
            Kind::Local | Kind::Kubernetes => None,
            Kind::Slurm => Some("FALAJ_TEST_SLURM_CONF"),
            Kind::Ray => Some("FALAJ_TEST_RAY_URL"),
        };
        if let Some(name) = needs
            && std::env::var_os(name).is_none()
        {
            println!("skipped: {name} is not set; scripts/with-services sets it");
            return None;
        }
        if kind == Kind::Ray {
            let started = Instant::now();
            while ask_ray("/api/version").is_none() {
                assert!(started.elapsed() < RAY_PATIENCE, "Ray does not answer");
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        let folder = TempDir::new().unwrap();
        let cluster = (kind == Kind::Kubernetes).then(|| Cluster::of(folder.path()));
        Some(Self { kind, folder, cluster })
    }

    /// Whether jobs see the files of this machine.
    pub(crate) fn shares_files(&self) -> bool {
        self.kind != Kind::Kubernetes
    }

    pub(crate) fn attempts(&self) -> PathBuf {
        self.folder.path().join("attempts")
    }

    /// A new executor on the same folder: what a restarted server has.
    pub(crate) fn executor(&self) -> Box<dyn Executor> {
        match self.kind {
            Kind::Local => Box::new(local(&self.attempts())),
            Kind::Slurm => {
                let conf = std::env::var_os("FALAJ_TEST_SLURM_CONF").unwrap();
                let settings = SlurmSettings { conf: Some(conf.into()), ..Default::default() };
                Box::new(SlurmExecutor::new(self.attempts(), settings).unwrap())
            }
            Kind::Ray => {
                let url = std::env::var("FALAJ_TEST_RAY_URL").unwrap();
                let settings = RaySettings { url, ..Default::default() };
                Box::new(RayExecutor::new(self.attempts(), settings).unwrap())
            }
            Kind::Kubernetes => {
                let settings = self.cluster.as_ref().unwrap().settings();
                Box::new(KubernetesExecutor::new(self.attempts(), settings).unwrap())
            }
        }
    }
}

/// A cluster is others' too: nothing is left there.
impl Drop for Engine {
    fn drop(&mut self) {
        let is_real = self.cluster.as_ref().is_some_and(Cluster::is_real);
        if !is_real || std::thread::panicking() {
            return;
        }
        let executor = self.executor();
        for one in executor.observe().unwrap_or_default() {
            if !matches!(one.phase, Phase::Ended(_)) {
                executor.tell(&one.attempt, falaj_executors::Notice::Kill).unwrap();
                ended(&*executor, &one.attempt);
            }
            executor.forget(&one.attempt).unwrap();
        }
    }
}

/// What Ray answers to a question, if it does with 200.
pub(crate) fn ask_ray(path: &str) -> Option<String> {
    let url = std::env::var("FALAJ_TEST_RAY_URL").unwrap();
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).expect("Ray is gone");
    stream.set_read_timeout(Some(RAY_PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 200").then_some(text)
}

pub(crate) fn local(folder: &Path) -> LocalExecutor {
    LocalExecutor::new(folder, env!("CARGO_BIN_EXE_falaj-shim").into()).unwrap()
}

thread_local! {
    /// How many names this test has had, if they are to be the same each time.
    static FIXED: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
}

/// From now on, this test has the same names each time.
pub(crate) fn fix_names() {
    FIXED.set(Some(0));
}

/// A name that no other test and no earlier run has used.
pub(crate) fn name(of: &str) -> AttemptId {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if let Some(count) = FIXED.get() {
        FIXED.set(Some(count + 1));
        return AttemptId::new(format!("{of}-{count}")).unwrap();
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    AttemptId::new(format!("{of}-{}-{count}-{since}", std::process::id())).unwrap()
}

/// One rank that runs a shell script.
pub(crate) fn script(of: &str, text: &str) -> Launch {
    Launch {
        attempt: name(of),
        name: of.to_owned(),
        command: ["bash", "-c", text].map(str::to_owned).to_vec(),
        image: None,
        slice: None,
        folder: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        ranks: ranks(1),
        shares_gpus: false,
        limits: Limits::default(),
        grace: Duration::from_secs(20),
        gang_grace: Duration::from_secs(2),
    }
}

/// Ranks without GPUs, on nodes of their own.
pub(crate) fn ranks(count: u32) -> Vec<RankPlace> {
    let place = |rank: u32| RankPlace {
        node: format!("n{}", rank + 1),
        gpus: Vec::new(),
        env: BTreeMap::from([("RANK".to_owned(), rank.to_string())]),
    };
    (0..count).map(place).collect()
}

pub(crate) fn find(executor: &dyn Executor, attempt: &AttemptId) -> Option<Observed> {
    executor.observe().unwrap().into_iter().find(|one| one.attempt == *attempt)
}

/// Follows an attempt to its end.
pub(crate) fn ended(executor: &dyn Executor, attempt: &AttemptId) -> (End, Observed) {
    let until = Instant::now() + PATIENCE;
    loop {
        let observed = find(executor, attempt).expect("it was launched");
        if let Phase::Ended(end) = &observed.phase {
            return (end.clone(), observed);
        }
        assert!(Instant::now() < until, "it has not ended: {observed:?}");
        executor.wait(Duration::from_millis(500));
    }
}

pub(crate) fn run(executor: &dyn Executor, launch: &Launch) -> End {
    executor.launch(launch).unwrap();
    ended(executor, &launch.attempt).0
}

pub(crate) fn output(executor: &dyn Executor, attempt: &AttemptId, rank: u32) -> String {
    String::from_utf8(executor.output(attempt, rank, 0, 1 << 20).unwrap()).unwrap()
}

/// Until a rank has written something.
pub(crate) fn says(executor: &dyn Executor, attempt: &AttemptId, rank: u32, what: &str) {
    let until = Instant::now() + PATIENCE;
    while !output(executor, attempt, rank).contains(what) {
        let observed = find(executor, attempt);
        assert!(Instant::now() < until, "{what} was not said: {observed:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn refused(result: Result<(), ExecutorError>) -> String {
    match result {
        Err(ExecutorError::Refused(what)) => what,
        other => panic!("not refused: {other:?}"),
    }
}

/// For engines on which our own script measures.
pub(crate) fn tells_what_ranks_use(kind: Kind) {
    let Some(engine) = Engine::of(kind) else { return };
    let executor = engine.executor();
    let text = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); until [ $SECONDS -ge 4 ]; do :; done; echo ${#x}";
    let mut launch = script("busy", text);
    launch.ranks = ranks(2);
    executor.launch(&launch).unwrap();
    let used = || executor.usage(&launch.attempt).unwrap();
    until("nothing is told", || used().is_some_and(|used| used.memory_bytes > 30_000_000));
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    let used = used().unwrap();
    // Both were at work nearly all the time, on a machine that may have others to serve.
    assert!((1.0..20.0).contains(&used.cpu_seconds), "{used:?}");
    assert!(used.peak_memory_bytes > 30_000_000 && used.memory_bytes == 0, "{used:?}");
}
