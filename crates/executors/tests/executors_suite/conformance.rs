//! What every executor promises.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use falaj_base::Secret;
use falaj_executors::{AttemptId, End, ExecutorError, Notice, Phase, RankEnd};

use crate::engine::{Engine, ended, find, name, output, ranks, refused, run, says, script};

macro_rules! on_every_engine {
    // The last ones only where jobs can reach the folder of their attempt.
    ($($test:ident),* $(,)?; beside: $($beside:ident),* $(,)?) => {
        on_every_engine!(@ local Local: $($test,)* $($beside),*);
        on_every_engine!(@ slurm Slurm: $($test,)* $($beside),*);
        on_every_engine!(@ ray Ray: $($test,)* $($beside),*);
        on_every_engine!(@ kubernetes Kubernetes: $($test),*);
    };
    (@ $module:ident $kind:ident: $($test:ident),*) => {
        mod $module {
            use crate::engine::{Engine, Kind};
            $(
                #[test]
                fn $test() {
                    if let Some(engine) = Engine::of(Kind::$kind) {
                        super::$test(&engine);
                    }
                }
            )*
        }
    };
}

on_every_engine!(
    it_runs_and_tells_how_it_ended,
    a_gang_has_an_environment_for_each_rank,
    a_failed_rank_ends_the_gang,
    a_stop_leaves_time_to_save,
    a_stop_ends_in_a_kill,
    a_kill_waits_for_nothing,
    the_time_limit_is_kept,
    a_checkpoint_is_asked_for_and_it_goes_on,
    launched_twice_it_runs_once,
    a_new_executor_finds_what_an_old_one_started,
    secrets_are_seen_inside_alone,
    what_is_forgotten_is_gone,
    what_cannot_start_says_why,
    its_environment_is_its_own,
    ;
    beside:
    what_a_job_does_to_its_folder_concerns_nobody_else,
);

const STUBBORN: &str = "trap '' TERM; echo ready; while :; do sleep 0.1; done";

fn it_runs_and_tells_how_it_ended(engine: &Engine) {
    let executor = engine.executor();
    let fine = script("fine", "printf 0123456789; printf abc >&2");
    let bad = script("bad", "echo \"$GREETING\"; exit 7");
    let mut bad = bad;
    // As it is: nothing between here and there may read it.
    bad.env.insert("GREETING".to_owned(), "it's \"$HOME\" `x`\nand a line".to_owned());
    executor.launch(&fine).unwrap();
    executor.launch(&bad).unwrap();
    let (end, observed) = ended(&*executor, &fine.attempt);
    assert_eq!(end, End::Succeeded);
    assert!(observed.started.unwrap() <= observed.ended.unwrap(), "{observed:?}");
    let (end, _) = ended(&*executor, &bad.attempt);
    assert_eq!(end, End::Failed { rank: 0, how: RankEnd::Exit(7) });
    assert_eq!(output(&*executor, &bad.attempt, 0), "it's \"$HOME\" `x`\nand a line\n");

    let part = |from, most| executor.output(&fine.attempt, 0, from, most).unwrap();
    assert_eq!(part(0, 100), b"0123456789abc");
    assert_eq!(part(3, 4), b"3456");
    assert_eq!(part(13, 100), b"");
    assert_eq!(part(1000, 100), b"");
    assert_eq!(executor.output_part(&fine.attempt, 0, 3, 100).unwrap().at, 3);
}

fn a_gang_has_an_environment_for_each_rank(engine: &Engine) {
    let executor = engine.executor();
    let mut gang =
        script("gang", "echo rank=$RANK all=$ALL own=$OWN falaj=$FALAJ_RANK/$FALAJ_ATTEMPT");
    gang.ranks = ranks(3);
    gang.env.insert("ALL".to_owned(), "shared".to_owned());
    gang.env.insert("OWN".to_owned(), "weaker".to_owned());
    gang.ranks[2].env.insert("OWN".to_owned(), "it's own".to_owned());
    assert_eq!(run(&*executor, &gang), End::Succeeded);
    for rank in 0..3 {
        let own = if rank == 2 { "it's own" } else { "weaker" };
        let said = output(&*executor, &gang.attempt, rank);
        let wanted = format!("rank={rank} all=shared own={own} falaj={rank}/{}\n", gang.attempt);
        assert_eq!(said, wanted);
    }
    assert_eq!(output(&*executor, &gang.attempt, 3), "");
}

