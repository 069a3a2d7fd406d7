//! What a recipe is, and reading it off a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::environment::{listed, packages};
use crate::run::Run;

/// Everything on record about how a run came to be.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Recipe {
    pub run_id: String,
    pub run_name: String,
    pub experiment_id: String,
    pub status: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The folder it was started in, from the top of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    pub code: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// Files that describe the environment, the most exact first.
    pub environment: Vec<EnvironmentFile>,
    /// The packages of the first of them, and their versions.
    pub packages: BTreeMap<String, String>,
    pub datasets: Vec<UsedDataset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<String>,
    pub host: BTreeMap<String, String>,
    pub params: BTreeMap<String, String>,
    /// What would be needed to do it again and is not on record.
    pub missing: Vec<&'static str>,
}

/// Which code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Code {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether files differed from the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty: Option<bool>,
    /// The artifact that holds what differed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_sha256: Option<String>,
    /// The script, as MLflow's client saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_point: Option<String>,
}

/// A file that describes the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EnvironmentFile {
    /// Its path among the project's artifacts.
    pub path: String,
    pub text: String,
}

/// A dataset that went into the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UsedDataset {
    pub name: String,
    pub digest: String,
    pub source_type: String,
    pub source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// Parameters by which people pass a seed.
const SEEDS: [&str; 5] = ["seed", "random_seed", "random_state", "manual_seed", "rng_seed"];

impl Recipe {
    /// What the run itself tells; its files are added by whoever can read them.
    pub(super) fn of(run: &Run) -> Self {
        let tags: BTreeMap<&str, &str> =
            run.data.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let first = |names: &[&str]| -> Option<String> {
            let found = names.iter().find_map(|name| tags.get(name));
            found.filter(|value| !value.is_empty()).map(|value| (*value).to_owned())
        };
        let params: BTreeMap<String, String> = run.data.params.iter().cloned().collect();
        let seeded = || SEEDS.iter().find_map(|name| params.get(*name).cloned());
        let command = first(&["falaj.command"]);
        let command = command.and_then(|text| serde_json::from_str::<Vec<String>>(&text).ok());
        let host = [("name", "falaj.host"), ("system", "falaj.system"), ("user", "mlflow.user")];
        Self {
            run_id: run.info.id.to_string(),
            run_name: run.info.name.clone(),
            experiment_id: run.info.experiment_id.to_string(),
            status: run.info.status.as_str().to_owned(),
            command: command.unwrap_or_default(),
            directory: first(&["falaj.directory"]),
            code: Code {
                repository: first(&[
                    "falaj.git.repository",
                    "mlflow.source.git.repoURL",
                    "mlflow.git.repoURL",
                ]),
                commit: first(&[
                    "falaj.git.commit",
                    "mlflow.source.git.commit",
                    "mlflow.git.commit",
                ]),
                branch: first(&[
                    "falaj.git.branch",
                    "mlflow.source.git.branch",
                    "mlflow.git.branch",
                ]),
                dirty: first(&["falaj.git.dirty", "mlflow.source.git.dirty", "mlflow.git.dirty"])
                    .map(|text| text.eq_ignore_ascii_case("true")),
                patch: None,
                patch_sha256: None,
                entry_point: first(&["mlflow.source.name"]),
            },
            python: first(&["falaj.python"]),
            environment: Vec::new(),
            packages: BTreeMap::new(),
            datasets: datasets(run),
            seed: first(&["falaj.seed"]).or_else(seeded),
            host: host
                .iter()
                .filter_map(|(name, tag)| Some(((*name).to_owned(), first(&[tag])?)))
                .collect(),
            params,
            missing: Vec::new(),
        }
    }

    /// Reads the packages off the files, and says what is not on record.
    pub(super) fn finished(mut self) -> Self {
        self.environment.sort_by_key(|file| exactness(&file.path));
        if let Some(best) = self.environment.first() {
            self.packages = if best.path.ends_with("requirements.txt") {
                packages(&best.text)
            } else {
                listed(&best.text)
            };
        }
        let unclean = self.code.dirty == Some(true) && self.code.patch.is_none();
        for (absent, what) in [
            (self.command.is_empty(), "command"),
            (self.code.commit.is_none(), "commit"),
            (self.code.repository.is_none(), "repository"),
            (unclean, "changes to the code"),
            (self.environment.is_empty(), "environment"),
            (self.datasets.is_empty(), "datasets"),
            (self.seed.is_none(), "seed"),
        ] {
            if absent {
                self.missing.push(what);
            }
        }
        self
    }
}

/// Which file is read first: what was installed, then what was asked for.
fn exactness(path: &str) -> u8 {
    match path.rsplit('/').next().unwrap_or_default() {
        "requirements.txt" if path.contains("/falaj/") => 0,
        "requirements.txt" => 1,
        "python_env.yaml" => 2,
        _ => 3,
    }
}

fn datasets(run: &Run) -> Vec<UsedDataset> {
    let used = |input: &crate::dataset::DatasetInput| {
        let context = input.tags.iter().find(|(key, _)| key == "mlflow.data.context");
        UsedDataset {
            name: input.dataset.name.clone(),
            digest: input.dataset.digest.clone(),
            source_type: input.dataset.source_type.clone(),
            source: input.dataset.source.clone(),
            context: context.map(|(_, value)| value.clone()),
        }
    };
    run.lineage.datasets.iter().map(used).collect()
}
