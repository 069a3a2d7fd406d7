//! What jobs and pods say is what they mean, and what is asked for is what was wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use falaj_base::Secret;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::objects::{self, Kept};
use super::settings::{KubernetesSettings, Toleration, Volume};
use super::state::{self, Act, Cause, Seen, Table, Verdict, Why};
use crate::{AttemptId, End, Launch, Limits, Phase, RankEnd, RankPlace};

const START: &str = "2026-01-01T00:00:00Z";
const START_MS: u64 = 1_767_225_600_000;
/// How long an attempt may wait here before it is given up.
const WITHIN_MS: u64 = 3_600_000;

fn kept(nodes: usize, per_node: usize) -> Kept {
    Kept { nodes, per_node, grace_ms: 30_000, gang_grace_ms: 2_000, time_ms: Some(60_000) }
}

fn pod(index: usize, phase: &str, states: &[Value]) -> Value {
    let statuses: Vec<Value> = states
        .iter()
        .enumerate()
        .map(|(number, state)| {
            let name = format!("rank-{number}");
            json!({"name": name, "state": state, "image": "", "imageID": "", "ready": true, "restartCount": 0})
        })
        .collect();
    json!({
        "metadata": {
            "name": format!("pod-{index}"),
            "creationTimestamp": START,
            "labels": {"batch.kubernetes.io/job-completion-index": index.to_string()},
        },
        "spec": {"containers": [], "nodeName": "n1"},
        "status": {"phase": phase, "startTime": START, "containerStatuses": statuses},
    })
}

fn running() -> Value {
    json!({"running": {"startedAt": START}})
}

fn over(code: i32) -> Value {
    json!({"terminated": {
        "exitCode": code, "startedAt": START, "finishedAt": "2026-01-01T00:00:05Z", "reason": "Error",
    }})
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": "in its own words"}})
}

fn job(status: Value) -> Value {
    json!({"metadata": {"name": "job"}, "status": status})
}

/// What is found so long after the start, with a cause that was known or comes up; and that cause.
fn look(
    kept: &Kept,
    job: Option<Value>,
    pods: &[Value],
    cause: Option<Why>,
    after: u64,
) -> (Option<Why>, Verdict) {
    let job: Option<Job> = job.map(|job| serde_json::from_value(job).unwrap());
    let pods: Vec<Pod> =
        pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect();
    let pods: Vec<&Pod> = pods.iter().collect();
    let table = Table::of(kept, &pods);
    let now = START_MS + after;
    let settled = BTreeSet::new();
    let start_within = Some(WITHIN_MS);
    let mut seen = Seen {
        kept,
        job: job.as_ref(),
        cause: None,
        kill: None,
        settled: &settled,
        start_within,
        now,
    };
    let why = cause.or_else(|| state::cause(&seen, &table));
    let cause = why.clone().map(|why| Cause { why, at: START_MS });
    seen.cause = cause.as_ref();
    (why, state::verdict(&seen, &table))
}

fn ended(kept: &Kept, pods: &[Value], cause: Option<Why>) -> End {
    match look(kept, Some(job(json!({}))), pods, cause, 10_000).1 {
        Verdict::Over { end, .. } => end,
        other @ Verdict::Open { .. } => panic!("it goes on: {other:?}"),
    }
}

#[test]
fn a_container_ends_as_its_node_says() {
    let one = kept(1, 1);
    let failed = |how| End::Failed { rank: 0, how };
    let of = |change: fn(&mut Value)| {
        let mut state = over(137);
        change(&mut state["terminated"]);
        ended(&one, &[pod(0, "Failed", &[state])], None)
    };
    assert_eq!(ended(&one, &[pod(0, "Succeeded", &[over(0)])], None), End::Succeeded);
    assert_eq!(ended(&one, &[pod(0, "Failed", &[over(7)])], None), failed(RankEnd::Exit(7)));
    assert_eq!(of(|_| ()), failed(RankEnd::Signal(9)));
    assert_eq!(of(|it| it["reason"] = json!("OOMKilled")), failed(RankEnd::OutOfMemory));
    let mut got_over_it = over(0);
    got_over_it["terminated"]["reason"] = json!("OOMKilled");
    assert_eq!(ended(&one, &[pod(0, "Succeeded", &[got_over_it])], None), End::Succeeded);
    assert_eq!(of(|it| it["signal"] = json!(11)), failed(RankEnd::Signal(11)));
    assert_eq!(of(|it| it["message"] = json!("not-started\n")), failed(RankEnd::NotStarted));
    assert_eq!(of(|it| it["reason"] = json!("StartError")), failed(RankEnd::NotStarted));
    // Its node does not know.
    assert_eq!(of(|it| it["reason"] = json!("ContainerStatusUnknown")), End::Lost);
}

