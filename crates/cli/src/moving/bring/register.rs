//! Registered models of a sync. Numbers are given by the server: a version of the store becomes the
//! next version there, by an ordinary registration, once. The server remembers which one it is.

use falaj_moving::record::{RegisteredModel, Version};
use serde_json::{Value, json};

use super::{Bring, mark_of};
use crate::exit::Result;
use crate::moving::Kind;

/// How many versions go into one request.
const VERSIONS: usize = 100;

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
        let all: Vec<Value> = model.versions.iter().map(|one| self.version(one)).collect();
        let mut parts: Vec<&[Value]> = all.chunks(VERSIONS).collect();
        if parts.is_empty() {
            // A model without versions comes as well.
            parts.push(&[]);
        }
        let mut whole = true;
        for part in parts {
            let body = json!({
                "name": model.name, "description": model.description, "tags": model.tags,
                "versions": part,
            });
            match self.send("versions", body).await {
                Ok(reply) => whole &= self.account_for_versions(model, &reply),
                Err(refused) if refused.is_refusal() => {
                    let (name, why) = (&model.name, refused.message());
                    self.account.refused(format!("the registered model {name}: {why}"));
                    return Ok(false);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(whole)
    }

    /// Says what became of versions, and tells whether there is nothing to try again.
    fn account_for_versions(&mut self, model: &RegisteredModel, reply: &Value) -> bool {
        let name = &model.name;
        if reply["created"] == true {
            self.account.sent(Kind::Models, 1);
        }
        if reply["model"].is_null() {
            self.account.note(format!("the model {name} was deleted on the server; left out"));
        }
        let mut whole = true;
        for one in reply["versions"].as_array().into_iter().flatten() {
            let number = &one["version"];
            match one["outcome"].as_str() {
                Some("registered") => self.account.sent(Kind::Versions, 1),
                Some("refused") => {
                    whole = false;
                    let here = model.versions.iter().find(|version| *number == version.version);
                    let lost = here.filter(|version| self.place(version).is_empty());
                    let why = match lost {
                        Some(version) if self.is_half_there(version) => {
                            "its files did not all come".to_owned()
                        }
                        Some(version) => {
                            format!("its files at {} are those of no run", version.source)
                        }
                        None => one["why"].as_str().unwrap_or_default().to_owned(),
                    };
                    self.account
                        .refused(format!("version {number} of {name} was not registered: {why}"));
                }
                _ => {}
            }
        }
        whole
    }

    fn version(&self, version: &Version) -> Value {
        json!({
            "version": version.version,
            "description": version.description.as_deref().unwrap_or_default(),
            "tags": version.tags,
            "run_link": version.run_link,
            "run_id": version.run_id.as_deref().filter(|run| !run.is_empty()),
            "model_id": version.logged_model,
            "source": self.place(version),
        })
    }

    /// Where something of it is on the server, among the files of a run or a logged model.
    fn found(&self, version: &Version) -> Option<String> {
        let moved = self.moved(&version.location).or_else(|| self.moved(&version.source));
        moved.or_else(|| self.moved_run(&version.source))
    }

    /// Whether some of its files did not come. They may another time: what is registered is signed
    /// as it is then.
    fn is_half_there(&self, version: &Version) -> bool {
        self.found(version).is_some_and(|place| self.lacks_files(&place))
    }

    /// Where its files are on the server; nothing if they did not come.
    fn place(&self, version: &Version) -> String {
        if self.is_half_there(version) {
            return String::new();
        }
        if let Some(id) = &version.logged_model {
            return format!("models:/{id}");
        }
        if let Some(moved) = self.found(version) {
            return moved;
        }
        let local = falaj_moving::artifact::local_path(&version.source).is_some();
        if local && version.source.contains('/') {
            return String::new();
        }
        version.source.clone()
    }
}
