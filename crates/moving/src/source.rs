//! A store to read from, of whichever kind.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::FileStore;
use crate::record::{Experiment, LoggedModel, RegisteredModel, Run, Trace};
use crate::series::{Sorted, Spool};
use crate::sql::SqlStore;

#[derive(Debug)]
pub struct Source {
    kind: Kind,
    /// Where it is, without a password.
    at: String,
}

/// How a store is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Nobody writes to it meanwhile, or all of it is read as it was at one moment.
    Whole,
    /// It is being written to, and whoever does that is not kept waiting. What is half-written is
    /// left for the next time.
    Growing,
}

#[derive(Debug)]
enum Kind {
    Files(FileStore),
    Sql(Box<SqlStore>),
}

impl Source {
    /// Opens a folder of files (`mlruns`, `file:///…`), a SQLite file (`sqlite:///…`) or a
    /// PostgreSQL database (`postgresql://…`). Of a database that has several workspaces one is
    /// read.
    pub async fn open(uri: &str, workspace: &str, reading: Reading) -> Result<Self> {
        if let Some(rest) = uri.strip_prefix("sqlite:") {
            // `sqlite:///relative` and `sqlite:////absolute`.
            let path = rest.strip_prefix("///").unwrap_or(rest);
            let path = path.split('?').next().unwrap_or(path);
            return Self::sqlite(Path::new(path), workspace, reading).await;
        }
        let scheme = uri.split(':').next().unwrap_or_default();
        if scheme.starts_with("postgres") && uri.contains("://") {
            // SQLAlchemy names its driver behind a plus.
            let rest = uri.split_once("://").map_or("", |(_, rest)| rest);
            let url = format!("postgresql://{rest}");
            let sql = SqlStore::postgres(&url, workspace, reading).await?;
            let at = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            let at = at.split('?').next().unwrap_or(at).to_owned();
            return Ok(Self { kind: Kind::Sql(Box::new(sql)), at });
        }
        let Some(path) = crate::artifact::local_path(uri) else {
            return Err(Error::Unsupported(format!(
                "`{scheme}` is not a store that can be read: give a folder (mlruns), \
                 sqlite:///path or postgresql://…"
            )));
        };
        if path.is_file() {
            return Self::sqlite(&path, workspace, reading).await;
        }
        let files = FileStore::open(path, reading)?;
        let at = files.root().display().to_string();
        Ok(Self { kind: Kind::Files(files), at })
    }

    async fn sqlite(path: &Path, workspace: &str, reading: Reading) -> Result<Self> {
        let sql = SqlStore::sqlite(path, workspace, reading).await?;
        let at = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self { kind: Kind::Sql(Box::new(sql)), at: at.display().to_string() })
    }

    /// A name that is the same every time the store is opened, also after it was moved: made from
    /// when its first experiment was, or from where it is if it does not say.
    #[must_use]
    pub fn name(&self, experiments: &[Experiment]) -> String {
        let number = |one: &&Experiment| one.id.parse::<i64>().unwrap_or(i64::MAX);
        let first = experiments.iter().min_by_key(number).filter(|first| first.created_at > 0);
        let of = match first {
            Some(first) => format!("{}\n{}", first.id, first.created_at),
            None => self.at.clone(),
        };
        format!("mlflow-{:016x}", falaj_base::digest::text(&of))
    }

    /// The folders whose files are the store's own. A database can lie among everything that
    /// somebody has: of what is beside it, only what MLflow makes there is its own.
    #[must_use]
    pub fn own_roots(&self) -> Vec<PathBuf> {
        match &self.kind {
            Kind::Files(files) => vec![files.root().to_owned()],
            Kind::Sql(sql) => {
                let folder = sql.folder().and_then(|folder| folder.canonicalize().ok());
                let beside = |folder: PathBuf| ["mlruns", "mlartifacts"].map(|at| folder.join(at));
                folder.map(beside).into_iter().flatten().collect()
            }
        }
    }

    /// What relative locations in it start from.
    #[must_use]
    pub fn folder(&self) -> Option<PathBuf> {
        match &self.kind {
            Kind::Files(files) => Some(files.folder().to_owned()),
            Kind::Sql(sql) => sql.folder(),
        }
    }

    /// Where a run's files would be if the store was moved since it wrote where they are.
    #[must_use]
    pub fn moved_to(&self, below: &str) -> Option<PathBuf> {
        match &self.kind {
            Kind::Files(files) => files.moved_to(below),
            Kind::Sql(_) => None,
        }
    }

    pub async fn experiments(&self) -> Result<Vec<Experiment>> {
        match &self.kind {
            Kind::Files(files) => files.experiments(),
            Kind::Sql(sql) => sql.experiments().await,
        }
    }

    /// The ids of an experiment's runs.
    pub async fn run_ids(&self, experiment: &str) -> Result<Vec<String>> {
        match &self.kind {
            Kind::Files(files) => files.run_ids(experiment),
            Kind::Sql(sql) => sql.run_ids(experiment).await,
        }
    }

    pub async fn runs(&self, experiment: &str, ids: &[String]) -> Result<Vec<Run>> {
        match &self.kind {
            Kind::Files(files) => files.runs(experiment, ids),
            Kind::Sql(sql) => sql.runs(ids).await,
        }
    }

    /// How much there is of each run's points: a text that is another one when points were added.
    pub async fn extents(&self, experiment: &str) -> Result<HashMap<String, String>> {
        match &self.kind {
            Kind::Files(files) => files.extents(experiment),
            Kind::Sql(sql) => sql.extents(experiment).await,
        }
    }

    /// All points of a run, by metric.
    pub async fn series(
        &self,
        experiment: &str,
        run: &str,
        spool: &mut Spool,
    ) -> Result<Vec<Sorted>> {
        match &self.kind {
            Kind::Files(files) => files.series(experiment, run, spool),
            Kind::Sql(sql) => sql.series(run, spool).await,
        }
    }

    pub async fn logged_models(&self, experiment: &str) -> Result<Vec<LoggedModel>> {
        match &self.kind {
            Kind::Files(files) => files.logged_models(experiment),
            Kind::Sql(sql) => sql.logged_models(experiment).await,
        }
    }

    pub async fn registered_models(&self) -> Result<Vec<RegisteredModel>> {
        match &self.kind {
            Kind::Files(files) => files.registered_models(),
            Kind::Sql(sql) => sql.registered_models().await,
        }
    }

    /// How many traces an experiment has.
    pub async fn trace_count(&self, experiment: &str) -> Result<i64> {
        match &self.kind {
            Kind::Files(files) => files.trace_count(experiment),
            Kind::Sql(sql) => sql.trace_count(experiment).await,
        }
    }

    /// Some traces of an experiment, in the order of their ids, after one of them. Those of a store
    /// of files are not read.
    pub async fn traces(&self, experiment: &str, after: &str, limit: usize) -> Result<Vec<Trace>> {
        match &self.kind {
            Kind::Files(_) => Ok(Vec::new()),
            Kind::Sql(sql) => sql.traces(experiment, after, limit).await,
        }
    }

    /// Some spans of a trace with their ids, in JSON as MLflow keeps them, after one of them.
    pub async fn spans(
        &self,
        trace: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, String)>> {
        match &self.kind {
            Kind::Files(_) => Ok(Vec::new()),
            Kind::Sql(sql) => sql.spans(trace, after, limit).await,
        }
    }
}
