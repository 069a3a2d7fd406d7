//! From a request to what is registered: every run, model or version that a source names is found
//! in the project and readable by the caller, or the source is refused.

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_mlflow::error::refused;
use falaj_tracking::artifact::ArtifactPath;
use falaj_tracking::logged_model::ModelId;
use falaj_tracking::{RUN_READ, RUN_WRITE, RunId, experiment_resource};

use super::service::NewVersion;
use super::source::{Location, Source, Which, not_inside};
use super::store;
use super::version::Version;
use crate::access::{no_model, no_version, shown};
use crate::alias::{no_alias, store as aliases};
use crate::evidence::store as evidence;
use crate::model::store as models;
use crate::tag::{IS_PROMPT, is_prompt};
use crate::{MODEL_READ, Registry};

/// What clients send as the source of a prompt, which has none.
const PROMPT_SOURCES: [&str; 2] = ["dummy-source", "prompt-template"];

/// Where a new version comes from.
#[derive(Debug, Default)]
pub(super) struct Origin {
    pub(super) source: String,
    /// Where clients fetch the files.
    pub(super) location: String,
    /// Where the files lie here.
    pub(super) files: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) logged_model: Option<String>,
    /// The run that stands behind the files, if whoever registers them may read it.
    pub(super) seen_run: Option<String>,
    /// The logged model that is to know of the version.
    pub(super) noted: Option<ModelId>,
}

impl Registry {
    /// Finds what the request says a version is made from.
    pub(super) async fn origin(&self, call: &Call, new: &NewVersion) -> Result<Origin> {
        if is_prompt(&new.tags) {
            return prompt(new);
        }
        if let Some(pattern) = &self.config().version_sources {
            pattern.check(&new.source)?;
        }
        let given = |id: &Option<String>| id.clone().filter(|id| !id.is_empty());
        let (run, model) = (given(&new.run_id), given(&new.model_id));
        match (Source::parse(&new.source)?, model) {
            (Source::Version { name, which }, _) => self.copied(call, new, &name, which).await,
            (source, Some(model)) => self.of_model(call, new, source, run, &model).await,
            (source, None) => self.of_run(call, new, source, run).await,
        }
    }

