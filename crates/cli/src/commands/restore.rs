//! `falaj restore`: a backup into an empty place.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use falaj_server::Config;
use serde_json::json;

use crate::context::Context;
use crate::exit::{Failure, Result, file_error};
use crate::output::Column;
use crate::output::progress::Progress;

/// Restore a backup into an empty data directory or database
///
/// Everything is verified before it counts: every piece of the file is authentic, what it lists is
/// there, and the whole audit log agrees with its signed root. A place that holds anything is
/// refused. The variable `FALAJ_DATABASE_URL` keeps a password out of the process list.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    falaj restore --from falaj.backup --data-dir ./data --keyring ./keyring.json\n  \
    falaj restore --from falaj.backup --data-dir ./data --keyring ./keyring.json \
    --database-url postgres://falaj@localhost/falaj")]
pub(crate) struct Restore {
    /// The backup.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// The data directory to fill; it must hold no database yet.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The empty PostgreSQL database to fill; SQLite in the data directory if absent.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// The keyring of the server that was backed up; not needed if it lies in the data directory
    /// already, or if a key manager holds the root key.
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
}

const RESTORED: &[Column] = &[
    ("tables", "tables"),
    ("rows", "rows"),
    ("objects", "objects"),
    ("bytes", "bytes"),
    ("audit entries verified", "audit_entries"),
];

impl Restore {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let place = ("data_dir".to_owned(), self.data_dir.display().to_string());
        let url = self.database_url.map(|url| ("database.url".to_owned(), url));
        let config = ctx.load_config([place].into_iter().chain(url).collect())?.value;
        let keyring = match &self.keyring {
            Some(path) => Some(Placed::copy(path, &config)?),
            None => None,
        };
        let size = fs::metadata(&self.from).map_err(file_error("read", &self.from))?.len();
        let progress = RefCell::new(Progress::new(ctx.output, "restore", Some(size)));
        let report = |read: u64| progress.borrow_mut().reach(read);
        let restored = falaj_server::backup::restore(&config, &self.from, report).await?;
        progress.into_inner().finish();
        if let Some(keyring) = keyring {
            keyring.keep();
        }
        let summary = &restored.summary;
        let facts = json!({
            "tables": summary.tables.len(),
            "rows": summary.tables.values().sum::<u64>(),
            "objects": summary.blobs,
            "bytes": summary.bytes,
            "audit_entries": restored.audit_size,
        });
        ctx.output.say(&format!("start with: falaj serve --data-dir {}", self.data_dir.display()));
        ctx.output.record(&facts, RESTORED)
    }
}

/// The keyring, put where the server looks for it, and taken away again if the restore fails: the
/// next try must find the place as this one did.
#[derive(Debug)]
struct Placed(Option<PathBuf>);

impl Placed {
    fn copy(from: &Path, config: &Config) -> Result<Self> {
        let managers = config.keys.managers();
        let target = managers.first().map(|manager| manager.keyring_path(&config.data_dir));
        let Some(target) = target else { return Ok(Self(None)) };
        let bytes = fs::read(from).map_err(file_error("read", from))?;
        if fs::read(&target).is_ok_and(|there| there == bytes) {
            return Ok(Self(None));
        }
        let folder = target.parent().unwrap_or(&config.data_dir);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(file_error("create", folder))?;
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(&target).map_err(|error| {
                match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        Failure::usage(format!("{} is another keyring", target.display()))
                            .hint("restore into an empty directory")
                    }
                    _ => file_error("write", &target)(error),
                }
            })?;
        let placed = Self(Some(target.clone()));
        file.write_all(&bytes)
            .and_then(|()| file.sync_all())
            .map_err(file_error("write", &target))?;
        Ok(placed)
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyring_is_placed_once_and_taken_back_on_failure() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("kept.json");
        fs::write(&source, "ring").unwrap();
        let config = Config { data_dir: folder.path().join("data"), ..Config::default() };
        let target = config.data_dir.join("keyring.json");
        drop(Placed::copy(&source, &config).unwrap());
        assert!(!target.exists());
        Placed::copy(&source, &config).unwrap().keep();
        // The same keyring again changes nothing; another one is refused.
        drop(Placed::copy(&source, &config).unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"ring");
        fs::write(&source, "other").unwrap();
        assert!(Placed::copy(&source, &config).unwrap_err().text().contains("another keyring"));
    }
}
