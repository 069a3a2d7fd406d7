//! `falaj run replay`: how to do a run again, printed or done.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use aws_lc_rs::digest::{SHA256, digest};
use clap::Args;
use falaj_base::hex;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::capture::{Capture, Scene};
use super::exec::{Start, below, python_of};
use super::mlflow::Mlflow;
use crate::client::Client;
use crate::commands::{InProject, Sure};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result, file_error};
use crate::output::printable;

/// The largest patch that is fetched.
const MAX_PATCH: usize = 64 << 20;
/// Ways to fetch code that run no command of their own.
const PROTOCOLS: &str = "file:git:http:https:ssh";

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// Its id.
    run: String,
    #[command(flatten)]
    place: InProject,
    /// Do it: fetch the code, make the environment, run the command as a new run.
    #[arg(long)]
    start: bool,
    /// The folder to do it in, which must not be there yet; `replay-` and the run if absent.
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// Use the environment there is instead of making the one on record.
    #[arg(long)]
    no_env: bool,
    #[command(flatten)]
    sure: Sure,
}

/// What a recipe says, as far as doing it again needs it.
#[derive(Debug)]
struct Recipe {
    command: Vec<String>,
    directory: String,
    repository: Option<String>,
    commit: Option<String>,
    patch: Option<String>,
    patch_sha256: Option<String>,
    requirements: Option<String>,
    seed: Option<String>,
    experiment: String,
    missing: Vec<String>,
}

