//! The rows of the tree: its right edge, its leaves and its checkpoints.
//!
//! The entries themselves lie in `audit_entry`, which `falaj_store::record` owns and appends to.
//! A leaf repeats the few fields of its entry that a search looks at.

use std::borrow::Cow;

use falaj_base::{Error, Result, Timestamp, code};
use falaj_store::backup::Renumber;
use falaj_store::db::{Migration, Row, Tx, Value, params};
use falaj_store::record::Decision;
use serde::Deserialize;

use super::merkle::{Frontier, Hash};

pub static MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "audit", sql: include_str!("migrations/0001_audit.sql") }];

/// How a backup numbers these rows anew, as it does the entries: in commit order, from 1. Leaves
/// are in commit order too, so leaf `idx` stands for entry `idx + 1`.
pub static RENUMBERED: &[Renumber] = &[
    ("audit_leaf", "tx", "CAST(0 AS BIGINT)"),
    ("audit_leaf", "seq", "idx + 1"),
    ("audit_tree", "last_tx", "CAST(0 AS BIGINT)"),
    ("audit_tree", "last_seq", "size"),
];

/// Stored data contradicts itself: someone or something changed it behind the platform's back.
pub(super) fn broken(what: impl Into<String>) -> Error {
    Error::new(&code::INTEGRITY, what)
}

/// The tree as far as it is sealed, and the entry it ends with.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) frontier: Frontier,
    /// The place of the last sealed entry in the commit order.
    pub(super) last: (i64, i64),
}

/// An entry waiting for its place in the tree.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) place: (i64, i64),
    pub(super) at: Timestamp,
    pub(super) tenant: Option<String>,
    pub(super) text: String,
}

/// The name of this log, made on first use and kept for ever.
pub(super) fn instance(tx: &mut Tx<'_>) -> Result<String> {
    let fresh = uuid::Uuid::now_v7().simple().to_string();
    tx.execute(
        "INSERT INTO audit_tree (id, instance, size, frontier, last_tx, last_seq)
         VALUES (1, $1, 0, $2, $3, $4) ON CONFLICT (id) DO NOTHING",
        &params![fresh, Vec::<u8>::new(), i64::MIN, i64::MIN],
    )?;
    tx.query_one("SELECT instance FROM audit_tree WHERE id = 1", &[])?.get("instance")
}

pub(super) fn tree(tx: &mut Tx<'_>) -> Result<Tree> {
    let sql = "SELECT size, frontier, last_tx, last_seq FROM audit_tree WHERE id = 1";
    let row = tx.query_one(sql, &[])?;
    Ok(Tree { frontier: frontier(&row)?, last: (row.get("last_tx")?, row.get("last_seq")?) })
}

pub(super) fn set_tree(tx: &mut Tx<'_>, tree: &Tree) -> Result<()> {
    let (size, peaks) = (tree.frontier.size(), tree.frontier.to_bytes());
    tx.execute(
        "UPDATE audit_tree SET size = $1, frontier = $2, last_tx = $3, last_seq = $4 WHERE id = 1",
        &params![size, peaks, tree.last.0, tree.last.1],
    )
    .map(drop)
}

fn frontier(row: &Row) -> Result<Frontier> {
    let (size, peaks): (u64, Vec<u8>) = (row.get("size")?, row.get("frontier")?);
    Frontier::from_bytes(size, &peaks).ok_or_else(|| {
        broken(format!("the stored edge of the audit tree does not fit size {size}"))
    })
}

/// Whether there are entries after `last`.
pub(super) fn is_pending(tx: &mut Tx<'_>, last: (i64, i64)) -> Result<bool> {
    // Ordered, so that the index is looked at whatever the planner expects to find.
    let sql = "SELECT tx FROM audit_entry WHERE (tx, seq) > ($1, $2) ORDER BY tx, seq LIMIT 1";
    Ok(tx.query_opt(sql, &params![last.0, last.1])?.is_some())
}

/// Entries after `last` that no other transaction can still come before, oldest first.
pub(super) fn pending(tx: &mut Tx<'_>, last: (i64, i64), limit: u32) -> Result<Vec<Pending>> {
    let horizon = tx.horizon()?;
    let mut pending = Vec::new();
    tx.scan(
        "SELECT tx, seq, at, tenant, entry FROM audit_entry
         WHERE (tx, seq) > ($1, $2) AND tx < $3 ORDER BY tx, seq LIMIT $4",
        &params![last.0, last.1, horizon, limit],
        |row| {
            pending.push(Pending {
                place: (row.get("tx")?, row.get("seq")?),
                at: row.get("at")?,
                tenant: row.get("tenant")?,
                text: row.get("entry")?,
            });
            Ok(())
        },
    )?;
    Ok(pending)
}

/// The row of one leaf, for [`insert_leaves`].
pub(super) fn leaf(index: u64, hash: Hash, entry: Pending) -> [Value; 12] {
    let searchable = Searchable::of(&entry.text);
    params![
        index,
        entry.place.0,
        entry.place.1,
        hash.0.as_slice(),
        entry.at,
        entry.tenant,
        searchable.actor.id.unwrap_or_default(),
        &*searchable.actor.name,
        &*searchable.action,
        &*searchable.resource.kind,
        searchable.resource.shown(),
        searchable.decision.map_or("", decision_text),
    ]
}

