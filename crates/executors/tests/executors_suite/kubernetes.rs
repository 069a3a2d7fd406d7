//! What is Kubernetes' own: pods of several ranks, queues, what others do to pods, and what is left behind.

use std::time::Duration;

use falaj_executors::{
    End, Executor, ExecutorError, KubernetesExecutor, KubernetesSettings, Launch, Notice, Phase,
    RankEnd,
};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::engine::{Engine, Kind, ended, find, output, ranks, refused, run, says, script, until};

const JOBS: &str = "/apis/batch/v1/NAMESPACE/jobs";

fn engine() -> Engine {
    Engine::of(Kind::Kubernetes).unwrap()
}

fn cluster(engine: &Engine) -> &Cluster {
    engine.cluster.as_ref().unwrap()
}

fn with(engine: &Engine, change: impl FnOnce(&mut KubernetesSettings)) -> KubernetesExecutor {
    let mut settings = cluster(engine).settings();
    change(&mut settings);
    KubernetesExecutor::new(engine.attempts(), settings).unwrap()
}

/// The job of an attempt, and so its service and its secret too.
fn named(executor: &dyn Executor, launch: &Launch) -> String {
    let hosts = executor.hosts(&launch.attempt, 2).unwrap();
    hosts[0].split_once('.').unwrap().1.to_owned()
}

/// The pods of an attempt.
fn pods(engine: &Engine, job: &str) -> Vec<String> {
    let path = format!("/api/v1/NAMESPACE/pods?labelSelector=falaj.dev/attempt={job}");
    let (status, found) = cluster(engine).ask("GET", &path, &Value::Null);
    assert_eq!(status, 200);
    let names = found["items"].as_array().unwrap().iter();
    names.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn ranks_of_a_node_are_containers_of_a_pod() {
    let engine = engine();
    let executor = engine.executor();
    let mut gang = script("pods", "echo $RANK in $JOB_COMPLETION_INDEX; echo ready; sleep 2");
    gang.ranks = ranks(4);
    for (rank, place) in gang.ranks.iter_mut().enumerate() {
        place.node = format!("wish-{}", rank / 2);
    }
    executor.launch(&gang).unwrap();
    (0..4).for_each(|rank| says(&*executor, &gang.attempt, rank, "ready"));
    assert_eq!(pods(&engine, &named(&*executor, &gang)).len(), 2);
    assert_eq!(ended(&*executor, &gang.attempt).0, End::Succeeded);
    for rank in 0..4 {
        let said = output(&*executor, &gang.attempt, rank);
        assert_eq!(said, format!("{rank} in {}\nready\n", rank / 2));
    }
    let hosts = executor.hosts(&gang.attempt, 2).unwrap();
    let job = named(&*executor, &gang);
    assert_eq!(hosts, [format!("{job}-0.{job}"), format!("{job}-1.{job}")]);
    assert_eq!(executor.hosts(&gang.attempt, 1).unwrap(), ["127.0.0.1"]);
}

#[test]
fn what_waits_says_why_and_can_be_stopped() {
    let engine = engine();
    let executor = engine.executor();
    let mut large = script("large", "true");
    large.limits.cpu_millis = 4_000_000;
    executor.launch(&large).unwrap();
    until("no reason was given", || {
        let phase = find(&*executor, &large.attempt).unwrap().phase;
        matches!(phase, Phase::Pending(Some(reason)) if reason.contains("nsufficient cpu"))
    });
    executor.tell(&large.attempt, Notice::Stop).unwrap();
    assert_eq!(ended(&*executor, &large.attempt).0, End::Stopped);
    assert_eq!(pods(&engine, &named(&*executor, &large)), Vec::<String>::new());
}

#[test]
fn a_pod_that_others_remove_is_lost_with_its_gang() {
    let engine = engine();
    let executor = engine.executor();
    let mut gang = script("removed", "echo ready; sleep 600");
    gang.ranks = ranks(2);
    executor.launch(&gang).unwrap();
    (0..2).for_each(|rank| says(&*executor, &gang.attempt, rank, "ready"));
    let pods = pods(&engine, &named(&*executor, &gang));
    let path = format!("/api/v1/NAMESPACE/pods/{}", pods[0]);
    assert_eq!(cluster(&engine).ask("DELETE", &path, &json!({"gracePeriodSeconds": 1})).0, 200);
    assert_eq!(ended(&*executor, &gang.attempt).0, End::Lost);
    (0..2).for_each(|rank| assert_eq!(output(&*executor, &gang.attempt, rank), "ready\n"));
}

#[test]
fn a_pod_that_is_evicted_was_taken_for_others() {
    let engine = engine();
    let executor = engine.executor();
    // One that saves and ends well is still not done.
    let text = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let launch = script("evicted", text);
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    let pod = pods(&engine, &named(&*executor, &launch)).remove(0);
    let path = format!("/api/v1/NAMESPACE/pods/{pod}/eviction");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod},
    });
    let (status, _) = cluster(&engine).ask("POST", &path, &eviction);
    assert_eq!(status, 200, "tests need to evict pods");
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Preempted);
}

