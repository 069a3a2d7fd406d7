//! Bringing experiments, runs and models in from another store, and comparing what is here with it.
//!
//! Whoever moves reads the other store and sends what it holds in bounded batches: this server
//! opens no path and no address that a caller names.
//!
//! Must hold:
//! - Things keep the ids, times and stages they had. What has an id here that is already used by
//!   something else is refused, never mixed.
//! - Everything can be sent again: the second time changes nothing. An import that broke off is
//!   simply run again.
//! - Whoever imports is allowed to in the project, and in every experiment that a batch touches.
//!
//! Not here: what other stores look like (`moving`), registered models (`registry`).

mod check;
mod experiments;
mod files;
pub(crate) mod http;
mod logged_models;
mod points;
mod runs;
mod wire;

use falaj_base::{Error, Result};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;

use crate::artifact::proxied_path;
use crate::{IMPORT, Tracking};

/// A text, and how long it may be in characters.
fn check_text(field: &str, text: &str, most: usize) -> Result<()> {
    if text.contains('\0') {
        return Err(Error::invalid(field, "(a text with a NUL)", "text without NUL characters"));
    }
    if text.len() > most && text.chars().count() > most {
        let shown: String = text.chars().take(50).collect();
        return Err(Error::invalid(field, shown, format!("at most {most} characters")));
    }
    Ok(())
}

/// Pairs as another store keeps them. Their names need only fit: that store has accepted them.
fn check_pairs(field: &str, pairs: &[(String, String)], most: usize) -> Result<()> {
    check_count(field, pairs.len(), most)?;
    for (key, value) in pairs {
        if key.is_empty() {
            return Err(Error::invalid(field, "", "pairs with a name"));
        }
        check_text(field, key, 500)?;
        check_text(field, value, 1 << 20)?;
    }
    Ok(())
}

fn check_count(field: &str, count: usize, most: usize) -> Result<()> {
    if count > most {
        return Err(Error::invalid(field, count, format!("at most {most} in one request")));
    }
    Ok(())
}

/// Files that stay where they are: a place that only clients reach, and nothing in it climbs.
fn check_location(location: Option<&str>) -> Result<()> {
    let Some(location) = location else { return Ok(()) };
    check_text("artifact_uri", location, 2000)?;
    let climbs = location.split(['/', '\\']).any(|part| part == "..");
    let away = location.contains("://") && proxied_path(location).is_none();
    if climbs || !away || location.starts_with("file:") {
        let want = "an address outside of this server, such as s3://bucket/folder";
        return Err(Error::invalid("artifact_uri", location, want));
    }
    Ok(())
}

impl Tracking {
    /// Asks whether the caller may import into the project at all.
    async fn may_import(&self, call: &Call) -> Result<()> {
        call.ctx.authorize(&IMPORT, &call.place.resource()).await
    }
}

/// Puts a batch on record, on the project it went into.
fn record(tx: &mut Tx<'_>, call: &Call, counts: &[(&'static str, usize)]) -> Result<()> {
    let resource = call.place.resource();
    let mut change = Change::new(&IMPORT, &resource);
    for (what, count) in counts {
        change = change.detail(what, count);
    }
    tx.record(&call.ctx, change)
}
