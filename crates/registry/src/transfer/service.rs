//! Taking models in.

use falaj_base::{Error, ProjectId, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_tracking::artifact::{ArtifactPath, proxied_path};

use super::wire::{ModelIn, Models, ModelsHere, VersionIn};
use super::{digest, store};
use crate::access::{Act, lock, no_version, resource};
use crate::alias::{check_free, store as aliases};
use crate::history::{Kind, Move, store as history};
use crate::model::{Model, RegisteredId, check_name, store as models};
use crate::tag::check_text;
use crate::version::{Stage, Version, store as versions};
use crate::{MODEL_IMPORT, Registry};

/// Numbers beyond this are not taken: there must be room to count on.
const LAST_VERSION: i64 = 1 << 53;

impl Registry {
    pub(super) async fn import_models(&self, call: &Call, batch: Models) -> Result<ModelsHere> {
        self.check_batch(&batch.models)?;
        let place = &call.place;
        let whole = place.resource();
        call.ctx.authorize(&MODEL_IMPORT, &whole).await?;
        for model in &batch.models {
            call.ctx.authorize(&MODEL_IMPORT, &resource(place, &model.name, false)).await?;
        }
        let project = place.id;
        let act = Act {
            ctx: call.ctx.clone(),
            action: &MODEL_IMPORT,
            resource: whole,
            now: self.tracking().now_ms(),
        };
        let mut batch = batch;
        // In one order, lest two imports wait for each other.
        batch.models.sort_by(|a, b| a.name.cmp(&b.name));
        let write = move |tx: &mut Tx<'_>| {
            let mut here = Vec::with_capacity(batch.models.len());
            for model in &batch.models {
                tx.lock(&lock(project, &model.name))?;
                let created = import(tx, project, model, &act, batch.dry_run)?;
                here.push(digest::of_model(tx, project, &model.name, created)?);
            }
            let change: Change<'_> = act.change().detail("models", here.len());
            act.record(tx, change)?;
            Ok(ModelsHere { models: here })
        };
        self.db().write(write).await
    }

    fn check_batch(&self, batch: &[ModelIn]) -> Result<()> {
        let config = self.config();
        let most = config.max_import_batch;
        let count = |field: &'static str, count: usize| {
            if count > most {
                return Err(Error::invalid(field, count, format!("at most {most} in one request")));
            }
            Ok(())
        };
        count("models", batch.len())?;
        for model in batch {
            check_name("name", &model.name)?;
            check_text("description", &model.description, config.max_description)?;
            count("versions", model.versions.len())?;
            count("aliases", model.aliases.len())?;
            count("tags", model.tags.len())?;
            let tags = model.versions.iter().flat_map(|version| &version.tags);
            for (key, value) in tags.chain(&model.tags) {
                check_text("key", key, 500)?;
                check_text("value", value, config.max_tag_value)?;
            }
            if !(0..=LAST_VERSION).contains(&model.last_version) {
                let want = format!("a number from 0 to {LAST_VERSION}");
                return Err(Error::invalid("last_version", model.last_version, want));
            }
            for (alias, _) in &model.aliases {
                check_free(alias)?;
            }
            for version in &model.versions {
                self.check_version(version)?;
                count("tags", version.tags.len())?;
            }
        }
        Ok(())
    }

    fn check_version(&self, version: &VersionIn) -> Result<()> {
        let config = self.config();
        if !(1..=LAST_VERSION).contains(&version.version) {
            let want = format!("a number from 1 to {LAST_VERSION}");
            return Err(Error::invalid("version", version.version, want));
        }
        let description = version.description.as_deref().unwrap_or("");
        check_text("description", description, config.max_description)?;
        check_text("source", &version.source, config.max_source)?;
        check_text("location", &version.location, config.max_source)?;
        check_text("run_link", &version.run_link, config.max_source)?;
        check_text("run_id", version.run_id.as_deref().unwrap_or(""), 256)?;
        check_text("logged_model", version.logged_model.as_deref().unwrap_or(""), 256)?;
        check_text("created_by", &version.created_by, 256)?;
        for (field, text) in [("source", &version.source), ("location", &version.location)] {
            let climbs = text.split(['/', '\\']).any(|part| part == "..");
            if climbs || text.starts_with('/') || text.to_ascii_lowercase().starts_with("file:") {
                let want = "a place that clients reach, not a path on somebody's machine";
                return Err(Error::invalid(field, text, want));
            }
        }
        files(&version.location).map(drop)
    }
}

