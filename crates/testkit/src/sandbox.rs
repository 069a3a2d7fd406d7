//! A real `falaj serve` in a child process, on a free loopback port and in a temporary folder.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reqwest::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::Client;

/// A port that was free can be taken before the server binds it; another one is tried then.
const START_ATTEMPTS: usize = 3;
const POLL: Duration = Duration::from_millis(10);

/// How to start the server. The default is what `falaj serve` does with nothing configured.
#[derive(Clone, Debug)]
pub struct Setup {
    binary: Option<PathBuf>,
    database_url: Option<String>,
    data_dir: Option<PathBuf>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    ready_within: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            binary: None,
            database_url: None,
            data_dir: None,
            environment: Vec::new(),
            arguments: Vec::new(),
            ready_within: Duration::from_mins(1),
        }
    }
}

impl Setup {
    /// Runs another program, which takes the same arguments.
    #[must_use]
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Keeps metadata in PostgreSQL instead of SQLite.
    #[must_use]
    pub fn database_url(mut self, url: impl Into<String>) -> Self {
        self.database_url = Some(url.into());
        self
    }

    /// Keeps data in a folder of the caller's, which survives the sandbox.
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    #[must_use]
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.ready_within = limit;
        self
    }

    pub async fn start(self) -> Result<Sandbox> {
        let home = Arc::new(tempfile::Builder::new().prefix("falaj-sandbox-").tempdir()?);
        let data_dir = self.data_dir.clone().unwrap_or_else(|| home.path().join("data"));
        let mut attempt = 1;
        loop {
            let mut sandbox = Sandbox {
                setup: self.clone(),
                data_dir: data_dir.clone(),
                address: free_address()?,
                child: None,
                log: home.path().join("server.log"),
                quiet: false,
                _home: Arc::clone(&home),
            };
            match sandbox.begin().await {
                Ok(()) => return Ok(sandbox),
                Err(_) if attempt < START_ATTEMPTS && sandbox.port_was_taken() => {
                    sandbox.quiet = true;
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A running (or killed) server. Dropping it kills it.
#[derive(Debug)]
pub struct Sandbox {
    setup: Setup,
    data_dir: PathBuf,
    address: SocketAddr,
    child: Option<Child>,
    log: PathBuf,
    quiet: bool,
    _home: Arc<TempDir>,
}

impl Sandbox {
    /// A server with nothing configured.
    pub async fn start() -> Result<Self> {
        Setup::default().start().await
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The first admin's token, as an operator would read it.
    pub fn admin_token(&self) -> Result<String> {
        let path = self.data_dir.join("admin.token");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        Ok(text.trim().to_owned())
    }

    /// A client that acts as the first admin.
    pub fn admin(&self) -> Result<Client> {
        Client::new(self.url(), Some(self.admin_token()?))
    }

    /// A client without a credential.
    pub fn anonymous(&self) -> Result<Client> {
        Client::new(self.url(), None)
    }

    /// Everything the server wrote to stderr, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Whether the process is still there.
    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// `kill -9`: no chance to finish anything.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().context("killing the server")?;
            child.wait().context("waiting for the killed server")?;
        }
        Ok(())
    }

    /// Stops the process where it stands, without ending it.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGTERM, and waits for the drain.
    pub async fn terminate(&mut self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().transpose()) {
                self.child = None;
                return Ok(status?);
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("the server was still running {} s after SIGTERM", within.as_secs())
    }

    /// Starts a killed or terminated server again, on the same port and data.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.begin().await
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the server is not running")?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    async fn begin(&mut self) -> Result<()> {
        self.child = Some(self.spawn()?);
        let health = Client::new(self.url(), None)?;
        let deadline = Instant::now() + self.setup.ready_within;
        loop {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().transpose()) {
                self.child = None;
                bail!("the server ended while starting ({}); its log:\n{}", status?, self.tail());
            }
            let ready = health.get("/health/ready").await;
            if ready.is_ok_and(|answer| answer.status == StatusCode::OK) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let waited = self.setup.ready_within.as_secs();
                bail!("the server was not ready after {waited} s; its log:\n{}", self.tail());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn spawn(&self) -> Result<Child> {
        let binary = self.setup.binary.clone().map_or_else(binary, Ok)?;
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&binary);
        without_settings(&mut command);
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["--listen", &self.address.to_string()])
            // Nobody shares out requests among sandboxes; a test that does says so.
            .env("FALAJ_SERVER_DRAIN_GRACE", "0s");
        if let Some(url) = &self.setup.database_url {
            command.args(["--database-url", url]);
        }
        command
            .args(&self.setup.arguments)
            .envs(self.setup.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))
    }

    fn port_was_taken(&self) -> bool {
        self.log().to_lowercase().contains("address already in use")
            || self.log().to_lowercase().contains("address in use")
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.kill();
        if std::thread::panicking() && !self.quiet {
            // nextest shows a failed test's stderr; the server's side of the story belongs there.
            #[allow(clippy::print_stderr, reason = "this is the output of a failing test")]
            {
                eprintln!("--- the last lines of the server's log ---\n{}", self.tail());
            }
        }
    }
}

/// The binary under test: `FALAJ_BIN`, or the one beside the running test's folder.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("FALAJ_BIN") {
        return Ok(path.into());
    }
    let this = std::env::current_exe()?;
    this.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("falaj"))
        .find(|path| path.is_file())
        .context("no falaj binary found: build it (cargo build -p falaj) or set FALAJ_BIN")
}

/// Hides the settings of the developer's shell: they must not change what a test sees.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FALAJ_") {
            command.env_remove(name);
        }
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
