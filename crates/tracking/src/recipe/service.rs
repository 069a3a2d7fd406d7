//! Gathering what is on record about a run.

use falaj_base::{Result, hex};
use falaj_mlflow::Call;
use futures::TryStreamExt;

use super::diff::RunDiff;
use super::recipe::{EnvironmentFile, Recipe};
use crate::Tracking;
use crate::artifact::{ArtifactPath, proxied_path};
use crate::logged_model::ModelId;
use crate::run::Run;

/// How many of a run's files are looked through for those that describe its environment, how many
/// of them are read, and how long one may be.
const FILES: usize = 5000;
const READ: usize = 8;
const LONGEST: u64 = 256 << 10;

/// Where `falaj run exec` leaves what differed from the commit.
const PATCH: &str = "falaj/code.patch";

const DESCRIBING: [&str; 3] = ["requirements.txt", "python_env.yaml", "conda.yaml"];

impl Tracking {
    /// What is on record about how a run came to be.
    pub async fn recipe(&self, call: &Call, run: &str) -> Result<Recipe> {
        let run = self.run(call, run).await?;
        self.recipe_of(call, &run).await
    }

    /// What differs between two runs of a project.
    pub async fn diff_runs(&self, call: &Call, left: &str, right: &str) -> Result<RunDiff> {
        let (left, right) = (self.run(call, left).await?, self.run(call, right).await?);
        let of = (self.recipe_of(call, &left).await?, self.recipe_of(call, &right).await?);
        Ok(RunDiff::between((&left, &of.0), (&right, &of.1)))
    }

    async fn recipe_of(&self, call: &Call, run: &Run) -> Result<Recipe> {
        let mut recipe = Recipe::of(run);
        let mut folders = Vec::new();
        if let Some(root) = proxied_path(&run.info.artifact_uri) {
            let root = ArtifactPath::new(root)?;
            let patch = root.join(PATCH)?;
            if let Some(sha256) = self.digest(call, &patch).await? {
                recipe.code.patch = Some(patch.to_string());
                recipe.code.patch_sha256 = Some(sha256);
            }
            folders.push(root);
        }
        // What a run puts out is in its own experiment or another of the project, each with its
        // own readers: one that the caller may not read describes nothing.
        for (model, _) in &run.lineage.models_out {
            let Some(id) = ModelId::parse(model) else { continue };
            let Ok(found) = self.logged_model(call, &id.to_string(), false).await else { continue };
            if let Some(root) = proxied_path(&found.artifact_uri) {
                folders.push(ArtifactPath::new(root)?);
            }
        }
        for folder in folders.iter().take(READ) {
            for (path, size) in self.files_below(call.place.id, folder, FILES).await? {
                let name = path.rsplit('/').next().unwrap_or_default();
                let full = recipe.environment.len() >= READ;
                if full || size > LONGEST || !DESCRIBING.contains(&name) {
                    continue;
                }
                if let Some(text) = self.text(call, &ArtifactPath::new(path.as_str())?).await? {
                    recipe.environment.push(EnvironmentFile { path, text });
                }
            }
        }
        Ok(recipe.finished())
    }

    /// The text of a file that is known to be short; none if it is no text.
    async fn text(&self, call: &Call, path: &ArtifactPath) -> Result<Option<String>> {
        let (_, content) = self.open_artifact(call, path).await?;
        let bytes = content.read().try_fold(Vec::new(), |mut all, piece| async move {
            all.extend_from_slice(&piece);
            Ok(all)
        });
        Ok(String::from_utf8(bytes.await?).ok())
    }

    /// The digest of a file in hex; none if it is not there.
    async fn digest(&self, call: &Call, path: &ArtifactPath) -> Result<Option<String>> {
        match self.open_artifact(call, path).await {
            Ok((_, content)) => Ok(content.sha256().map(|bytes| hex(&bytes))),
            Err(error) if *error.code() == falaj_base::code::NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }
}
