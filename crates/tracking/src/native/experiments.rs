//! Experiments in our own words, and the folders above them: a name is a path, and what stands
//! before its last slash is its folder.

use std::collections::BTreeMap;
use std::sync::Arc;

use falaj_base::{Ctx, Error, Page, Result, Timestamp};
use falaj_web::{Created, Endpoint, Input, NoContent, Ok200, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    EXPERIMENT, EXPERIMENT_RESTORE, EXPERIMENTS, ExperimentPath, FOLDERS, Native, ProjectPath,
};
use crate::experiment::{Experiment, NewExperiment, Stage, ViewType};
use crate::{EXPERIMENT_CREATE, EXPERIMENT_DELETE, EXPERIMENT_READ, EXPERIMENT_UPDATE};

pub(super) fn routes(native: &Arc<Native>) -> Vec<Endpoint> {
    Routes::new(native.clone())
        .get(EXPERIMENTS, &EXPERIMENT_READ, "List experiments", list)
        .post(EXPERIMENTS, &EXPERIMENT_CREATE, "Create an experiment", create)
        .get(EXPERIMENT, &EXPERIMENT_READ, "Show an experiment", show)
        .delete(EXPERIMENT, &EXPERIMENT_DELETE, "Delete an experiment, recoverably", delete)
        .post(EXPERIMENT_RESTORE, &EXPERIMENT_UPDATE, "Restore a deleted experiment", restore)
        .get(FOLDERS, &EXPERIMENT_READ, "List the folders above experiments", folders)
        .into()
}

/// An experiment as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
struct View {
    experiment_id: String,
    name: String,
    /// What stands before the last slash of its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
    lifecycle_stage: Stage,
    artifact_location: String,
    created_at: Timestamp,
    updated_at: Timestamp,
    tags: BTreeMap<String, String>,
}

impl From<Experiment> for View {
    fn from(experiment: Experiment) -> Self {
        Self {
            experiment_id: experiment.id.to_string(),
            folder: folder_of(&experiment.name).map(str::to_owned),
            name: experiment.name,
            lifecycle_stage: experiment.stage,
            artifact_location: experiment.artifact_location,
            created_at: moment(experiment.created_at),
            updated_at: moment(experiment.updated_at),
            tags: experiment.tags.into_iter().collect(),
        }
    }
}

/// A moment that is kept in milliseconds.
pub(super) fn moment(millis: i64) -> Timestamp {
    Timestamp::from_micros(millis.saturating_mul(1000))
}

/// The folder that a name lies in; an experiment at the top has none.
fn folder_of(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(folder, _)| folder).filter(|folder| !folder.is_empty())
}

/// Which experiments: those that are there, those in the bin, or both.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum View3 {
    #[default]
    Active,
    Deleted,
    All,
}

impl From<View3> for ViewType {
    fn from(view: View3) -> Self {
        match view {
            View3::Active => Self::ActiveOnly,
            View3::Deleted => Self::DeletedOnly,
            View3::All => Self::All,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// `active` (the default), `deleted` or `all`.
    #[serde(default)]
    view: View3,
    /// Only what lies in this folder, at any depth.
    #[schemars(length(max = 500))]
    folder: Option<String>,
    /// Only the one with this name.
    #[schemars(length(max = 500))]
    name: Option<String>,
    /// How many items at most, 1 to 1000; 100 if absent.
    #[schemars(range(min = 1, max = 1000))]
    page_size: Option<u32>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 64))]
    page_token: Option<String>,
}

async fn list(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ProjectPath, ListQuery>,
) -> Result<Ok200<Page<View>>> {
    let ListQuery { view, folder, name, page_size, page_token } = input.query;
    let limit = falaj_base::PageQuery { page_size, page_token: None }.limit()?;
    let after = match page_token.as_deref() {
        None => -1,
        Some(token) => token.parse::<i64>().ok().filter(|id| *id >= 0).ok_or_else(|| {
            Error::invalid("page_token", token, "the `next_page_token` of the page before")
        })?,
    };
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let view = ViewType::from(view);
    let mut found = n.tracking().visible_experiments(&call).await?;
    found.retain(|experiment| {
        experiment.id.0 > after
            && view.shows(experiment.stage)
            && folder.as_deref().is_none_or(|folder| is_below(&experiment.name, folder))
            && name.as_ref().is_none_or(|name| *name == experiment.name)
    });
    found.truncate(limit + 1);
    let page = Page::cut(found, limit, |experiment| experiment.id.to_string());
    let items = page.items.into_iter().map(View::from).collect();
    Ok(Ok200(Page { items, next_page_token: page.next_page_token }))
}

