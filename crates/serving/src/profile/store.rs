//! Profiles in the database.

use falaj_base::{Error, Result};
use falaj_registry::model::RegisteredId;
use falaj_store::db::{Row, Tx, params};

use super::record::Profile;

/// `profile` is the whole as JSON; `golden` the pair in its own format. A profile is of one version
/// of one model: the name may come again, the id does not.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE serving_profile (
        model BLOB NOT NULL, version INTEGER NOT NULL, profile TEXT NOT NULL, golden BLOB,
        PRIMARY KEY (model, version)) CLUSTERED;";

/// Which version a profile is of.
pub(crate) type Of = (RegisteredId, i64);

pub(crate) fn find(tx: &mut Tx<'_>, (model, version): Of) -> Result<Option<Profile>> {
    let row = tx.query_opt(
        "SELECT profile FROM serving_profile WHERE model = $1 AND version = $2",
        &params![model, version],
    )?;
    row.as_ref().map(read).transpose()
}

pub(crate) fn golden(tx: &mut Tx<'_>, (model, version): Of) -> Result<Option<Vec<u8>>> {
    let row = tx.query_opt(
        "SELECT golden FROM serving_profile WHERE model = $1 AND version = $2",
        &params![model, version],
    )?;
    row.map_or(Ok(None), |row| row.get("golden"))
}

pub(super) fn put(
    tx: &mut Tx<'_>,
    (model, version): Of,
    profile: &Profile,
    golden: Option<Vec<u8>>,
) -> Result<()> {
    let text = serde_json::to_string(profile).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO serving_profile (model, version, profile, golden) VALUES ($1, $2, $3, $4)
         ON CONFLICT (model, version) DO UPDATE SET profile = excluded.profile,
             golden = excluded.golden",
        &params![model, version, text, golden],
    )
    .map(drop)
}

fn read(row: &Row) -> Result<Profile> {
    serde_json::from_str(&row.get::<String>("profile")?).map_err(Error::internal)
}
