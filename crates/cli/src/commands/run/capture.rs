//! What there is to know about a command before it runs: code, environment, host.
//!
//! Nothing is written to the repository, and what cannot be found out is left out and said.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::output::Output;

/// How long any question to another program may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// The largest difference from the commit that is kept, and the largest new file in it.
const MAX_PATCH: usize = 16 << 20;
const MAX_NEW_FILE: u64 = 1 << 20;
/// The most new files that are looked at.
const MAX_NEW_FILES: usize = 1000;

/// Settings of a person's own that would change how a difference is written.
const PLAIN_DIFF: [&str; 8] = [
    "-c",
    "diff.noprefix=false",
    "-c",
    "diff.mnemonicPrefix=false",
    "-c",
    "core.quotePath=true",
    "-c",
    "color.ui=false",
];

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Capture {
    pub(super) tags: Vec<(String, String)>,
    /// What differed from the commit.
    pub(super) patch: Option<Vec<u8>>,
    /// What was installed.
    pub(super) packages: Option<Vec<u8>>,
}

/// What to look at.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    /// Where the command will run.
    pub(super) folder: &'a Path,
    /// The interpreter whose packages are listed.
    pub(super) python: &'a str,
    pub(super) with_patch: bool,
    pub(super) with_packages: bool,
}

impl Capture {
    pub(super) async fn of(scene: &Scene<'_>, output: Output) -> Self {
        let mut found = Self::default();
        found.code(scene, output).await;
        found.environment(scene, output).await;
        found.host();
        found
    }

    fn tag(&mut self, name: &str, value: impl Into<String>) {
        self.tags.push((name.to_owned(), value.into()));
    }

    async fn code(&mut self, scene: &Scene<'_>, output: Output) {
        let git = Git(scene.folder.to_owned());
        let Some(top) = git.line(&["rev-parse", "--show-toplevel"]).await else {
            output.say("the code is not in a git repository: which code it is stays unknown");
            return;
        };
        let top = PathBuf::from(top);
        let inside = scene.folder.strip_prefix(&top).unwrap_or(Path::new(""));
        self.tag(
            "falaj.directory",
            if inside == Path::new("") { ".".to_owned() } else { inside.display().to_string() },
        );
        let git = Git(top.clone());
        let remote = git.line(&["config", "--get", "remote.origin.url"]).await;
        let repository =
            remote.map_or_else(|| top.display().to_string(), |url| without_secret(&url));
        self.tag("falaj.git.repository", repository.clone());
        self.tag("mlflow.source.git.repoURL", repository);
        if let Some(branch) = git.line(&["rev-parse", "--abbrev-ref", "HEAD"]).await {
            self.tag("falaj.git.branch", branch.clone());
            self.tag("mlflow.source.git.branch", branch);
        }
        let Some(commit) = git.line(&["rev-parse", "HEAD"]).await else {
            output.say("the repository has no commit yet: which code it is stays unknown");
            return;
        };
        self.tag("falaj.git.commit", commit.clone());
        self.tag("mlflow.source.git.commit", commit);
        let dirty = git.bytes(&["status", "--porcelain"], false).await;
        let dirty = dirty.is_some_and(|status| !status.is_empty());
        self.tag("falaj.git.dirty", dirty.to_string());
        if dirty && scene.with_patch {
            match git.patch().await {
                Some(patch) if patch.len() <= MAX_PATCH => self.patch = Some(patch),
                Some(_) => output.say("what differs from the commit is too much to keep"),
                None => output.say("what differs from the commit could not be read"),
            }
        }
    }

