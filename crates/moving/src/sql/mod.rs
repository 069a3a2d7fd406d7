//! The store that is a database: SQLite or PostgreSQL, of whichever schema since MLflow 1.
//!
//! Tables and columns that a version did not have yet read as empty.

mod engine;
mod models;
mod registry;
mod runs;
mod traces;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::record::{Experiment, Stage};
use crate::source::Reading;
use engine::{Engine, Row};

/// How many ids one statement asks for.
const AT_ONCE: usize = 200;

#[derive(Debug)]
pub(crate) struct SqlStore {
    engine: Engine,
    /// The columns of each table.
    columns: HashMap<String, HashSet<String>>,
    workspace: String,
    folder: Option<PathBuf>,
}

impl SqlStore {
    pub(crate) async fn sqlite(path: &Path, workspace: &str, reading: Reading) -> Result<Self> {
        // A bare name lies in the folder that the command runs in.
        let folder = path.parent().map(|folder| Path::new(".").join(folder));
        Self::new(Engine::sqlite(path, reading)?, workspace, folder).await
    }

    pub(crate) async fn postgres(url: &str, workspace: &str, reading: Reading) -> Result<Self> {
        Self::new(Engine::postgres(url, reading).await?, workspace, None).await
    }

    async fn new(engine: Engine, workspace: &str, folder: Option<PathBuf>) -> Result<Self> {
        let mut columns: HashMap<String, HashSet<String>> = HashMap::new();
        for row in engine.query(engine.columns_sql(), &[]).await? {
            columns.entry(row.text(0)).or_default().insert(row.text(1));
        }
        let store = Self { engine, columns, workspace: workspace.to_owned(), folder };
        for table in ["experiments", "runs", "metrics", "params", "tags"] {
            if !store.columns.contains_key(table) {
                let why = format!("it has no table `{table}`: this is not a database of MLflow");
                return Err(Error::malformed("the database", why));
            }
        }
        Ok(store)
    }

    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    fn has(&self, table: &str) -> bool {
        self.columns.contains_key(table)
    }

    /// The column, or nothing in its place where there is none.
    fn column(&self, table: &str, column: &str) -> String {
        let there = self.columns.get(table).is_some_and(|columns| columns.contains(column));
        if there { column.to_owned() } else { "NULL".to_owned() }
    }

    /// Which rows of a table are of the workspace.
    fn in_workspace(&self, table: &str) -> (String, Vec<&str>) {
        if self.column(table, "workspace") == "NULL" {
            return ("1 = 1".to_owned(), Vec::new());
        }
        ("workspace = $1".to_owned(), vec![self.workspace.as_str()])
    }

    pub(crate) async fn experiments(&self) -> Result<Vec<Experiment>> {
        let (only, values) = self.in_workspace("experiments");
        let created = self.column("experiments", "creation_time");
        let updated = self.column("experiments", "last_update_time");
        let sql = format!(
            "SELECT experiment_id, name, lifecycle_stage, {created}, {updated}, artifact_location
             FROM experiments WHERE {only} ORDER BY experiment_id"
        );
        let mut found: Vec<Experiment> =
            self.engine.query(&sql, &values).await?.iter().map(experiment).collect();
        if self.has("experiment_tags") {
            let places: HashMap<String, usize> =
                found.iter().enumerate().map(|(at, one)| (one.id.clone(), at)).collect();
            let sql = "SELECT experiment_id, key, value FROM experiment_tags ORDER BY key";
            for row in self.engine.query(sql, &[]).await? {
                if let Some(at) = places.get(&row.text(0)) {
                    found[*at].tags.push((row.text(1), row.text(2)));
                }
            }
        }
        Ok(found)
    }
}

fn experiment(row: &Row) -> Experiment {
    Experiment {
        id: row.text(0),
        name: row.text(1),
        stage: Stage::read(&row.text(2)),
        created_at: row.int(3).unwrap_or_default(),
        updated_at: row.int(4).unwrap_or_default(),
        tags: Vec::new(),
        artifact_location: row.text(5),
    }
}

/// `$1, $2, …` for so many values.
fn places(count: usize) -> String {
    (1..=count).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ")
}

/// An experiment's id as the number it is in the tables.
fn number(id: &str) -> Result<i64> {
    id.parse().map_err(|_| Error::malformed("the database", format!("`{id}` is no experiment")))
}
