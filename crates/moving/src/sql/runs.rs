//! Runs in tables.

use std::collections::HashMap;

use super::engine::Row;
use super::{AT_ONCE, SqlStore, number, places};
use crate::error::Result;
use crate::record::{Dataset, Pairs, Point, Run, Stage};
use crate::series::{Sorted, Sorter, Spool};

impl SqlStore {
    pub(crate) async fn run_ids(&self, experiment: &str) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT run_uuid FROM runs WHERE experiment_id = {} ORDER BY run_uuid",
            number(experiment)?
        );
        Ok(self.engine.query(&sql, &[]).await?.iter().map(|row| row.text(0)).collect())
    }

    pub(crate) async fn runs(&self, ids: &[String]) -> Result<Vec<Run>> {
        let mut all = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            let values: Vec<&str> = ids.iter().map(String::as_str).collect();
            let list = places(ids.len());
            let sql = format!(
                "SELECT run_uuid, experiment_id, {name}, user_id, status, start_time, end_time,
                     lifecycle_stage, {deleted}, artifact_uri
                 FROM runs WHERE run_uuid IN ({list})",
                name = self.column("runs", "name"),
                deleted = self.column("runs", "deleted_time"),
            );
            let mut params = self.pairs("params", &list, &values).await?;
            let mut tags = self.pairs("tags", &list, &values).await?;
            let mut datasets = self.datasets(&list, &values).await?;
            for row in self.engine.query(&sql, &values).await? {
                let mut run = run(&row);
                run.params = params.remove(&run.id).unwrap_or_default();
                run.tags = tags.remove(&run.id).unwrap_or_default();
                run.datasets = datasets.remove(&run.id).unwrap_or_default();
                let tagged = run.tags.iter().find(|(key, _)| key == "mlflow.runName");
                if let Some((_, name)) = tagged {
                    run.name.clone_from(name);
                }
                all.push(run);
            }
        }
        Ok(all)
    }

    async fn pairs(
        &self,
        table: &str,
        list: &str,
        values: &[&str],
    ) -> Result<HashMap<String, Pairs>> {
        let sql = format!(
            "SELECT run_uuid, key, value FROM {table} WHERE run_uuid IN ({list}) ORDER BY key"
        );
        let mut found: HashMap<String, Pairs> = HashMap::new();
        for row in self.engine.query(&sql, values).await? {
            found.entry(row.text(0)).or_default().push((row.text(1), row.text(2)));
        }
        Ok(found)
    }

    /// The datasets that went into runs.
    async fn datasets(&self, list: &str, values: &[&str]) -> Result<HashMap<String, Vec<Dataset>>> {
        if !self.has("inputs") || !self.has("datasets") {
            return Ok(HashMap::new());
        }
        let join = format!(
            "FROM inputs i JOIN datasets d ON d.dataset_uuid = i.source_id
             WHERE i.source_type = 'DATASET' AND i.destination_type = 'RUN'
             AND i.destination_id IN ({list})"
        );
        let sql = format!(
            "SELECT t.input_uuid, t.name, t.value FROM input_tags t
             WHERE t.input_uuid IN (SELECT i.input_uuid {join}) ORDER BY t.name"
        );
        let mut tags: HashMap<String, Pairs> = HashMap::new();
        for row in self.engine.query(&sql, values).await? {
            tags.entry(row.text(0)).or_default().push((row.text(1), row.text(2)));
        }
        let sql = format!(
            "SELECT i.destination_id, i.input_uuid, d.name, d.digest, d.dataset_source_type,
                 d.dataset_source, d.dataset_schema, d.dataset_profile {join}
             ORDER BY d.name, d.digest"
        );
        let mut found: HashMap<String, Vec<Dataset>> = HashMap::new();
        for row in self.engine.query(&sql, values).await? {
            let dataset = Dataset {
                name: row.text(2),
                digest: row.text(3),
                source_type: row.text(4),
                source: row.text(5),
                schema: row.opt_text(6),
                profile: row.opt_text(7),
                tags: tags.remove(&row.text(1)).unwrap_or_default(),
            };
            found.entry(row.text(0)).or_default().push(dataset);
        }
        Ok(found)
    }

    /// Points are only ever added, so their number tells.
    pub(crate) async fn extents(&self, experiment: &str) -> Result<HashMap<String, String>> {
        let sql = format!(
            "SELECT m.run_uuid, COUNT(*) FROM metrics m JOIN runs r ON r.run_uuid = m.run_uuid
             WHERE r.experiment_id = {} GROUP BY m.run_uuid",
            number(experiment)?
        );
        let rows = self.engine.query(&sql, &[]).await?;
        Ok(rows.iter().map(|row| (row.text(0), row.text(1))).collect())
    }

    pub(crate) async fn series(&self, run: &str, spool: &mut Spool) -> Result<Vec<Sorted>> {
        let (step, nan) = (self.column("metrics", "step"), self.column("metrics", "is_nan"));
        // One metric after the other: the database sorts without holding all of it.
        let sql = format!(
            "SELECT key, timestamp, {step}, value, {nan} FROM metrics WHERE run_uuid = $1
             ORDER BY key"
        );
        let (mut found, mut open) = (Vec::new(), None::<Sorter>);
        self.engine
            .each(&sql, &[run], |row| {
                let nan = row.int(4) == Some(1);
                let point = Point {
                    timestamp: row.int(1).unwrap_or_default(),
                    step: row.int(2).unwrap_or_default(),
                    value: row.real(3).filter(|_| !nan).unwrap_or(f64::NAN),
                };
                let key = row.text(0);
                if let Some(done) = open.take_if(|sorter| sorter.key() != key) {
                    found.push(done.finish(spool)?);
                }
                open.get_or_insert_with(|| Sorter::new(key)).push(point, spool)
            })
            .await?;
        if let Some(last) = open {
            found.push(last.finish(spool)?);
        }
        Ok(found)
    }
}

fn run(row: &Row) -> Run {
    Run {
        id: row.text(0),
        experiment: row.text(1),
        name: row.text(2),
        user_id: row.text(3),
        status: row.text(4),
        start_time: row.int(5).unwrap_or_default(),
        end_time: row.int(6),
        stage: Stage::read(&row.text(7)),
        deleted_at: row.int(8),
        artifact_uri: row.text(9),
        ..Run::default()
    }
}
