//! Logged models: likewise.

use std::collections::HashSet;

use falaj_moving::digest;
use falaj_moving::record::{Experiment, LoggedModel, Stage};
use reqwest::Method;
use serde_json::Value;

use super::files::Found;
use super::{Bring, has_all, mark_of};
use crate::exit::{Exit, Result};
use crate::moving::{Kind, Way};

/// How many go into one request.
const MODELS: usize = 50;

/// A model, what it looks like in the store, and its files.
struct Read {
    model: LoggedModel,
    mark: String,
    files: Option<Found>,
}

impl Bring<'_> {
    pub(super) async fn logged_models(&mut self, from: &Experiment, landed: &str) -> Result<()> {
        let all = self.source.logged_models(&from.id).await?;
        let mut wanted = Vec::new();
        for mut model in all {
            if self.way == Way::Sync && model.stage == Stage::Deleted {
                continue;
            }
            if from.stage == Stage::Deleted {
                model.stage = Stage::Deleted;
            }
            self.account.found(Kind::LoggedModels, 1);
            landed.clone_into(&mut model.experiment);
            let to = folder(&model);
            model.stays_at = self.stays(&model.artifact_uri, &to);
            // What points at a run that does not come has nothing to point at.
            model.inputs.retain(|run| !self.left_out.contains(run));
            model.outputs.retain(|(run, _)| !self.left_out.contains(run));
            model.metrics.retain(|metric| !self.left_out.contains(&metric.run));
            let mut files = None;
            if model.stays_at.is_none() {
                let what = format!("logged model {}", model.id);
                files = self.look(&what, &model.artifact_uri, &to).await?;
            }
            let mark = mark_of(&model, "", &Found::extent(files.as_ref()));
            if self.way == Way::Import || self.wants("the logged model", &model.id, &mark) {
                wanted.push(Read { model, mark, files });
            }
        }
        while !wanted.is_empty() {
            let rest = wanted.split_off(wanted.len().min(MODELS));
            self.some_models(wanted).await?;
            wanted = rest;
        }
        Ok(())
    }

    async fn some_models(&mut self, some: Vec<Read>) -> Result<()> {
        let ids: Vec<&str> = some.iter().map(|one| one.model.id.as_str()).collect();
        let here = self.project.check(&[], &ids).await?;
        let missing: Vec<&LoggedModel> = some
            .iter()
            .map(|one| &one.model)
            .filter(|model| !here.get(&model.id).is_some_and(|h| is(model, h)))
            .collect();
        let (mut differing, mut left_out) = (HashSet::new(), HashSet::new());
        if !self.dry_run && !missing.is_empty() {
            let to = ("logged-models", "logged_models");
            let done = self.deliver(to, &missing, |model| &model.id).await?;
            left_out = self.account_for("logged model", done);
            self.left_out.extend(left_out.iter().cloned());
            let missing: Vec<&LoggedModel> =
                missing.into_iter().filter(|model| !left_out.contains(&model.id)).collect();
            self.account.sent(Kind::LoggedModels, missing.len());
            let ids: Vec<&str> = missing.iter().map(|model| model.id.as_str()).collect();
            let here = self.project.check(&[], &ids).await?;
            for model in &missing {
                let Some(there) = here.get(&model.id) else {
                    self.account.differs(format!("logged model {} is not there", model.id));
                    differing.insert(model.id.clone());
                    continue;
                };
                for (what, ours) in parts(model) {
                    let theirs = there[what].as_str();
                    let label = format!("{what} of logged model {}", model.id);
                    if self.way == Way::Sync
                        && self.holds_model(model, (what, &label), &ours, theirs).await?
                    {
                        continue;
                    }
                    if !self.account.compare(&label, &ours, theirs) {
                        differing.insert(model.id.clone());
                    }
                }
            }
        }
        let mut marks = Vec::new();
        for Read { model, mark, files } in some {
            if left_out.contains(&model.id) {
                self.incomplete.insert(folder(&model));
                continue;
            }
            let complete = match files {
                Some(files) => self.copy_files(files, &folder(&model)).await?,
                None => true,
            };
            if complete && !differing.contains(&model.id) {
                marks.push((model.id, mark));
            }
        }
        self.settle("logged_models", marks).await
    }

    /// Whether the server holds everything that the store does: others may have added to it there.
    async fn holds_model(
        &mut self,
        model: &LoggedModel,
        (what, label): (&str, &str),
        ours: &str,
        theirs: Option<&str>,
    ) -> Result<bool> {
        let pairs = match (what, theirs) {
            (_, None) => return Ok(false),
            (_, Some(theirs)) if theirs == ours => return Ok(true),
            // What was deleted there stays so.
            ("stage", _) => return Ok(true),
            ("params", _) => &model.params,
            ("tags", _) => &model.tags,
            (_, Some(theirs)) => return Ok(self.has_more(label, ours, theirs)),
        };
        let call =
            self.project.mlflow(Method::GET, &format!("mlflow/logged-models/{}", model.id))?;
        let found = match self.project.client.json(call).await {
            Err(gone) if gone.exit() == Exit::NotFound => return Ok(false),
            found => found?,
        };
        let (info, data) = (&found["model"]["info"], &found["model"]["data"]);
        Ok(has_all(if what == "tags" { &info["tags"] } else { &data["params"] }, pairs))
    }
}

fn folder(model: &LoggedModel) -> String {
    format!("{}/models/{}/artifacts", model.experiment, model.id)
}

/// What a server should say of a model.
fn parts(model: &LoggedModel) -> [(&'static str, String); 5] {
    [
        ("stage", model.stage.as_str().to_owned()),
        ("params", digest::pairs(&model.params)),
        ("tags", digest::pairs(&model.tags)),
        ("metrics", digest::model_metrics(model)),
        ("links", digest::links(model)),
    ]
}

fn is(model: &LoggedModel, there: &Value) -> bool {
    parts(model).iter().all(|(what, ours)| there[*what] == *ours)
}
