//! `falaj run exec`: runs a command as a run.
//!
//! Must hold: the command runs whether or not the server answers while it does. Its output is
//! shown as it comes; what is kept of it lags behind and may be cut, with a word about it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::capture::{Capture, Scene};
use super::mlflow::Mlflow;
use crate::client::Client;
use crate::commands::{InProject, pair};
use crate::context::Context;
use crate::exit::{Failure, Result};

mod keep;

use keep::Keep;

/// A tag of a run holds no more than this; a longer command belongs into a script.
const MAX_COMMAND: usize = 7000;
/// How long output may still come from what the command left behind.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// How often ending the run is tried.
const TRIES: u32 = 5;

#[derive(Debug, Args)]
pub(super) struct Exec {
    #[command(flatten)]
    place: InProject,
    /// The experiment, by name; made if it is not there.
    #[arg(long, default_value = "Default")]
    experiment: String,
    /// The name of the run.
    #[arg(long)]
    name: Option<String>,
    /// The seed: given to the command as `FALAJ_SEED` and `PYTHONHASHSEED`, and kept.
    #[arg(long)]
    seed: Option<u32>,
    /// A tag as name=value; may be given several times.
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Do not keep what differs from the commit.
    #[arg(long)]
    no_patch: bool,
    /// Do not list the packages of the Python that runs it.
    #[arg(long)]
    no_packages: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Exec {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let folder = std::env::current_dir()?;
        let mlflow = Mlflow { client, place: &self.place };
        let scene = Scene {
            folder: &folder,
            python: python_of(&self.command),
            with_patch: !self.no_patch,
            with_packages: !self.no_packages,
        };
        let start = Start {
            experiment: mlflow.experiment(&self.experiment).await?,
            name: self.name.clone(),
            seed: self.seed.map(|seed| seed.to_string()),
            tags: self.tags.clone(),
            folder: &folder,
            command: &self.command,
            environment: Vec::new(),
            capture: Capture::of(&scene, ctx.output).await,
        };
        start.run(ctx, &mlflow).await
    }
}

/// The Python that a command runs, if it says so.
pub(super) fn python_of(command: &[String]) -> &str {
    let first = command.first().map_or("", String::as_str);
    let name = first.rsplit('/').next().unwrap_or_default();
    if name.starts_with("python") { first } else { "python3" }
}

/// A command about to be run.
pub(super) struct Start<'a> {
    /// The experiment's id.
    pub(super) experiment: String,
    pub(super) name: Option<String>,
    pub(super) seed: Option<String>,
    pub(super) tags: Vec<(String, String)>,
    pub(super) folder: &'a Path,
    pub(super) command: &'a [String],
    /// What the command's environment has beside ours.
    pub(super) environment: Vec<(String, String)>,
    pub(super) capture: Capture,
}

impl Start<'_> {
    /// Runs it to its end; a command that fails is a failure with its own exit code.
    pub(super) async fn run(mut self, ctx: &Context, mlflow: &Mlflow<'_>) -> Result<()> {
        let words = serde_json::to_string(self.command)
            .map_err(|error| Failure::failed(error.to_string()))?;
        if words.len() > MAX_COMMAND {
            return Err(Failure::usage(format!("the command is longer than {MAX_COMMAND} bytes"))
                .hint("put it into a script"));
        }
        let user = std::env::var("USER").unwrap_or_default();
        let tags = self.all_tags(words, &user);
        let info = mlflow.create_run(&self.experiment, self.name.as_deref(), &user, &tags).await?;
        let text = |field: &str| info[field].as_str().unwrap_or_default().to_owned();
        let (run, root) = (text("run_id"), artifact_root(&info));
        ctx.output.say(&format!(
            "run {run} ({}) of experiment {}",
            text("run_name"),
            self.experiment
        ));
        self.keep_files(ctx, mlflow, root.as_deref()).await;
        let status = match self.spawn(ctx, mlflow, &run) {
            Ok(child) => self.attend(ctx, mlflow, &run, child).await,
            Err(error) => {
                let name = self.command.first().map_or("", String::as_str);
                end(ctx, mlflow, &run, "FAILED").await;
                return Err(Failure::usage(format!("cannot run {name}: {error}")));
            }
        };
        let (word, code) = outcome(status?);
        end(ctx, mlflow, &run, word).await;
        ctx.output.say(&format!("run {run} ended: {word}"));
        if code == 0 { Ok(()) } else { Err(Failure::of_command(code)) }
    }

    fn all_tags(&mut self, words: String, user: &str) -> Vec<(String, String)> {
        let script = self.command.iter().find(|word| {
            let extension = Path::new(word.as_str()).extension();
            extension.is_some_and(|extension| extension == "py" || extension == "sh")
        });
        let source = script.or(self.command.first()).cloned().unwrap_or_default();
        let mut tags = std::mem::take(&mut self.capture.tags);
        tags.extend([
            ("falaj.command".to_owned(), words),
            ("mlflow.source.name".to_owned(), source),
            ("mlflow.source.type".to_owned(), "LOCAL".to_owned()),
        ]);
        if !user.is_empty() {
            tags.push(("mlflow.user".to_owned(), user.to_owned()));
        }
        if let Some(seed) = &self.seed {
            tags.push(("falaj.seed".to_owned(), seed.clone()));
        }
        tags.append(&mut self.tags);
        tags
    }

    async fn keep_files(&mut self, ctx: &Context, mlflow: &Mlflow<'_>, root: Option<&str>) {
        let files = [
            ("falaj/code.patch", self.capture.patch.take()),
            ("falaj/requirements.txt", self.capture.packages.take()),
        ];
        for (name, bytes) in files {
            let (Some(root), Some(bytes)) = (root, bytes) else { continue };
            if let Err(failure) = mlflow.put(&format!("{root}/{name}"), bytes).await {
                ctx.output.say(&format!("{name} was not kept: {}", failure.message()));
            }
        }
    }

    fn spawn(&self, ctx: &Context, mlflow: &Mlflow<'_>, run: &str) -> std::io::Result<Child> {
        let [program, arguments @ ..] = self.command else {
            return Err(std::io::Error::other("there is no command"));
        };
        let place = mlflow.place;
        let url = mlflow.client.url();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.folder)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("MLFLOW_TRACKING_URI", format!("{url}/t/{}/{}", place.place.tenant, place.project))
            .env("MLFLOW_RUN_ID", run)
            .env("MLFLOW_EXPERIMENT_ID", &self.experiment)
            .env("FALAJ_RUN_ID", run)
            // Output that waits in a buffer is no live log.
            .env("PYTHONUNBUFFERED", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(token) = &ctx.target().token {
            command.env("MLFLOW_TRACKING_TOKEN", token.expose());
        }
        if let Some(cacert) = &ctx.target().cacert {
            command.env("MLFLOW_TRACKING_SERVER_CERT_PATH", cacert);
        }
        if let Some(seed) = &self.seed {
            command.env("FALAJ_SEED", seed).env("PYTHONHASHSEED", seed);
        }
        command.spawn()
    }

    /// Shows and keeps what the command writes, passes signals on, and waits for its end.
    async fn attend(
        &self,
        ctx: &Context,
        mlflow: &Mlflow<'_>,
        run: &str,
        mut child: Child,
    ) -> Result<ExitStatus> {
        let keep = Keep::start(mlflow.client.clone(), mlflow.place.path(&["runs", run, "log"]));
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let pipes = [
            out.map(|pipe| tokio::spawn(tee(pipe, false, keep.sink()))),
            err.map(|pipe| tokio::spawn(tee(pipe, true, keep.sink()))),
        ];
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                // A terminal has told the command itself.
                _ = interrupt.recv() => {
                    if !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
                        pass_on(&child, rustix::process::Signal::INT);
                    }
                }
                _ = terminate.recv() => pass_on(&child, rustix::process::Signal::TERM),
                _ = hangup.recv() => pass_on(&child, rustix::process::Signal::HUP),
            }
        };
        for pipe in pipes.into_iter().flatten() {
            let stop = pipe.abort_handle();
            if tokio::time::timeout(AFTERWARDS, pipe).await.is_err() {
                stop.abort();
            }
        }
        if let Some(lost) = keep.finish().await {
            ctx.output.say(&lost);
        }
        Ok(status)
    }
}

