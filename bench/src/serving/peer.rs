//! The other servers, each from an environment that `bench/serving/setup` made.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::models::{Model, scripts};
use super::target::{Target, ask};
use crate::process;

const READY_WITHIN: Duration = Duration::from_mins(3);
const ENDED_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);

/// A server, the environment and script it is started from, and what we want to be faster by.
pub(super) struct Kind {
    pub(super) name: &'static str,
    folder: &'static str,
    pub(super) at_least: f64,
}

pub(super) const KINDS: &[Kind] = &[
    Kind { name: "FastAPI", folder: "fastapi", at_least: 7.0 },
    Kind { name: "MLServer", folder: "mlserver", at_least: 25.0 },
    Kind { name: "KServe", folder: "kserve", at_least: 25.0 },
    Kind { name: "Triton", folder: "triton", at_least: 3.0 },
];

pub(super) struct Peer {
    pub(super) kind: &'static Kind,
    address: SocketAddr,
    child: Child,
    folder: TempDir,
}

impl Peer {
    /// None if its environment is not there.
    pub(super) fn start(
        kind: &'static Kind,
        environments: &Path,
        models: &Path,
    ) -> Result<Option<Self>> {
        let python = environments.join(kind.folder).join("bin/python");
        if !python.is_file() {
            println!("  {}: not measured, {} is not there", kind.name, python.display());
            return Ok(None);
        }
        let folder = tempfile::Builder::new().prefix("falaj-bench-peer-").tempdir()?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = Command::new(&python)
            .arg(scripts().join(format!("{}_server.py", kind.folder)))
            .arg(models)
            .arg(address.port().to_string())
            .current_dir(folder.path())
            // What it writes goes with it.
            .env("TMPDIR", folder.path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", python.display()))?;
        let mut peer = Self { kind, address, child, folder };
        peer.await_ready()?;
        Ok(Some(peer))
    }

    fn await_ready(&mut self) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended: {status}\n{}", self.kind.name, self.log());
            }
            if self.healthy().unwrap_or(false) {
                return Ok(());
            }
            sleep(POLL);
        }
        bail!("{} is not ready after {READY_WITHIN:?}\n{}", self.kind.name, self.log())
    }

    fn healthy(&self) -> Result<bool> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let request = format!("GET /v2/health/ready HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        Ok(ask(&mut stream, request.as_bytes(), &mut Vec::new())?.status == 200)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(super) fn target(&self, model: &Model) -> Result<Target> {
        Target::new(self.kind.name, self.address, self.child.id(), None, (&model.name, model))
    }

    /// Resident memory of all its processes, in megabytes.
    pub(super) fn resident(&self) -> Result<f64> {
        process::resident(&process::tree(self.child.id())?)
    }

    /// To its group, since some servers start processes of their own.
    fn signal(&self, signal: &str) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args([signal, "--", &group]).status();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Triton keeps shared memory that only it removes.
        self.signal("-TERM");
        let until = Instant::now() + ENDED_WITHIN;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            sleep(POLL);
        }
        self.signal("-KILL");
        let _ = self.child.wait();
    }
}
