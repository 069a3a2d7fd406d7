//! The nursery: that nothing depends on its life, and that nothing stays in it.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use falaj_base::Secret;
use falaj_executors::{AttemptId, End, Executor, LocalExecutor, Phase, RankEnd};
use rustix::process::{Pid, Signal, getpgid, getpid, kill_process};

use crate::engine::{Engine, Kind, ended, find, local, name, output, run, says, script, until};

const FOLDER: &str = "FALAJ_TEST_NURSERY_IN";

fn engine() -> (Engine, LocalExecutor) {
    let engine = Engine::of(Kind::Local).unwrap();
    let executor = local(&engine.attempts());
    (engine, executor)
}

/// The children of a process, over all its threads.
pub(crate) fn children(of: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let lists = threads
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let ids: Vec<String> = lists.collect();
    let ids = ids.iter().flat_map(|list| list.split_ascii_whitespace());
    ids.map(|id| Pid::from_raw(id.parse().unwrap()).unwrap()).collect()
}

/// The nursery that a process has started, once it is one.
pub(crate) fn nursery_of(process: Pid) -> Option<Pid> {
    let named = |pid: &Pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    children(process).into_iter().find(|pid| named(pid) == "falaj-nursery\n")
}

fn nursery() -> Pid {
    nursery_of(getpid()).expect("there is a nursery once something was launched")
}

fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).unwrap();
    until("it does not die", || !is_alive(pid));
}

fn files(process: Pid) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// What a forked shim is: the leader of a session, with the attempt's files and nothing of the nursery's.
#[test]
fn a_shim_is_on_its_own() {
    let (_engine, executor) = engine();
    let text = "echo comm=$(cat /proc/$PPID/comm); echo session=$(cut -d' ' -f6 /proc/$PPID/stat); \
                echo shim=$PPID; echo cwd=$(readlink /proc/$PPID/cwd); \
                for fd in /proc/$PPID/fd/*; do echo fd ${fd##*/} $(readlink $fd); done; \
                echo above=$(cut -d' ' -f4 /proc/$PPID/stat); ls -l /proc/self/fd";
    let launch = script("alone", text);
    assert_eq!(run(&executor, &launch), End::Succeeded);
    let said = output(&executor, &launch.attempt, 0);
    let value = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {name} in {said}")).to_owned()
    };
    assert_eq!(value("comm"), "falaj-shim");
    assert_eq!(value("session"), value("shim"));
    assert_eq!(value("cwd"), "/");
    let nursery = nursery();
    assert_eq!(value("above"), nursery.to_string());
    // Who interrupts this process does not interrupt the nursery.
    assert_eq!(getpgid(Some(nursery)).unwrap(), nursery);
    let open: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("fd ")).collect();
    assert!(open.len() >= 4, "{said}");
    for (number, end) in
        [("0 ", "/memfd:falaj (deleted)"), ("1 ", "/shim.log"), ("2 ", "/shim.log")]
    {
        assert!(open.iter().any(|fd| fd.starts_with(number) && fd.ends_with(end)), "{said}");
    }
    let own = format!("/{}/", launch.attempt);
    for fd in &open {
        let (_, target) = fd.split_once(' ').unwrap();
        let fine = target.contains(&own)
            || target.starts_with("/memfd:falaj")
            || target.contains("pidfd")
            || target.is_empty();
        assert!(fine, "{fd} is open in a shim");
    }
    let of_rank: Vec<&str> =
        said.lines().filter_map(|line| Some(line.split_once(" -> ")?.1)).collect();
    assert!(of_rank.len() >= 3, "{said}");
    for fd in of_rank {
        let fine = fd.contains(&own) || fd == "/dev/null" || fd.starts_with("/proc/");
        assert!(fine, "{fd} is open in a rank");
    }
}

#[test]
fn a_nursery_that_was_killed_is_replaced() {
    let (engine, executor) = engine();
    let running = script("before", "echo ready; until [ -e go ]; do sleep 0.02; done; exit 3");
    executor.launch(&running).unwrap();
    says(&executor, &running.attempt, 0, "ready");
    let first = nursery();
    kill(first);
    assert_eq!(run(&executor, &script("after", "exit 4")), failed(4));
    let second = nursery();
    assert_ne!(first, second);
    // It was waited for, and what the first one had started goes on.
    assert!(!std::path::Path::new(&format!("/proc/{first}")).exists());
    let work = engine.attempts().join(running.attempt.as_str()).join("work");
    fs::write(work.join("go"), "").unwrap();
    assert_eq!(ended(&executor, &running.attempt).0, failed(3));
    drop(executor);
    until("a nursery is left", || !is_alive(second));
}

fn failed(code: i32) -> End {
    End::Failed { rank: 0, how: RankEnd::Exit(code) }
}

/// Asked, and no answer: it may have been started, so it counts as launched. It was not, so it is lost.
#[test]
fn a_nursery_that_dies_while_it_is_asked_leaves_a_lost_attempt() {
    let (engine, executor) = engine();
    assert_eq!(run(&executor, &script("first", "true")), End::Succeeded);
    let nursery = nursery();
    kill_process(nursery, Signal::STOP).unwrap();
    let launch = script("asked", "true");
    std::thread::scope(|scope| {
        let launching = scope.spawn(|| executor.launch(&launch));
        let mark = engine.attempts().join(launch.attempt.as_str()).join("shim.log");
        until("it is not claimed", || mark.exists());
        // Time to ask; if it were too short, it would be launched by another one, and the test fails.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!launching.is_finished(), "nobody has answered");
        kill(nursery);
        launching.join().unwrap().unwrap();
    });
    assert_eq!(ended(&executor, &launch.attempt).0, End::Lost);
    assert_eq!(ended(&*engine.executor(), &launch.attempt).0, End::Lost);
    assert_eq!(run(&executor, &script("next", "true")), End::Succeeded);
}

