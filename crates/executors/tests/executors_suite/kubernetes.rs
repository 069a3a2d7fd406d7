//! What is Kubernetes' own: pods of several ranks, queues, what others do to pods, and what is left behind.

use std::path::PathBuf;
use std::time::Duration;

use falaj_executors::{
    End, Executor, ExecutorError, KubernetesExecutor, KubernetesSettings, Launch, Notice, Phase,
    RankEnd, Toleration,
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, client, settings};
use crate::engine::{Engine, Kind, ended, find, output, ranks, refused, run, says, script, until};
use crate::tape::strip;

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

/// A field of each pod of an attempt.
fn of_pods(engine: &Engine, job: &str, field: &str) -> Vec<String> {
    let path = format!("/api/v1/NAMESPACE/pods?labelSelector=falaj.dev/attempt={job}");
    let (status, found) = cluster(engine).ask("GET", &path, &Value::Null);
    assert_eq!(status, 200);
    let pods = found["items"].as_array().unwrap().iter();
    pods.map(|pod| pod.pointer(field).unwrap().as_str().unwrap().to_owned()).collect()
}

/// The pods of an attempt.
fn pods(engine: &Engine, job: &str) -> Vec<String> {
    of_pods(engine, job, "/metadata/name")
}

/// Until it is said why an attempt does not run.
fn waits_for(executor: &dyn Executor, launch: &Launch, what: &str) {
    until("no reason was given", || {
        let phase = find(executor, &launch.attempt).unwrap().phase;
        matches!(phase, Phase::Pending(Some(reason)) if reason.contains(what))
    });
}

/// Ends an attempt that waits or runs.
fn stopped(executor: &dyn Executor, launch: &Launch) {
    executor.tell(&launch.attempt, Notice::Stop).unwrap();
    assert_eq!(ended(executor, &launch.attempt).0, End::Stopped);
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
    waits_for(&*executor, &large, "nsufficient cpu");
    stopped(&*executor, &large);
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
    // Its node has removed what the first wrote, but for what was copied.
    let said = |rank| output(&*executor, &gang.attempt, rank);
    assert!(said(0).starts_with("ready\n"), "{}", said(0));
    assert_eq!(said(1), "ready\n");
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
    // With its pods, and without: those are ended by us.
    for policy in ["Background", "Orphan"] {
        let launch = script("gone", "echo ready; sleep 600");
        executor.launch(&launch).unwrap();
        says(&*executor, &launch.attempt, 0, "ready");
        let job = named(&*executor, &launch);
        let body = json!({"propagationPolicy": policy});
        assert_eq!(cluster(&engine).ask("DELETE", &format!("{JOBS}/{job}"), &body).0, 200);
        assert_eq!(ended(&*executor, &launch.attempt).0, End::Lost);
        executor.launch(&launch).unwrap();
        assert_eq!(ended(&*executor, &launch.attempt).0, End::Lost);
        executor.forget(&launch.attempt).unwrap();
        until("pods are left", || pods(&engine, &job).is_empty());
    }
}

/// A pool with a queue of Kueue's, which lets one CPU be used.
fn queued(engine: &Engine, priority: &str) -> KubernetesExecutor {
    with(engine, |settings| {
        settings.queue = Some("falaj-test".to_owned());
        settings.priority_class = Some(priority.to_owned());
    })
}

/// One that takes all of that queue.
fn of_a_cpu(name: &str, text: &str) -> Launch {
    let mut launch = script(name, text);
    launch.limits.cpu_millis = 1000;
    launch
}

#[test]
fn kueue_lets_them_start_one_after_the_other() {
    if !has("FALAJ_TEST_KUEUE") {
        return;
    }
    let engine = engine();
    let executor = queued(&engine, "falaj-test-low");
    let first = of_a_cpu("first", "echo ready; sleep 600");
    executor.launch(&first).unwrap();
    says(&executor, &first.attempt, 0, "ready");
    let (held, next) = (of_a_cpu("held", "true"), of_a_cpu("next", "echo went"));
    for launch in [&held, &next] {
        executor.launch(launch).unwrap();
        waits_for(&executor, launch, "queue");
    }
    stopped(&executor, &held);
    stopped(&executor, &first);
    assert_eq!(ended(&executor, &next.attempt).0, End::Succeeded);
    assert_eq!(output(&executor, &next.attempt, 0), "went\n");
}

#[test]
fn kueue_takes_its_place_back() {
    if !has("FALAJ_TEST_KUEUE") {
        return;
    }
    let engine = engine();
    let (low, high) = (queued(&engine, "falaj-test-low"), queued(&engine, "falaj-test-high"));
    let displaced = of_a_cpu("displaced", "echo ready; sleep 600");
    low.launch(&displaced).unwrap();
    says(&low, &displaced.attempt, 0, "ready");
    let displacing = of_a_cpu("displacing", "echo went");
    high.launch(&displacing).unwrap();
    assert_eq!(ended(&low, &displaced.attempt).0, End::Preempted);
    assert_eq!(ended(&high, &displacing.attempt).0, End::Succeeded);
    // It is not started again by anybody but us, and as another.
    let job = format!("{JOBS}/{}", named(&low, &displaced));
    until("its job is there", || cluster(&engine).ask("GET", &job, &Value::Null).0 == 404);
}