impl Replay {
    pub(super) fn starts(&self) -> bool {
        self.start
    }

    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let found = client.get(&self.place.path(&["runs", &self.run, "recipe"])).await?;
        let recipe = Recipe::read(&found)?;
        let folder =
            self.into.clone().unwrap_or_else(|| PathBuf::from(format!("replay-{}", self.run)));
        if !self.start {
            if ctx.output.is_json() {
                return ctx.output.json(&found);
            }
            return ctx.output.text(&printable(&self.script(&recipe, &folder), true));
        }
        if recipe.command.is_empty() {
            return Err(Failure::failed("the command of this run is not on record").hint(
                "`falaj run exec` records it; `falaj run replay` without --start shows the rest",
            ));
        }
        ctx.output.say(&printable(&self.script(&recipe, &folder), true));
        confirm(self.sure.yes, "Running what this run recorded", &self.run).await?;
        self.again(ctx, client, &recipe, &folder).await
    }

    /// The steps as a shell script.
    fn script(&self, recipe: &Recipe, folder: &Path) -> String {
        let mut lines = vec![format!("# How to do run {} again.", self.run)];
        if !recipe.missing.is_empty() {
            lines.push(format!("# Not on record: {}.", recipe.missing.join(", ")));
        }
        lines.push("set -eu".to_owned());
        let place = format!("-t {} -p {}", self.place.place.tenant, self.place.project);
        let top = folder.display().to_string();
        if let (Some(repository), Some(commit)) = (&recipe.repository, &recipe.commit) {
            lines.push(format!(
                "git clone {} {}",
                quoted(repository),
                quoted(&format!("{top}/code"))
            ));
            lines.push(format!("cd {}", quoted(&format!("{top}/code"))));
            lines.push(format!("git checkout --detach {}", quoted(commit)));
            // Only in the clone: anywhere else it would change somebody's files.
            if let Some(patch) = &recipe.patch {
                let uri = quoted(&format!("mlflow-artifacts:/{patch}"));
                lines.push(format!("mlflow artifacts download -u {uri} -d .."));
                lines.push("git apply --binary ../code.patch".to_owned());
            }
        }
        if let Some(requirements) = &recipe.requirements {
            lines.push("python3 -m venv ../venv && . ../venv/bin/activate".to_owned());
            let quoted = quoted(requirements.trim_end());
            lines.push(format!("printf '%s\\n' {quoted} > ../requirements.txt"));
            lines.push("pip install -r ../requirements.txt".to_owned());
        }
        if !matches!(recipe.directory.as_str(), "." | "") {
            lines.push(format!("cd {}", quoted(&recipe.directory)));
        }
        if !recipe.command.is_empty() {
            let words: Vec<String> = recipe.command.iter().map(|word| quoted(word)).collect();
            let seed = recipe
                .seed
                .as_ref()
                .map_or(String::new(), |seed| format!(" --seed {}", quoted(seed)));
            lines.push(format!("falaj run exec {place}{seed} -- {}", words.join(" ")));
        }
        lines.join("\n")
    }

    async fn again(
        &self,
        ctx: &Context,
        client: &Client,
        recipe: &Recipe,
        folder: &Path,
    ) -> Result<()> {
        let mlflow = Mlflow { client, place: &self.place };
        std::fs::create_dir(folder).map_err(file_error("make", folder))?;
        let folder = folder.canonicalize().map_err(file_error("find", folder))?;
        let code = self.fetch_code(ctx, &mlflow, recipe, &folder).await?;
        let mut environment = Vec::new();
        if let (Some(requirements), false) = (&recipe.requirements, self.no_env) {
            let bin = make_environment(ctx, requirements, &folder).await?;
            let path = std::env::var("PATH").unwrap_or_default();
            environment.push(("PATH".to_owned(), format!("{}:{path}", bin.display())));
            environment.push(("VIRTUAL_ENV".to_owned(), folder.join("venv").display().to_string()));
        }
        let inside = below(&code, &recipe.directory).ok_or_else(|| {
            Failure::failed(format!(
                "the recorded folder {:?} leads out of the code",
                recipe.directory
            ))
        })?;
        let command = with_python(&recipe.command, environment.is_empty().then_some(()), &folder);
        let scene = Scene {
            folder: &inside,
            python: python_of(&command),
            with_patch: true,
            with_packages: true,
        };
        let start = Start {
            experiment: recipe.experiment.clone(),
            name: None,
            seed: recipe.seed.clone(),
            tags: vec![("falaj.replay_of".to_owned(), self.run.clone())],
            folder: &inside,
            command: &command,
            environment,
            capture: Capture::of(&scene, ctx.output).await,
        };
        start.run(ctx, &mlflow).await
    }

    async fn fetch_code(
        &self,
        ctx: &Context,
        mlflow: &Mlflow<'_>,
        recipe: &Recipe,
        folder: &Path,
    ) -> Result<PathBuf> {
        let code = folder.join("code");
        let (Some(repository), Some(commit)) = (&recipe.repository, &recipe.commit) else {
            return Err(Failure::failed("which code it was is not on record"));
        };
        let (code_text, folder_text) = (code.display().to_string(), folder.display().to_string());
        git(&folder_text, &["clone", "--no-checkout", "--", repository, &code_text], None).await?;
        git(&code_text, &["checkout", "--detach", "--quiet", commit, "--"], None).await?;
        if let Some(path) = &recipe.patch {
            let patch = mlflow.get(path, MAX_PATCH).await?;
            let sum = hex(digest(&SHA256, &patch).as_ref());
            if recipe.patch_sha256.as_ref().is_some_and(|expected| *expected != sum) {
                let text = "the recorded changes to the code are not what was stored";
                return Err(Failure::new(Exit::Verification, text));
            }
            git(&code_text, &["apply", "--binary", "-"], Some(patch)).await?;
        } else if recipe.missing.iter().any(|what| what == "changes to the code") {
            ctx.output.say("warning: the code differed from its commit, and how is not on record");
        }
        Ok(code)
    }
}