fn is_below(name: &str, folder: &str) -> bool {
    let folder = folder.trim_matches('/');
    let name = name.trim_start_matches('/');
    folder.is_empty() || name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// Slashes in it make folders.
    #[schemars(length(min = 1, max = 500))]
    name: String,
    /// Where its artifacts lie; with this server if absent.
    artifact_location: Option<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

async fn create(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ProjectPath, (), Create>,
) -> Result<Created<View>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let Create { name, artifact_location, tags } = input.body;
    let new = NewExperiment { name, artifact_location, tags: tags.into_iter().collect() };
    let made = n.tracking().create_experiment(&call, new).await?;
    let made = n.tracking().experiment(&call, made, &EXPERIMENT_READ).await?;
    Ok(Created(made.into()))
}

async fn show(n: Arc<Native>, ctx: Ctx, input: Input<ExperimentPath>) -> Result<Ok200<View>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let id = input.path.experiment.parse()?;
    n.tracking().experiment(&call, id, &EXPERIMENT_READ).await.map(|found| Ok200(found.into()))
}

async fn delete(n: Arc<Native>, ctx: Ctx, input: Input<ExperimentPath>) -> Result<NoContent> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let id = input.path.experiment.parse()?;
    n.tracking().delete_experiment(&call, id).await.map(|()| NoContent)
}

async fn restore(n: Arc<Native>, ctx: Ctx, input: Input<ExperimentPath>) -> Result<NoContent> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let id = input.path.experiment.parse()?;
    n.tracking().restore_experiment(&call, id).await.map(|()| NoContent)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FoldersQuery {
    /// Only folders in this one; those at the top if absent.
    #[schemars(length(max = 500))]
    under: Option<String>,
}

/// A folder with something in it.
#[derive(Debug, Serialize, JsonSchema)]
struct Folder {
    folder: String,
    /// Experiments in it, at any depth.
    experiments: u64,
}

async fn folders(
    n: Arc<Native>,
    ctx: Ctx,
    input: Input<ProjectPath, FoldersQuery>,
) -> Result<Ok200<Page<Folder>>> {
    let call = n.call(&ctx, &input.path.tenant, &input.path.project).await?;
    let found = n.tracking().visible_experiments(&call).await?;
    let names = found.iter().filter(|e| e.stage == Stage::Active).map(|e| e.name.as_str());
    let counts = counted(names, input.query.under.as_deref().unwrap_or(""));
    let items =
        counts.into_iter().map(|(folder, experiments)| Folder { folder, experiments }).collect();
    Ok(Ok200(Page { items, next_page_token: None }))
}

/// The folders directly in `under`, each with how many names lie below it.
fn counted<'n>(names: impl Iterator<Item = &'n str>, under: &str) -> BTreeMap<String, u64> {
    let under = under.trim_matches('/');
    let mut counts = BTreeMap::new();
    for name in names {
        let name = name.trim_start_matches('/');
        let rest = match under {
            "" => Some(name),
            under => name.strip_prefix(under).and_then(|rest| rest.strip_prefix('/')),
        };
        let Some((child, _)) = rest.and_then(|rest| rest.split_once('/')) else { continue };
        let folder = if under.is_empty() { child.to_owned() } else { format!("{under}/{child}") };
        *counts.entry(folder).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths() {
        for (name, folder) in [
            ("a", None),
            ("a/b", Some("a")),
            ("a/b/c", Some("a/b")),
            ("/a", None),
            ("/Users/mona/x", Some("/Users/mona")),
        ] {
            assert_eq!(folder_of(name), folder, "{name}");
        }
        for (name, folder, below) in [
            ("a/b", "a", true),
            ("a/b/c", "a/", true),
            ("/a/b", "a", true),
            ("a", "a", false),
            ("ab/c", "a", false),
            ("x", "", true),
        ] {
            assert_eq!(is_below(name, folder), below, "{name} in {folder}");
        }
    }

    #[test]
    fn folders_count_what_is_below_them() {
        let names = ["top", "cv/a", "cv/b/x", "cv/b/y", "nlp/a", "/lm/z"];
        let at = |under: &str| counted(names.into_iter(), under).into_iter().collect::<Vec<_>>();
        let pairs = |list: &[(&str, u64)]| {
            list.iter().map(|(folder, n)| ((*folder).to_owned(), *n)).collect::<Vec<_>>()
        };
        assert_eq!(at(""), pairs(&[("cv", 3), ("lm", 1), ("nlp", 1)]));
        assert_eq!(at("cv"), pairs(&[("cv/b", 2)]));
        assert_eq!(at("cv/b"), pairs(&[]));
    }
}
