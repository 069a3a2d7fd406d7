//! Logged models: likewise.

use falaj_moving::digest;
use falaj_moving::record::LoggedModel;
use serde_json::{Value, json};

use super::mlflow::Move;
use crate::exit::Result;
use crate::moving::Kind;

/// How many go into one request.
const MODELS: usize = 50;

impl Move {
    pub(super) async fn logged_models(&mut self, experiment: &str, landed: &str) -> Result<()> {
        let mut all = self.source.logged_models(experiment).await?;
        self.account.found(Kind::LoggedModels, all.len());
        for model in &mut all {
            landed.clone_into(&mut model.experiment);
            let to = format!("{landed}/models/{}/artifacts", model.id);
            model.stays_at = self.stays(&model.artifact_uri, &to);
        }
        for some in all.chunks(MODELS) {
            self.some_models(some).await?;
        }
        Ok(())
    }

    async fn some_models(&mut self, some: &[LoggedModel]) -> Result<()> {
        let ids: Vec<&str> = some.iter().map(|model| model.id.as_str()).collect();
        let here = self.project.check(&[], &ids).await?;
        let missing: Vec<&LoggedModel> = some
            .iter()
            .filter(|model| !here.get(&model.id).is_some_and(|h| is(model, h)))
            .collect();
        if !self.dry_run && !missing.is_empty() {
            self.account.sent(Kind::LoggedModels, missing.len());
            self.project.import("logged-models", &json!({ "logged_models": missing })).await?;
            let here = self.project.check(&[], &ids).await?;
            for model in &missing {
                let Some(there) = here.get(&model.id) else {
                    self.account.differs(format!("logged model {} is not there", model.id));
                    continue;
                };
                for (what, ours) in parts(model) {
                    let label = format!("{what} of logged model {}", model.id);
                    self.account.compare(&label, &ours, there[what].as_str());
                }
            }
        }
        for model in some {
            if model.stays_at.is_none() {
                let to = format!("{}/models/{}/artifacts", model.experiment, model.id);
                self.copy_files(&model.artifact_uri, &to).await?;
            }
        }
        Ok(())
    }
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
