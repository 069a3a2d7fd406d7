//! The check at start: does the stored tree agree with its own checkpoints, with the copies of
//! them outside the database, and with the latest entries?
//!
//! It is bounded by the configuration, so that a large log does not delay the start. The whole
//! log is checked by exporting and verifying it.

use falaj_base::Result;
use falaj_store::db::Tx;

use super::checkpoint::VerifierKey;
use super::export::SEGMENT;
use super::merkle::{Frontier, Hash};
use super::service::Audit;
use super::store::{self, broken};

/// What the check found in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub size: u64,
    pub root: Hash,
    /// How many entries the last copy outside the database covers; none if there is no copy.
    pub outside: Option<u64>,
}

pub(super) async fn verify_store(audit: &Audit) -> Result<Report> {
    let outside = audit.outside.clone();
    let folder = outside.folder().display().to_string();
    let copy = tokio::task::spawn_blocking(move || outside.last())
        .await
        .map_err(falaj_base::Error::internal)??;
    let (key, recent) = (audit.key.verifier().clone(), u64::from(audit.config.check_at_start));
    let report = audit
        .db
        .read(move |tx| {
            let tree = store::tree(tx)?.frontier;
            agrees_with_checkpoint(tx, &key, &tree)?;
            let outside = copy.map(|note| agrees_with_copy(tx, &key, &tree, &note, &folder));
            let outside = outside.transpose()?;
            agrees_with_entries(tx, &tree, recent)?;
            Ok(Report { size: tree.size(), root: tree.root(), outside })
        })
        .await?;
    if report.size > 0 && report.outside.is_none() {
        let folder = audit.outside.folder().display().to_string();
        tracing::warn!(folder, "there is no copy of a checkpoint to compare the audit log with");
    }
    Ok(report)
}

/// The latest checkpoint in the database is signed by this log's key, for just this tree.
fn agrees_with_checkpoint(tx: &mut Tx<'_>, key: &VerifierKey, tree: &Frontier) -> Result<()> {
    let Some(latest) = store::checkpoint_up_to(tx, u64::MAX)? else {
        return if tree.size() == 0 {
            Ok(())
        } else {
            Err(broken("the audit log's checkpoints are gone from the database"))
        };
    };
    let signed = key.open(&latest.note).map_err(|error| {
        broken("the audit log's latest checkpoint is not signed by its key").caused_by(error)
    })?;
    if (signed.size, signed.root) == (tree.size(), tree.root()) {
        Ok(())
    } else {
        Err(broken(format!(
            "the audit log has {} entries, and its latest checkpoint is for another log of {}",
            tree.size(),
            signed.size
        )))
    }
}

/// The tree extends the one that the copy outside speaks of. Answers the copy's size.
fn agrees_with_copy(
    tx: &mut Tx<'_>,
    key: &VerifierKey,
    tree: &Frontier,
    note: &str,
    folder: &str,
) -> Result<u64> {
    let advice = format!(
        "If an older backup was restored on purpose, move {folder} to a safe place and start again; \
         otherwise keep both for whoever looks into it"
    );
    let signed = key.open(note).map_err(|error| {
        let text = format!("the last checkpoint in {folder} is not of this audit log. {advice}");
        broken(text).caused_by(error)
    })?;
    if signed.size > tree.size() {
        return Err(broken(format!(
            "the audit log has {} entries, and {folder} proves that it had {}. {advice}",
            tree.size(),
            signed.size
        )));
    }
    if store::frontier_at(tx, signed.size)?.root() == signed.root {
        return Ok(signed.size);
    }
    Err(broken(format!(
        "the first {} entries of the audit log are not those that {folder} vouches for. {advice}",
        signed.size
    )))
}

/// The latest entries still hash to their leaves, and the leaves to the tree.
fn agrees_with_entries(tx: &mut Tx<'_>, tree: &Frontier, recent: u64) -> Result<()> {
    let start = tree.size().saturating_sub(recent) / SEGMENT * SEGMENT;
    let mut frontier = store::frontier_at(tx, start)?;
    while frontier.size() < tree.size() {
        let (from, to) = (frontier.size(), (frontier.size() + SEGMENT).min(tree.size()));
        let hashes = store::leaf_hashes(tx, from, to)?;
        let texts = store::texts(tx, from, to)?;
        for ((index, hash), text) in (from..).zip(hashes).zip(texts) {
            match text {
                Some(text) if Hash::leaf(text.as_bytes()) == hash => frontier.append(hash),
                Some(_) => return Err(broken(format!("audit entry {index} was altered"))),
                None => return Err(broken(format!("audit entry {index} is gone"))),
            }
        }
    }
    if frontier == *tree {
        Ok(())
    } else {
        Err(broken("the leaves of the audit tree do not add up to its root"))
    }
}
