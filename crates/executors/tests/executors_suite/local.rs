//! What the local executor promises beyond the rest: limits, leftovers, output that does not end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use falaj_executors::{End, Executor, LocalExecutor, Notice, Phase, RankEnd};
use rustix::process::{Pid, Signal, kill_process};

use crate::engine::{Engine, Kind, ended, find, local, output, run, says, script, until};

fn engine() -> (Engine, LocalExecutor) {
    let engine = Engine::of(Kind::Local).unwrap();
    let executor = local(&engine.attempts());
    (engine, executor)
}

/// The value of a field of an attempt's `state.json`.
fn state(engine: &Engine, attempt: &falaj_executors::AttemptId, field: &str) -> serde_json::Value {
    let path = engine.attempts().join(attempt.as_str()).join("state.json");
    let state: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    state[field].clone()
}

fn pid(value: &serde_json::Value) -> Pid {
    Pid::from_raw(i32::try_from(value.as_i64().unwrap()).unwrap()).unwrap()
}

fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that nobody has waited for yet does nothing any more.
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn a_shim_that_is_killed_leaves_a_lost_attempt_and_no_process() {
    let (engine, executor) = engine();
    let mut launch = script("lost", "setsid sleep 600 & echo child=$!; sleep 600");
    launch.ranks = crate::engine::ranks(2);
    executor.launch(&launch).unwrap();
    says(&executor, &launch.attempt, 0, "child=");
    says(&executor, &launch.attempt, 1, "child=");
    let shim = pid(&state(&engine, &launch.attempt, "shim"));
    let ranks: Vec<Pid> =
        state(&engine, &launch.attempt, "ranks").as_array().unwrap().iter().map(pid).collect();
    assert!(ranks.iter().all(|rank| is_alive(*rank)));
    kill_process(shim, Signal::KILL).unwrap();
    let begun = Instant::now();
    executor.wait(Duration::from_secs(30));
    assert!(begun.elapsed() < Duration::from_secs(5), "nobody noticed");
    let (end, observed) = ended(&executor, &launch.attempt);
    assert_eq!(end, End::Lost);
    assert!(observed.started.is_some() && observed.ended.is_some());
    let child = |rank| {
        let said = output(&executor, &launch.attempt, rank);
        Pid::from_raw(said.trim().strip_prefix("child=").unwrap().parse().unwrap()).unwrap()
    };
    for left in [ranks[0], ranks[1], child(0), child(1)] {
        until("a process was left", || !is_alive(left));
    }
    // It stays what it is, also for others and when it is launched again.
    executor.launch(&launch).unwrap();
    assert_eq!(ended(&*engine.executor(), &launch.attempt).0, End::Lost);
}

#[test]
fn what_a_rank_leaves_behind_ends_with_it() {
    let (_engine, executor) = engine();
    let launch = script("daemon", "setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!");
    assert_eq!(run(&executor, &launch), End::Succeeded);
    let left: i32 = output(&executor, &launch.attempt, 0).trim().parse().unwrap();
    assert!(!is_alive(Pid::from_raw(left).unwrap()));
}

#[test]
fn signals_are_told_from_codes() {
    let (_engine, executor) = engine();
    let launch = script("signal", "kill -SEGV $$");
    let end = run(&executor, &launch);
    assert_eq!(end, End::Failed { rank: 0, how: RankEnd::Signal(11) });
    let launch = script("code", "exit 139");
    assert_eq!(run(&executor, &launch), End::Failed { rank: 0, how: RankEnd::Exit(139) });
}