#[test]
fn the_first_that_fails_names_the_end_and_the_others_are_told() {
    let gang = kept(2, 2);
    let pods =
        [pod(0, "Running", &[running(), running()]), pod(1, "Running", &[over(3), running()])];
    let (why, verdict) = look(&gang, Some(job(json!({}))), &pods, None, 1_000);
    let cause = Why::Rank { rank: 2, how: RankEnd::Exit(3), text: None };
    assert_eq!(why, Some(cause.clone()));
    let tell = vec![Act::Tell("pod-0".to_owned()), Act::Tell("pod-1".to_owned())];
    assert_eq!(
        verdict,
        Verdict::Open { phase: Phase::Running, started: Some(START_MS), acts: tell }
    );
    // Told once, they are killed when their time is up.
    let mut told = pods.clone();
    for pod in &mut told {
        pod["spec"]["activeDeadlineSeconds"] = json!(1);
    }
    let acts = |after| match look(&gang, Some(job(json!({}))), &told, Some(cause.clone()), after).1
    {
        Verdict::Open { acts, .. } => acts,
        other @ Verdict::Over { .. } => panic!("{other:?}"),
    };
    assert_eq!(acts(1_999), []);
    assert_eq!(acts(2_000), ["pod-0", "pod-1"].map(|pod| Act::Kill(pod.to_owned())));
    let done = [pod(0, "Failed", &[over(143), over(143)]), pod(1, "Failed", &[over(3), over(137)])];
    assert_eq!(ended(&gang, &done, Some(cause)), End::Failed { rank: 2, how: RankEnd::Exit(3) });
}

#[test]
fn a_stop_that_comes_too_late_changes_no_success() {
    let one = kept(1, 1);
    let done = pod(0, "Succeeded", &[over(0)]);
    let mut told = pod(0, "Failed", &[over(0)]);
    told["status"]["reason"] = json!("DeadlineExceeded");
    for (pod, cause, end) in [
        (&done, Why::Stop, End::Succeeded),
        (&done, Why::Time, End::Succeeded),
        (&told, Why::Stop, End::Stopped),
        (&told, Why::Time, End::TimedOut),
    ] {
        assert_eq!(ended(&one, std::slice::from_ref(pod), Some(cause)), end);
    }
    // By its own deadline, while nobody was here to say so; also if it saved its work and ended well.
    for code in [143, 0] {
        let mut state = over(code);
        state["terminated"]["finishedAt"] = json!("2026-01-01T00:31:00Z");
        told["status"]["containerStatuses"][0]["state"] = state;
        assert_eq!(ended(&one, &[told.clone()], None), End::TimedOut);
        // Before its time was up, that was not its limit.
        told["status"]["containerStatuses"][0]["state"] = over(code);
        assert_eq!(ended(&one, &[told.clone()], None), End::Lost);
    }
}

