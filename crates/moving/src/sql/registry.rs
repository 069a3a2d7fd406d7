//! Registered models in tables.

use std::collections::HashMap;

use super::SqlStore;
use super::engine::Row;
use crate::error::Result;
use crate::files::DELETED;
use crate::record::{Pairs, RegisteredModel, Version};

impl SqlStore {
    pub(crate) async fn registered_models(&self) -> Result<Vec<RegisteredModel>> {
        if !self.has("registered_models") {
            return Ok(Vec::new());
        }
        let (only, values) = self.in_workspace("registered_models");
        let sql = format!(
            "SELECT name, description, creation_time, last_updated_time FROM registered_models
             WHERE {only} ORDER BY name"
        );
        let rows = self.engine.query(&sql, &values).await?;
        let mut models: Vec<RegisteredModel> = rows.iter().map(model).collect();
        let places: HashMap<String, usize> =
            models.iter().enumerate().map(|(at, model)| (model.name.clone(), at)).collect();
        if self.has("registered_model_tags") {
            let (only, values) = self.in_workspace("registered_model_tags");
            let sql = format!(
                "SELECT name, key, value FROM registered_model_tags WHERE {only} ORDER BY key"
            );
            for row in self.engine.query(&sql, &values).await? {
                if let Some(at) = places.get(&row.text(0)) {
                    models[*at].tags.push((row.text(1), row.text(2)));
                }
            }
        }
        if self.has("registered_model_aliases") {
            let (only, values) = self.in_workspace("registered_model_aliases");
            let sql = format!(
                "SELECT name, alias, version FROM registered_model_aliases WHERE {only}
                 ORDER BY alias"
            );
            for row in self.engine.query(&sql, &values).await? {
                if let (Some(at), Some(version)) = (places.get(&row.text(0)), row.int(2)) {
                    models[*at].aliases.push((row.text(1), version));
                }
            }
        }
        self.add_versions(&mut models, &places).await?;
        Ok(models)
    }

    async fn add_versions(
        &self,
        models: &mut [RegisteredModel],
        places: &HashMap<String, usize>,
    ) -> Result<()> {
        let mut tags: HashMap<(String, i64), Pairs> = HashMap::new();
        if self.has("model_version_tags") {
            let (only, values) = self.in_workspace("model_version_tags");
            let sql = format!(
                "SELECT name, version, key, value FROM model_version_tags WHERE {only} ORDER BY key"
            );
            for row in self.engine.query(&sql, &values).await? {
                let of = (row.text(0), row.int(1).unwrap_or_default());
                tags.entry(of).or_default().push((row.text(2), row.text(3)));
            }
        }
        let (only, values) = self.in_workspace("model_versions");
        let sql = format!(
            "SELECT name, version, description, current_stage, source, {location}, run_id, {link},
                 user_id, creation_time, last_updated_time
             FROM model_versions WHERE {only} ORDER BY name, version",
            location = self.column("model_versions", "storage_location"),
            link = self.column("model_versions", "run_link"),
        );
        for row in self.engine.query(&sql, &values).await? {
            let name = row.text(0);
            let Some(at) = places.get(&name) else { continue };
            let mut version = version(&row);
            let model = &mut models[*at];
            model.last_version = model.last_version.max(version.version);
            if version.stage != DELETED {
                version.tags = tags.remove(&(name, version.version)).unwrap_or_default();
                model.versions.push(version);
            }
        }
        Ok(())
    }
}

fn model(row: &Row) -> RegisteredModel {
    RegisteredModel {
        name: row.text(0),
        description: row.text(1),
        created_at: row.int(2).unwrap_or_default(),
        updated_at: row.int(3).unwrap_or_default(),
        ..RegisteredModel::default()
    }
}

fn version(row: &Row) -> Version {
    let source = row.text(4);
    let logged = source.strip_prefix("models:/").filter(|id| id.starts_with("m-"));
    Version {
        version: row.int(1).unwrap_or_default(),
        description: row.opt_text(2),
        stage: row.opt_text(3).filter(|stage| !stage.is_empty()).unwrap_or_else(|| "None".into()),
        location: row.opt_text(5).filter(|place| !place.is_empty()).unwrap_or(source.clone()),
        run_id: row.opt_text(6),
        run_link: row.text(7),
        logged_model: logged.map(str::to_owned),
        created_by: row.text(8),
        created_at: row.int(9).unwrap_or_default(),
        updated_at: row.int(10).unwrap_or_default(),
        tags: Vec::new(),
        source,
    }
}