#[test]
fn too_much_memory_is_told_from_a_kill() {
    let (_engine, executor) = engine();
    let eat = "head -c 300m /dev/zero | tail -c 300m | wc -c";
    let mut launch = script("hungry", &format!("set -o pipefail; {eat}"));
    launch.limits.memory_mib = 64;
    launch.limits.cpu_millis = 2000;
    executor.launch(&launch).unwrap();
    let (end, observed) = ended(&executor, &launch.attempt);
    assert_eq!(observed.isolation, executor.isolation());
    let End::Failed { rank: 0, how } = end else { panic!("{end:?}") };
    if executor.isolation() == "none" {
        println!("skipped: there are no control groups here, so that memory is not watched");
        return;
    }
    assert_eq!(how, RankEnd::OutOfMemory);
    let usage = executor.usage(&launch.attempt).unwrap().unwrap();
    assert!(usage.peak_memory_bytes > 32 << 20 && usage.peak_memory_bytes <= 64 << 20, "{usage:?}");

    let mut killed = script("killed", "kill -KILL $$");
    killed.limits.memory_mib = 64;
    assert_eq!(run(&executor, &killed), End::Failed { rank: 0, how: RankEnd::Signal(9) });
}

#[test]
fn without_groups_it_says_so() {
    let (_engine, executor) = engine();
    let executor = executor.without_groups();
    let mut launch = script("bare", "sleep 0.2; ulimit -d");
    launch.limits.memory_mib = 64;
    executor.launch(&launch).unwrap();
    let (_, observed) = ended(&executor, &launch.attempt);
    assert_eq!(observed.isolation, "none");
    assert!(output(&executor, &launch.attempt, 0).contains("65536"), "the limit was not set");
}

#[test]
fn usage_and_stacks_are_told_while_it_runs() {
    let (_engine, executor) = engine();
    for limits in [false, true] {
        let mut launch = script("busy", "echo ready; while :; do :; done");
        launch.limits.memory_mib = if limits { 256 } else { 0 };
        executor.launch(&launch).unwrap();
        says(&executor, &launch.attempt, 0, "ready");
        until("no time was counted", || {
            let usage = executor.usage(&launch.attempt).unwrap().unwrap();
            usage.cpu_seconds > 0.05 && usage.memory_bytes > 0 && usage.peak_memory_bytes > 0
        });
        let stacks = executor.stacks(&launch.attempt).unwrap().unwrap();
        assert!(stacks.contains("rank 0") && stacks.contains("bash -c"), "{stacks}");
        executor.tell(&launch.attempt, Notice::Kill).unwrap();
        ended(&executor, &launch.attempt);
        assert_eq!(executor.stacks(&launch.attempt).unwrap(), None);
    }
}

#[test]
fn a_share_of_the_cpu_is_a_share() {
    let (_engine, executor) = engine();
    if executor.isolation() == "none" {
        println!("skipped: there are no control groups here");
        return;
    }
    let mut launch = script("slowed", "timeout 2 sh -c 'while :; do :; done'; true");
    launch.limits.cpu_millis = 100;
    assert_eq!(run(&executor, &launch), End::Succeeded);
    let usage = executor.usage(&launch.attempt).unwrap().unwrap();
    assert!((0.05..0.6).contains(&usage.cpu_seconds), "{usage:?}");
}

#[test]
fn an_endless_output_keeps_its_beginning_and_its_end() {
    let (engine, executor) = engine();
    let executor = executor.keep_output(1 << 20);
    let launch =
        script("long", "echo first; yes 0123456789abcdef | head -c 20000000; sleep 2; echo last");
    assert_eq!(run(&executor, &launch), End::Succeeded);
    let log = engine.attempts().join(launch.attempt.as_str()).join("rank-0.log");
    let about = fs::metadata(&log).unwrap();
    let taken = std::os::unix::fs::MetadataExt::blocks(&about) * 512;
    assert!(taken < 3 << 20, "it takes {taken} bytes");
    assert_eq!(executor.output(&launch.attempt, 0, 0, 6).unwrap(), b"first\n");
    let end = about.len() - 5;
    assert_eq!(executor.output(&launch.attempt, 0, end, 100).unwrap(), b"last\n");
    let kept = executor.output_part(&launch.attempt, 0, 1 << 20, 1).unwrap().at;
    assert!(kept > 18_000_000, "{kept}");
    // Copied part by part, it is what was kept, and the gap is seen.
    let (mut from, mut copied, mut gaps) = (0, Vec::new(), 0);
    loop {
        let part = executor.output_part(&launch.attempt, 0, from, 300_000).unwrap();
        if part.bytes.is_empty() {
            break;
        }
        gaps += usize::from(part.at > from);
        from = part.at + part.bytes.len() as u64;
        copied.extend(part.bytes);
    }
    assert_eq!((from, gaps), (about.len(), 1));
    assert!(copied.len() < 3 << 20 && !copied.contains(&0), "{} bytes", copied.len());
    assert!(copied.starts_with(b"first\n") && copied.ends_with(b"last\n"));
}

