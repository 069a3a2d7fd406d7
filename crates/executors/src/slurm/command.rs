//! Running Slurm's programs: each for a bounded time, with an environment that is chosen.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::SlurmSettings;
use crate::ExecutorError;

/// How long one program may take.
const LONGEST: Duration = Duration::from_secs(30);
/// The most that is read of what it says.
const LARGEST: u64 = 64 << 20;

/// What a program said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) fine: bool,
    pub(super) output: String,
    pub(super) errors: String,
}

/// Runs a program of Slurm's with some words. Nothing of the user's is in its environment.
pub(super) fn run(
    settings: &SlurmSettings,
    program: &str,
    words: &[String],
    folder: Option<&Path>,
) -> Result<Said, ExecutorError> {
    let path = settings.programs.as_ref().map_or_else(|| program.into(), |at| at.join(program));
    let mut command = Command::new(&path);
    command.args(words).env_clear();
    for name in ["PATH", "HOME", "LANG", "USER", "LOGNAME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if let Some(conf) = &settings.conf {
        command.env("SLURM_CONF", conf);
    }
    if let Some(folder) = folder {
        command.env("FALAJ_FOLDER", folder);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let away = |error: &io::Error| ExecutorError::Away(format!("{}: {error}", path.display()));
    let mut child = command.spawn().map_err(|error| away(&error))?;
    let output = reader(child.stdout.take());
    let errors = reader(child.stderr.take());
    let ended = wait(&mut child).map_err(|error| away(&error))?;
    let text = |reader: Option<std::thread::JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let said = Said { fine: ended == Some(true), output: text(output), errors: text(errors) };
    match ended {
        None => Err(ExecutorError::Away(format!("{program} did not end within {LONGEST:?}"))),
        Some(_) => Ok(said),
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> Option<std::thread::JoinHandle<String>> {
    let pipe = pipe?;
    Some(std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.take(LARGEST).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }))
}

/// Whether it ended well; `None` if it had to be killed.
fn wait(child: &mut Child) -> io::Result<Option<bool>> {
    let until = Instant::now() + LONGEST;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
