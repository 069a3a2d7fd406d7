//! Logged models and registered models.

use falaj_moving::record::{LoggedModel, RegisteredModel};
use falaj_moving::{Source, digest};
use reqwest::Method;
use serde_json::{Value, json};

use super::mlflow::Move;
use super::read;
use crate::exit::Result;
use crate::moving::{Account, Kind, Project};

/// What a search must ask for to see prompts, which it hides otherwise.
const PROMPTS: &str = "tags.`mlflow.prompt.is_prompt` = 'true'";

impl Move {
    pub(super) async fn logged_models(&mut self, experiment: &str) -> Result<()> {
        let mut token = None;
        loop {
            let body = json!({
                "experiment_ids": [experiment],
                "max_results": 100,
                "page_token": token,
            });
            let call = self.project.mlflow(Method::POST, "mlflow/logged-models/search")?.body(body);
            let page = self.project.client.json(call).await?;
            for one in page["models"].as_array().into_iter().flatten() {
                let model = read::logged_model(one);
                let links = self.links.remove(&model.id).unwrap_or_default();
                let model = LoggedModel { inputs: links.inputs, outputs: links.outputs, ..model };
                self.database.put_logged_model(&model)?;
                self.account.found(Kind::LoggedModels, 1);
                self.account.sent(Kind::LoggedModels, 1);
                self.copy_files(&model.artifact_uri).await?;
            }
            token = page["next_page_token"].as_str().map(str::to_owned);
            if token.is_none() {
                return Ok(());
            }
        }
    }

    pub(super) async fn registered_models(&mut self) -> Result<Vec<RegisteredModel>> {
        let mut all = Vec::new();
        for filter in [None, Some(PROMPTS)] {
            let found = self.found("mlflow/registered-models/search", "registered_models", filter);
            for one in found.await? {
                let mut model = read::registered_model(&one);
                self.versions(&mut model).await?;
                self.database.put_registered_model(&model)?;
                self.account.found(Kind::Models, 1);
                self.account.found(Kind::Versions, model.versions.len());
                self.account.found(Kind::Aliases, model.aliases.len());
                self.account.sent(Kind::Models, 1);
                self.account.sent(Kind::Versions, model.versions.len());
                self.account.sent(Kind::Aliases, model.aliases.len());
                all.push(model);
            }
        }
        Ok(all)
    }

    async fn versions(&mut self, model: &mut RegisteredModel) -> Result<()> {
        let name = model.name.replace('\'', "''");
        let filter = if model.tags.iter().any(|(key, _)| key == "mlflow.prompt.is_prompt") {
            format!("name = '{name}' AND {PROMPTS}")
        } else {
            format!("name = '{name}'")
        };
        let found = self.found("mlflow/model-versions/search", "model_versions", Some(&filter));
        for one in found.await? {
            let number = one["version"].as_str().unwrap_or_default();
            let call = self
                .project
                .mlflow(Method::GET, "mlflow/model-versions/get-download-uri")?
                .query("name", Some(&model.name))
                .query("version", Some(number));
            let place = self.project.client.json(call).await?;
            let location = place["artifact_uri"].as_str().unwrap_or_default().to_owned();
            // Files that belong to no run come along as well.
            if location.starts_with("mlflow-artifacts:/registered/") {
                self.copy_files(&location).await?;
            }
            model.versions.push(read::version(&one, location));
        }
        model.versions.sort_by_key(|version| version.version);
        model.last_version = model.versions.last().map_or(0, |version| version.version);
        Ok(())
    }

    /// Every result of a search.
    async fn found(&self, path: &str, field: &str, filter: Option<&str>) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let call = self
                .project
                .mlflow(Method::GET, path)?
                .query("filter", filter)
                .query("max_results", Some("1000"))
                .query("page_token", token.as_deref());
            let mut page = self.project.client.json(call).await?;
            if let Value::Array(items) = page[field].take() {
                all.extend(items);
            }
            token = page["next_page_token"].as_str().map(str::to_owned);
            if token.is_none() {
                return Ok(all);
            }
        }
    }
}

/// Compares the logged models that were written with those the server has.
pub(super) async fn verify(
    written: &Source,
    project: &Project,
    account: &mut Account,
    experiment: &str,
) -> Result<()> {
    for some in written.logged_models(experiment).await?.chunks(100) {
        let ids: Vec<&str> = some.iter().map(|model| model.id.as_str()).collect();
        let here = project.check(&[], &ids).await?;
        for model in some {
            for (what, ours) in [
                ("params", digest::pairs(&model.params)),
                ("tags", digest::pairs(&model.tags)),
                ("metrics", digest::model_metrics(model)),
                ("links", digest::links(model)),
            ] {
                let theirs = here.get(&model.id).and_then(|here| here[what].as_str());
                account.compare(&format!("{what} of logged model {}", model.id), &ours, theirs);
            }
        }
    }
    Ok(())
}

/// Compares the registered models that were written with those that were read.
pub(super) async fn verify_registered(
    written: &Source,
    read: &[RegisteredModel],
    account: &mut Account,
) -> Result<()> {
    let written = written.registered_models().await?;
    for model in read {
        let found = written.iter().find(|one| one.name == model.name);
        for (what, digest) in [
            ("versions", digest::versions as fn(&RegisteredModel) -> String),
            ("aliases", digest::aliases),
            ("tags", |model| digest::pairs(&model.tags)),
        ] {
            let label = format!("{what} of registered model {}", model.name);
            let theirs = found.map(digest);
            account.compare(&label, &digest(model), theirs.as_deref());
        }
    }
    Ok(())
}
