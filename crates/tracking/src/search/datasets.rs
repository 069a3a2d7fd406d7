//! Filters on the datasets that went into runs: few enough to be read with the search.

use std::collections::HashSet;

use falaj_base::Result;
use falaj_mlflow::filter::{DatasetPart, Test};
use falaj_store::db::{Tx, params};

use crate::run::RunId;

/// The datasets of an experiment's runs.
#[derive(Debug, Default)]
pub(super) struct Datasets(Vec<Used>);

#[derive(Debug)]
struct Used {
    run: RunId,
    name: String,
    digest: String,
    context: Option<String>,
}

impl Datasets {
    pub(super) fn read(tx: &mut Tx<'_>, experiment: i64) -> Result<Self> {
        let mut all = Vec::new();
        tx.scan(
            "SELECT i.run, d.name, d.digest, i.context FROM dataset_input i
             JOIN dataset d ON d.no = i.dataset WHERE d.experiment = $1",
            &params![experiment],
            |row| {
                all.push(Used {
                    run: row.get("run")?,
                    name: row.get("name")?,
                    digest: row.get("digest")?,
                    context: row.get("context")?,
                });
                Ok(())
            },
        )?;
        Ok(Self(all))
    }

    /// The runs with a dataset that passes.
    pub(super) fn accepted(&self, part: DatasetPart, test: &Test) -> HashSet<RunId> {
        let value = |used: &Used| match part {
            DatasetPart::Name => Some(used.name.clone()),
            DatasetPart::Digest => Some(used.digest.clone()),
            DatasetPart::Context => used.context.clone(),
        };
        let passes = |used: &&Used| value(used).is_some_and(|value| test.accepts(&value));
        self.0.iter().filter(passes).map(|used| used.run).collect()
    }
}
