//! Scorers in the database.

use falaj_base::Result;
use falaj_store::db::{Row, Tx, Value, params};

use super::scorer::Version;
use crate::trace::store::{LISTED, list};

const VERSIONS: &str = "SELECT s.id, s.name, s.experiment, v.version, v.created_at, v.serialized
    FROM scorer s JOIN scorer_version v ON v.scorer = s.id";

/// The id of a scorer, and the last version it had.
pub(super) fn find(tx: &mut Tx<'_>, experiment: i64, name: &str) -> Result<Option<(String, i64)>> {
    let sql = "SELECT id, last_version FROM scorer WHERE experiment = $1 AND name = $2";
    let row = tx.query_opt(sql, &params![experiment, name])?;
    row.map(|row| Ok((row.get("id")?, row.get("last_version")?))).transpose()
}

pub(super) fn count(tx: &mut Tx<'_>, experiment: i64) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM scorer WHERE experiment = $1";
    tx.query_one(sql, &params![experiment])?.get("n")
}

pub(super) fn count_versions(tx: &mut Tx<'_>, id: &str) -> Result<usize> {
    let sql = "SELECT COUNT(*) AS n FROM scorer_version WHERE scorer = $1";
    tx.query_one(sql, &params![id])?.get("n")
}

/// Adds a version, and its scorer if that is new.
pub(super) fn insert(tx: &mut Tx<'_>, experiment: i64, version: &Version) -> Result<()> {
    tx.execute(
        "INSERT INTO scorer (id, experiment, name, last_version) VALUES ($1, $2, $3, $4)
         ON CONFLICT (experiment, name) DO UPDATE SET last_version = excluded.last_version",
        &params![&version.scorer_id, experiment, &version.name, version.number],
    )?;
    tx.execute(
        "INSERT INTO scorer_version (scorer, version, created_at, serialized)
         VALUES ($1, $2, $3, $4)",
        &params![&version.scorer_id, version.number, version.created_at, &version.serialized],
    )
    .map(drop)
}

/// One version, or the last that there is.
pub(super) fn version(tx: &mut Tx<'_>, id: &str, version: Option<i64>) -> Result<Option<Version>> {
    let row = if let Some(version) = version {
        let sql = format!("{VERSIONS} WHERE s.id = $1 AND v.version = $2");
        tx.query_opt(&sql, &params![id, version])?
    } else {
        let sql = format!("{VERSIONS} WHERE s.id = $1 ORDER BY v.version DESC LIMIT 1");
        tx.query_opt(&sql, &params![id])?
    };
    row.as_ref().map(read).transpose()
}

/// Every version of a scorer, the first one first.
pub(super) fn versions(tx: &mut Tx<'_>, id: &str) -> Result<Vec<Version>> {
    let sql = format!("{VERSIONS} WHERE s.id = $1 ORDER BY v.version");
    tx.query(&sql, &params![id])?.iter().map(read).collect()
}

/// What the versions of a scorer measure together.
pub(super) fn weight_of(tx: &mut Tx<'_>, id: &str) -> Result<usize> {
    let sql = "SELECT COALESCE(SUM(octet_length(serialized)), 0) AS size FROM scorer_version
        WHERE scorer = $1";
    tx.query_one(sql, &params![id])?.get("size")
}

/// The last version of each scorer of some experiments, with the number of its experiment, as long
/// as they have room; `None` if they do not.
pub(super) fn latest(
    tx: &mut Tx<'_>,
    experiments: &[i64],
    mut room: usize,
) -> Result<Option<Vec<(i64, Version)>>> {
    const LAST: &str =
        "v.version = (SELECT MAX(o.version) FROM scorer_version o WHERE o.scorer = s.id)";
    let mut all = Vec::new();
    for experiments in experiments.chunks(LISTED) {
        let values: Vec<Value> = experiments.iter().map(|no| Value::from(*no)).collect();
        let these = list(1, values.len());
        let sql = format!(
            "SELECT COALESCE(SUM(octet_length(v.serialized)), 0) AS size
             FROM scorer s JOIN scorer_version v ON v.scorer = s.id
             WHERE s.experiment IN ({these}) AND {LAST}"
        );
        let Some(left) = room.checked_sub(tx.query_one(&sql, &values)?.get("size")?) else {
            return Ok(None);
        };
        room = left;
        let sql = format!("{VERSIONS} WHERE s.experiment IN ({these}) AND {LAST}");
        for row in tx.query(&sql, &values)? {
            all.push((row.get("experiment")?, read(&row)?));
        }
    }
    Ok(Some(all))
}

/// Deletes one version, or a scorer with all of them; how many versions there were.
pub(super) fn delete(tx: &mut Tx<'_>, id: &str, version: Option<i64>) -> Result<u64> {
    if let Some(version) = version {
        let sql = "DELETE FROM scorer_version WHERE scorer = $1 AND version = $2";
        return tx.execute(sql, &params![id, version]);
    }
    let gone = tx.execute("DELETE FROM scorer_version WHERE scorer = $1", &params![id])?;
    tx.execute("DELETE FROM scorer WHERE id = $1", &params![id])?;
    Ok(gone)
}

/// Deletes the scorers of experiments that are gone; how many there were.
pub(crate) fn clear_orphans(tx: &mut Tx<'_>) -> Result<u64> {
    let gone = "NOT EXISTS (SELECT 1 FROM experiment e
        WHERE e.no = scorer.experiment AND e.id >= 0)";
    let deleted = tx.execute(&format!("DELETE FROM scorer WHERE {gone}"), &[])?;
    // By what is no longer there, so that nothing is left of one that went in between.
    let sql = "DELETE FROM scorer_version
               WHERE NOT EXISTS (SELECT 1 FROM scorer s WHERE s.id = scorer_version.scorer)";
    tx.execute(sql, &[])?;
    Ok(deleted)
}

fn read(row: &Row) -> Result<Version> {
    Ok(Version {
        scorer_id: row.get("id")?,
        name: row.get("name")?,
        number: row.get("version")?,
        created_at: row.get("created_at")?,
        serialized: row.get("serialized")?,
    })
}
