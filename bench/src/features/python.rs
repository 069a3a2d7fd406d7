//! Programs of others, run from the environments that `bench/features/setup` makes.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

const READY_WITHIN: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_millis(100);

/// The folder of the environments, and of the data.
#[derive(Clone, Debug)]
pub(super) struct Environments(pub(super) PathBuf);

impl Environments {
    /// The Python of one of them; none, and said so, if it is not there.
    pub(super) fn python(&self, name: &str) -> Option<PathBuf> {
        let python = self.0.join(name).join("bin/python");
        if python.is_file() {
            return Some(python);
        }
        println!("  {name}: not measured, {} is not there", python.display());
        None
    }

    /// The tables, made if they are not there yet.
    pub(super) fn data(&self) -> Result<PathBuf> {
        let folder = self.0.join("data");
        if !folder.join("whole").is_file() {
            let python = self.python("engines").context("bench/features/setup makes it")?;
            run(&python, "data.py", [&folder])?;
        }
        Ok(folder)
    }
}

/// What a program says that it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    /// Seconds of all processors.
    pub(super) cpu: f64,
    pub(super) wall: f64,
    /// The most memory, in megabytes.
    pub(super) peak: f64,
}

impl Took {
    pub(super) fn read(text: &str) -> Result<Self> {
        let line = text.lines().last().unwrap_or_default();
        let told: Value = serde_json::from_str(line).with_context(|| text.to_owned())?;
        let number = |name: &str| told[name].as_f64().with_context(|| format!("no {name}: {told}"));
        Ok(Self { cpu: number("cpu")?, wall: number("wall")?, peak: number("peak")? })
    }
}

/// Runs a script of `bench/features` to its end; returns what it printed.
pub(super) fn run(
    python: &Path,
    script: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<String> {
    let done = command(python, script).args(arguments).stderr(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{script}: {}\n{said}", done.status);
    Ok(String::from_utf8(done.stdout)?)
}

fn command(python: &Path, script: &str) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("features").join(script);
    let mut command = Command::new(python);
    command
        .arg(script)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("FEAST_USAGE", "false")
        .stdin(Stdio::null());
    command
}

/// A server that is ended with what it started.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    child: Child,
    folder: TempDir,
}

impl Peer {
    pub(super) fn redis() -> Result<Self> {
        Self::start("redis-server", |folder, port| {
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--port", port]);
            command.arg("--dir").arg(folder);
            command
        })
    }

    /// `feast serve` on that Redis, as it is shipped.
    pub(super) fn feast(python: &Path, redis: &Self) -> Result<Self> {
        let store = redis.address.port().to_string();
        Self::start("feast serve", |folder, port| {
            let mut command = command(python, "feast_online.py");
            command.arg("serve").arg(folder).args([&store, port]);
            command
        })
    }

    fn start(name: &str, command: impl FnOnce(&Path, &str) -> Command) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("falaj-bench-features-").tempdir()?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = command(folder.path(), &address.port().to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let mut peer = Self { address, child, folder };
        let until = Instant::now() + READY_WITHIN;
        while TcpStream::connect(address).is_err() {
            let log = || std::fs::read_to_string(peer.folder.path().join("log"));
            if let Some(status) = peer.child.try_wait()? {
                bail!("{name} ended: {status}\n{}", log()?);
            }
            ensure!(Instant::now() < until, "{name} is not ready\n{}", log()?);
            sleep(POLL);
        }
        Ok(peer)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The group: some servers start processes of their own.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}
