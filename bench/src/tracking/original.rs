//! The real MLflow server as it is shipped: `mlflow server` with a database and nothing else set.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process;

/// It imports a great deal before it listens.
const READY_WITHIN: Duration = Duration::from_mins(5);
const POLL: Duration = Duration::from_millis(200);
/// Processor time within a second, in seconds, of a server that has nothing to do.
const IDLE: f64 = 0.1;
/// How long it has nothing to do before it is taken to be up.
const SECONDS_IDLE: usize = 4;

pub(crate) struct Original {
    python: PathBuf,
    database: String,
    address: SocketAddr,
    child: Child,
    folder: TempDir,
}

impl Original {
    pub(crate) async fn start(python: &Path, database: Option<String>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("falaj-bench-mlflow-").tempdir()?;
        let database = match database {
            // SQLAlchemy knows the engine by this name only.
            Some(url) => url.replacen("postgres://", "postgresql+psycopg2://", 1),
            None => format!("sqlite:///{}", folder.path().join("mlflow.db").display()),
        };
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = Command::new(python)
            .args(["-m", "mlflow", "server", "--backend-store-uri", &database])
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .current_dir(folder.path())
            .env("MLFLOW_DISABLE_TELEMETRY", "true")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", python.display()))?;
        let mut server = Self { python: python.to_owned(), database, address, child, folder };
        server.await_ready().await?;
        server.await_idle().await?;
        Ok(server)
    }

    /// It answers long before its job runners have started, which take both processors meanwhile.
    async fn await_idle(&self) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        let mut idle = 0;
        while Instant::now() < until {
            let before = process::tree(self.pid()).and_then(|tree| process::cpu_seconds(&tree));
            tokio::time::sleep(Duration::from_secs(1)).await;
            let after = process::tree(self.pid()).and_then(|tree| process::cpu_seconds(&tree));
            // A process that ended in between is one more that is not idle yet.
            let used = before.and_then(|before| Ok(after? - before)).unwrap_or(f64::MAX);
            idle = if used.abs() < IDLE { idle + 1 } else { 0 };
            if idle == SECONDS_IDLE {
                return Ok(());
            }
        }
        bail!("mlflow server is still busy after {READY_WITHIN:?}")
    }

    async fn await_ready(&mut self) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                bail!("mlflow server ended: {status}\n{}", self.log());
            }
            if healthy(self.address).await.unwrap_or(false) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("mlflow server is not ready after {READY_WITHIN:?}\n{}", self.log())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs `mlflow/load.py` on its database.
    pub(crate) fn load(&self, arguments: &[&str]) -> Result<()> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("mlflow/load.py");
        let done = Command::new(&self.python)
            .arg(script)
            .arg(&self.database)
            .args(arguments)
            .stdin(Stdio::null())
            .output()?;
        ensure!(done.status.success(), "load.py: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }
}

async fn healthy(address: SocketAddr) -> Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}

impl Drop for Original {
    fn drop(&mut self) {
        // The group, because the server starts workers of its own.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}