#[test]
fn nodes_have_a_deadline_once_all_of_them_run() {
    let gang = kept(2, 1);
    let acts = |pods: &[Value]| match look(&gang, Some(job(json!({}))), pods, None, 1_000).1 {
        Verdict::Open { acts, .. } => acts,
        other @ Verdict::Over { .. } => panic!("{other:?}"),
    };
    let waits = pod(1, "Pending", &[waiting("ContainerCreating")]);
    let mut first = pod(0, "Running", &[running()]);
    // Its node has had it for ten minutes, and all that time it has waited for the other.
    first["status"]["startTime"] = json!("2025-12-31T23:50:00Z");
    assert_eq!(acts(&[first.clone(), waits]), []);
    let second = pod(1, "Running", &[running()]);
    let bound = |pod: &str, seconds| Act::Bound(pod.to_owned(), seconds);
    let wanted = [bound("pod-0", 600 + 60 + 1800), bound("pod-1", 60 + 1800)];
    assert_eq!(acts(&[first.clone(), second.clone()]), wanted);
    first["spec"]["activeDeadlineSeconds"] = json!(2460);
    assert_eq!(acts(&[first, second]), wanted[1..]);
}

/// Removed by others after it had ended: what a drain does to finished pods too.
#[test]
fn what_was_seen_to_have_ended_stays_so() {
    let gang = kept(2, 1);
    let done = pod(0, "Succeeded", &[over(0)]);
    let removed = |reason: Option<&str>| {
        let mut pod = done.clone();
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        if let Some(reason) = reason {
            pod["status"]["conditions"] =
                json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
        }
        pod
    };
    let others = [pod(1, "Running", &[running()]), pod(1, "Succeeded", &[over(0)])];
    for gone in [removed(None), removed(Some("EvictionByEvictionAPI"))] {
        for other in &others {
            let pods: Vec<Pod> = [&done, other, &gone]
                .map(|pod| serde_json::from_value(pod.clone()).unwrap())
                .to_vec();
            let job: Job = serde_json::from_value(job(json!({}))).unwrap();
            let before = Table::of(&gang, &[&pods[0], &pods[1]]).settled();
            assert!(before.contains(&0));
            let after = Table::of(&gang, &[&pods[2], &pods[1]]);
            let mut seen = Seen {
                kept: &gang,
                job: Some(&job),
                cause: None,
                kill: None,
                settled: &before,
                start_within: None,
                now: START_MS + 20_000,
            };
            assert_eq!(state::cause(&seen, &after), None);
            let verdict = state::verdict(&seen, &after);
            match verdict {
                Verdict::Open { phase, .. } => assert_eq!(phase, Phase::Running),
                Verdict::Over { end, .. } => assert_eq!(end, End::Succeeded),
            }
            // Nobody has seen how it ended: it may have been told to.
            let unseen = BTreeSet::new();
            seen.settled = &unseen;
            let why = state::cause(&seen, &after);
            let end = matches!(state::verdict(&seen, &after), Verdict::Over { end: End::Lost, .. });
            assert!(why.is_some() || end, "{why:?}");
        }
    }
    // One that somebody removes is not settled, whatever its ranks ended with.
    let pods: Vec<Pod> = vec![serde_json::from_value(removed(None)).unwrap()];
    assert_eq!(Table::of(&gang, &[&pods[0]]).settled(), BTreeSet::new());
}

