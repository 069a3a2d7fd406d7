//! What is Ray's own: placement, and what its pages show.

use std::time::Duration;

use falaj_base::Secret;
use falaj_executors::{End, Executor, Notice, Phase, RankEnd, RayExecutor, RaySettings};

use crate::engine::{
    Engine, Kind, ask_ray, ended, find, output, ranks, run, says, script, tells_what_ranks_use,
    until,
};

fn settings() -> RaySettings {
    RaySettings { url: std::env::var("FALAJ_TEST_RAY_URL").unwrap(), ..Default::default() }
}

#[test]
fn a_gang_has_its_gpus_and_nodes_or_waits_and_says_why() {
    let Some(engine) = Engine::of(Kind::Ray) else { return };
    let executor = engine.executor();
    let mut gang = script("gang", "echo \"$CUDA_VISIBLE_DEVICES\"; echo ready; sleep 600");
    gang.ranks = ranks(3);
    for place in &mut gang.ranks {
        place.gpus = vec![0, 1, 2];
    }
    let mut second = gang.clone();
    second.attempt = crate::engine::name("second");
    executor.launch(&gang).unwrap();
    (0..3).for_each(|rank| says(&*executor, &gang.attempt, rank, "ready"));
    for rank in 0..3 {
        let said = output(&*executor, &gang.attempt, rank);
        assert_eq!(said.lines().next().unwrap().split(',').count(), 3, "{said}");
    }
    executor.launch(&second).unwrap();
    until("no reason was given", || {
        let phase = find(&*executor, &second.attempt).unwrap().phase;
        matches!(phase, Phase::Pending(Some(reason)) if reason.contains("GPU"))
    });
    // One that waits is stopped at once; it has nothing to save.
    executor.tell(&second.attempt, Notice::Stop).unwrap();
    assert_eq!(ended(&*executor, &second.attempt).0, End::Stopped);
    executor.tell(&gang.attempt, Notice::Kill).unwrap();
    assert_eq!(ended(&*executor, &gang.attempt).0, End::Stopped);
}

#[test]
fn ranks_of_a_node_see_its_gpus_if_they_share_them() {
    let Some(engine) = Engine::of(Kind::Ray) else { return };
    let executor = engine.executor();
    let seen = |shares: bool| {
        let mut gang = script("shared", "echo $CUDA_VISIBLE_DEVICES");
        gang.ranks = ranks(2);
        for (rank, place) in (0..).zip(&mut gang.ranks) {
            "wish".clone_into(&mut place.node);
            place.gpus = vec![rank];
        }
        gang.shares_gpus = shares;
        assert_eq!(run(&*executor, &gang), End::Succeeded);
        [0, 1].map(|rank| output(&*executor, &gang.attempt, rank).trim().to_owned())
    };
    let own = seen(false);
    assert!(own[0] != own[1] && !own.concat().contains(','), "{own:?}");
    let shared = seen(true);
    assert_eq!(shared[0].split(',').count(), 2, "{shared:?}");
    assert_eq!(shared[0], shared[1]);
}

#[test]
fn its_pages_show_no_secret() {
    let Some(engine) = Engine::of(Kind::Ray) else { return };
    let executor = engine.executor();
    let mut launch = script("shown", "test -n \"$TOKEN\"");
    launch.secrets.insert("TOKEN".to_owned(), Secret::new("not-to-be-shown"));
    assert_eq!(run(&*executor, &launch), End::Succeeded);
    let shown = ask_ray(&format!("/api/jobs/{}", launch.attempt)).unwrap();
    assert!(shown.contains("launcher.py"), "{shown}");
    let all = shown + &ask_ray(&format!("/api/jobs/{}/logs", launch.attempt)).unwrap();
    assert!(!all.contains("not-to-be-shown"));
}

#[test]
fn a_launcher_that_cannot_run_says_why() {
    let Some(engine) = Engine::of(Kind::Ray) else { return };
    let python = "/no/such/python".to_owned();
    let executor =
        RayExecutor::new(engine.attempts(), RaySettings { python, ..settings() }).unwrap();
    let launch = script("broken", "true");
    assert_eq!(run(&executor, &launch), End::Failed { rank: 0, how: RankEnd::NotStarted });
    let said = output(&executor, &launch.attempt, 0);
    assert!(said.contains("127"), "{said}");
}

/// The processes of which a file in `/proc` holds some text. Ray's have ids of their own here, so that what
/// they say of themselves is not what they are called outside.
fn processes(file: &str, text: &str) -> Vec<rustix::process::Pid> {
    let holds = |path: &std::path::Path| {
        let bytes = std::fs::read(path.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(text)
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| holds(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(rustix::process::Pid::from_raw)
        .collect()
}

#[test]
fn what_a_rank_has_started_does_not_outlive_a_launcher_that_is_killed() {
    let Some(engine) = Engine::of(Kind::Ray) else { return };
    let executor = engine.executor();
    let text = "sleep 600 & setsid sleep 600 & sleep 0.2; echo ready; wait";
    let launch = script("orphans", text);
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    // Until what watches it is there.
    std::thread::sleep(Duration::from_secs(2));
    let mark = format!("FALAJ_ATTEMPT={}", launch.attempt);
    assert_eq!(processes("environ", &mark).len(), 3);
    let launcher = processes("cmdline", &format!("{}/launcher.py", launch.attempt));
    assert!(!launcher.is_empty());
    for process in launcher {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
    until("a process was left", || processes("environ", &mark).is_empty());
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Lost);
}

#[test]
fn a_ray_that_does_not_answer_is_away() {
    let Some(engine) = Engine::of(Kind::Ray) else { return };
    let url = "http://127.0.0.1:9".to_owned();
    let executor = RayExecutor::new(engine.attempts(), RaySettings { url, ..settings() }).unwrap();
    let launch = script("away", "exit 3");
    let answer = executor.launch(&launch);
    assert!(matches!(answer, Err(falaj_executors::ExecutorError::Away(_))), "{answer:?}");
    executor.wait(Duration::from_millis(1));
    // It is launched as soon as it can be.
    let executor = engine.executor();
    assert_eq!(run(&*executor, &launch), End::Failed { rank: 0, how: RankEnd::Exit(3) });
}

#[test]
fn what_ranks_use_is_told() {
    tells_what_ranks_use(Kind::Ray);
}
