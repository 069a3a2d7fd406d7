//! `falaj restore`: a backup into an empty place.

use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::Column;
use crate::output::progress::Progress;

/// Restore a backup into an empty data directory or database
///
/// Everything is verified before it counts: the digests of the file, the digest of every object,
/// and the root of the audit log. A place that holds anything is refused.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    falaj restore --from falaj.backup --data-dir ./data --keyring ./keyring.json\n  \
    falaj restore --from falaj.backup --data-dir ./data --keyring ./keyring.json \
    --database-url postgres://falaj@localhost/falaj")]
pub(crate) struct Restore {
    /// The backup.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// The data directory to fill; it must be empty or absent.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The PostgreSQL database to fill; SQLite in the data directory if absent.
    #[arg(long, value_name = "URL", env = "FALAJ_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// The keyring of the server that was backed up: the backup opens with it alone.
    #[arg(long, value_name = "FILE")]
    keyring: PathBuf,
}

const RESTORED: &[Column] = &[
    ("taken at", "taken_at"),
    ("tables", "tables"),
    ("rows", "rows"),
    ("objects", "objects"),
    ("audit entries", "audit_entries"),
];

impl Restore {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let mut flags = vec![("data_dir".to_owned(), self.data_dir.display().to_string())];
        if let Some(url) = &self.database_url {
            flags.push(("database.url".to_owned(), url.clone()));
        }
        let config = ctx.load_config(flags)?.value;
        let size = std::fs::metadata(&self.from).ok().map(|facts| facts.len());
        let mut progress = Progress::new(ctx.output, "restore", size);
        let report = |bytes: u64| progress.add(bytes);
        let restored =
            falaj_server::backup::restore(&config, &self.from, &self.keyring, report).await?;
        progress.finish();
        let facts =
            serde_json::to_value(&restored).map_err(|error| Failure::failed(error.to_string()))?;
        ctx.output.say(&format!("start with: falaj serve --data-dir {}", self.data_dir.display()));
        ctx.output.record(&facts, RESTORED)
    }
}