#[test]
fn a_job_that_others_remove_is_lost() {
    let engine = engine();
    let executor = engine.executor();
    let launch = script("gone", "echo ready; sleep 600");
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    let path = format!("{JOBS}/{}?propagationPolicy=Background", named(&*executor, &launch));
    assert_eq!(cluster(&engine).ask("DELETE", &path, &Value::Null).0, 200);
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Lost);
    executor.launch(&launch).unwrap();
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Lost);
}

#[test]
fn a_queue_lets_it_start() {
    let engine = engine();
    let executor = with(&engine, |settings| settings.queue = Some("team".to_owned()));
    let [held, let_go] = [script("held", "true"), script("let-go", "echo went")];
    for launch in [&held, &let_go] {
        executor.launch(launch).unwrap();
        let phase = find(&executor, &launch.attempt).unwrap().phase;
        assert!(matches!(&phase, Phase::Pending(Some(why)) if why.contains("queue")), "{phase:?}");
    }
    let job = |launch| format!("{JOBS}/{}", named(&executor, launch));
    let (_, made) = cluster(&engine).ask("GET", &job(&held), &Value::Null);
    assert_eq!(made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team");
    executor.tell(&held.attempt, Notice::Stop).unwrap();
    assert_eq!(ended(&executor, &held.attempt).0, End::Stopped);
    // As Kueue does.
    let (status, _) =
        cluster(&engine).ask("PATCH", &job(&let_go), &json!({"spec": {"suspend": false}}));
    assert_eq!(status, 200);
    assert_eq!(ended(&executor, &let_go.attempt).0, End::Succeeded);
    assert_eq!(output(&executor, &let_go.attempt, 0), "went\n");
}

#[test]
fn another_server_takes_over() {
    let engine = engine();
    let first = engine.executor();
    let launch = script("handed-on", "echo ready; sleep 600");
    first.launch(&launch).unwrap();
    says(&*first, &launch.attempt, 0, "ready");
    drop(first);
    let elsewhere = engine.folder.path().join("elsewhere");
    let second = KubernetesExecutor::new(elsewhere, cluster(&engine).settings()).unwrap();
    assert_eq!(find(&second, &launch.attempt).unwrap().phase, Phase::Running);
    second.tell(&launch.attempt, Notice::Stop).unwrap();
    assert_eq!(ended(&second, &launch.attempt).0, End::Stopped);
    assert_eq!(output(&second, &launch.attempt, 0), "ready\n");
    second.forget(&launch.attempt).unwrap();
    assert_eq!(find(&second, &launch.attempt), None);
    // The first has not heard of that, and does not start it again.
    let first = engine.executor();
    first.launch(&launch).unwrap();
    assert_eq!(ended(&*first, &launch.attempt).0, End::Lost);
}

/// What was found out before is the end, whatever another server is told to do.
#[test]
fn why_it_ends_is_handed_on() {
    let engine = engine();
    let first = engine.executor();
    let stubborn = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let text = format!("if [ $RANK = 1 ]; then sleep 1; date +%s%3N; exit 3; fi; {stubborn}");
    let mut gang = script("handed", &text);
    gang.ranks = ranks(3);
    first.launch(&gang).unwrap();
    let cause = engine.attempts().join(gang.attempt.as_str()).join("cause.json");
    until("no rank has failed", || {
        find(&*first, &gang.attempt).unwrap();
        cause.exists()
    });
    drop(first);
    let elsewhere = engine.folder.path().join("elsewhere");
    let second = KubernetesExecutor::new(elsewhere, cluster(&engine).settings()).unwrap();
    assert_eq!(find(&second, &gang.attempt).unwrap().phase, Phase::Running);
    second.tell(&gang.attempt, Notice::Stop).unwrap();
    let end = ended(&second, &gang.attempt).0;
    assert_eq!(end, End::Failed { rank: 1, how: RankEnd::Exit(3) });
}

/// What a server leaves that dies right after the cluster has taken a job.
#[test]
fn a_job_that_nobody_wrote_down_is_found_by_its_name() {
    let engine = engine();
    let launch = script("unnoted", "echo ran; sleep 1");
    engine.executor().launch(&launch).unwrap();
    let folder = engine.attempts().join(launch.attempt.as_str());
    std::fs::remove_file(folder.join("submitted")).unwrap();
    let executor = engine.executor();
    executor.launch(&launch).unwrap();
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    assert_eq!(output(&*executor, &launch.attempt, 0), "ran\n");
}

/// What a server leaves that dies between a job and what its pods need.
#[test]
fn a_job_that_was_left_half_made_is_made_whole() {
    let engine = engine();
    let launch = script("half-made", "echo ran; sleep 1");
    let first = engine.executor();
    first.launch(&launch).unwrap();
    let job = named(&*first, &launch);
    drop(first);
    let folder = engine.attempts().join(launch.attempt.as_str());
    std::fs::remove_file(folder.join("submitted")).unwrap();
    let secret = format!("/api/v1/NAMESPACE/secrets/{job}");
    let ask = |method, path: &str, body| cluster(&engine).ask(method, path, &body).0;
    let note = json!({"metadata": {"annotations": {"falaj.dev/whole": null}}});
    assert_eq!(ask("PATCH", &format!("{JOBS}/{job}"), note), 200);
    assert_eq!(ask("DELETE", &secret, Value::Null), 200);
    // Nobody takes it for started, so it is launched again.
    let executor = engine.executor();
    assert_eq!(find(&*executor, &launch.attempt), None);
    executor.launch(&launch).unwrap();
    assert_eq!(ask("GET", &secret, Value::Null), 200);
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    assert_eq!(output(&*executor, &launch.attempt, 0), "ran\n");
}

/// What an operator brings about who changes the mark of a pool while its jobs run.
#[test]
fn one_with_another_mark_is_not_lost() {
    let engine = engine();
    let executor = engine.executor();
    let text = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let mut launch = script("marked", text);
    launch.grace = Duration::from_mins(10);
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    let other = with(&engine, |settings| settings.owner = "another".to_owned());
    assert_eq!(find(&other, &launch.attempt).unwrap().phase, Phase::Running);
    executor.tell(&launch.attempt, Notice::Kill).unwrap();
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Stopped);
}