/// Where a version's files lie here, if they do.
fn files(location: &str) -> Result<Option<String>> {
    proxied_path(location)
        .map(|path| ArtifactPath::new(path).map(|path| path.to_string()))
        .transpose()
}

/// Tells whether the model is new.
fn import(
    tx: &mut Tx<'_>,
    project: ProjectId,
    from: &ModelIn,
    act: &Act,
    dry: bool,
) -> Result<bool> {
    let there = models::head(tx, project, &from.name)?;
    if there.as_ref().is_some_and(|there| there.created_at != from.created_at) {
        let text = format!("the project has another registered model named '{}'", from.name);
        return Err(Error::new(&code::ALREADY_EXISTS, text).at("name"));
    }
    let created = there.is_none();
    if dry {
        return Ok(created);
    }
    let greatest = from.versions.iter().map(|version| version.version).max().unwrap_or(0);
    let model = Model {
        id: there.as_ref().map_or_else(RegisteredId::new, |there| there.id),
        name: from.name.clone(),
        description: from.description.clone(),
        last_version: from.last_version.max(greatest),
        created_at: from.created_at,
        updated_at: from.updated_at,
        tags: from.tags.clone(),
        aliases: Vec::new(),
        latest: Vec::new(),
    };
    if created {
        models::insert(tx, project, &model)?;
    } else {
        store::update_model(tx, &model)?;
    }
    for version in &from.versions {
        import_version(tx, project, &model, version, act)?;
    }
    for (alias, number) in &from.aliases {
        let there = versions::find(tx, project, &model.name, *number)?;
        there.ok_or_else(|| no_version(&model.name, *number))?;
        let old = aliases::find(tx, model.id, alias)?;
        if old != Some(*number) {
            aliases::set(tx, model.id, alias, *number)?;
            let (old, new) = (old.map(|old| old.to_string()), number.to_string());
            let made = Move::new(Kind::Alias, alias, old.as_deref(), Some(&new));
            history::append(tx, project, model.id, act, &made)?;
        }
    }
    Ok(created)
}

fn import_version(
    tx: &mut Tx<'_>,
    project: ProjectId,
    model: &Model,
    from: &VersionIn,
    act: &Act,
) -> Result<()> {
    let version = Version {
        model: model.id,
        name: model.name.clone(),
        number: from.version,
        description: from.description.clone(),
        stage: Stage::parse(&from.stage)?,
        source: from.source.clone(),
        location: from.location.clone(),
        files: files(&from.location)?,
        run_id: from.run_id.clone(),
        run_link: from.run_link.clone(),
        logged_model: from.logged_model.clone(),
        created_by: from.created_by.clone(),
        created_at: from.created_at,
        updated_at: from.updated_at,
        tags: from.tags.clone(),
        aliases: Vec::new(),
    };
    let old = versions::find(tx, project, &model.name, version.number)?;
    match &old {
        Some(old) if old.created_at != version.created_at => {
            let text = format!("'{}' has another version {}", model.name, version.number);
            return Err(Error::new(&code::ALREADY_EXISTS, text).at("versions.version"));
        }
        Some(_) => store::update_version(tx, &version)?,
        None => versions::insert(tx, &version)?,
    }
    let from = old.map_or(Stage::None, |old| old.stage);
    if from != version.stage {
        let (number, old, new) =
            (version.number.to_string(), from.as_str(), version.stage.as_str());
        let made = Move::new(Kind::Stage, &number, Some(old), Some(new));
        history::append(tx, project, model.id, act, &made)?;
    }
    Ok(())
}
