//! Registered models of a sync. Numbers are given by the server: a version of the store becomes the
//! next version there, by an ordinary registration, once. Which one it is stands in a tag.

use std::collections::HashSet;

use falaj_moving::record::{RegisteredModel, Version};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Bring, mark_of};
use crate::exit::{Exit, Failure, Result};
use crate::moving::Kind;

/// The tag of a version that a sync has registered: the store, and the number there.
const SYNCED: &str = "falaj.synced";
const IS_PROMPT: &str = "mlflow.prompt.is_prompt";

impl Bring<'_> {
    pub(super) async fn register(&mut self) -> Result<()> {
        for model in self.source.registered_models().await? {
            self.account.found(Kind::Models, 1);
            self.account.found(Kind::Versions, model.versions.len());
            let mark = mark_of(&model, "", "");
            if self.memory.registered.get(&model.name) == Some(&mark) {
                continue;
            }
            if self.register_model(&model).await? {
                self.memory.registered.insert(model.name, mark);
            }
        }
        Ok(())
    }

    /// Tells whether all of it is there now.
    async fn register_model(&mut self, model: &RegisteredModel) -> Result<bool> {
        let decided = !model.aliases.is_empty()
            || model.versions.iter().any(|version| version.stage != "None");
        if decided {
            let name = &model.name;
            self.account.note(format!(
                "aliases and stages of {name} are not synced: what is promoted is decided on the \
                 server"
            ));
        }
        if let Err(refused) = self.ensure_model(model).await {
            return self.not_registered(&model.name, refused);
        }
        let there = self.registered_versions(model).await?;
        let mut all = true;
        for version in &model.versions {
            if there.contains(&self.tag_of(version)) {
                continue;
            }
            match self.register_version(model, version).await {
                Ok(true) => self.account.sent(Kind::Versions, 1),
                Ok(false) => {}
                Err(refused) => {
                    let what = format!("version {} of {}", version.version, model.name);
                    all &= self.not_registered(&what, refused)?;
                }
            }
        }
        Ok(all)
    }

    /// What the server refuses for this one is said, and the rest goes on.
    fn not_registered(&mut self, what: &str, refused: Failure) -> Result<bool> {
        if matches!(refused.exit(), Exit::Unavailable | Exit::Unauthenticated) {
            return Err(refused);
        }
        self.account.note(format!("{what} was not registered: {}", refused.message()));
        Ok(false)
    }

    async fn ensure_model(&mut self, model: &RegisteredModel) -> Result<()> {
        let get = self.project.mlflow(Method::GET, "mlflow/registered-models/get")?;
        match self.project.client.json(get.query("name", Some(&model.name))).await {
            Err(failure) if failure.exit() == Exit::NotFound => {}
            known => return known.map(drop),
        }
        let body = json!({
            "name": model.name, "description": model.description, "tags": tags(&model.tags, None),
        });
        let make = self.project.mlflow(Method::POST, "mlflow/registered-models/create")?;
        self.project.client.json(make.body(body)).await?;
        self.account.sent(Kind::Models, 1);
        Ok(())
    }

    /// The tags of those versions that a sync has registered.
    async fn registered_versions(&self, model: &RegisteredModel) -> Result<HashSet<String>> {
        let quote = if model.name.contains('\'') { '"' } else { '\'' };
        let prompt = model.tags.iter().any(|(key, value)| key == IS_PROMPT && value == "true");
        let more = if prompt { format!(" and tags.`{IS_PROMPT}` = 'true'") } else { String::new() };
        let filter = format!("name = {quote}{}{quote}{more}", model.name);
        let (mut found, mut token) = (HashSet::new(), None::<String>);
        loop {
            let call = self.project.mlflow(Method::GET, "mlflow/model-versions/search")?;
            let call = call
                .query("filter", Some(&filter))
                .query("max_results", Some("1000"))
                .query("page_token", token.as_deref());
            let page = self.project.client.json(call).await?;
            let versions = page["model_versions"].as_array().into_iter().flatten();
            for tag in versions.flat_map(|one| one["tags"].as_array().into_iter().flatten()) {
                if tag["key"] == SYNCED {
                    found.extend(tag["value"].as_str().map(str::to_owned));
                }
            }
            token = page["next_page_token"].as_str().filter(|t| !t.is_empty()).map(str::to_owned);
            if token.is_none() {
                return Ok(found);
            }
        }
    }

    fn tag_of(&self, version: &Version) -> String {
        format!("{} {}", self.name, version.version)
    }

    /// Tells whether there was something to register.
    async fn register_version(
        &mut self,
        model: &RegisteredModel,
        version: &Version,
    ) -> Result<bool> {
        let mut body = json!({
            "name": model.name,
            "description": version.description.clone().unwrap_or_default(),
            "tags": tags(&version.tags, Some(&self.tag_of(version))),
            "run_link": version.run_link,
        });
        let run = version.run_id.as_deref().filter(|run| !run.is_empty());
        if let Some(run) = run {
            body["run_id"] = run.into();
        }
        let moved = self.moved(&version.location).or_else(|| self.moved(&version.source));
        let moved = moved.or_else(|| self.moved_run(&version.source));
        let local = falaj_moving::artifact::local_path(&version.source).is_some();
        body["source"] = match (&version.logged_model, moved) {
            (Some(id), _) => {
                body["model_id"] = id.as_str().into();
                format!("models:/{id}").into()
            }
            (None, Some(moved)) => moved.into(),
            (None, None) if local && version.source.contains('/') => {
                self.account.note(format!(
                    "version {} of {} was not registered: its files at {} are those of no run",
                    version.version, model.name, version.source
                ));
                return Ok(false);
            }
            (None, None) => version.source.as_str().into(),
        };
        let call = self.project.mlflow(Method::POST, "mlflow/model-versions/create")?;
        self.project.client.json(call.body(body)).await?;
        Ok(true)
    }
}

fn tags(pairs: &[(String, String)], synced: Option<&str>) -> Vec<Value> {
    let synced = synced.map(|value| json!({ "key": SYNCED, "value": value }));
    let all = pairs.iter().map(|(key, value)| json!({ "key": key, "value": value }));
    all.chain(synced).collect()
}