#[test]
fn nothing_is_left_behind() {
    let engine = engine();
    let executor = engine.executor();
    let mut launch = script("tidy", "echo ready; sleep 1");
    launch.ranks = ranks(2);
    executor.launch(&launch).unwrap();
    let job = named(&*executor, &launch);
    let is = |path: &str| cluster(&engine).ask("GET", &path.replace("JOB", &job), &Value::Null).0;
    let (secret, service) = ("/api/v1/NAMESPACE/secrets/JOB", "/api/v1/NAMESPACE/services/JOB");
    let whole = format!("{JOBS}/JOB");
    assert_eq!((is(secret), is(service), is(&whole)), (200, 200, 200));
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    // Nobody needs it any more, forgotten or not.
    assert_eq!((is(secret), is(service), is(&whole)), (404, 200, 200));
    executor.forget(&launch.attempt).unwrap();
    assert_eq!((is(secret), is(service), is(&whole)), (404, 404, 404));
}

#[test]
fn what_can_never_run_is_told() {
    let engine = engine();
    let bare = with(&engine, |settings| settings.image = None);
    let launch = script("bare", "true");
    assert!(refused(bare.launch(&launch)).contains("image"));
    let mut uneven = script("uneven", "true");
    uneven.ranks = ranks(3);
    uneven.ranks[1].node = uneven.ranks[0].node.clone();
    let executor = engine.executor();
    assert!(refused(executor.launch(&uneven)).contains("equally many"));
    let mut sliced = script("sliced", "true");
    sliced.slice = Some("1g".to_owned());
    assert!(refused(executor.launch(&sliced)).contains("1g"));
    // What only the cluster knows, in its words; and nothing of it stays.
    let odd = with(&engine, |settings| {
        settings.node_selector.insert("no label".to_owned(), "x".to_owned());
    });
    let why = refused(odd.launch(&launch));
    assert!(why.contains("no label"), "{why}");
    assert_eq!(executor.observe().unwrap(), []);
    // The name of an image that no node will ever take.
    let mut unnamed = script("unnamed", "true");
    unnamed.image = Some("Library/Debian".to_owned());
    let end = run(&*executor, &unnamed);
    assert_eq!(end, End::Failed { rank: 0, how: RankEnd::NotStarted });
    assert!(output(&*executor, &unnamed.attempt, 0).contains("InvalidImageName"));
}