#[test]
fn nothing_is_left_of_many_launches() {
    const JOBS: usize = 500;
    const AT_ONCE: usize = 25;
    let (_engine, executor) = engine();
    assert_eq!(run(&executor, &script("first", "true")), End::Succeeded);
    let (own, nursery) = (files(getpid()), nursery());
    let (mut launched, mut done) = (0, HashSet::new());
    let until_then = Instant::now() + Duration::from_mins(3);
    while done.len() < JOBS {
        while launched < JOBS && launched - done.len() < AT_ONCE {
            let mut launch = script("short", "");
            launch.command = vec!["true".to_owned()];
            executor.launch(&launch).unwrap();
            launched += 1;
        }
        executor.wait(Duration::from_millis(200));
        for observed in executor.observe().unwrap() {
            if let Phase::Ended(end) = observed.phase {
                assert_eq!(end, End::Succeeded, "{}", observed.attempt);
                executor.forget(&observed.attempt).unwrap();
                // The first one too, and nobody counts it.
                if observed.attempt.as_str().starts_with("short") {
                    done.insert(observed.attempt);
                }
            }
        }
        assert!(Instant::now() < until_then, "{} of {JOBS}", done.len());
    }
    assert_eq!(nursery, crate::nursery::nursery(), "it was replaced");
    assert_eq!(files(nursery), 3);
    assert_eq!(files(getpid()), own);
    until("zombies", || children(nursery).is_empty());
    assert_eq!(children(getpid()), [nursery]);
}

/// Whether some bytes are anywhere in the memory of a process that it can write to.
fn holds(process: Pid, what: &[u8]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{process}/mem")).unwrap();
    let writable = maps.lines().filter(|line| line.contains(" rw"));
    let mut found = false;
    for line in writable {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (mut at, end) = (number(from), number(to));
        let mut bytes = vec![0; 1 << 20];
        while at < end {
            let most = usize::try_from((end - at).min(bytes.len() as u64)).unwrap();
            let Ok(count @ 1..) = memory.read_at(&mut bytes[..most], at) else { break };
            found |= bytes[..count].windows(what.len()).any(|window| window == what);
            at += count as u64;
        }
    }
    found
}

#[test]
fn secrets_go_through_the_nursery_unread() {
    let (_engine, executor) = engine();
    // Made of parts, so that this program does not have it in one.
    let value = format!("s3cret-{}-{}", name("of"), std::process::id());
    let mut launch = script("secret", "printf %s \"$TOKEN\" | wc -c");
    launch.secrets.insert("TOKEN".to_owned(), Secret::new(value.clone()));
    assert_eq!(run(&executor, &launch), End::Succeeded);
    assert_eq!(output(&executor, &launch.attempt, 0).trim(), value.len().to_string());
    let nursery = nursery();
    assert!(!holds(nursery, value.as_bytes()));
    // That one can find things like this: its environment is there.
    let path = std::env::var("PATH").unwrap();
    assert!(holds(nursery, path.as_bytes()), "nothing is found in its memory");
    for file in fs::read_dir(format!("/proc/{nursery}/fd")).unwrap().flatten() {
        let target = fs::read_link(file.path()).unwrap();
        assert!(!target.display().to_string().contains("memfd"), "{}", target.display());
    }
    let environment = fs::read(format!("/proc/{nursery}/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("TOKEN"));
}

/// Not a test: the server that is killed. The test below starts it.
#[test]
fn killed_server() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let executor = local(&folder.join("attempts"));
    executor.launch(&going_on()).unwrap();
    std::thread::sleep(Duration::from_mins(2));
}

fn going_on() -> falaj_executors::Launch {
    let mut launch =
        script("going-on", "echo before; until [ -e go ]; do sleep 0.02; done; echo after; exit 5");
    launch.attempt = AttemptId::new("going-on").unwrap();
    launch
}

#[test]
fn shims_outlive_the_server_and_its_nursery() {
    for also_the_nursery in [false, true] {
        let engine = Engine::of(Kind::Local).unwrap();
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "nursery::killed_server", "--nocapture"])
            .env(FOLDER, engine.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let launch = going_on();
        let work = engine.attempts().join("going-on/work");
        until("it is not started", || work.exists());
        let nursery = nursery_of(Pid::from_child(&server)).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        if also_the_nursery {
            // It may have gone by itself.
            let _ = kill_process(nursery, Signal::KILL);
        }
        until("the nursery stays", || !is_alive(nursery));

        let executor = engine.executor();
        says(&*executor, &launch.attempt, 0, "before");
        assert_eq!(find(&*executor, &launch.attempt).unwrap().phase, Phase::Running);
        // Launching it again finds it.
        executor.launch(&launch).unwrap();
        fs::write(work.join("go"), "").unwrap();
        assert_eq!(ended(&*executor, &launch.attempt).0, failed(5));
        assert_eq!(output(&*executor, &launch.attempt, 0), "before\nafter\n");
    }
}
