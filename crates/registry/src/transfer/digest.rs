//! What is here of a model, in counts and digests. Rows are added up as they are read: a model may
//! have any number of versions.

use falaj_base::{ProjectId, Result, SetDigest, digest};
use falaj_store::db::{Tx, params};

use super::wire::ModelHere;
use crate::model::store as models;
use crate::version::Stage;

pub(super) fn of_model(
    tx: &mut Tx<'_>,
    project: ProjectId,
    name: &str,
    created: bool,
) -> Result<ModelHere> {
    let (mut tags, mut aliases) = (SetDigest::default(), SetDigest::default());
    let mut all = SetDigest::default();
    if let Some(model) = models::id_of(tx, project, name)? {
        let of = params![model];
        let sql = "SELECT key, value FROM registered_model_tag WHERE model = $1";
        tx.scan(sql, &of, |row| {
            let (key, value) = (row.get::<String>("key")?, row.get::<String>("value")?);
            tags.merge(SetDigest::of_pairs([(key.as_str(), value.as_str())]));
            Ok(())
        })?;
        let sql = "SELECT alias, version FROM model_alias WHERE model = $1";
        tx.scan(sql, &of, |row| {
            let (alias, version) = (row.get::<String>("alias")?, row.get::<i64>("version")?);
            aliases.add([digest::text(&alias), version.cast_unsigned()]);
            Ok(())
        })?;
        let sql = "SELECT version, stage, description, source, location, run_id
                   FROM model_version WHERE model = $1";
        tx.scan(sql, &of, |row| {
            let text = |column: &str| -> Result<u64> {
                let text = row.get::<Option<String>>(column)?;
                Ok(digest::text(text.as_deref().unwrap_or("")))
            };
            all.add([
                row.get::<i64>("version")?.cast_unsigned(),
                digest::text(row.get::<Stage>("stage")?.as_str()),
                text("description")?,
                text("source")?,
                text("location")?,
                text("run_id")?,
            ]);
            Ok(())
        })?;
        // A version counts with each of its tags, so that a lost tag is a difference.
        let sql = "SELECT version, key, value FROM model_version_tag WHERE model = $1";
        tx.scan(sql, &of, |row| {
            let (key, value) = (row.get::<String>("key")?, row.get::<String>("value")?);
            let version = row.get::<i64>("version")?.cast_unsigned();
            all.add([version, digest::text(&key), digest::text(&value)]);
            Ok(())
        })?;
    }
    Ok(ModelHere {
        name: name.to_owned(),
        created,
        tags: tags.to_string(),
        aliases: aliases.to_string(),
        versions: all.to_string(),
        left_out: Vec::new(),
    })
}