fn a_failed_rank_ends_the_gang(engine: &Engine) {
    let executor = engine.executor();
    let text = format!("if [ $RANK = 1 ]; then sleep 1; date +%s%3N; exit 3; fi; {STUBBORN}");
    let mut gang = script("failing", &text);
    gang.ranks = ranks(3);
    executor.launch(&gang).unwrap();
    let (end, observed) = ended(&*executor, &gang.attempt);
    assert_eq!(end, End::Failed { rank: 1, how: RankEnd::Exit(3) });
    let failed: u64 = output(&*executor, &gang.attempt, 1).trim().parse().unwrap();
    let took = observed.ended.unwrap().saturating_sub(failed);
    assert!(took <= 5_000, "the others went on for {took} ms");
}

fn a_stop_leaves_time_to_save(engine: &Engine) {
    let executor = engine.executor();
    let text = "trap 'sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let launch = script("saving", text);
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    assert_eq!(find(&*executor, &launch.attempt).unwrap().phase, Phase::Running);
    executor.tell(&launch.attempt, Notice::Stop).unwrap();
    executor.tell(&launch.attempt, Notice::Stop).unwrap();
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Stopped);
    // The shell may have a word of its own between them.
    let said = output(&*executor, &launch.attempt, 0);
    assert!(said.starts_with("ready\n") && said.ends_with("saved\n"), "{said}");
    executor.tell(&launch.attempt, Notice::Stop).unwrap();
}

fn a_stop_ends_in_a_kill(engine: &Engine) {
    let executor = engine.executor();
    let mut launch = script("stubborn", STUBBORN);
    launch.grace = Duration::from_secs(2);
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    let told = Instant::now();
    executor.tell(&launch.attempt, Notice::Stop).unwrap();
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Stopped);
    let took = told.elapsed();
    assert!((2..12).contains(&took.as_secs()), "{took:?}");
}

fn a_kill_waits_for_nothing(engine: &Engine) {
    let executor = engine.executor();
    let mut launch = script("killed", STUBBORN);
    launch.grace = Duration::from_mins(10);
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    let told = Instant::now();
    executor.tell(&launch.attempt, Notice::Kill).unwrap();
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Stopped);
    assert!(told.elapsed() < Duration::from_secs(12), "{:?}", told.elapsed());
}

fn the_time_limit_is_kept(engine: &Engine) {
    let executor = engine.executor();
    let mut launch = script("slow", "echo ready; sleep 600");
    launch.limits.time = Some(Duration::from_secs(2));
    launch.grace = Duration::from_secs(1);
    executor.launch(&launch).unwrap();
    let (end, observed) = ended(&*executor, &launch.attempt);
    assert_eq!(end, End::TimedOut);
    let ran = observed.ended.unwrap() - observed.started.unwrap();
    assert!((1_500..12_000).contains(&ran), "it ran for {ran} ms");
}

fn a_checkpoint_is_asked_for_and_it_goes_on(engine: &Engine) {
    let executor = engine.executor();
    let text = "trap 'echo checkpoint' USR1; echo ready; while :; do sleep 0.1; done";
    let launch = script("checkpoint", text);
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    executor.tell(&launch.attempt, Notice::Checkpoint).unwrap();
    says(&*executor, &launch.attempt, 0, "checkpoint");
    assert_eq!(find(&*executor, &launch.attempt).unwrap().phase, Phase::Running);
    executor.tell(&launch.attempt, Notice::Kill).unwrap();
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Stopped);
}

fn launched_twice_it_runs_once(engine: &Engine) {
    let executor = engine.executor();
    let ran = engine.folder.path().join("ran");
    // Where its files cannot be seen, its output says how often it ran.
    let also =
        if engine.shares_files() { format!(" | tee -a {}", ran.display()) } else { String::new() };
    let launch = script("once", &format!("echo ran{also}; sleep 1"));
    executor.launch(&launch).unwrap();
    executor.launch(&launch).unwrap();
    engine.executor().launch(&launch).unwrap();
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    executor.launch(&launch).unwrap();
    engine.executor().launch(&launch).unwrap();
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    assert_eq!(output(&*executor, &launch.attempt, 0), "ran\n");
    if engine.shares_files() {
        assert_eq!(fs::read_to_string(ran).unwrap(), "ran\n");
    }
}