#[test]
fn a_cluster_that_does_not_answer_is_away() {
    let engine = engine();
    let nowhere = engine.folder.path().join("nowhere");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&nowhere, text.to_string()).unwrap();
    let blind = with(&engine, |settings| settings.kubeconfig = Some(nowhere));
    let launch = script("away", "exit 3");
    let answer = blind.launch(&launch);
    assert!(matches!(answer, Err(ExecutorError::Away(_))), "{answer:?}");
    // It is launched as soon as it can be.
    let executor = engine.executor();
    assert_eq!(run(&*executor, &launch), End::Failed { rank: 0, how: RankEnd::Exit(3) });
    // What has ended is known without it.
    assert_eq!(ended(&blind, &launch.attempt).0, End::Failed { rank: 0, how: RankEnd::Exit(3) });
    let missing =
        KubernetesSettings { kubeconfig: Some("/no/such/file".into()), ..Default::default() };
    let answer = KubernetesExecutor::new(engine.attempts(), missing);
    assert!(matches!(answer, Err(ExecutorError::Refused(_))), "{answer:?}");
}

#[test]
fn of_long_output_the_middle_goes() {
    let is_real = std::env::var_os("KUBECONFIG").is_some();
    if !is_real || std::env::var_os("FALAJ_TEST_RECORD").is_some() {
        println!("skipped: KUBECONFIG is not set, and long output is not recorded");
        return;
    }
    let engine = engine();
    let executor = with(&engine, |settings| settings.keep_output = 256 << 10);
    let launch = script("long", "for i in $(seq -f %09.0f 0 199999); do echo $i; done");
    assert_eq!(run(&executor, &launch), End::Succeeded);
    let (mut at, mut kept, mut gaps) = (0, 0, 0);
    loop {
        let part = executor.output_part(&launch.attempt, 0, at, 64 << 10).unwrap();
        if part.bytes.is_empty() {
            break;
        }
        gaps += u32::from(part.at != at);
        kept += part.bytes.len();
        at = part.at + part.bytes.len() as u64;
    }
    assert_eq!((at, gaps), (2_000_000, 1));
    assert!(kept < 400 << 10, "{kept} bytes are kept");
    assert_eq!(executor.output(&launch.attempt, 0, 1_999_990, 100).unwrap(), b"000199999\n");
}