pub(super) fn insert_leaves(tx: &mut Tx<'_>, leaves: Vec<[Value; 12]>) -> Result<()> {
    tx.execute_many(
        "INSERT INTO audit_leaf (idx, tx, seq, hash, at, tenant, actor, actor_name, action,
             resource_kind, resource, decision)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        leaves.into_iter(),
    )
    .map(drop)
}

/// What a search looks at. An entry that cannot be read is sealed all the same, and found by time:
/// refusing it would stop the log for whoever managed to put it there.
#[derive(Debug, Default, Deserialize)]
struct Searchable<'a> {
    #[serde(borrow)]
    action: Cow<'a, str>,
    #[serde(borrow)]
    actor: SearchableActor<'a>,
    #[serde(borrow)]
    resource: SearchableTarget<'a>,
    decision: Option<Decision>,
}

#[derive(Debug, Default, Deserialize)]
struct SearchableActor<'a> {
    id: Option<&'a str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
struct SearchableTarget<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

impl SearchableTarget<'_> {
    /// Empty for an entry that cannot be read.
    fn shown(&self) -> String {
        if self.kind.is_empty() { String::new() } else { format!("{}/{}", self.kind, self.id) }
    }
}

impl<'a> Searchable<'a> {
    fn of(text: &'a str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

pub(super) const fn decision_text(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Deny => "deny",
    }
}

/// A checkpoint as kept in the database, with the tree's edge at that size.
#[derive(Clone, Debug)]
pub(super) struct StoredCheckpoint {
    pub(super) frontier: Frontier,
    pub(super) note: String,
}

pub(super) fn insert_checkpoint(tx: &mut Tx<'_>, frontier: &Frontier, note: &str) -> Result<()> {
    let now = tx.now();
    let root = frontier.root().0;
    tx.execute(
        "INSERT INTO audit_checkpoint (size, root, frontier, note, at)
         VALUES ($1, $2, $3, $4, $5)",
        &params![frontier.size(), root.as_slice(), frontier.to_bytes(), note, now],
    )
    .map(drop)
}

pub(super) fn delete_checkpoint(tx: &mut Tx<'_>, size: u64) -> Result<()> {
    tx.execute("DELETE FROM audit_checkpoint WHERE size = $1", &params![size]).map(drop)
}

/// The latest checkpoint that covers no more than `size` entries.
pub(super) fn checkpoint_up_to(tx: &mut Tx<'_>, size: u64) -> Result<Option<StoredCheckpoint>> {
    let row = tx.query_opt(
        "SELECT size, frontier, note FROM audit_checkpoint WHERE size <= $1
         ORDER BY size DESC LIMIT 1",
        &params![size],
    )?;
    row.map(|row| Ok(StoredCheckpoint { frontier: frontier(&row)?, note: row.get("note")? }))
        .transpose()
}

/// The note at exactly `size`, if it was kept.
pub(super) fn note_at(tx: &mut Tx<'_>, size: u64) -> Result<Option<String>> {
    let sql = "SELECT note FROM audit_checkpoint WHERE size = $1";
    tx.query_opt(sql, &params![size])?.map(|row| row.get("note")).transpose()
}

/// The hashes of the leaves `from..to`; an error if one is gone.
pub(super) fn leaf_hashes(tx: &mut Tx<'_>, from: u64, to: u64) -> Result<Vec<Hash>> {
    let rows = tx.query(
        "SELECT idx, hash FROM audit_leaf WHERE idx >= $1 AND idx < $2 ORDER BY idx",
        &params![from, to],
    )?;
    let hashes: Result<Vec<_>> =
        (from..).zip(&rows).map(|(index, row)| leaf_hash(row, index)).collect();
    let hashes = hashes?;
    let found = from + hashes.len() as u64;
    if found < to {
        Err(broken(format!("leaf {found} of the audit tree is gone")))
    } else {
        Ok(hashes)
    }
}

/// Reads the hash of the row that must be leaf `index`.
pub(super) fn leaf_hash(row: &Row, index: u64) -> Result<Hash> {
    if row.get::<u64>("idx")? != index {
        return Err(broken(format!("leaf {index} of the audit tree is gone")));
    }
    Hash::from_slice(&row.get::<Vec<u8>>("hash")?)
        .ok_or_else(|| broken(format!("leaf {index} of the audit tree is not a hash")))
}

/// The texts of the entries that the leaves `from..to` stand for; none where the row is gone.
pub(super) fn texts(tx: &mut Tx<'_>, from: u64, to: u64) -> Result<Vec<Option<String>>> {
    let rows = tx.query(
        "SELECT e.entry AS entry FROM audit_leaf l
         LEFT JOIN audit_entry e ON e.tx = l.tx AND e.seq = l.seq
         WHERE l.idx >= $1 AND l.idx < $2 ORDER BY l.idx",
        &params![from, to],
    )?;
    rows.iter().map(|row| row.get("entry")).collect()
}

/// The tree's edge when it had `size` leaves.
pub(super) fn frontier_at(tx: &mut Tx<'_>, size: u64) -> Result<Frontier> {
    let start = checkpoint_up_to(tx, size)?;
    let mut frontier = start.map(|checkpoint| checkpoint.frontier).unwrap_or_default();
    for hash in leaf_hashes(tx, frontier.size(), size)? {
        frontier.append(hash);
    }
    Ok(frontier)
}