    /// A version made from a version: it shares its files, and its run and model unless the
    /// request repeats them, in which case they must be the same.
    async fn copied(
        &self,
        call: &Call,
        new: &NewVersion,
        name: &str,
        which: Which,
    ) -> Result<Origin> {
        self.seen(&call.ctx, &call.place, name, &MODEL_READ, || no_model(name)).await?;
        let (project, wanted) = (call.place.id, name.to_owned());
        let find = move |tx: &mut falaj_store::db::Tx<'_>| {
            let model = models::id_of(tx, project, &wanted)?.ok_or_else(|| no_model(&wanted))?;
            let prompt = models::tag(tx, model, IS_PROMPT)?;
            let number = match which {
                Which::Number(number) => Some(number),
                Which::Newest(stage) => store::newest(tx, model, stage)?,
                Which::Alias(alias) if alias.eq_ignore_ascii_case("latest") => {
                    store::newest(tx, model, None)?
                }
                Which::Alias(alias) => {
                    Some(aliases::find(tx, model, &alias)?.ok_or_else(|| no_alias(&alias))?)
                }
            };
            let number = number.ok_or_else(|| none_such(&wanted))?;
            let found = store::find(tx, project, &wanted, number)?;
            let found = found.ok_or_else(|| no_version(&wanted, number))?;
            let run = evidence::run_of(tx, (found.model, found.number))?;
            Ok((found, prompt.is_some_and(|value| value.eq_ignore_ascii_case("true")), run))
        };
        let (from, prompt, seen_run) = self.db().read(find).await?;
        if prompt {
            let why = "Prompt versions cannot be used as model version sources.";
            return Err(refused(invalid_source(&new.source, why)).at("source"));
        }
        let same = repeats(new.run_id.as_deref(), from.run_id.as_deref())
            && repeats(new.model_id.as_deref(), from.logged_model.as_deref());
        if !same {
            let why = "The run_id and model_id request parameters must match the referenced model \
                       version.";
            return Err(refused(invalid_source(&new.source, why)).at("source"));
        }
        let Version { name, number, location, files, run_id, logged_model, .. } = from;
        let source = format!("models:/{name}/{number}");
        Ok(Origin { source, location, files, run_id, logged_model, seen_run, noted: None })
    }

    /// A version made from a logged model, which is found and readable, wherever its files are.
    async fn of_model(
        &self,
        call: &Call,
        new: &NewVersion,
        source: Source,
        run: Option<String>,
        id: &str,
    ) -> Result<Origin> {
        let outside = || not_inside(&new.source, "model_id");
        let model = self.tracking().logged_model(call, id, false).await;
        let (model, location, files) = match source {
            Source::LoggedModel(named) if named == id => {
                let model = model?;
                let location = model.artifact_uri.clone();
                let files = Location::parse(&location);
                (model, location, files)
            }
            Source::Artifacts(place) => {
                let model = model.map_err(|error| hidden(error, outside))?;
                let root = Location::parse(&model.artifact_uri).ok_or_else(outside)?;
                if !place.is_within(&root) {
                    return Err(outside());
                }
                (model, new.source.clone(), Some(place))
            }
            Source::Elsewhere => (model?, new.source.clone(), None),
            Source::LoggedModel(_) | Source::Run { .. } | Source::Version { .. } => {
                return Err(outside());
            }
        };
        // Whoever may only read the model registers it all the same.
        let home = self.tracking().logged_model_home(call, id, &RUN_READ).await?;
        let noted = call.ctx.allows(&RUN_WRITE, &home.resource).then_some(home.model);
        let seen_run = self.readable(call, model.source_run.as_deref()).await?;
        Ok(Origin {
            source: new.source.clone(),
            location,
            files: files.as_ref().map(kept).transpose()?,
            seen_run,
            run_id: run.or(model.source_run),
            logged_model: Some(model.id.to_string()),
            noted,
        })
    }

    /// A run of the project, if the caller may read it.
    pub(crate) async fn readable(&self, call: &Call, run: Option<&str>) -> Result<Option<String>> {
        let Some(run) = run else { return Ok(None) };
        let found = self.tracking().run_in(call.place.id, run).await?;
        let readable = found.is_some_and(|run| {
            let resource = experiment_resource(&call.place, run.info.experiment_id, false);
            call.ctx.allows(&RUN_READ, &resource)
        });
        Ok(readable.then(|| run.to_owned()))
    }

    async fn of_run(
        &self,
        call: &Call,
        new: &NewVersion,
        source: Source,
        run: Option<String>,
    ) -> Result<Origin> {
        let outside = || not_inside(&new.source, "run_id");
        let files = match source {
            // It cannot be a run of ours: there is nothing here that the source could reach.
            Source::Run { run: named, .. } if RunId::parse(&named)?.is_none() => None,
            Source::Run { run: named, path } => {
                if run.as_ref() != Some(&named) {
                    return Err(outside());
                }
                let found = self.tracking().run(call, &named).await;
                let found = found.map_err(|error| hidden(error, outside))?;
                Location::parse(&found.info.artifact_uri).map(|root| root.join(&path))
            }
            Source::Artifacts(place) => {
                let run = run.as_ref().ok_or_else(outside)?;
                let found = self.tracking().run(call, run).await;
                let found = found.map_err(|error| hidden(error, outside))?;
                let root = Location::parse(&found.info.artifact_uri).ok_or_else(outside)?;
                if !place.is_within(&root) {
                    return Err(outside());
                }
                Some(place)
            }
            Source::Elsewhere => None,
            Source::LoggedModel(_) | Source::Version { .. } => {
                return Err(not_inside(&new.source, "model_id"));
            }
        };
        Ok(Origin {
            source: new.source.clone(),
            location: new.source.clone(),
            // Where there are files, they are that run's, and it was found readable.
            seen_run: run.clone().filter(|_| files.is_some()),
            files: files.as_ref().map(kept).transpose()?,
            run_id: Some(run.unwrap_or_default()),
            logged_model: None,
            noted: None,
        })
    }
}

/// Refuses a source that is not what clients send for a prompt.
pub(crate) fn check_prompt(source: &str) -> Result<()> {
    if PROMPT_SOURCES.contains(&source) {
        return Ok(());
    }
    Err(refused(format!(
        "Invalid prompt source: '{}'. Prompt sources must use an MLflow placeholder.",
        shown(source)
    ))
    .at("source"))
}

fn prompt(new: &NewVersion) -> Result<Origin> {
    check_prompt(&new.source)?;
    Ok(Origin {
        source: new.source.clone(),
        location: new.source.clone(),
        run_id: Some(new.run_id.clone().unwrap_or_default()),
        ..Origin::default()
    })
}

/// The place as a path among the project's artifacts.
fn kept(place: &Location) -> Result<String> {
    ArtifactPath::new(place.path()).map(|path| path.to_string())
}

/// Whether what a request says, if anything, is what is there.
fn repeats(said: Option<&str>, there: Option<&str>) -> bool {
    said.is_none_or(|said| said == there.unwrap_or(""))
}

/// What is not there, or not for the caller, reads as a source that lies nowhere.
fn hidden(error: Error, instead: impl Fn() -> Error) -> Error {
    if *error.code() == code::NOT_FOUND { instead() } else { error }
}

fn invalid_source(source: &str, why: &str) -> String {
    format!("Invalid model version source: '{}'. {why}", shown(source))
}

fn none_such(name: &str) -> Error {
    Error::new(&code::NOT_FOUND, format!("No versions of model with name '{name}' found"))
}
