//! Files of pushed rows, as rows.

use falaj_base::{BlobId, Result, TenantId};
use falaj_store::db::{Row, Tx, params};

use super::log::Position;
use crate::definition::VersionId;

/// The column of a file that tells since when its rows are known.
pub(crate) const KNOWN: &str = "__known";

/// The column of a file that tells where in the log its rows stood; files of old have none.
pub(crate) const PLACE: &str = "__place";

/// How a blob knows that a file of history refers to it.
pub(crate) const CLAIM: &str = "feature-segment";

/// A file of pushed rows.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) number: i64,
    pub(crate) rows: u64,
    pub(crate) blob: BlobId,
}

/// The files of a version of a view, in the order of their rows.
pub(crate) fn of_view(tx: &mut Tx<'_>, view: VersionId) -> Result<Vec<Segment>> {
    let sql = "SELECT number, rows, blob FROM feature_segment WHERE view = $1 ORDER BY number";
    let read = |row: &Row| {
        Ok(Segment { number: row.get("number")?, rows: row.get("rows")?, blob: row.get("blob")? })
    };
    tx.query(sql, &params![view])?.iter().map(read).collect()
}

/// A file of some version of a view.
#[derive(Clone, Debug)]
pub(crate) struct OfView {
    pub(crate) id: String,
    pub(crate) view: VersionId,
    pub(crate) tenant: TenantId,
    pub(crate) blob: BlobId,
}

/// The files of all versions of views, or of one, in the order of their rows.
pub(crate) fn all(tx: &mut Tx<'_>, view: Option<VersionId>) -> Result<Vec<OfView>> {
    let only = if view.is_some() { "WHERE view = $1" } else { "" };
    let sql =
        format!("SELECT id, view, tenant, blob FROM feature_segment {only} ORDER BY view, number");
    let values: Vec<_> = view.into_iter().map(Into::into).collect();
    let read = |row: &Row| {
        Ok(OfView {
            id: row.get("id")?,
            view: row.get("view")?,
            tenant: row.get("tenant")?,
            blob: row.get("blob")?,
        })
    };
    tx.query(&sql, &values)?.iter().map(read).collect()
}

/// What is in the log and in no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loose {
    /// The place before it.
    pub(crate) after: Position,
    /// The place of its last push: it does not move when others push to other views.
    pub(crate) last: Position,
    pub(crate) rows: u64,
}

/// What is in the log and in no file, up to a place.
pub(crate) fn loose(tx: &mut Tx<'_>, view: VersionId, until: Position) -> Result<Option<Loose>> {
    let values = params![view, until.tx, until.seq];
    let mut end = |order: &str| {
        let sql = format!(
            "SELECT tx, seq FROM feature_log
             WHERE view = $1 AND segment IS NULL AND (tx, seq) <= ($2, $3)
             ORDER BY tx {order}, seq {order} LIMIT 1"
        );
        let place = |row: Row| -> Result<Position> {
            Ok(Position { tx: row.get("tx")?, seq: row.get("seq")? })
        };
        tx.query_opt(&sql, &values)?.map(place).transpose()
    };
    let (Some(first), Some(last)) = (end("ASC")?, end("DESC")?) else { return Ok(None) };
    let counted = tx.query_one(
        "SELECT CAST(COALESCE(SUM(rows), 0) AS BIGINT) AS n FROM feature_log
         WHERE view = $1 AND segment IS NULL AND (tx, seq) <= ($2, $3)",
        &values,
    )?;
    let after = Position { tx: first.tx, seq: first.seq - 1 };
    Ok(Some(Loose { after, last, rows: counted.get("n")? }))
}

/// A file about to be put down.
pub(super) struct New<'a> {
    pub(super) id: &'a str,
    pub(super) view: VersionId,
    pub(super) tenant: TenantId,
    pub(super) rows: u64,
    pub(super) size: u64,
    pub(super) blob: BlobId,
}

/// Puts a file down behind those of its view.
pub(super) fn insert(tx: &mut Tx<'_>, new: &New<'_>) -> Result<()> {
    let now = tx.now();
    tx.execute(
        "INSERT INTO feature_segment (id, view, number, tenant, rows, size, blob, created_at)
         VALUES ($1, $2, (SELECT COALESCE(MAX(number), 0) + 1 FROM feature_segment
                          WHERE view = $2), $3, $4, $5, $6, $7)",
        &params![new.id, new.view, new.tenant, new.rows, new.size, new.blob, now],
    )
    .map(drop)
}

/// How many rows the pushes of a part of the log have that are in no file.
pub(super) fn rows_of(
    tx: &mut Tx<'_>,
    view: VersionId,
    (first, last): (Position, Position),
) -> Result<u64> {
    let counted = tx.query_one(
        "SELECT CAST(COALESCE(SUM(rows), 0) AS BIGINT) AS n FROM feature_log
         WHERE view = $1 AND segment IS NULL AND (tx, seq) >= ($2, $3) AND (tx, seq) <= ($4, $5)",
        &params![view, first.tx, first.seq, last.tx, last.seq],
    )?;
    counted.get("n")
}

/// Marks pushes as being in a file, if none of them was before; tells how many.
pub(super) fn mark(
    tx: &mut Tx<'_>,
    view: VersionId,
    (first, last): (Position, Position),
    segment: &str,
) -> Result<u64> {
    tx.execute(
        "UPDATE feature_log SET segment = $1
         WHERE view = $2 AND segment IS NULL AND (tx, seq) >= ($3, $4) AND (tx, seq) <= ($5, $6)",
        &params![segment, view, first.tx, first.seq, last.tx, last.seq],
    )
}
