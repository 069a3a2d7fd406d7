//! Registered models in files: `models/<name>/version-<n>`.

use std::path::Path;

use super::{FileStore, META, folders, name, values};
use crate::error::Result;
use crate::record::{RegisteredModel, Version};
use crate::yaml;

/// The stage of a version that was deleted.
pub(crate) const DELETED: &str = "Deleted_Internal";

impl FileStore {
    pub(crate) fn registered_models(&self) -> Result<Vec<RegisteredModel>> {
        let found = folders(&self.folder.join("models"))?;
        let described = found.iter().filter(|folder| folder.join(META).is_file());
        described.map(|folder| model(folder)).collect()
    }
}

fn model(folder: &Path) -> Result<RegisteredModel> {
    let meta = yaml::read(&folder.join(META))?;
    let mut model = RegisteredModel {
        name: meta.text("name").unwrap_or_else(|| name(folder).to_owned()),
        description: meta.text("description").unwrap_or_default(),
        created_at: meta.int("creation_timestamp")?.unwrap_or_default(),
        updated_at: meta.int("last_updated_timestamp")?.unwrap_or_default(),
        tags: values(&folder.join("tags"))?,
        ..RegisteredModel::default()
    };
    for folder in folders(folder)? {
        if !name(&folder).starts_with("version-") || !folder.join(META).is_file() {
            continue;
        }
        let version = version(&folder)?;
        model.last_version = model.last_version.max(version.version);
        if version.stage != DELETED {
            model.versions.push(version);
        }
    }
    model.versions.sort_by_key(|version| version.version);
    for (alias, version) in values(&folder.join("aliases"))? {
        if let Ok(version) = version.trim().parse() {
            model.aliases.push((alias, version));
        }
    }
    Ok(model)
}

fn version(folder: &Path) -> Result<Version> {
    let meta = yaml::read(&folder.join(META))?;
    let number = name(folder).trim_start_matches("version-").parse().unwrap_or_default();
    let source = meta.text("source").unwrap_or_default();
    Ok(Version {
        version: meta.int("version")?.unwrap_or(number),
        description: meta.text("description"),
        stage: meta.text("current_stage").unwrap_or_else(|| "None".to_owned()),
        location: meta.text("storage_location").unwrap_or_else(|| source.clone()),
        source,
        run_id: meta.text("run_id"),
        run_link: meta.text("run_link").unwrap_or_default(),
        logged_model: meta.text("model_id"),
        created_by: meta.text("user_id").unwrap_or_default(),
        created_at: meta.int("creation_timestamp")?.unwrap_or_default(),
        updated_at: meta.int("last_updated_timestamp")?.unwrap_or_default(),
        tags: values(&folder.join("tags"))?,
    })
}
