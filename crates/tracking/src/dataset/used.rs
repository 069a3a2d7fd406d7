//! Who logged a dataset, for those who made it.

use std::collections::HashMap;

use falaj_base::{Ctx, Result};
use falaj_governance::tenancy::Project;
use falaj_store::db::{Row, Tx, Value, params};

use super::store::OUT_OF;
use crate::access::resource;
use crate::experiment::ExperimentId;
use crate::logged_model::ModelId;
use crate::run::RunId;
use crate::{RUN_READ, Tracking};

/// Runs that are shown at most.
const MOST: usize = 1000;

/// A run that logged a dataset, and the models that came out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetUse {
    pub run: String,
    pub experiment: String,
    pub digest: String,
    pub models: Vec<String>,
}

impl Tracking {
    /// The runs of a project that logged datasets of these digests, as far as the caller may read
    /// them.
    pub async fn runs_of_datasets(
        &self,
        ctx: &Ctx,
        project: &Project,
        digests: Vec<String>,
    ) -> Result<Vec<DatasetUse>> {
        let id = project.id;
        let found = self.db().read(move |tx| find(tx, id, &digests)).await?;
        let seen = found.into_iter().filter(|(experiment, _)| {
            ctx.allows(&RUN_READ, &resource(project, *experiment, false))
        });
        Ok(seen.map(|(_, used)| used).collect())
    }
}

fn find(
    tx: &mut Tx<'_>,
    project: falaj_base::ProjectId,
    digests: &[String],
) -> Result<Vec<(ExperimentId, DatasetUse)>> {
    if digests.is_empty() {
        return Ok(Vec::new());
    }
    let places: Vec<String> = (3..digests.len() + 3).map(|place| format!("${place}")).collect();
    let sql = format!(
        "SELECT i.run, e.id AS experiment, d.digest
         FROM dataset AS d JOIN dataset_input AS i ON i.dataset = d.no
             JOIN experiment AS e ON e.no = d.experiment
         WHERE e.project = $1 AND d.digest IN ({}) ORDER BY i.run LIMIT $2",
        places.join(", ")
    );
    let mut values = params![project, MOST].to_vec();
    values.extend(digests.iter().map(Value::from));
    let rows = tx.query(&sql, &values)?;
    let mut models: HashMap<RunId, Vec<String>> = HashMap::new();
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let run: RunId = row.get("run")?;
        let known = models.get(&run).cloned();
        let made = if let Some(made) = known {
            made
        } else {
            let made = tx.query(
                "SELECT DISTINCT model FROM run_model WHERE run = $1 AND direction = $2",
                &params![run, OUT_OF],
            )?;
            let id = |row: &Row| Ok(row.get::<ModelId>("model")?.to_string());
            let made = made.iter().map(id).collect::<Result<Vec<String>>>()?;
            models.insert(run, made.clone());
            made
        };
        let experiment: ExperimentId = row.get("experiment")?;
        let used = DatasetUse {
            run: run.to_string(),
            experiment: experiment.to_string(),
            digest: row.get("digest")?,
            models: made,
        };
        found.push((experiment, used));
    }
    Ok(found)
}
