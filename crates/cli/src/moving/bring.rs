//! Bringing a store over: read what it holds, compare it with what the server has, send what is
//! missing, and compare again.
//!
//! Must hold: stopped anywhere and run again, it does the rest. Nothing is said to have come that the
//! server did not answer for.

mod deliver;
mod experiments;
mod files;
mod models;
mod register;
mod runs;
mod traces;
mod versions;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use clap::Args;
use falaj_moving::artifact::{Allowed, Location, Roots};
use falaj_moving::record::{Experiment, Stage};
use falaj_moving::{Reading, Source};
use serde::Serialize;
use serde_json::{Value, json};

use super::project::Came;
use super::{Account, Project, Way};
use crate::exit::{Failure, Result};

/// Where things come from.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// A folder (mlruns), `sqlite:///path/mlflow.db` or `postgresql://user@host/database`.
    #[arg(env = "FALAJ_MLFLOW_SOURCE", hide_env_values = true)]
    pub(crate) source: String,
    /// What mlflow-artifacts:/ stands for: the folder or s3:// address that the MLflow server was
    /// started with (--artifacts-destination).
    #[arg(long, value_name = "FOLDER|S3")]
    artifact_root: Option<String>,
    /// Also read files below this folder or s3:// address, if the store says that they are there.
    /// Only those in the store itself and in the artifact root are read otherwise. Repeatable.
    #[arg(long, value_name = "FOLDER|S3")]
    allow_root: Vec<String>,
    /// Which workspace of the MLflow server to read.
    #[arg(long, default_value = "default")]
    workspace: String,
    /// What the store is called on the server, which brings up to date only what came from a store
    /// of that name. Made from the store itself if not given.
    #[arg(long, value_name = "NAME")]
    source_name: Option<String>,
    /// Leave all files where they are; only those on s3:// and the like stay reachable.
    #[arg(long)]
    pub(crate) no_artifacts: bool,
    /// How many requests are under way at once.
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u8).range(1..=64))]
    concurrency: u8,
}

/// What is known from the rounds before.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What came from the store and how far, by the ids of runs and logged models; unknown until
    /// the server was asked.
    came: Option<HashMap<String, Came>>,
    /// Where experiments are, and what was sent of them.
    experiments: Option<(Value, HashMap<String, Landing>)>,
    /// Files of which the server is known to have the bytes: their sizes and times by place.
    files: HashMap<String, (u64, i64)>,
    /// Registered models as they were when all of them was there.
    registered: HashMap<String, String>,
}

impl Memory {
    /// The server may not be what it was: a backup could have been restored. It is asked again.
    pub(crate) fn doubt(&mut self) {
        *self = Self::default();
    }
}

/// Where an experiment is on the server.
#[derive(Clone, Debug)]
struct Landing {
    id: String,
    deleted: bool,
}

/// A store on its way.
pub(crate) struct Bring<'a> {
    source: Source,
    project: &'a Project,
    account: &'a mut Account,
    memory: &'a mut Memory,
    way: Way,
    /// The name of the store.
    name: String,
    roots: Roots,
    allowed: Allowed,
    prefix: String,
    no_artifacts: bool,
    dry_run: bool,
    concurrency: usize,
    /// Where the files of runs and logged models were, and where they are now.
    rehomed: HashMap<String, String>,
    /// Runs and logged models that do not come.
    left_out: HashSet<String>,
    /// Folders of the project to which not all files came.
    incomplete: HashSet<String>,
}

impl<'a> Bring<'a> {
    pub(crate) async fn open(
        from: &StoreArgs,
        way: Way,
        project: &'a Project,
        account: &'a mut Account,
        memory: &'a mut Memory,
    ) -> Result<Self> {
        let reading = if way == Way::Sync { Reading::Growing } else { Reading::Whole };
        let source = Source::open(&from.source, &from.workspace, reading).await?;
        // MLflow's relative paths start where its server was started: most likely beside its store.
        let folder = source.folder().unwrap_or_else(|| PathBuf::from("."));
        let folder = std::path::absolute(folder)?;
        let artifacts = match &from.artifact_root {
            Some(root) if Location::resolve(root, &Roots::default()).local().is_some() => {
                Some(std::path::absolute(root)?.display().to_string())
            }
            root => root.clone(),
        };
        let named: Vec<String> = from.allow_root.iter().chain(&artifacts).cloned().collect();
        let allowed = Allowed::new(source.own_roots(), &named)?;
        Ok(Self {
            source,
            project,
            account,
            memory,
            way,
            name: from.source_name.clone().unwrap_or_default(),
            roots: Roots { artifacts, folder },
            allowed,
            prefix: String::new(),
            no_artifacts: from.no_artifacts,
            dry_run: false,
            concurrency: from.concurrency.into(),
            rehomed: HashMap::new(),
            left_out: HashSet::new(),
            incomplete: HashSet::new(),
        })
    }

    /// Puts something before the names of experiments and registered models.
    pub(crate) fn prefixed(mut self, prefix: String) -> Self {
        self.prefix = prefix;
        self
    }