/// A shim that starts with few files.
fn with_few_files(engine: &Engine, limit: &str) -> LocalExecutor {
    let shim = engine.folder.path().join("shim");
    let text = format!("#!/bin/sh\n{limit}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_falaj-shim"));
    fs::write(&shim, text).unwrap();
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).unwrap();
    LocalExecutor::new(engine.attempts(), shim).unwrap()
}

#[test]
fn more_ranks_than_files_are_followed_all_the_same() {
    let engine = Engine::of(Kind::Local).unwrap();
    // Enough to start them all, too few to have each by a descriptor.
    let executor = with_few_files(&engine, "ulimit -n 64");
    let mut launch = script("crowd", "echo ready; sleep 1; [ $RANK != 39 ] || exit 9; sleep 600");
    launch.ranks = crate::engine::ranks(40);
    executor.launch(&launch).unwrap();
    assert_eq!(
        ended(&executor, &launch.attempt).0,
        End::Failed { rank: 39, how: RankEnd::Exit(9) }
    );
    let mark = format!("FALAJ_ATTEMPT={}", launch.attempt);
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let environ = fs::read(process.path().join("environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environ).contains(&mark), "a rank is left");
    }
}

#[test]
fn the_files_of_the_shim_are_not_those_of_ranks() {
    let engine = Engine::of(Kind::Local).unwrap();
    let executor = with_few_files(&engine, "ulimit -S -n 64");
    let mut launch = script("crowd", "sleep 0.3; ulimit -S -n");
    launch.ranks = crate::engine::ranks(70);
    assert_eq!(run(&executor, &launch), End::Succeeded);
    assert_eq!(output(&executor, &launch.attempt, 69), "64\n");
}

/// Too few for the outputs alone: nothing is started, and that is what is said.
#[test]
fn too_few_files_for_any_rank_start_none() {
    let engine = Engine::of(Kind::Local).unwrap();
    let executor = with_few_files(&engine, "ulimit -n 20");
    let ran = engine.folder.path().join("ran");
    let mut launch = script("crowd", &format!("echo ran >>{}; sleep 600", ran.display()));
    launch.ranks = crate::engine::ranks(40);
    assert_eq!(run(&executor, &launch), End::Failed { rank: 0, how: RankEnd::NotStarted });
    assert!(!ran.exists());
}

/// Ranks that were done before they could be told anything are done.
#[test]
fn a_stop_that_comes_after_the_last_rank_has_ended_changes_nothing() {
    let (engine, executor) = engine();
    let launch = script("done", "echo ready; until [ -e ../go ]; do sleep 0.02; done; exit 0");
    executor.launch(&launch).unwrap();
    let folder = engine.attempts().join(launch.attempt.as_str());
    says(&executor, &launch.attempt, 0, "ready");
    let shim = pid(&state(&engine, &launch.attempt, "shim"));
    let rank = pid(&state(&engine, &launch.attempt, "ranks")[0]);
    // The shim sees both at once.
    kill_process(shim, Signal::STOP).unwrap();
    fs::write(folder.join("go"), "on\n").unwrap();
    until("it does not end", || !is_alive(rank));
    executor.tell(&launch.attempt, Notice::Stop).unwrap();
    kill_process(shim, Signal::CONT).unwrap();
    assert_eq!(ended(&executor, &launch.attempt).0, End::Succeeded);
}

#[test]
fn gpus_are_those_that_were_given() {
    let (_engine, executor) = engine();
    let mut launch = script("gpus", "echo \"[$CUDA_VISIBLE_DEVICES]\"");
    launch.ranks = crate::engine::ranks(3);
    launch.ranks[0].gpus = vec![2, 3];
    launch.ranks[2].env.insert("CUDA_VISIBLE_DEVICES".to_owned(), "MIG-1".to_owned());
    assert_eq!(run(&executor, &launch), End::Succeeded);
    let said = [0, 1, 2].map(|rank| output(&executor, &launch.attempt, rank));
    assert_eq!(said, ["[2,3]\n", "[]\n", "[MIG-1]\n"]);
}

#[test]
fn ranks_of_a_node_see_its_gpus_in_one_order_if_they_share_them() {
    let (_engine, executor) = engine();
    let mut launch = script("shared", "echo \"[$CUDA_VISIBLE_DEVICES]\"");
    launch.ranks = crate::engine::ranks(4);
    for (rank, (node, gpus)) in [("a", [4]), ("a", [1]), ("b", [0]), ("b", [2])].iter().enumerate()
    {
        (*node).clone_into(&mut launch.ranks[rank].node);
        launch.ranks[rank].gpus = gpus.to_vec();
    }
    launch.shares_gpus = true;
    assert_eq!(run(&executor, &launch), End::Succeeded);
    let said = [0, 1, 2, 3].map(|rank| output(&executor, &launch.attempt, rank));
    assert_eq!(said, ["[1,4]\n", "[1,4]\n", "[0,2]\n", "[0,2]\n"]);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let (engine, executor) = engine();
    let mut launch = script("nowhere", "pwd");
    launch.folder = Some("/no/such/folder".into());
    assert_eq!(run(&executor, &launch), End::Failed { rank: 0, how: RankEnd::NotStarted });
    assert!(output(&executor, &launch.attempt, 0).contains("/no/such/folder"));
    let mut launch = script("somewhere", "pwd");
    launch.folder = Some(engine.folder.path().canonicalize().unwrap());
    assert_eq!(run(&executor, &launch), End::Succeeded);
    let said = output(&executor, &launch.attempt, 0);
    assert_eq!(said.trim(), launch.folder.unwrap().display().to_string());
}

#[test]
fn a_missing_shim_leaves_nothing_behind() {
    let engine = Engine::of(Kind::Local).unwrap();
    let broken = LocalExecutor::new(engine.attempts(), "/no/such/falaj".into()).unwrap();
    let launch = script("again", "exit 4");
    assert!(broken.launch(&launch).is_err());
    assert_eq!(broken.observe().unwrap(), []);
    let executor = engine.executor();
    assert_eq!(run(&*executor, &launch), End::Failed { rank: 0, how: RankEnd::Exit(4) });
}

#[test]
fn a_shim_that_dies_at_once_leaves_a_lost_attempt() {
    let engine = Engine::of(Kind::Local).unwrap();
    let broken = LocalExecutor::new(engine.attempts(), "/bin/false".into()).unwrap();
    let launch = script("stillborn", "exit 0");
    broken.launch(&launch).unwrap();
    assert_eq!(ended(&broken, &launch.attempt).0, End::Lost);
    assert_eq!(ended(&*engine.executor(), &launch.attempt).0, End::Lost);
}

#[test]
fn many_at_once() {
    let (_engine, executor) = engine();
    let launches: Vec<_> =
        (0..40).map(|code| script("many", &format!("exit {}", code % 3))).collect();
    std::thread::scope(|scope| {
        for part in launches.chunks(10) {
            scope.spawn(|| part.iter().for_each(|launch| executor.launch(launch).unwrap()));
        }
    });
    for (code, launch) in (0..40).zip(&launches) {
        let wanted = match code % 3 {
            0 => End::Succeeded,
            code => End::Failed { rank: 0, how: RankEnd::Exit(code) },
        };
        assert_eq!(ended(&executor, &launch.attempt).0, wanted);
    }
    // Nothing of them is left, not even what nobody has waited for.
    let nursery = crate::nursery::nursery_of(rustix::process::getpid()).unwrap();
    until("zombies", || crate::nursery::children(nursery).is_empty());
    assert!(
        find(&executor, &launches[0].attempt).is_some_and(|o| matches!(o.phase, Phase::Ended(_)))
    );
}
