//! Killing the process that launches, at any moment.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use falaj_executors::{AttemptId, End, Executor, Launch};

use crate::engine::{Engine, Kind, ended, find, local, script};

const FOLDER: &str = "FALAJ_TEST_LAUNCH_IN";
const ATTEMPTS: usize = 40;

/// A job that leaves one line each time it runs.
fn job(folder: &std::path::Path, number: usize) -> Launch {
    let ran = folder.join(format!("ran-{number}"));
    let mut launch =
        script("crash", &format!("echo ran >>{}; sleep 0.05; echo done", ran.display()));
    launch.attempt = AttemptId::new(format!("crash-{number}")).unwrap();
    launch
}

/// Not a test: the process that is killed. The test below starts it.
#[test]
fn launching_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let executor = local(&folder.join("attempts"));
    for number in 0..ATTEMPTS {
        executor.launch(&job(&folder, number)).unwrap();
        // What it knows to have been launched must be there afterwards.
        fs::write(folder.join(format!("launched-{number}")), "").unwrap();
    }
    std::thread::sleep(Duration::from_mins(1));
}

/// Wherever it is killed: what it had launched is found and runs to its end; nothing runs twice; and
/// what it had not launched is launched by the next.
#[test]
fn whenever_it_is_killed_each_attempt_runs_once() {
    let mut cut_short = 0;
    for millis in [1, 5, 9, 14, 20, 27, 35, 45, 60, 80, 110, 150] {
        let engine = Engine::of(Kind::Local).unwrap();
        let folder = engine.folder.path().to_owned();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::launching_process", "--nocapture"])
            .env(FOLDER, &folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = || folder.join("attempts").exists();
        while !begun() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(millis));
        process.kill().unwrap();
        process.wait().unwrap();

        let executor = engine.executor();
        let launched: Vec<bool> = (0..ATTEMPTS)
            .map(|number| folder.join(format!("launched-{number}")).exists())
            .collect();
        cut_short += usize::from(launched.contains(&true) && launched.contains(&false));
        for (number, launched) in launched.iter().enumerate() {
            let launch = job(&folder, number);
            if *launched {
                assert!(find(&*executor, &launch.attempt).is_some(), "attempt {number} is unknown");
            }
            executor.launch(&launch).unwrap();
        }
        for number in 0..ATTEMPTS {
            let launch = job(&folder, number);
            assert_eq!(ended(&*executor, &launch.attempt).0, End::Succeeded, "attempt {number}");
            let ran = fs::read_to_string(folder.join(format!("ran-{number}"))).unwrap();
            assert_eq!(ran, "ran\n", "attempt {number} ran more than once");
            assert_eq!(executor.output(&launch.attempt, 0, 0, 100).unwrap(), b"done\n");
        }
    }
    assert!(cut_short > 0, "it was never killed in the middle");
}