#[test]
fn what_the_cluster_takes_is_preempted_and_what_vanishes_is_lost() {
    let one = kept(1, 1);
    let target = |reason: &str| {
        let mut pod = pod(0, "Failed", &[over(0)]);
        pod["metadata"]["deletionTimestamp"] = json!(START);
        pod["status"]["conditions"] =
            json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
        pod
    };
    assert_eq!(ended(&one, &[target("PreemptionByScheduler")], None), End::Preempted);
    assert_eq!(ended(&one, &[target("DeletionByTaintManager")], None), End::Lost);
    assert_eq!(ended(&one, &[target("DeletionByPodGC")], None), End::Lost);
    let mut evicted = pod(0, "Failed", &[]);
    evicted["status"]["reason"] = json!("Evicted");
    // By its node, perhaps for what it used itself: it may be started again, but not without bound.
    assert_eq!(ended(&one, &[evicted], None), End::Lost);
    assert_eq!(ended(&one, &[target("TerminationByKubelet")], None), End::Lost);
    assert_eq!(ended(&one, &[target("EvictionByEvictionAPI")], None), End::Preempted);
    let mut refused = pod(0, "Failed", &[]);
    refused["status"]["reason"] = json!("UnexpectedAdmissionError");
    assert_eq!(ended(&one, &[refused], None), End::Lost);
    let mut removed = pod(0, "Failed", &[over(0)]);
    removed["metadata"]["deletionTimestamp"] = json!(START);
    assert_eq!(ended(&one, &[removed], None), End::Lost);
    // Its pod is not there, by its job's own words; or its job is not.
    let gone = |job| look(&one, job, &[], None, 0);
    for job in [None, Some(job(json!({"failedIndexes": "0"})))] {
        let (why, verdict) = gone(job);
        assert_eq!(why, Some(Why::Gone));
        assert!(matches!(verdict, Verdict::Over { end: End::Lost, .. }), "{verdict:?}");
    }
    // Suspended while it runs, it gives its place to others.
    let mut going = pod(0, "Running", &[running()]);
    going["metadata"]["deletionTimestamp"] = json!(START);
    let mut held = job(json!({}));
    held["spec"] = json!({"suspend": true, "template": {}});
    assert_eq!(look(&one, Some(held), &[going], None, 0).0, Some(Why::Taken));
    // Not made yet is not gone.
    let (why, verdict) = gone(Some(job(json!({}))));
    assert_eq!(why, None);
    assert_eq!(
        verdict,
        Verdict::Open { phase: Phase::Pending(None), started: None, acts: Vec::new() }
    );
}