#[test]
fn pods_run_on_the_nodes_that_were_decided_on() {
    let engine = engine();
    let executor = with(&engine, |settings| settings.pin = true);
    let scout = script("scout", "true");
    assert_eq!(run(&*engine.executor(), &scout), End::Succeeded);
    let node = of_pods(&engine, &named(&executor, &scout), "/spec/nodeName").remove(0);
    let mut there = script("there", "sleep 1");
    there.ranks[0].node.clone_from(&node);
    assert_eq!(run(&executor, &there), End::Succeeded);
    assert_eq!(of_pods(&engine, &named(&executor, &there), "/spec/nodeName"), [node]);
    let mut nowhere = script("nowhere", "true");
    "no-such-node".clone_into(&mut nowhere.ranks[0].node);
    executor.launch(&nowhere).unwrap();
    waits_for(&executor, &nowhere, "affinity");
    stopped(&executor, &nowhere);
}

#[test]
fn nodes_of_a_gang_reach_each_other_by_name() {
    let engine = engine();
    let executor = engine.executor();
    let listen = "$s = IO::Socket::INET->new(Listen => 1, LocalPort => 29500) or die $!; \
                  $c = $s->accept; print scalar <$c>";
    let text = format!(
        "if [ $RANK = 0 ]; then exec perl -MIO::Socket::INET -e '{listen}'; fi; \
         until exec 3<>/dev/tcp/$FIRST/29500; do sleep 0.2; done 2>/dev/null; echo hello >&3"
    );
    let mut gang = script("named", &text);
    gang.ranks = ranks(2);
    let first = executor.hosts(&gang.attempt, 2).unwrap().remove(0);
    gang.env.insert("FIRST".to_owned(), first);
    assert_eq!(run(&*executor, &gang), End::Succeeded);
    assert_eq!(output(&*executor, &gang.attempt, 0), "hello\n");
}

#[test]
fn what_takes_too_much_memory_is_told() {
    let engine = engine();
    let executor = engine.executor();
    let of = |name: &str, text: &str| {
        let mut launch = script(name, text);
        launch.limits.memory_mib = 64;
        (run(&*executor, &launch), output(&*executor, &launch.attempt, 0))
    };
    let killed = End::Failed { rank: 0, how: RankEnd::OutOfMemory };
    assert_eq!(of("over", "exec tail /dev/zero").0, killed);
    // A rank that answers for a child of it is such a rank too.
    assert_eq!(of("child", "tail /dev/zero; exit 4").0, killed);
    // One that gets over it is not. With version 2 of control groups, nodes end all of a rank, and none does.
    let (end, said) = of("over-it", "tail /dev/zero; echo went on");
    assert_eq!(end, if said.contains("went on") { End::Succeeded } else { killed }, "{said}");
}

/// Whether the cluster has something that a test needs, or had it when that was recorded.
fn has(variable: &str) -> bool {
    let is_so = std::env::var_os("KUBECONFIG").is_none() || std::env::var_os(variable).is_some();
    if !is_so {
        println!(
            "skipped: {variable} is not set; tests/kubernetes/README.md says what it stands for"
        );
    }
    is_so
}

/// A pool of the node with GPUs.
fn on_gpus(engine: &Engine, change: impl FnOnce(&mut KubernetesSettings)) -> KubernetesExecutor {
    with(engine, |settings| {
        settings.node_selector.insert("falaj.dev/test".to_owned(), "gpus".to_owned());
        settings.slices.insert("1g".to_owned(), "nvidia.com/mig-1g.10gb".to_owned());
        settings.priority_class = Some("falaj-test-low".to_owned());
        settings.tolerations = vec![Toleration {
            key: Some("falaj.dev/test".to_owned()),
            value: Some("gpus".to_owned()),
            effect: Some("NoSchedule".to_owned()),
        }];
        change(settings);
    })
}

#[test]
fn gpus_and_slices_are_those_of_the_nodes_that_have_them() {
    if !has("FALAJ_TEST_GPU_NODE") {
        return;
    }
    let engine = engine();
    let executor = on_gpus(&engine, |_| ());
    // All four that the node has, for two ranks there.
    let mut all = script("all", "echo ready; sleep 600");
    all.ranks = ranks(2);
    for (rank, place) in all.ranks.iter_mut().enumerate() {
        "wish".clone_into(&mut place.node);
        place.gpus = if rank == 0 { vec![0, 1] } else { vec![2, 3] };
    }
    executor.launch(&all).unwrap();
    (0..2).for_each(|rank| says(&executor, &all.attempt, rank, "ready"));
    let mut more = script("more", "true");
    more.ranks[0].gpus = vec![0];
    executor.launch(&more).unwrap();
    waits_for(&executor, &more, "nsufficient nvidia.com/gpu");
    stopped(&executor, &all);
    assert_eq!(ended(&executor, &more.attempt).0, End::Succeeded);

    // The slice that the node has.
    let [slice, second] = ["slice", "second"].map(|name| {
        let mut launch = script(name, "echo ready; sleep 600");
        launch.slice = Some("1g".to_owned());
        launch
    });
    executor.launch(&slice).unwrap();
    says(&executor, &slice.attempt, 0, "ready");
    executor.launch(&second).unwrap();
    waits_for(&executor, &second, "nsufficient nvidia.com/mig-1g.10gb");
    stopped(&executor, &second);
    stopped(&executor, &slice);
}

