//! What is Slurm's own: queues, GPUs, reasons of its own to end a job, and forgetting.

use std::fs;
use std::process::Command;
use std::time::Duration;

use falaj_executors::{End, Executor, Notice, Phase, SlurmExecutor, SlurmSettings};

use crate::engine::{
    Engine, Kind, ended, find, output, ranks, refused, run, says, script, tells_what_ranks_use,
    until,
};

fn settings() -> SlurmSettings {
    let conf = std::env::var_os("FALAJ_TEST_SLURM_CONF").map(Into::into);
    SlurmSettings { conf, ..Default::default() }
}

fn slurm(program: &str, words: &[&str]) -> String {
    let conf = std::env::var_os("FALAJ_TEST_SLURM_CONF").unwrap();
    let said = Command::new(program).args(words).env("SLURM_CONF", conf).output().unwrap();
    assert!(said.status.success(), "{program}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap()
}

fn job(engine: &Engine, launch: &falaj_executors::Launch) -> String {
    let path = engine.attempts().join(launch.attempt.as_str()).join("job");
    fs::read_to_string(path).unwrap()
}

/// On most clusters only the first process of a rank is signalled: it must pass on what it hears.
#[test]
fn a_rank_passes_signals_on_once() {
    let folder = tempfile::TempDir::new().unwrap();
    let here = folder.path().display().to_string();
    let job = "trap 'echo saved; exit 3' TERM; trap 'echo checkpoint' USR1; echo ready; \
               while :; do sleep 0.05; done";
    let launch = format!(
        "falaj_attempt=a\nfalaj_folder={here}\nfalaj_ranks=1\nfalaj_gpus_per_rank=0\n\
         falaj_wished_host=x\nfalaj_grace_ms=20000\nfalaj_gang_grace_ms=1000\n\
         falaj_time_limit=\nfalaj_command=(bash -c \"{job}\")\n"
    );
    fs::write(folder.path().join("launch.sh"), launch).unwrap();
    fs::write(folder.path().join("env"), "").unwrap();
    fs::write(folder.path().join("rank-0.env"), "").unwrap();
    fs::write(folder.path().join("child.sh"), include_str!("../../src/slurm/child.sh")).unwrap();
    fs::write(folder.path().join("rank.sh"), include_str!("../../src/slurm/rank.sh")).unwrap();
    let mut rank = Command::new("bash")
        .arg(folder.path().join("rank.sh"))
        .envs([("FALAJ_FOLDER", here.as_str()), ("SLURM_PROCID", "0"), ("FALAJ_PASS_ON", "1")])
        .spawn()
        .unwrap();
    let log = || fs::read_to_string(folder.path().join("rank-0.log")).unwrap_or_default();
    let pid = rustix::process::Pid::from_child(&rank);
    until("it does not start", || log().contains("ready"));
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    until("it is not passed on", || log().contains("checkpoint"));
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(rank.wait().unwrap().code(), Some(3));
    let said: Vec<String> =
        log().lines().filter(|line| *line != "Terminated").map(str::to_owned).collect();
    assert_eq!(said, ["ready", "checkpoint", "saved"]);
    let end = fs::read_to_string(folder.path().join("rank-0.end")).unwrap();
    assert!(end.starts_with("rank 0 exit 3 ") && end.ends_with("\ntold\n"), "{end}");
}

#[test]
fn gpus_are_shared_out_among_the_ranks_of_a_node() {
    let Some(engine) = Engine::of(Kind::Slurm) else { return };
    let executor = engine.executor();
    let mut gang = script("gpus", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $MASTER_ADDR");
    gang.ranks = ranks(4);
    for (rank, place) in gang.ranks.iter_mut().enumerate() {
        place.node = format!("wish-{}", rank / 2);
        place.gpus = vec![0, 1];
        // Where it was meant to be; Slurm has the last word.
        place.env.insert("MASTER_ADDR".to_owned(), "wish-0".to_owned());
    }
    assert_eq!(run(&*executor, &gang), End::Succeeded);
    let said: Vec<Vec<String>> = (0..4)
        .map(|rank| output(&*executor, &gang.attempt, rank))
        .map(|text| text.split_whitespace().map(str::to_owned).collect())
        .collect();
    for node in said.chunks(2) {
        assert_eq!(node[0][0], node[1][0], "two ranks of a node are apart: {said:?}");
        let mut gpus: Vec<&str> = node.iter().flat_map(|rank| rank[1].split(',')).collect();
        gpus.sort_unstable();
        gpus.dedup();
        assert_eq!(gpus.len(), 4, "GPUs are shared: {said:?}");
    }
    assert_ne!(said[0][0], said[2][0]);
    assert!(said.iter().all(|rank| rank[2] == said[0][0]), "{said:?}");
}

#[test]
fn ranks_of_a_node_see_its_gpus_if_they_share_them() {
    let Some(engine) = Engine::of(Kind::Slurm) else { return };
    let executor = engine.executor();
    let mut gang = script("shared", "echo $CUDA_VISIBLE_DEVICES");
    gang.ranks = ranks(2);
    for (rank, place) in (0..).zip(&mut gang.ranks) {
        "wish".clone_into(&mut place.node);
        place.gpus = vec![rank];
    }
    gang.shares_gpus = true;
    assert_eq!(run(&*executor, &gang), End::Succeeded);
    let said = [0, 1].map(|rank| output(&*executor, &gang.attempt, rank));
    assert_eq!(said[0].trim().split(',').count(), 2, "{said:?}");
    assert_eq!(said[0], said[1]);
}

#[test]
fn what_waits_says_why_and_can_be_stopped() {
    let Some(engine) = Engine::of(Kind::Slurm) else { return };
    let executor = engine.executor();
    let mut large = script("large", "true");
    large.limits.cpu_millis = 64_000;
    large.ranks = ranks(3);
    let mut blocker = script("blocker", "echo ready; sleep 600");
    blocker.limits.cpu_millis = 64_000;
    executor.launch(&blocker).unwrap();
    says(&*executor, &blocker.attempt, 0, "ready");
    executor.launch(&large).unwrap();
    until("no reason was given", || {
        let phase = find(&*executor, &large.attempt).unwrap().phase;
        matches!(&phase, Phase::Pending(Some(reason)) if reason.contains("Resources") || reason.contains("Priority"))
    });
    executor.tell(&large.attempt, Notice::Stop).unwrap();
    assert_eq!(ended(&*executor, &large.attempt).0, End::Stopped);
    executor.tell(&blocker.attempt, Notice::Kill).unwrap();
    assert_eq!(ended(&*executor, &blocker.attempt).0, End::Stopped);
}

#[test]
fn a_job_of_higher_rank_takes_its_place() {
    let Some(engine) = Engine::of(Kind::Slurm) else { return };
    let executor = engine.executor();
    // One that saves and ends well is still not done.
    let text = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let mut low = script("low", text);
    low.ranks = ranks(3);
    for place in &mut low.ranks {
        place.gpus = vec![0, 1, 2, 3];
    }
    executor.launch(&low).unwrap();
    says(&*executor, &low.attempt, 0, "ready");
    let partition = Some("high".to_owned());
    let urgent = SlurmExecutor::new(
        engine.folder.path().join("high"),
        SlurmSettings { partition, ..settings() },
    )
    .unwrap();
    let mut high = script("high", "echo high");
    high.ranks = ranks(3);
    for place in &mut high.ranks {
        place.gpus = vec![0];
    }
    urgent.launch(&high).unwrap();
    assert_eq!(ended(&*executor, &low.attempt).0, End::Preempted);
    assert_eq!(ended(&urgent, &high.attempt).0, End::Succeeded);
}

#[test]
fn what_others_cancel_is_lost() {
    let Some(engine) = Engine::of(Kind::Slurm) else { return };
    let executor = engine.executor();
    let launch = script("cancelled", "echo ready; sleep 600");
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    slurm("scancel", &[&job(&engine, &launch)]);
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Lost);
}

#[test]
fn a_submission_that_nobody_wrote_down_is_found_by_its_name() {
    let Some(engine) = Engine::of(Kind::Slurm) else { return };
    let ran = engine.folder.path().join("ran");
    let launch = script("unnoted", &format!("echo ran >>{}; sleep 1", ran.display()));
    engine.executor().launch(&launch).unwrap();
    let noted = job(&engine, &launch);
    // What a server leaves that dies between submitting and writing the id down.
    fs::remove_file(engine.attempts().join(launch.attempt.as_str()).join("job")).unwrap();
    let executor = engine.executor();
    executor.launch(&launch).unwrap();
    assert_eq!(job(&engine, &launch), noted);
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    assert_eq!(fs::read_to_string(&ran).unwrap(), "ran\n");
    assert_eq!(
        slurm("squeue", &["--noheader", "--states=all", "--name", launch.attempt.as_str()])
            .lines()
            .count(),
        1
    );
}

/// Should it come to two jobs all the same, one of them starts nothing.
#[test]
fn of_two_jobs_of_one_attempt_one_runs() {
    let Some(engine) = Engine::of(Kind::Slurm) else { return };
    let executor = engine.executor();
    let ran = engine.folder.path().join("ran");
    let launch = script("double", &format!("echo ran >>{}; sleep 1", ran.display()));
    executor.launch(&launch).unwrap();
    let folder = engine.attempts().join(launch.attempt.as_str());
    let again = [
        "--wait",
        &format!("--job-name={}", launch.attempt),
        &format!("--export=PATH,FALAJ_FOLDER={}", folder.display()),
        "--output=/dev/null",
        &folder.join("batch.sh").display().to_string(),
    ];
    slurm("sbatch", &again);
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    assert_eq!(fs::read_to_string(&ran).unwrap(), "ran\n");
}

#[test]
fn what_slurm_will_never_take_is_refused_and_leaves_nothing() {
    let Some(engine) = Engine::of(Kind::Slurm) else { return };
    let partition = Some("no-such-partition".to_owned());
    let executor =
        SlurmExecutor::new(engine.attempts(), SlurmSettings { partition, ..settings() }).unwrap();
    let what = refused(executor.launch(&script("nowhere", "true")));
    assert!(what.contains("partition"), "{what}");
    assert_eq!(executor.observe().unwrap(), []);
    let mut uneven = script("uneven", "true");
    uneven.ranks = ranks(3);
    uneven.ranks[1].node = uneven.ranks[0].node.clone();
    assert!(refused(engine.executor().launch(&uneven)).contains("equally many"));
}

#[test]
fn a_slurm_that_does_not_answer_is_away() {
    let Some(engine) = Engine::of(Kind::Slurm) else { return };
    let executor = engine.executor();
    let launch = script("away", "sleep 1; exit 0");
    executor.launch(&launch).unwrap();
    let programs = Some("/no/such/folder".into());
    let blind =
        SlurmExecutor::new(engine.attempts(), SlurmSettings { programs, ..settings() }).unwrap();
    assert!(matches!(blind.observe(), Err(falaj_executors::ExecutorError::Away(_))));
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    // What has ended is known without it.
    let again = SlurmExecutor::new(
        engine.attempts(),
        SlurmSettings { programs: Some("/no/such/folder".into()), ..settings() },
    );
    assert_eq!(ended(&again.unwrap(), &launch.attempt).0, End::Succeeded);
    executor.wait(Duration::from_millis(1));
}

#[test]
fn what_ranks_use_is_told() {
    tells_what_ranks_use(Kind::Slurm);
}