    async fn environment(&mut self, scene: &Scene<'_>, output: Output) {
        if !scene.with_packages {
            return;
        }
        let mut ask = Command::new(scene.python);
        ask.arg("--version").current_dir(scene.folder);
        let Some(version) = answer(ask, false).await else {
            output.say(&format!(
                "{} does not run: which packages there are stays unknown",
                scene.python
            ));
            return;
        };
        let version = String::from_utf8_lossy(&version);
        self.tag("falaj.python", version.trim().trim_start_matches("Python ").to_owned());
        let mut pip = Command::new(scene.python);
        pip.args(["-m", "pip", "freeze", "--disable-pip-version-check"]).current_dir(scene.folder);
        let mut uv = Command::new("uv");
        uv.args(["pip", "freeze", "--python", scene.python]).current_dir(scene.folder);
        self.packages = match answer(pip, false).await {
            Some(packages) => Some(packages),
            None => answer(uv, false).await,
        };
        if self.packages.is_none() {
            output.say("neither pip nor uv tells which packages there are");
        }
    }

    fn host(&mut self) {
        let name = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        self.tag("falaj.host", text(name.nodename()));
        let (system, release) = (text(name.sysname()), text(name.release()));
        self.tag("falaj.system", format!("{system} {release} {}", text(name.machine())));
    }
}

/// Questions to git in a folder.
struct Git(PathBuf);

impl Git {
    async fn bytes(&self, arguments: &[&str], differs: bool) -> Option<Vec<u8>> {
        let mut git = Command::new("git");
        git.args(PLAIN_DIFF).args(arguments).current_dir(&self.0);
        answer(git, differs).await
    }

    async fn line(&self, arguments: &[&str]) -> Option<String> {
        let bytes = self.bytes(arguments, false).await?;
        let text = String::from_utf8(bytes).ok()?;
        Some(text.trim_end_matches(['\n', '\r']).to_owned()).filter(|text| !text.is_empty())
    }

    /// Everything that differs from the commit, new files that are not ignored included, in a form
    /// that `git apply` takes.
    async fn patch(&self) -> Option<Vec<u8>> {
        let tracked =
            ["diff", "HEAD", "--binary", "--full-index", "--no-ext-diff", "--no-textconv"];
        let mut patch = self.bytes(&tracked, false).await?;
        let new = self.bytes(&["ls-files", "--others", "--exclude-standard", "-z"], false).await?;
        let names = new.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        for name in names.take(MAX_NEW_FILES) {
            let Ok(name) = std::str::from_utf8(name) else { continue };
            let small = std::fs::symlink_metadata(self.0.join(name))
                .is_ok_and(|facts| facts.len() <= MAX_NEW_FILE);
            if small && patch.len() <= MAX_PATCH {
                let added = [
                    "diff",
                    "--no-index",
                    "--binary",
                    "--full-index",
                    "--no-ext-diff",
                    "--no-textconv",
                    "--",
                    "/dev/null",
                    name,
                ];
                patch.extend(self.bytes(&added, true).await?);
            }
        }
        Some(patch)
    }
}

/// What a program prints, if it succeeds; one that compares says by 1 that there are differences.
async fn answer(mut command: Command, differs: bool) -> Option<Vec<u8>> {
    command.stdin(std::process::Stdio::null()).kill_on_drop(true);
    let done = tokio::time::timeout(PATIENCE, command.output()).await.ok()?.ok()?;
    let fine = done.status.success() || (differs && done.status.code() == Some(1));
    fine.then_some(done.stdout)
}

/// A URL without the name and password that may stand in it.
fn without_secret(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host = rest.find('/').unwrap_or(rest.len());
    match rest[..host].rfind('@') {
        Some(at) if scheme.starts_with("http") => format!("{scheme}://{}", &rest[at + 1..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_not_kept() {
        for (url, kept) in [
            ("https://token:x@github.com/a/b.git", "https://github.com/a/b.git"),
            ("https://github.com/a/b@c.git", "https://github.com/a/b@c.git"),
            ("ssh://git@github.com/a/b.git", "ssh://git@github.com/a/b.git"),
            ("git@github.com:a/b.git", "git@github.com:a/b.git"),
            ("/srv/code", "/srv/code"),
            ("http://u@h", "http://h"),
        ] {
            assert_eq!(without_secret(url), kept, "{url}");
        }
    }
}
