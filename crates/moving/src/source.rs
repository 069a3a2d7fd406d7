//! A store to read from, of whichever kind.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::FileStore;
use crate::record::{Experiment, LoggedModel, RegisteredModel, Run, Series};
use crate::sql::SqlStore;

#[derive(Debug)]
pub struct Source(Kind);

#[derive(Debug)]
enum Kind {
    Files(FileStore),
    Sql(Box<SqlStore>),
}

impl Source {
    /// Opens a folder of files (`mlruns`, `file:///…`), a SQLite file (`sqlite:///…`) or a
    /// PostgreSQL database (`postgresql://…`). Of a database that has several workspaces one is
    /// read.
    pub async fn open(uri: &str, workspace: &str) -> Result<Self> {
        if let Some(rest) = uri.strip_prefix("sqlite:") {
            // `sqlite:///relative` and `sqlite:////absolute`.
            let path = rest.strip_prefix("///").unwrap_or(rest);
            let path = path.split('?').next().unwrap_or(path);
            let sql = SqlStore::sqlite(Path::new(path), workspace).await?;
            return Ok(Self(Kind::Sql(Box::new(sql))));
        }
        let scheme = uri.split(':').next().unwrap_or_default();
        if scheme.starts_with("postgres") && uri.contains("://") {
            // SQLAlchemy names its driver behind a plus.
            let rest = uri.split_once("://").map_or("", |(_, rest)| rest);
            let url = format!("postgresql://{rest}");
            let sql = SqlStore::postgres(&url, workspace).await?;
            return Ok(Self(Kind::Sql(Box::new(sql))));
        }
        let Some(path) = crate::artifact::local_path(uri) else {
            return Err(Error::Unsupported(format!(
                "`{scheme}` is not a store that can be read: give a folder (mlruns), \
                 sqlite:///path or postgresql://…"
            )));
        };
        if path.is_file() {
            let sql = SqlStore::sqlite(&path, workspace).await?;
            return Ok(Self(Kind::Sql(Box::new(sql))));
        }
        FileStore::open(path).map(Kind::Files).map(Self)
    }

    /// What relative locations in it start from.
    #[must_use]
    pub fn folder(&self) -> Option<PathBuf> {
        match &self.0 {
            Kind::Files(files) => Some(files.folder().to_owned()),
            Kind::Sql(sql) => sql.folder(),
        }
    }

    /// Where a run's files would be if the store was moved since it wrote where they are.
    #[must_use]
    pub fn moved_to(&self, below: &str) -> Option<PathBuf> {
        match &self.0 {
            Kind::Files(files) => files.moved_to(below),
            Kind::Sql(_) => None,
        }
    }

    pub async fn experiments(&self) -> Result<Vec<Experiment>> {
        match &self.0 {
            Kind::Files(files) => files.experiments(),
            Kind::Sql(sql) => sql.experiments().await,
        }
    }

    /// The ids of an experiment's runs.
    pub async fn run_ids(&self, experiment: &str) -> Result<Vec<String>> {
        match &self.0 {
            Kind::Files(files) => files.run_ids(experiment),
            Kind::Sql(sql) => sql.run_ids(experiment).await,
        }
    }

    pub async fn runs(&self, experiment: &str, ids: &[String]) -> Result<Vec<Run>> {
        match &self.0 {
            Kind::Files(files) => files.runs(experiment, ids),
            Kind::Sql(sql) => sql.runs(ids).await,
        }
    }

    /// All points of a run.
    pub async fn series(&self, experiment: &str, run: &str) -> Result<Vec<Series>> {
        let mut all = match &self.0 {
            Kind::Files(files) => files.series(experiment, run)?,
            Kind::Sql(sql) => sql.series(run).await?,
        };
        for series in &mut all {
            series.tidy();
        }
        Ok(all)
    }

    pub async fn logged_models(&self, experiment: &str) -> Result<Vec<LoggedModel>> {
        match &self.0 {
            Kind::Files(files) => files.logged_models(experiment),
            Kind::Sql(sql) => sql.logged_models(experiment).await,
        }
    }

    pub async fn registered_models(&self) -> Result<Vec<RegisteredModel>> {
        match &self.0 {
            Kind::Files(files) => files.registered_models(),
            Kind::Sql(sql) => sql.registered_models().await,
        }
    }

    /// How many traces it holds, which are not read.
    pub async fn traces(&self) -> Result<i64> {
        match &self.0 {
            Kind::Files(_) => Ok(0),
            Kind::Sql(sql) => sql.traces().await,
        }
    }
}