impl Recipe {
    fn read(found: &Value) -> Result<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(text).collect()
        };
        let commit = text(&found["code"]["commit"]);
        let is_commit = |commit: &String| {
            (7..=64).contains(&commit.len()) && commit.bytes().all(|b| b.is_ascii_hexdigit())
        };
        if let Some(bad) = commit.as_ref().filter(|commit| !is_commit(commit)) {
            return Err(Failure::failed(format!("the recorded commit {bad:?} is none")));
        }
        let repository = text(&found["code"]["repository"]);
        if let Some(bad) = repository.as_ref().filter(|url| url.starts_with('-')) {
            return Err(Failure::failed(format!("the recorded repository {bad:?} is none")));
        }
        let files = found["environment"].as_array().into_iter().flatten();
        let mut requirements = files.filter(|file| {
            file["path"].as_str().is_some_and(|path| path.ends_with("requirements.txt"))
        });
        Ok(Self {
            command: texts(&found["command"]),
            directory: text(&found["directory"]).unwrap_or_else(|| ".".to_owned()),
            repository,
            commit,
            patch: text(&found["code"]["patch"]),
            patch_sha256: text(&found["code"]["patch_sha256"]),
            requirements: requirements.next().and_then(|file| text(&file["text"])),
            seed: text(&found["seed"]),
            experiment: text(&found["experiment_id"]).unwrap_or_default(),
            missing: texts(&found["missing"]),
        })
    }
}

/// A Python that was named by a path of another machine is the one of the new environment.
fn with_python(command: &[String], as_it_is: Option<()>, folder: &Path) -> Vec<String> {
    let mut command = command.to_vec();
    if let (None, Some(first)) = (as_it_is, command.first_mut()) {
        let name = first.rsplit('/').next().unwrap_or_default();
        if name.starts_with("python") {
            *first = folder.join("venv/bin/python").display().to_string();
        }
    }
    command
}

/// Makes an environment with the recorded packages; gives the folder of its programs.
async fn make_environment(ctx: &Context, requirements: &str, folder: &Path) -> Result<PathBuf> {
    ctx.output.say("making the environment");
    let file = folder.join("requirements.txt");
    std::fs::write(&file, requirements).map_err(file_error("write", &file))?;
    let venv = folder.join("venv");
    let bin = venv.join("bin");
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&venv);
    done(make, None).await?;
    let mut install = Command::new(bin.join("python"));
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(&file);
    done(install, None).await?;
    Ok(bin)
}

async fn git(folder: &str, arguments: &[&str], input: Option<Vec<u8>>) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["-c", "advice.detachedHead=false"]).args(arguments).current_dir(folder);
    git.env("GIT_ALLOW_PROTOCOL", PROTOCOLS).env("GIT_TERMINAL_PROMPT", "0");
    done(git, input).await
}

/// Runs a program to its end; its own words are shown.
async fn done(mut command: Command, input: Option<Vec<u8>>) -> Result<()> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    // Our stdout carries what was asked for, and this is talk.
    let talk = rustix::io::dup(std::io::stderr()).map_err(std::io::Error::from)?;
    command.stdout(Stdio::from(talk)).kill_on_drop(true);
    let failed = |error: std::io::Error| Failure::failed(format!("cannot run {name}: {error}"));
    let mut child = command.spawn().map_err(failed)?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        pipe.write_all(&input).await.map_err(failed)?;
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() { Ok(()) } else { Err(Failure::failed(format!("{name} failed: {status}"))) }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_quoted() {
        for (word, shown) in [
            ("a.py", "a.py"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("$(x)", "'$(x)'"),
        ] {
            assert_eq!(quoted(word), shown, "{word}");
        }
    }

    #[test]
    fn a_recipe_cannot_smuggle_options() {
        let recipe = |commit: &str, repository: &str| json!({ "code": { "commit": commit, "repository": repository }, "command": ["x"] });
        assert!(Recipe::read(&recipe("0123456789abcdef", "https://h/x")).is_ok());
        assert!(Recipe::read(&recipe("--upload-pack=x", "https://h/x")).is_err());
        assert!(Recipe::read(&recipe("0123456789abcdef", "--upload-pack=x")).is_err());
    }
}
