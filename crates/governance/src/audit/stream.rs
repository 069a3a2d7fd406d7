//! Reading the log out, a piece at a time: memory does not grow with the log, and a slow reader
//! holds no transaction open.
//!
//! The log up to a given size never changes, so the pieces may come from different snapshots. If
//! one cannot be read the stream ends with an error, and the cut-off export does not verify.

use std::ops::Range;

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_store::db::{Db, Tx, params};
use futures::stream::{self, Stream};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use super::export::{SEGMENT, Segmenter, write_entry, write_segment};
use super::merkle::Hash;
use super::ocsf;
use super::search::Filter;
use super::store::{self, broken};

/// What an export looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON lines that `falaj audit verify` can check.
    #[default]
    Json,
    /// JSON lines in the Open Cybersecurity Schema Framework, for a SIEM. No proof included.
    Ocsf,
}

/// What is exported: the entries below `size` that match, and the checkpoint at that size.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) filter: Filter,
    pub(super) format: Format,
    pub(super) size: u64,
    pub(super) note: Option<String>,
    pub(super) chunk: u32,
    /// Held until the stream ends, however it ends.
    pub(super) _permit: OwnedSemaphorePermit,
}

struct Export {
    db: Db,
    plan: Plan,
    segmenter: Segmenter,
    /// Entries whose segment line has gone out and which are next.
    open: Option<Range<u64>>,
}

/// The export as pieces of text.
pub(super) fn export(db: Db, plan: Plan) -> impl Stream<Item = Result<Bytes>> + Send {
    let open = (plan.format == Format::Ocsf).then_some(0..plan.size);
    let export = Export { db, plan, segmenter: Segmenter::default(), open };
    stream::try_unfold(export, |mut export| async move {
        let piece = export.next().await?;
        Ok(piece.map(|piece| (piece, export)))
    })
}

impl Export {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let piece = match self.open.take() {
                Some(range) => self.entries(range).await?,
                None if self.plan.format == Format::Json
                    && self.segmenter.next() < self.plan.size =>
                {
                    self.segment().await?
                }
                None => return Ok(None),
            };
            if !piece.is_empty() {
                return Ok(Some(piece.into()));
            }
        }
    }

    /// Reads the leaves up to the next multiple of [`SEGMENT`]; a segment line if one is due.
    async fn segment(&mut self) -> Result<Vec<u8>> {
        let from = self.segmenter.next();
        let to = ((from / SEGMENT + 1) * SEGMENT).min(self.plan.size);
        let filter = self.plan.filter.clone();
        let read =
            move |tx: &mut Tx<'_>| Ok((leaves(tx, &filter, from..to)?, store::note_at(tx, to)?));
        let (leaves, note) = self.db.read(read).await?;
        for (hash, visible) in leaves {
            self.segmenter.push(hash, visible);
        }
        let mut out = Vec::new();
        let ends = to == self.plan.size;
        if ends || self.segmenter.is_due() {
            let note = if ends { self.plan.note.take() } else { note };
            let segment = self.segmenter.cut(note);
            write_segment(&mut out, &segment).map_err(Error::internal)?;
            self.open = Some(segment.from..segment.to);
        }
        Ok(out)
    }

    /// Reads the next matching entries of `range` and leaves the rest of it for later.
    async fn entries(&mut self, range: Range<u64>) -> Result<Vec<u8>> {
        let (filter, chunk, to) = (self.plan.filter.clone(), self.plan.chunk, range.end);
        let rows = self.db.read(move |tx| entries(tx, &filter, range, chunk)).await?;
        if let Some((last, _)) = rows.last().filter(|_| rows.len() == chunk as usize) {
            self.open = Some(last + 1..to);
        }
        let mut out = Vec::new();
        for (index, entry) in rows {
            match self.plan.format {
                Format::Json => write_entry(&mut out, index, &entry),
                Format::Ocsf => ocsf::write(&mut out, index, &entry)?,
            }
        }
        Ok(out)
    }
}

/// The hashes of a range of leaves, and whether the filter matches each.
fn leaves(tx: &mut Tx<'_>, filter: &Filter, range: Range<u64>) -> Result<Vec<(Hash, bool)>> {
    let mut params = params![range.start, range.end].to_vec();
    let predicate = filter.predicate(&mut params);
    let sql = format!(
        "SELECT l.idx AS idx, l.hash AS hash, CASE WHEN {predicate} THEN 1 ELSE 0 END AS visible
         FROM audit_leaf l WHERE l.idx >= $1 AND l.idx < $2 ORDER BY l.idx"
    );
    let rows = tx.query(&sql, &params)?;
    let leaves: Vec<(Hash, bool)> = range
        .clone()
        .zip(&rows)
        .map(|(index, row)| Ok((store::leaf_hash(row, index)?, row.get("visible")?)))
        .collect::<Result<_>>()?;
    let missing = range.start + leaves.len() as u64;
    if missing < range.end {
        return Err(broken(format!("leaf {missing} of the audit tree is gone")));
    }
    Ok(leaves)
}

/// The first `chunk` entries of a range that match.
fn entries(
    tx: &mut Tx<'_>,
    filter: &Filter,
    range: Range<u64>,
    chunk: u32,
) -> Result<Vec<(u64, String)>> {
    let mut params = params![range.start, range.end].to_vec();
    let predicate = filter.predicate(&mut params);
    let sql = format!(
        "SELECT l.idx AS idx, e.entry AS entry FROM audit_leaf l
         JOIN audit_entry e ON e.tx = l.tx AND e.seq = l.seq
         WHERE l.idx >= $1 AND l.idx < $2 AND {predicate} ORDER BY l.idx LIMIT {chunk}"
    );
    let rows = tx.query(&sql, &params)?;
    rows.iter().map(|row| Ok((row.get("idx")?, row.get("entry")?))).collect()
}
