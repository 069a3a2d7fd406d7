//! What is here of a model, in counts and digests.

use falaj_base::{ProjectId, Result, SetDigest, digest};
use falaj_store::db::Tx;

use super::wire::ModelHere;
use crate::model::store as models;
use crate::version::{Version, store as versions};

pub(super) fn of_model(
    tx: &mut Tx<'_>,
    project: ProjectId,
    name: &str,
    created: bool,
) -> Result<ModelHere> {
    let (mut tags, mut aliases) = (SetDigest::default(), SetDigest::default());
    let mut all = SetDigest::default();
    if let Some(model) = models::find(tx, project, name)? {
        tags = SetDigest::of_pairs(model.tags.iter().map(|(key, value)| (&**key, &**value)));
        for (alias, version) in &model.aliases {
            aliases.add([digest::text(alias), version.cast_unsigned()]);
        }
        for version in versions::of_model(tx, project, name)? {
            all.merge(of_version(&version));
        }
    }
    Ok(ModelHere {
        name: name.to_owned(),
        created,
        tags: tags.to_string(),
        aliases: aliases.to_string(),
        versions: all.to_string(),
    })
}

/// A version counts with each of its tags, so that a lost tag is a difference.
fn of_version(version: &Version) -> SetDigest {
    let mut digest = SetDigest::default();
    let text = |text: Option<&String>| digest::text(text.map_or("", String::as_str));
    digest.add([
        version.number.cast_unsigned(),
        digest::text(version.stage.as_str()),
        text(version.description.as_ref()),
        digest::text(&version.source),
        digest::text(&version.location),
        text(version.run_id.as_ref()),
    ]);
    for (key, value) in &version.tags {
        digest.add([version.number.cast_unsigned(), digest::text(key), digest::text(value)]);
    }
    digest
}