fn a_new_executor_finds_what_an_old_one_started(engine: &Engine) {
    let old = engine.executor();
    let running = script("going-on", "echo before; sleep 4; echo after; exit 5");
    let done = script("done", "echo all; exit 0");
    old.launch(&running).unwrap();
    old.launch(&done).unwrap();
    says(&*old, &running.attempt, 0, "before");
    drop(old);
    let new = engine.executor();
    assert_eq!(find(&*new, &running.attempt).unwrap().phase, Phase::Running);
    assert_eq!(ended(&*new, &done.attempt).0, End::Succeeded);
    assert_eq!(output(&*new, &done.attempt, 0), "all\n");
    let end = ended(&*new, &running.attempt).0;
    assert_eq!(end, End::Failed { rank: 0, how: RankEnd::Exit(5) });
    assert_eq!(output(&*new, &running.attempt, 0), "before\nafter\n");
    drop(new);
    let newest = engine.executor();
    assert_eq!(ended(&*newest, &running.attempt).0, end);
}

fn secrets_are_seen_inside_alone(engine: &Engine) {
    let executor = engine.executor();
    let value = format!("s3cret'\"\n{}", name("value"));
    let mut launch = script(
        "secret",
        "printf %s \"$TOKEN\" | sha256sum | cut -c1-16; tr '\\0' '\\n' </proc/$PPID/cmdline; sleep 1",
    );
    launch.secrets.insert("TOKEN".to_owned(), Secret::new(value.clone()));
    launch.ranks = ranks(2);
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 1, "\n");
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    let digest = output(&*executor, &launch.attempt, 0);
    assert_eq!(digest.lines().next(), output(&*executor, &launch.attempt, 1).lines().next());
    assert_ne!(digest.lines().next(), Some("e3b0c44298fc1c14"), "it was empty");
    let last_line = value.lines().last().unwrap();
    let mut files = 0;
    walk(engine.folder.path(), &mut |path, bytes| {
        files += 1;
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(last_line), "{} holds the secret", path.display());
    });
    assert!(files > 2, "nothing was looked at");
}

fn walk(folder: &Path, see: &mut impl FnMut(&Path, &[u8])) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            walk(&path, see);
        } else if kind.is_file() {
            see(&path, &fs::read(&path).unwrap());
        }
    }
}

fn what_is_forgotten_is_gone(engine: &Engine) {
    let executor = engine.executor();
    let launch = script("gone", "echo ready; sleep 2");
    executor.launch(&launch).unwrap();
    says(&*executor, &launch.attempt, 0, "ready");
    assert!(refused(executor.forget(&launch.attempt)).contains("has not ended"));
    assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded);
    executor.forget(&launch.attempt).unwrap();
    executor.forget(&launch.attempt).unwrap();
    assert_eq!(find(&*executor, &launch.attempt), None);
    assert_eq!(find(&*engine.executor(), &launch.attempt), None);
    let unknown = |attempt: &AttemptId| {
        let told = executor.tell(attempt, Notice::Stop);
        assert!(matches!(told, Err(ExecutorError::Unknown(_))), "{told:?}");
        let read = executor.output(attempt, 0, 0, 1);
        assert!(matches!(read, Err(ExecutorError::Unknown(_))), "{read:?}");
    };
    unknown(&launch.attempt);
    unknown(&name("never"));
    executor.forget(&name("never")).unwrap();
}

fn what_cannot_start_says_why(engine: &Engine) {
    let executor = engine.executor();
    let mut launch = script("missing", "");
    launch.command = vec!["/no/such/program".to_owned()];
    launch.ranks = ranks(2);
    let end = run(&*executor, &launch);
    let End::Failed { rank, how: RankEnd::NotStarted } = end else { panic!("{end:?}") };
    assert!(output(&*executor, &launch.attempt, rank).contains("/no/such/program"));

    let mut container = script("container", "true");
    // No image where programs are started, and no name of one where images are.
    container.image = Some("a busybox".to_owned());
    assert!(refused(executor.launch(&container)).contains("a busybox"));
    let mut empty = script("empty", "true");
    empty.command.clear();
    assert!(refused(executor.launch(&empty)).contains("command"));
    let mut nobody = script("nobody", "true");
    nobody.ranks.clear();
    assert!(refused(executor.launch(&nobody)).contains("ranks"));
    let mut odd = script("odd", "true");
    odd.env.insert("A-B".to_owned(), String::new());
    assert!(refused(executor.launch(&odd)).contains("A-B"));
    let mut many = script("many", "true");
    many.ranks = ranks(u32::try_from(falaj_executors::MOST_RANKS).unwrap() + 1);
    assert!(refused(executor.launch(&many)).contains("ranks"));
    assert_eq!(executor.observe().unwrap().len(), 1);

    // The same is told before anything is to be started.
    for never in [&container, &empty, &nobody, &odd, &many] {
        assert_eq!(executor.refuses(never), Some(refused(executor.launch(never))));
    }
    assert_eq!(executor.refuses(&launch), None);
}

