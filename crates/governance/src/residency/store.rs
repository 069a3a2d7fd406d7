//! Zones and transfers in the database.

use falaj_base::{Error, Name, Result};
use falaj_store::db::{Migration, Row, Tx, params};

use super::rule::{Transfer, Zone};

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "zones",
    sql: "
        CREATE TABLE zone (
            name TEXT PRIMARY KEY, jurisdiction TEXT NOT NULL, description TEXT,
            created_at INTEGER NOT NULL);
        CREATE TABLE transfer (
            from_zone TEXT NOT NULL REFERENCES zone (name),
            to_zone TEXT NOT NULL REFERENCES zone (name),
            basis TEXT NOT NULL, expires_at INTEGER, created_at INTEGER NOT NULL,
            PRIMARY KEY (from_zone, to_zone));",
}];

pub(super) fn insert_zone(tx: &mut Tx<'_>, zone: &Zone) -> Result<()> {
    tx.execute(
        "INSERT INTO zone (name, jurisdiction, description, created_at) VALUES ($1, $2, $3, $4)",
        &params![&zone.name, &zone.jurisdiction, zone.description.clone(), zone.created_at],
    )
    .map(drop)
    .map_err(|error| taken(error, "zone", &zone.name))
}

pub(super) fn find_zone(tx: &mut Tx<'_>, name: &Name) -> Result<Option<Zone>> {
    let sql = "SELECT name, jurisdiction, description, created_at FROM zone WHERE name = $1";
    tx.query_opt(sql, &params![name])?.as_ref().map(zone).transpose()
}

pub(super) fn list_zones(tx: &mut Tx<'_>, after: &str, limit: usize) -> Result<Vec<Zone>> {
    let rows = tx.query(
        "SELECT name, jurisdiction, description, created_at FROM zone
         WHERE name > $1 ORDER BY name LIMIT $2",
        &params![after, limit],
    )?;
    rows.iter().map(zone).collect()
}

pub(super) fn delete_zone(tx: &mut Tx<'_>, name: &Name) -> Result<()> {
    tx.execute("DELETE FROM zone WHERE name = $1", &params![name]).map(drop)
}

pub(super) fn insert_transfer(tx: &mut Tx<'_>, transfer: &Transfer) -> Result<()> {
    tx.execute(
        "INSERT INTO transfer (from_zone, to_zone, basis, expires_at, created_at)
         VALUES ($1, $2, $3, $4, $5)",
        &params![
            &transfer.from,
            &transfer.to,
            &transfer.basis,
            transfer.expires_at,
            transfer.created_at
        ],
    )
    .map(drop)
    .map_err(|error| taken(error, "transfer", format!("{} to {}", transfer.from, transfer.to)))
}

pub(super) fn find_transfer(tx: &mut Tx<'_>, from: &Name, to: &Name) -> Result<Option<Transfer>> {
    let row = tx.query_opt(
        "SELECT from_zone, to_zone, basis, expires_at, created_at FROM transfer
         WHERE from_zone = $1 AND to_zone = $2",
        &params![from, to],
    )?;
    row.as_ref().map(transfer).transpose()
}

pub(super) fn list_transfers(
    tx: &mut Tx<'_>,
    from: &Name,
    after: &str,
    limit: usize,
) -> Result<Vec<Transfer>> {
    let rows = tx.query(
        "SELECT from_zone, to_zone, basis, expires_at, created_at FROM transfer
         WHERE from_zone = $1 AND to_zone > $2 ORDER BY to_zone LIMIT $3",
        &params![from, after, limit],
    )?;
    rows.iter().map(transfer).collect()
}

pub(super) fn delete_transfer(tx: &mut Tx<'_>, from: &Name, to: &Name) -> Result<()> {
    tx.execute("DELETE FROM transfer WHERE from_zone = $1 AND to_zone = $2", &params![from, to])
        .map(drop)
}

/// Says *which* thing is taken, where the engine only says that one is.
pub(crate) fn taken(error: Error, what: &str, name: impl std::fmt::Display) -> Error {
    if error.code() == &falaj_base::code::ALREADY_EXISTS {
        Error::already_exists(what, name)
    } else {
        error
    }
}

fn zone(row: &Row) -> Result<Zone> {
    Ok(Zone {
        name: row.get("name")?,
        jurisdiction: row.get("jurisdiction")?,
        description: row.get("description")?,
        created_at: row.get("created_at")?,
    })
}

fn transfer(row: &Row) -> Result<Transfer> {
    Ok(Transfer {
        from: row.get("from_zone")?,
        to: row.get("to_zone")?,
        basis: row.get("basis")?,
        expires_at: row.get("expires_at")?,
        created_at: row.get("created_at")?,
    })
}
