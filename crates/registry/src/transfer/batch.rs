//! What is looked at before anything is written: sizes, names, and whether the caller may read the
//! files that versions name.

use falaj_base::{Error, Result};
use falaj_mlflow::Call;
use falaj_tracking::artifact::{ArtifactPath, climbs, collects_tokens, proxied_path};
use falaj_tracking::transfer::check_count;
use falaj_tracking::{RUN_READ, RunId};

use super::wire::{ModelIn, VersionIn};
use crate::Registry;
use crate::alias::check_free;
use crate::model::check_name;
use crate::tag::{check_text, is_prompt};
use crate::version::{Stage, check_prompt};

/// Numbers beyond this are not taken: there must be room to count on.
const LAST_VERSION: i64 = 1 << 53;

impl Registry {
    pub(super) fn check_batch(&self, batch: &[ModelIn]) -> Result<()> {
        let config = self.config();
        let most = config.max_import_batch;
        let count = |field: &'static str, count: usize| check_count(field, count, most);
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
        Stage::parse(&version.stage)?;
        let description = version.description.as_deref().unwrap_or("");
        check_text("description", description, config.max_description)?;
        check_text("source", &version.source, config.max_source)?;
        check_text("location", &version.location, config.max_source)?;
        check_text("run_link", &version.run_link, config.max_source)?;
        check_text("run_id", version.run_id.as_deref().unwrap_or(""), 256)?;
        check_text("logged_model", version.logged_model.as_deref().unwrap_or(""), 256)?;
        check_text("created_by", &version.created_by, 256)?;
        for (field, text) in [("source", &version.source), ("location", &version.location)] {
            let local = text.starts_with('/') || text.to_ascii_lowercase().starts_with("file:");
            if climbs(text) || local || collects_tokens(text) {
                let want = "a place that clients reach, neither a path on somebody's machine nor a \
                            host that would be sent their tokens";
                return Err(Error::invalid(field, text, want));
            }
            files(text)?;
        }
        match &config.version_sources {
            Some(_) if is_prompt(&version.tags) => check_prompt(&version.source),
            // Both: one is what it was registered from, the other where clients are sent.
            Some(pattern) => {
                pattern.check(&version.source).and_then(|()| pattern.check(&version.location))
            }
            None => Ok(()),
        }
    }

    /// Asks whether the caller may read the files that a version names, as a registration does, and
    /// tells the run behind them, if the caller may know of it.
    pub(super) async fn may_name(
        &self,
        call: &Call,
        version: &VersionIn,
    ) -> Result<Option<String>> {
        for place in [&version.source, &version.location] {
            if let Some(path) = files(place)? {
                let path = ArtifactPath::new(path)?;
                self.tracking().artifact_owner(call, &path, &RUN_READ).await?;
            }
        }
        // What was a run there need not be one here: then there is nothing that could be read.
        let named = version.source.strip_prefix("runs:/").and_then(|rest| rest.split('/').next());
        if let Some(run) = named.filter(|run| RunId::parse(run).is_ok_and(|id| id.is_some()))
            && self.tracking().run_in(call.place.id, run).await?.is_some()
        {
            self.tracking().home(call, run, &RUN_READ).await?;
        }
        let run = version.run_id.as_deref().filter(|run| !run.is_empty());
        let run = run.filter(|run| RunId::parse(run).is_ok_and(|id| id.is_some()));
        self.readable(call, run).await
    }
}

/// Where a version's files lie here, if they do.
pub(super) fn files(location: &str) -> Result<Option<String>> {
    proxied_path(location)
        .map(|path| ArtifactPath::new(path).map(|path| path.to_string()))
        .transpose()
}
