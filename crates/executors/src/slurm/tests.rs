//! Against programs that only seem to be Slurm's, for what a real one does not do when it is asked to.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use falaj_base::Secret;
use tempfile::TempDir;

use std::time::Instant;

use super::*;
use crate::{Limits, RankPlace};

/// Programs that say what files say, and write down what they were called with.
struct Slurm {
    folder: TempDir,
    executor: SlurmExecutor,
}

impl Slurm {
    fn new(missing: Duration) -> Self {
        let folder = TempDir::new().unwrap();
        let here = folder.path().display().to_string();
        for program in ["sbatch", "squeue", "scancel"] {
            let path = folder.path().join(program);
            let text = format!(
                "#!/bin/sh\necho \"$*\" >>{here}/{program}.called\nenv >>{here}/{program}.env\n\
                 cat {here}/{program}.says 2>/dev/null\ncat {here}/{program}.errs >&2 2>/dev/null\n\
                 test ! -e {here}/{program}.errs\n"
            );
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let settings =
            SlurmSettings { programs: Some(folder.path().to_owned()), ..Default::default() };
        let mut executor = SlurmExecutor::new(folder.path().join("attempts"), settings).unwrap();
        executor.missing = missing;
        Self { folder, executor }
    }

    fn set(&self, file: &str, text: &str) {
        fs::write(self.folder.path().join(file), text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }

    fn launched(&self) -> AttemptId {
        let launch = launch();
        self.set("sbatch.says", "17\n");
        self.executor.launch(&launch).unwrap();
        launch.attempt
    }

    fn phase(&self) -> Phase {
        self.executor.observe().unwrap().remove(0).phase
    }
}

fn launch() -> Launch {
    Launch {
        attempt: AttemptId::new("job-1").unwrap(),
        name: "job".to_owned(),
        command: vec!["true".to_owned()],
        image: None,
        slice: None,
        folder: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        ranks: vec![RankPlace { node: "n1".to_owned(), gpus: Vec::new(), env: BTreeMap::new() }],
        shares_gpus: false,
        limits: Limits::default(),
        grace: Duration::from_secs(1),
        gang_grace: Duration::from_secs(1),
    }
}

const RUNNING: &str = "17|job-1|RUNNING|None\n";

#[test]
fn what_is_seen_again_is_not_odd_any_more() {
    let slurm = Slurm::new(Duration::from_millis(400));
    slurm.launched();
    for _ in 0..2 {
        slurm.set("squeue.says", "");
        assert!(!matches!(slurm.phase(), Phase::Ended(_)));
        std::thread::sleep(Duration::from_millis(300));
        slurm.set("squeue.says", RUNNING);
        assert!(!matches!(slurm.phase(), Phase::Ended(_)));
        assert!(slurm.executor.ends.nothing_is_odd());
    }
    assert_eq!(slurm.read("scancel.called"), "");
}

#[test]
fn what_is_given_up_is_cancelled_first() {
    let slurm = Slurm::new(Duration::ZERO);
    slurm.launched();
    slurm.set("scancel.errs", "scancel: error: Unable to contact slurm controller\n");
    assert!(!matches!(slurm.phase(), Phase::Ended(_)), "it may still run");
    fs::remove_file(slurm.folder.path().join("scancel.errs")).unwrap();
    assert_eq!(slurm.phase(), Phase::Ended(End::Lost));
    assert_eq!(slurm.read("scancel.called"), "17\n17\n");
}

#[test]
fn only_what_can_never_work_is_refused() {
    for (said, never) in [
        ("Batch job submission failed: Invalid partition name specified", true),
        ("Batch job submission failed: Requested node configuration is not available", true),
        (
            "Batch job submission failed: Invalid account or account/partition combination specified",
            true,
        ),
        ("Memory specification can not be satisfied", true),
        ("Batch job submission failed: Protocol authentication error", false),
        ("Munge encode failed: Failed to access \"/run/munge/munge.socket.2\"", false),
        (
            "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            false,
        ),
        ("Batch job submission failed: Socket timed out on send/recv operation", false),
        ("something that nobody has heard of", false),
        ("", false),
    ] {
        let slurm = Slurm::new(Duration::ZERO);
        slurm.set("sbatch.errs", &format!("sbatch: error: {said}\n"));
        match slurm.executor.launch(&launch()) {
            Err(ExecutorError::Refused(_)) => assert!(never, "{said}"),
            Err(ExecutorError::Away(_)) => assert!(!never, "{said}"),
            other => panic!("{said}: {other:?}"),
        }
    }
}

#[test]
fn nothing_of_the_users_is_in_the_environment_of_programs() {
    let slurm = Slurm::new(Duration::ZERO);
    let mut launch = launch();
    for name in ["PATH", "LD_PRELOAD", "SLURM_CONF", "SBATCH_PARTITION", "TOKEN"] {
        launch.secrets.insert(name.to_owned(), Secret::new("not-to-be-shown"));
    }
    launch.env.insert("BASH_ENV".to_owned(), "not-to-be-shown".to_owned());
    slurm.set("sbatch.says", "17\n");
    slurm.executor.launch(&launch).unwrap();
    let seen = slurm.read("sbatch.env") + &slurm.read("sbatch.called");
    assert!(seen.contains("FALAJ_FOLDER"), "{seen}");
    assert!(!seen.contains("not-to-be-shown") && !seen.contains("TOKEN"), "{seen}");
    let file = slurm.executor.folder.of(&launch.attempt).join(script::SECRETS);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Should the job never come to read it.
    assert_eq!(slurm.phase(), Phase::Ended(End::Lost));
    assert!(!file.exists());
}

#[test]
fn nothing_but_a_number_is_taken_for_a_job() {
    let slurm = Slurm::new(Duration::from_mins(1));
    let attempt = slurm.launched();
    let folder = slurm.executor.folder.of(&attempt);
    for odd in ["--me", "17 --me", "", "1234567890123456789012345"] {
        let _ = fs::remove_file(folder.join(OWNER));
        let _ = symlink(odd, folder.join(OWNER));
        assert_eq!(SlurmExecutor::job_id(&folder).as_deref(), Some("17"), "{odd}");
    }
    fs::write(folder.join(JOB), "--me").unwrap();
    assert_eq!(SlurmExecutor::job_id(&folder), None);
    symlink("/etc/hostname", folder.join("other")).unwrap();
    fs::rename(folder.join("other"), folder.join(JOB)).unwrap();
    assert_eq!(SlurmExecutor::job_id(&folder), None);
}

/// What Slurm has to say of it is waited for, and not by asking all the time.
#[test]
fn an_end_that_waits_for_its_reason_is_looked_at_calmly() {
    let slurm = Slurm::new(Duration::from_mins(1));
    let attempt = slurm.launched();
    slurm.set("squeue.says", RUNNING);
    let folder = slurm.executor.folder.of(&attempt);
    fs::write(folder.join(shared::STARTED), "1").unwrap();
    fs::write(folder.join(shared::EXIT), "rank 0 signal 9 10\nended 11\n").unwrap();
    assert_eq!(slurm.phase(), Phase::Running);
    let begun = Instant::now();
    slurm.executor.wait(Duration::from_secs(5));
    assert!(begun.elapsed() > Duration::from_millis(300), "{:?}", begun.elapsed());
    slurm.set("squeue.says", "17|job-1|PREEMPTED|None\n");
    assert_eq!(slurm.phase(), Phase::Ended(End::Preempted));
}