/// Every file of an attempt that the server reads, on whichever engine.
const FILES: &str = "rank-0.log exit exit.json end.json state.json launch.json started-at job waiting \
                     control submitted";

fn what_a_job_does_to_its_folder_concerns_nobody_else(engine: &Engine) {
    let executor = engine.executor();
    let outside = engine.folder.path().join("outside");
    fs::write(&outside, "not-to-be-read").unwrap();
    let outside = outside.display();
    let each = |what: &str| {
        format!("for f in {FILES}; do rm -f ../$f; {what}; done; echo >ready; sleep 2; echo over")
    };
    let odd = [
        script("links", &each(&format!("ln -s {outside} ../$f"))),
        script("pipes", &each("mkfifo ../$f")),
        script("folders", &each("mkdir -p ../$f/full")),
        script("closed", &each("echo x >../$f; chmod 000 ../$f")),
        script("shut", "echo >ready; chmod 000 ..; sleep 2"),
    ];
    let fine = script("fine", "sleep 4; echo fine");
    odd.iter().chain([&fine]).for_each(|launch| executor.launch(launch).unwrap());
    for launch in &odd {
        let ready = engine.attempts().join(launch.attempt.as_str()).join("work/ready");
        crate::engine::until("it does not run", || ready.exists());
        let begun = Instant::now();
        let found = executor.observe().unwrap();
        assert_eq!(found.len(), odd.len() + 1, "{found:?}");
        let said = executor.output(&launch.attempt, 0, 0, 1 << 20).unwrap();
        let part = executor.output_part(&launch.attempt, 0, 0, 1 << 20).unwrap();
        executor.usage(&launch.attempt).unwrap();
        executor.tell(&launch.attempt, Notice::Checkpoint).unwrap();
        for bytes in [said, part.bytes] {
            assert!(!String::from_utf8_lossy(&bytes).contains("not-to-be-read"), "{launch:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "something waited: {launch:?}");
    }
    assert_eq!(ended(&*executor, &fine.attempt).0, End::Succeeded);
    for launch in &odd {
        executor.tell(&launch.attempt, Notice::Kill).unwrap();
        ended(&*executor, &launch.attempt);
        executor.forget(&launch.attempt).unwrap();
    }
    assert_eq!(fs::read_to_string(outside.to_string()).unwrap(), "not-to-be-read");
    assert_eq!(executor.observe().unwrap().len(), 1);
}

/// Names that mean something to what starts a rank mean it to the rank alone.
fn its_environment_is_its_own(engine: &Engine) {
    let executor = engine.executor();
    let text = "echo $here/$rank/$log/$folder/$command/$falaj_one/$FALAJ_FOLDER/$FALAJ_SECRET_0; \
                echo $SECRET_NAME; echo $PATH; exit 6";
    let mut launch = script("names", text);
    "/bin/bash".clone_into(&mut launch.command[0]);
    for name in ["here", "rank", "log", "folder", "command", "FALAJ_FOLDER"] {
        launch.env.insert(name.to_owned(), name.to_uppercase());
    }
    // Without any program that a script would need.
    launch.env.insert("PATH".to_owned(), "/no/such/folder".to_owned());
    launch.env.insert("SLURM_CONF".to_owned(), "/no/such/conf".to_owned());
    for name in ["LD_PRELOAD", "SECRET_NAME"] {
        launch.secrets.insert(name.to_owned(), Secret::new("hidden"));
    }
    let end = run(&*executor, &launch);
    let said = output(&*executor, &launch.attempt, 0);
    assert_eq!(end, End::Failed { rank: 0, how: RankEnd::Exit(6) }, "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| !line.contains("ld.so")).collect();
    assert_eq!(lines, ["HERE/RANK/LOG/FOLDER/COMMAND//FALAJ_FOLDER/", "hidden", "/no/such/folder"]);
}