#[test]
fn what_waits_says_why_and_not_for_ever() {
    let gang = kept(2, 1);
    let said = |pods: &[Value], after| {
        let (why, verdict) = look(&gang, Some(job(json!({}))), pods, None, after);
        match verdict {
            Verdict::Open { phase: Phase::Pending(said), .. } => (why, said),
            other => panic!("{other:?}"),
        }
    };
    let mut unplaced = pod(1, "Pending", &[]);
    unplaced["status"]["conditions"] =
        json!([{"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}]);
    let half = [pod(0, "Running", &[running()]), unplaced];
    // All or none: a gang of which a part runs does not run.
    assert_eq!(said(&half, 1), (None, Some("Insufficient cpu".to_owned())));
    let image =
        |reason| [pod(0, "Pending", &[waiting(reason)]), pod(1, "Pending", &[waiting(reason)])];
    let text = "ImagePullBackOff: in its own words".to_owned();
    assert_eq!(said(&image("ImagePullBackOff"), 299_000), (None, Some(text.clone())));
    assert_eq!(said(&image("ContainerCreating"), 900_000), (None, None));
    let never = Why::Rank { rank: 0, how: RankEnd::NotStarted, text: Some(text) };
    assert_eq!(said(&image("ImagePullBackOff"), 300_000).0, Some(never));
    assert!(said(&image("InvalidImageName"), 0).0.is_some());
    // Nothing has started: all of it goes.
    let stopped =
        look(&gang, Some(job(json!({}))), &image("ContainerCreating"), Some(Why::Stop), 0);
    assert!(
        matches!(&stopped.1, Verdict::Open { acts, .. } if *acts == [Act::RemoveJob]),
        "{stopped:?}"
    );
    // What the pool gives it to start is over: it is given up, with the reason.
    let since = |held: bool, after| {
        let mut job = job(json!({"startTime": START}));
        job["spec"] = json!({"suspend": held, "template": {}});
        look(&gang, Some(job), &half, None, after).0
    };
    assert_eq!(since(false, WITHIN_MS - 1), None);
    let waited = since(false, WITHIN_MS);
    assert!(
        matches!(
            &waited,
            Some(Why::Waited { rank: 1, text }) if text.ends_with("3600 s: Insufficient cpu")
        ),
        "{waited:?}"
    );
    // A queue may take its time.
    assert_eq!(since(true, WITHIN_MS), None);
    let over = [pod(0, "Failed", &[over(143)]), pod(1, "Failed", &[])];
    assert_eq!(ended(&gang, &over, waited), End::Lost);
    // One that goes before it has a node is gone, though it is kept.
    let mut going = pod(0, "Pending", &[]);
    going["metadata"]["deletionTimestamp"] = json!(START);
    going["spec"]["nodeName"] = Value::Null;
    let (_, verdict) = look(&kept(1, 1), None, &[going], Some(Why::Stop), 0);
    assert!(matches!(verdict, Verdict::Over { end: End::Stopped, .. }), "{verdict:?}");
}

#[test]
fn the_time_counts_from_when_all_of_them_run() {
    let one = kept(1, 1);
    let at =
        |after| look(&one, Some(job(json!({}))), &[pod(0, "Running", &[running()])], None, after).0;
    // Its start was told in whole seconds.
    assert_eq!(at(60_999), None);
    assert_eq!(at(61_000), Some(Why::Time));
    let gang =
        [pod(0, "Running", &[running()]), pod(1, "Pending", &[waiting("ContainerCreating")])];
    assert_eq!(look(&kept(2, 1), Some(job(json!({}))), &gang, None, 600_000).0, None);
}

fn launch(nodes: &[&str]) -> Launch {
    let place = |(rank, node): (usize, &&str)| RankPlace {
        node: (*node).to_owned(),
        gpus: vec![u8::try_from(rank % 2).unwrap()],
        env: BTreeMap::from([("RANK".to_owned(), rank.to_string())]),
    };
    Launch {
        attempt: AttemptId::new("job-1").unwrap(),
        name: "a\nname".to_owned(),
        command: vec!["echo".to_owned(), "it's $HOME".to_owned()],
        image: Some("registry.example/train:1".to_owned()),
        slice: None,
        folder: None,
        env: BTreeMap::from([("A".to_owned(), "$(B)".to_owned())]),
        secrets: BTreeMap::from([("TOKEN".to_owned(), Secret::new("hidden"))]),
        ranks: nodes.iter().enumerate().map(place).collect(),
        shares_gpus: false,
        limits: Limits { cpu_millis: 1500, memory_mib: 100, time: Some(Duration::from_mins(10)) },
        grace: Duration::from_millis(1500),
        gang_grace: Duration::from_secs(5),
    }
}

#[test]
fn a_job_asks_for_what_was_wanted_and_holds_no_secret() {
    let launch = launch(&["a", "a", "b", "b"]);
    let settings = KubernetesSettings {
        queue: Some("team".to_owned()),
        pin: true,
        run_as: Some(1000),
        tolerations: vec![Toleration {
            key: Some("gpu".to_owned()),
            value: None,
            effect: Some("NoSchedule".to_owned()),
        }],
        volumes: vec![Volume {
            claim: "shared".to_owned(),
            path: "/shared".to_owned(),
            read_only: false,
        }],
        ..KubernetesSettings::default()
    };
    assert_eq!(objects::refuses(&launch, &settings), None);
    let kept = Kept::of(&launch).unwrap();
    let made = objects::job(&launch, &settings, &kept);
    let at = |path: &str| made.pointer(path).cloned().unwrap_or_default();
    let (pod, first) = ("/spec/template/spec", "/spec/template/spec/containers/0");
    for (path, wanted) in [
        ("/spec/completions".to_owned(), json!(2)),
        ("/spec/suspend".to_owned(), json!(true)),
        ("/spec/backoffLimitPerIndex".to_owned(), json!(0)),
        ("/metadata/labels/kueue.x-k8s.io~1queue-name".to_owned(), json!("team")),
        ("/metadata/annotations/falaj.dev~1name".to_owned(), json!("aname")),
        (format!("{pod}/terminationGracePeriodSeconds"), json!(2)),
        (format!("{pod}/activeDeadlineSeconds"), Value::Null),
        ("/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name".to_owned(), Value::Null),
        (
            format!("{pod}/tolerations"),
            json!([
                {
                    "key": "node.kubernetes.io/unreachable", "operator": "Exists",
                    "effect": "NoExecute", "tolerationSeconds": 30,
                },
                {
                    "key": "node.kubernetes.io/not-ready", "operator": "Exists",
                    "effect": "NoExecute", "tolerationSeconds": 30,
                },
                {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
            ]),
        ),
        (format!("{pod}/securityContext/runAsNonRoot"), json!(true)),
        (format!("{pod}/securityContext/fsGroupChangePolicy"), json!("OnRootMismatch")),
        (format!("{pod}/volumes/4/persistentVolumeClaim/claimName"), json!("shared")),
        (format!("{first}/volumeMounts/4/mountPath"), json!("/shared")),
        (
            format!("{first}/resources/limits"),
            json!({"cpu": "1500m", "memory": "100Mi", "nvidia.com/gpu": "1"}),
        ),
        (format!("{first}/command/3"), json!("2")),
        (format!("{first}/env"), Value::Null),
    ] {
        assert_eq!(at(&path), wanted, "{path}");
    }
    let required = "affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let nodes = format!("{pod}/{required}/nodeSelectorTerms/0/matchExpressions/0/values");
    assert_eq!(at(&nodes), json!(["a", "b"]));
    assert_eq!(at(&format!("{pod}/containers")).as_array().unwrap().len(), 2);
    let text = made.to_string();
    assert!(!text.contains("hidden") && !text.contains("TOKEN") && !text.contains("HOME"));
    // A cluster would have read the variable in it.
    let owners = json!([{"kind": "Job", "name": "job", "uid": "1"}]);
    let secret = objects::secret(&launch, &settings, &owners);
    // It goes with its job, and so does the service.
    assert_eq!(secret["metadata"]["ownerReferences"], owners);
    let service = objects::service(&launch, &settings, &kept, &owners).unwrap();
    assert_eq!(service["metadata"]["ownerReferences"], owners);
    let files = &secret["stringData"];
    assert!(files["env"].as_str().unwrap().contains("export A='$(B)'\n"));
    assert!(files["env"].as_str().unwrap().contains("export TOKEN='hidden'\n"));
    assert_eq!(files["command"], "set -- '/falaj/work' 'echo' 'it'\\''s $HOME'\n");
    assert_eq!(files["rank-3"], "command export RANK='3'\ncommand export FALAJ_RANK='3'\n");
}

#[test]
fn slices_are_resources_of_their_own() {
    let mut launch = launch(&["a"]);
    launch.ranks[0].gpus.clear();
    launch.slice = Some("1g".to_owned());
    let mut settings = KubernetesSettings::default();
    assert!(objects::refuses(&launch, &settings).unwrap().contains("has: none"));
    settings.slices.insert("1g".to_owned(), "nvidia.com/mig-1g.10gb".to_owned());
    assert_eq!(objects::refuses(&launch, &settings), None);
    let made = objects::job(&launch, &settings, &Kept::of(&launch).unwrap());
    let limits = made.pointer("/spec/template/spec/containers/0/resources/limits").unwrap();
    assert_eq!(limits["nvidia.com/mig-1g.10gb"], "1");
    assert_eq!(limits.get("nvidia.com/gpu"), None);
    let secret = objects::secret(&launch, &settings, &Value::Null);
    assert!(!secret["stringData"].to_string().contains("CUDA"));
}

#[test]
fn what_pods_cannot_be_is_refused() {
    let settings = KubernetesSettings::default();
    let why = |change: fn(&mut Launch)| {
        let mut launch = launch(&["a", "a"]);
        change(&mut launch);
        objects::refuses(&launch, &settings).unwrap_or_default()
    };
    assert_eq!(why(|_| ()), "");
    assert!(why(|it| it.image = None).starts_with("image:"));
    assert!(why(|it| it.image = Some("-x".to_owned())).contains("-x"));
    assert!(why(|it| it.ranks[1].gpus = vec![0]).contains("their own GPUs"));
    assert!(why(|it| it.ranks[1].gpus.clear()).contains("equally many GPUs"));
    assert!(why(|it| it.ranks[0].node = "b".to_owned()).is_empty());
    let large = why(|it| {
        for number in 0..10 {
            it.env.insert(format!("V{number}"), "x".repeat(110_000));
        }
    });
    assert!(large.contains("1048576"), "{large}");
}
