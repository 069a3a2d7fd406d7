//! Versioned forward migrations, one sequence per module.
//!
//! Must hold: what has been applied is never edited (its digest is kept), and a store written by
//! a newer version is not opened: that version may have changed what the rows mean.

use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{Error, Result, code, hex};

use super::tx::Tx;
use super::value::params;

/// One step of a module's schema, in the neutral dialect.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// 1, 2, 3, … without gaps.
    pub version: u32,
    pub name: &'static str,
    pub sql: &'static str,
}

/// A module's name and its migrations, in order.
pub type ModuleMigrations = (&'static str, &'static [Migration]);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_version (
    module TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL,
    digest TEXT NOT NULL, applied_at INTEGER NOT NULL, PRIMARY KEY (module, version))";

/// Brings the schema up to date, or refuses. Runs in one transaction: all of it or none.
pub(super) fn run(tx: &mut Tx<'_>, modules: &[ModuleMigrations]) -> Result<()> {
    tx.lock("schema")?;
    make_table(tx)?;
    refuse_unknown(tx, modules)?;
    for (module, migrations) in modules {
        for migration in *migrations {
            apply(tx, module, migration)?;
        }
    }
    Ok(())
}

pub(super) fn make_table(tx: &mut Tx<'_>) -> Result<()> {
    tx.execute_ddl(TABLE)
}

/// Builds the tables of the migrations that `schema_version` already lists, and no others: the
/// rows of a backup fit the schema they were taken from.
pub(super) fn replay(tx: &mut Tx<'_>, modules: &[ModuleMigrations]) -> Result<()> {
    refuse_unknown(tx, modules)?;
    for (module, migrations) in modules {
        for migration in *migrations {
            if is_applied(tx, module, migration)? {
                tx.execute_ddl(migration.sql)?;
            }
        }
    }
    Ok(())
}

/// Refuses a store that holds anything this binary has no migration for.
fn refuse_unknown(tx: &mut Tx<'_>, modules: &[ModuleMigrations]) -> Result<()> {
    let applied = tx.query("SELECT module, version FROM schema_version", &[])?;
    for row in applied {
        let (module, version): (String, u32) = (row.get("module")?, row.get("version")?);
        let known = modules
            .iter()
            .filter(|(name, _)| *name == module)
            .flat_map(|(_, migrations)| *migrations)
            .any(|migration| migration.version == version);
        if !known {
            return Err(Error::new(
                &code::NEWER_SCHEMA,
                format!(
                    "the store has {module} schema {version}, which this version of falaj does \
                     not know; start the newer version, or restore a backup made by this one"
                ),
            ));
        }
    }
    Ok(())
}

fn apply(tx: &mut Tx<'_>, module: &str, migration: &Migration) -> Result<()> {
    if is_applied(tx, module, migration)? {
        return Ok(());
    }
    tracing::debug!(module, version = migration.version, name = migration.name, "migrate");
    tx.execute_ddl(migration.sql)?;
    let now = tx.now();
    tx.execute(
        "INSERT INTO schema_version (module, version, name, digest, applied_at)
         VALUES ($1, $2, $3, $4, $5)",
        &params![module, migration.version, migration.name, fingerprint(migration), now],
    )
    .map(drop)
}

/// Whether the store lists this migration; one that was edited since is refused.
fn is_applied(tx: &mut Tx<'_>, module: &str, migration: &Migration) -> Result<bool> {
    let applied = tx.query_opt(
        "SELECT digest FROM schema_version WHERE module = $1 AND version = $2",
        &params![module, migration.version],
    )?;
    match applied {
        None => Ok(false),
        Some(row) if row.get::<String>("digest")? == fingerprint(migration) => Ok(true),
        Some(_) => Err(Error::internal(format!(
            "migration {module}/{} differs from the one this store was built with",
            migration.version
        ))),
    }
}

fn fingerprint(migration: &Migration) -> String {
    hex(digest(&SHA256, migration.sql.as_bytes()).as_ref())
}
