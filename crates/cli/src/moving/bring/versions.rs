//! Registered models and their versions. A version's files mostly are those of a run or a logged
//! model, which have moved: its source and location are told anew.

use falaj_moving::digest;
use falaj_moving::record::{RegisteredModel, Version};
use serde_json::{Value, json};

use super::files::plain;
use super::{Bring, clash};
use crate::exit::Result;
use crate::moving::Kind;

/// How many versions go into one request.
const VERSIONS: usize = 500;

impl Bring<'_> {
    pub(super) async fn registered_models(&mut self) -> Result<()> {
        let all = self.source.registered_models().await?;
        for mut model in all {
            model.name = format!("{}{}", self.prefix.replace(['/', ':'], "-"), model.name);
            self.account.found(Kind::Models, 1);
            self.account.found(Kind::Versions, model.versions.len());
            self.account.found(Kind::Aliases, model.aliases.len());
            let mut whole = true;
            for version in std::mem::take(&mut model.versions) {
                let number = version.version;
                let version = match self.is_left_out(&version) {
                    Some(of) => Err(format!("{of} did not come")),
                    None => Ok(self.rehome(&model.name, version).await?),
                };
                match version {
                    // What is signed and scanned must be all of it.
                    Ok(version) if !self.lacks_files(&version.location) => {
                        model.versions.push(version);
                        continue;
                    }
                    Ok(_) => self.leave_version(&mut model, number, "its files did not all come"),
                    Err(why) => self.leave_version(&mut model, number, &why),
                }
                whole = false;
            }
            match self.send_model(&model, whole).await {
                // Its name is taken, or it is being signed or changed.
                Err(failure) if failure.is_refusal() => {
                    let (name, why) = (&model.name, failure.message());
                    let how = failure.advice().map(|how| format!(" ({how})")).unwrap_or_default();
                    self.account.refused(format!("the registered model {name}: {why}{how}"));
                }
                sent => sent?,
            }
        }
        Ok(())
    }

    /// What a version was made of, if that stays behind.
    fn is_left_out(&self, version: &Version) -> Option<String> {
        let run = version.run_id.as_ref().map(|id| ("run", id));
        let model = version.logged_model.as_ref().map(|id| ("logged model", id));
        let mut of = [run, model].into_iter().flatten();
        of.find(|(_, id)| self.left_out.contains(*id)).map(|(what, id)| format!("its {what} {id}"))
    }

    fn leave_version(&mut self, model: &mut RegisteredModel, number: i64, why: &str) {
        self.account.refused(format!("version {number} of {}: {why}", model.name));
        model.aliases.retain(|(_, to)| *to != number);
    }

    /// Of what does not come whole, versions from before may be there.
    async fn send_model(&mut self, model: &RegisteredModel, whole: bool) -> Result<()> {
        let look = RegisteredModel { versions: Vec::new(), aliases: Vec::new(), ..model.clone() };
        let body = json!({ "models": [look], "dry_run": true });
        let before = self.project.import("models", &body).await.map_err(clash)?;
        let before = &before["models"][0];
        let there = parts(model).iter().all(|(what, ours)| before[*what] == *ours);
        if self.dry_run || (there && before["created"] == false) {
            return Ok(());
        }
        self.account.sent(Kind::Models, 1);
        self.account.sent(Kind::Versions, model.versions.len());
        let mut model = model.clone();
        for some in model.versions.clone().chunks(VERSIONS) {
            let part = RegisteredModel { versions: some.to_vec(), ..look.clone() };
            let body = json!({ "models": [part] });
            let reply = self.project.import("models", &body).await.map_err(clash)?;
            self.leave_out(&mut model, &reply["models"][0]["left_out"]);
        }
        // Aliases last: they point at versions.
        let last = RegisteredModel { versions: Vec::new(), ..model.clone() };
        let after = self.project.import("models", &json!({ "models": [last] })).await?;
        self.leave_out(&mut model, &after["models"][0]["left_out"]);
        self.account.sent(Kind::Aliases, model.aliases.len());
        for (what, ours) in parts(&model) {
            if !whole && what != "tags" {
                continue;
            }
            let label = format!("{what} of registered model {}", model.name);
            self.account.compare(&label, &ours, after["models"][0][what].as_str());
        }
        Ok(())
    }

    /// Says which aliases and stages did not come, and expects them no more.
    fn leave_out(&mut self, model: &mut RegisteredModel, left_out: &Value) {
        for one in left_out.as_array().into_iter().flatten() {
            let (number, why) = (&one["version"], one["why"].as_str().unwrap_or_default());
            let instead = one["instead"].as_str();
            let name = &model.name;
            if let Some(alias) = one["alias"].as_str() {
                model.aliases.retain(|(other, _)| other != alias);
                let now = instead.and_then(|number| number.parse().ok());
                model.aliases.extend(now.map(|number| (alias.to_owned(), number)));
                self.account.refused(format!(
                    "the alias {alias} of {name} was not set to version {number}: {why}"
                ));
            } else if let Some(stage) = one["stage"].as_str() {
                for version in model.versions.iter_mut().filter(|one| *number == one.version) {
                    instead.unwrap_or("None").clone_into(&mut version.stage);
                }
                self.account
                    .refused(format!("version {number} of {name} was not moved to {stage}: {why}"));
            }
        }
    }

    /// A version in terms of where its files are now.
    async fn rehome(&mut self, name: &str, mut version: Version) -> Result<Version> {
        let old = version.location.clone();
        let found = self.moved(&old).or_else(|| self.moved(&version.source));
        let found = found.or_else(|| self.moved_run(&version.source));
        let location = match found {
            Some(location) => location,
            // Files of their own, outside of every run: they come along by themselves.
            None if self.locate(&old).local().is_some_and(std::path::Path::is_dir) => {
                let to = format!("registered/{}/{}", folder_name(name), version.version);
                let what = format!("version {} of {name}", version.version);
                if let Some(found) = self.look(&what, &old, &to).await? {
                    self.copy_files(found, &to).await?;
                }
                format!("mlflow-artifacts:/{to}")
            }
            None if falaj_moving::artifact::local_path(&old).is_some() && old.contains('/') => {
                self.account.note(format!(
                    "the files of {name} version {} were not found at {old}",
                    version.version
                ));
                format!("missing:{}", old.trim_start_matches("file:").trim_start_matches('/'))
            }
            None => old,
        };
        let named = ["models:/", "runs:/"].iter().any(|scheme| version.source.starts_with(scheme));
        if !named && version.source.contains('/') {
            version.source.clone_from(&location);
        }
        version.location = location;
        Ok(version)
    }

    /// Where something is now that lay in the folder of a run or a logged model.
    pub(super) fn moved(&self, uri: &str) -> Option<String> {
        let uri = plain(uri);
        let mut end = uri.len();
        loop {
            if let Some(now) = self.rehomed.get(&uri[..end]) {
                return Some(format!("{now}{}", &uri[end..]));
            }
            end = uri[..end].rfind('/')?;
        }
    }

    /// `runs:/<run>/<path>`.
    pub(super) fn moved_run(&self, source: &str) -> Option<String> {
        let (run, path) = source.strip_prefix("runs:/")?.split_once('/')?;
        let ending = format!("/{run}/artifacts");
        let home = self.rehomed.values().find(|uri| uri.ends_with(&ending))?;
        Some(format!("{home}/{path}"))
    }
}

/// What a server should say of a model.
fn parts(model: &RegisteredModel) -> [(&'static str, String); 3] {
    [
        ("tags", digest::pairs(&model.tags)),
        ("aliases", digest::aliases(model)),
        ("versions", digest::versions(model)),
    ]
}

/// A name that can be part of a path anywhere.
fn folder_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_. ".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}