#[test]
fn a_taint_keeps_out_those_who_do_not_bear_it() {
    if !has("FALAJ_TEST_GPU_NODE") {
        return;
    }
    let engine = engine();
    let wary = on_gpus(&engine, |settings| settings.tolerations.clear());
    let launch = script("wary", "true");
    wary.launch(&launch).unwrap();
    waits_for(&wary, &launch, "untolerated taint");
    stopped(&wary, &launch);
}

#[test]
fn what_matters_more_takes_the_place_of_others() {
    if !has("FALAJ_TEST_GPU_NODE") {
        return;
    }
    let engine = engine();
    let (low, high) = (
        on_gpus(&engine, |_| ()),
        on_gpus(&engine, |settings| settings.priority_class = Some("falaj-test-high".to_owned())),
    );
    let of = |name: &str, text: &str| {
        let mut launch = script(name, text);
        launch.ranks[0].gpus = vec![0, 1, 2, 3];
        launch
    };
    let (first, second) = (of("lesser", "echo ready; sleep 600"), of("greater", "echo went"));
    low.launch(&first).unwrap();
    says(&low, &first.attempt, 0, "ready");
    high.launch(&second).unwrap();
    assert_eq!(ended(&low, &first.attempt).0, End::Preempted);
    assert_eq!(ended(&high, &second.attempt).0, End::Succeeded);
}

#[test]
fn what_is_not_placed_in_time_is_given_up() {
    if !is_live("how long it waited is not the same each time") {
        return;
    }
    let engine = engine();
    let executor = with(&engine, |settings| settings.start_within = Some(Duration::from_secs(3)));
    let mut large = script("unplaced", "true");
    large.limits.cpu_millis = 4_000_000;
    assert_eq!(run(&executor, &large), End::Lost);
    let said = output(&executor, &large.attempt, 0);
    assert!(said.contains("within 3 s") && said.contains("nsufficient cpu"), "{said}");
}

/// What is told of an attempt from its beginning to its end. Other tests have a cluster that tells the same.
#[test]
fn a_cluster_tells_of_what_comes_changes_and_goes() {
    let Some(kubeconfig) = std::env::var_os("KUBECONFIG").map(PathBuf::from) else {
        println!("skipped: KUBECONFIG is not set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (client, namespace) = runtime.block_on(client(&kubeconfig));
    let launch = script("watched", "true");
    let owner = launch.attempt.to_string();
    let executor =
        KubernetesExecutor::new(folder.path(), settings(kubeconfig, owner.clone())).unwrap();
    let kinds = ["/apis/batch/v1/namespaces/NAMESPACE/jobs", "/api/v1/namespaces/NAMESPACE/pods"];
    let ask = |path: &str, more: &str| {
        let path = path.replace("NAMESPACE", &namespace);
        let path = format!("{path}?labelSelector=falaj.dev/owner={owner}{more}");
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let accept = if more.is_empty() { "application/json" } else { accept };
        let asked = http::Request::get(path).header("accept", accept).body(Vec::new()).unwrap();
        runtime.block_on(client.request_text(asked)).unwrap()
    };
    let begun = kinds.map(|kind| {
        let list: Value = serde_json::from_str(&ask(kind, "")).unwrap();
        list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    });
    assert_eq!(run(&executor, &launch), End::Succeeded);
    executor.forget(&launch.attempt).unwrap();
    let mut told = String::new();
    for (kind, since) in kinds.iter().zip(begun) {
        let watched = ask(kind, &format!("&watch=true&timeoutSeconds=5&resourceVersion={since}"));
        for word in ["ADDED", "MODIFIED", "DELETED"] {
            assert!(watched.contains(&format!("{{\"type\":\"{word}\"")), "{watched}");
        }
        for line in watched.lines() {
            let mut event: Value = serde_json::from_str(line).unwrap();
            strip(&mut event);
            told.push_str(&event.to_string());
            told.push('\n');
        }
    }
    if std::env::var_os("FALAJ_TEST_RECORD").is_some() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/kubernetes/recorded/watched.jsonl");
        std::fs::write(path, told).unwrap();
    }
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

/// Whether there is a cluster; why it would not do to record one.
fn is_live(why: &str) -> bool {
    let is_so =
        std::env::var_os("KUBECONFIG").is_some() && std::env::var_os("FALAJ_TEST_RECORD").is_none();
    if !is_so {
        println!("skipped: KUBECONFIG is not set, and this is not recorded: {why}");
    }
    is_so
}

#[test]
fn of_long_output_the_middle_goes() {
    if !is_live("it is long") {
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