fn pass_on(child: &Child, signal: rustix::process::Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        // It may have ended in this moment.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Copies output to our own, and to what keeps it.
async fn tee(mut pipe: impl AsyncRead + Unpin, to_stderr: bool, keep: keep::Sink) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        let bytes = &buffer[..count];
        // A reader of ours that has gone must not end the command.
        let _ = if to_stderr {
            std::io::stderr().write_all(bytes)
        } else {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        };
        keep.add(bytes);
    }
}

/// What MLflow calls such an end, and the exit code for our caller.
fn outcome(status: ExitStatus) -> (&'static str, u8) {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(0), _) => ("FINISHED", 0),
        // What a shell makes of a signal, as far as it can be told.
        (Some(code @ 129..=165), _) => ("KILLED", u8::try_from(code).unwrap_or(1)),
        (Some(code), _) => ("FAILED", u8::try_from(code).unwrap_or(1)),
        (None, Some(signal)) => ("KILLED", u8::try_from(128 + signal).unwrap_or(1)),
        (None, None) => ("FAILED", 1),
    }
}

async fn end(ctx: &Context, mlflow: &Mlflow<'_>, run: &str, status: &str) {
    for attempt in 1..=TRIES {
        match mlflow.end_run(run, status).await {
            Ok(()) => return,
            Err(failure) if attempt == TRIES => {
                let text = format!("run {run} is {status}, but the server does not know: ");
                ctx.output.say(&(text + failure.message()));
            }
            Err(_) => tokio::time::sleep(Duration::from_secs(1) * attempt).await,
        }
    }
}

/// Where the run's files lie, if the server keeps them.
fn artifact_root(info: &Value) -> Option<String> {
    let uri = info["artifact_uri"].as_str()?;
    let path = uri.strip_prefix("mlflow-artifacts:")?.trim_matches('/');
    Some(path.to_owned())
}

/// The path of the folder that a relative path names below another; none if it leads out of it.
pub(super) fn below(folder: &Path, relative: &str) -> Option<PathBuf> {
    use std::path::Component::{CurDir, Normal};
    let relative = Path::new(relative);
    let inside = relative.components().all(|part| matches!(part, Normal(_) | CurDir));
    inside.then(|| folder.join(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_files_lie_and_which_python() {
        let info = serde_json::json!({ "artifact_uri": "mlflow-artifacts:/1/r/artifacts" });
        assert_eq!(artifact_root(&info).as_deref(), Some("1/r/artifacts"));
        assert_eq!(artifact_root(&serde_json::json!({ "artifact_uri": "s3://b/x" })), None);
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(python_of(&words("./venv/bin/python3.12 x.py")), "./venv/bin/python3.12");
        assert_eq!(python_of(&words("bash run.sh")), "python3");
    }

    #[test]
    fn a_folder_leads_nowhere_else() {
        let top = Path::new("/code");
        assert_eq!(below(top, "."), Some(PathBuf::from("/code/.")));
        assert_eq!(below(top, "a/b"), Some(PathBuf::from("/code/a/b")));
        for bad in ["..", "a/../..", "/etc"] {
            assert_eq!(below(top, bad), None, "{bad}");
        }
    }
}