    /// Only tells what would come.
    pub(crate) fn dry(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Brings everything that is not there yet.
    pub(crate) async fn all(mut self) -> Result<()> {
        let experiments = self.source.experiments().await?;
        if self.name.is_empty() {
            self.name = self.source.name(&experiments);
        }
        if self.way == Way::Sync && self.memory.came.is_none() {
            self.memory.came = Some(self.project.came(&self.name).await?);
        }
        // What was thrown away is taken over by an import, and does not come by a sync.
        let (wanted, thrown_away): (Vec<_>, Vec<_>) = experiments
            .into_iter()
            .partition(|one| self.way == Way::Import || one.stage == Stage::Active);
        for experiment in &thrown_away {
            self.left_out.extend(self.source.run_ids(&experiment.id).await?);
        }
        let landed = self.experiments(&wanted).await?;
        let mut open = Vec::with_capacity(wanted.len());
        for experiment in &wanted {
            match landed.get(&experiment.id) {
                Some(landing) if self.way == Way::Sync && landing.deleted => {
                    self.left_out.extend(self.source.run_ids(&experiment.id).await?);
                    let name = &experiment.name;
                    let text = format!("the experiment {name} is deleted on the server; left out");
                    self.account.note(text);
                }
                Some(landing) => open.push((experiment, landing.id.as_str())),
                None => {}
            }
        }
        // All runs first: a model may come out of one experiment and go into another.
        for (experiment, landed) in &open {
            self.runs(experiment, landed).await?;
        }
        for (experiment, landed) in &open {
            self.logged_models(experiment, landed).await?;
        }
        match self.way {
            Way::Import => self.registered_models().await?,
            Way::Sync => self.register().await?,
        }
        for (experiment, landed) in &open {
            match self.way {
                Way::Import => self.traces(experiment, landed).await?,
                Way::Sync => self.leave_traces(experiment).await?,
            }
        }
        Ok(())
    }

    async fn leave_traces(&mut self, experiment: &Experiment) -> Result<()> {
        let (count, name) = (self.source.trace_count(&experiment.id).await?, &experiment.name);
        if count > 0 {
            self.account.note(format!("{count} traces of {name} stay behind: a sync brings none"));
        }
        Ok(())
    }

    /// Where files are.
    fn locate(&self, uri: &str) -> Location {
        Location::resolve(uri, &self.roots)
    }

    /// Sends a batch, in the name of the store.
    async fn send(&self, kind: &str, mut body: Value) -> Result<Value> {
        body["source"] = self.name.as_str().into();
        self.project.bring(self.way, kind, &body).await
    }

    /// Tells the server that all of some things has come, as they were when they were read.
    async fn settle(&mut self, kind: &str, marks: Vec<(String, String)>) -> Result<()> {
        if self.way != Way::Sync || marks.is_empty() {
            return Ok(());
        }
        self.send("settled", json!({ kind: marks })).await?;
        let came = self.memory.came.get_or_insert_default();
        for (id, mark) in marks {
            came.insert(id, Came { mark: Some(mark), stage: "active".to_owned() });
        }
        Ok(())
    }

    /// Whether the server has more of something than the store: others may have added to it there.
    /// Its digest is of all of it, so only numbers are compared then, and that is said.
    fn has_more(&mut self, what: &str, ours: &str, theirs: &str) -> bool {
        use falaj_moving::digest::count;
        let (ours, theirs) = (count(ours), count(theirs));
        if theirs > ours {
            self.account.note(format!(
                "{what}: {ours} in the store, {theirs} on the server; only the numbers were compared"
            ));
        }
        theirs > ours
    }

    /// Whether something is to be looked at: not what came as it is now, nor what the server has
    /// deleted since.
    fn wants(&mut self, what: &str, id: &str, mark: &str) -> bool {
        let came = self.memory.came.as_ref().and_then(|all| all.get(id));
        match came.map(|came| came.stage.as_str()) {
            Some("deleted") => {
                self.account.note(format!("{what} {id} was deleted on the server; left out"));
                false
            }
            Some("gone") => {
                self.account.note(format!("{what} {id} was purged on the server; left out"));
                false
            }
            _ => came.and_then(|came| came.mark.as_deref()) != Some(mark),
        }
    }
}

/// What something looks like in the store.
fn mark_of(record: &impl Serialize, extent: &str, files: &str) -> String {
    let text = serde_json::to_string(record).unwrap_or_default();
    falaj_moving::digest::mark(&[&text, extent, files])
}

/// Whether a server has all of these pairs, as MLflow's protocol tells them.
fn has_all(there: &Value, pairs: &[(String, String)]) -> bool {
    let there = there.as_array();
    pairs.iter().all(|(key, value)| {
        let is = |pair: &Value| pair["key"] == **key && pair["value"] == **value;
        there.is_some_and(|there| there.iter().any(is))
    })
}

/// Says what helps against a name that is taken.
fn clash(failure: Failure) -> Failure {
    if failure.has_code("already-exists") {
        return failure
            .hint("import into another project, or put something before the names: --prefix old/");
    }
    failure
}
