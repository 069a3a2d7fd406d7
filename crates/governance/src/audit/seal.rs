//! The sealer: gives each committed entry its place in the tree, and signs the new root.
//!
//! Must hold:
//! - Entries enter in commit order, each exactly once, and only when no other can still come
//!   before them. Two sealers at once do no harm: the tree's row is locked while one works.
//! - Leaf, tree and checkpoint are one transaction: a crash leaves either all or none of a batch.
//! - At every multiple of [`SEGMENT`] a checkpoint stays for good; exports are cut there.
//! - A tree that is smaller, or at the same size another, than the one sealed last is not signed.
//!
//! Not here: the copy outside the database (`outside`).

use falaj_base::Result;
use falaj_store::db::Tx;

use super::checkpoint::SigningKey;
use super::export::SEGMENT;
use super::merkle::{Frontier, Hash};
use super::store::{self, Tree, broken};

/// What a batch did.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub(super) frontier: Frontier,
    /// The new checkpoint; none if there was nothing to seal.
    pub(super) note: Option<String>,
    /// How many entries were sealed.
    pub(super) count: usize,
}

/// Whether there may be something to seal: spares an idle server its writes.
pub(super) fn is_due(tx: &mut Tx<'_>) -> Result<bool> {
    let last = store::tree(tx)?.last;
    store::is_pending(tx, last)
}

/// Seals at most `limit` entries. `seen` is the tree as this process last knew it.
pub(super) fn batch(
    tx: &mut Tx<'_>,
    key: &SigningKey,
    limit: u32,
    seen: Option<(u64, Hash)>,
) -> Result<Sealed> {
    tx.lock("audit-seal")?;
    let Tree { mut frontier, mut last } = store::tree(tx)?;
    refuse_rollback(&frontier, seen)?;
    let before = frontier.size();
    let pending = store::pending(tx, last, limit)?;
    let count = pending.len();
    let mut leaves = Vec::with_capacity(count);
    for entry in pending {
        let hash = Hash::leaf(entry.text.as_bytes());
        last = entry.place;
        leaves.push(store::leaf(frontier.size(), hash, entry));
        frontier.append(hash);
        if frontier.size().is_multiple_of(SEGMENT) {
            let note = key.sign(frontier.size(), frontier.root());
            store::insert_checkpoint(tx, &frontier, &note)?;
        }
    }
    store::insert_leaves(tx, leaves)?;
    let mut sealed = Sealed { frontier, note: None, count };
    if sealed.count > 0 {
        let note = key.sign(sealed.frontier.size(), sealed.frontier.root());
        if !sealed.frontier.size().is_multiple_of(SEGMENT) {
            store::insert_checkpoint(tx, &sealed.frontier, &note)?;
        }
        if !before.is_multiple_of(SEGMENT) {
            store::delete_checkpoint(tx, before)?;
        }
        sealed.note = Some(note);
        store::set_tree(tx, &Tree { frontier: sealed.frontier.clone(), last })?;
    }
    Ok(sealed)
}

fn refuse_rollback(frontier: &Frontier, seen: Option<(u64, Hash)>) -> Result<()> {
    match seen {
        Some((size, _)) if frontier.size() < size => Err(broken(format!(
            "the audit tree shrank from {size} to {} entries; it is not sealed further",
            frontier.size()
        ))),
        Some((size, root)) if frontier.size() == size && frontier.root() != root => Err(broken(
            format!("the audit tree of {size} entries changed; it is not sealed further"),
        )),
        _ => Ok(()),
    }
}
