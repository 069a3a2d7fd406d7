//! The verbs on metric histories.

use falaj_base::Result;
use falaj_mlflow::Call;
use falaj_store::db::Tx;

use super::history::{HistoryCursor, HistoryPage, Steps};
use super::point::Point;
use super::sample::Sampling;
use super::store;
use crate::access::Home;
use crate::key::{self, KeyKind};
use crate::run::{RunId, store as runs};
use crate::{RUN_READ, Tracking};

impl Tracking {
    /// A page of one metric of one run, in time order.
    pub async fn metric_history(
        &self,
        call: &Call,
        run: &str,
        key: &str,
        after: Option<HistoryCursor>,
        limit: usize,
    ) -> Result<HistoryPage> {
        let home = self.home(call, run, &RUN_READ).await?;
        let key = key.to_owned();
        self.db()
            .read(move |tx| match number(tx, &home, &key)? {
                Some(number) if runs::exists(tx, home.run)? => {
                    store::history_page(tx, home.run, number, after, limit)
                }
                _ => Ok(HistoryPage::default()),
            })
            .await
    }

    /// One metric in several runs, in the order of their ids, at most so many points in all.
    pub async fn metric_histories(
        &self,
        call: &Call,
        runs: &[String],
        key: &str,
        limit: usize,
    ) -> Result<Vec<(String, Vec<Point>)>> {
        self.each_series(call, runs, key, move |tx, series| store::history_many(tx, series, limit))
            .await
    }

    /// The same, sampled: at most so many points of each run.
    pub async fn sampled_histories(
        &self,
        call: &Call,
        runs: &[String],
        key: &str,
        steps: Steps,
        (max, sampling): (usize, Sampling),
    ) -> Result<Vec<(String, Vec<Point>)>> {
        self.each_series(call, runs, key, move |tx, series| {
            let mut found = Vec::with_capacity(series.len());
            for (run, key) in series {
                let points = store::sampled_history(tx, (*run, *key), steps, max, sampling)?;
                found.push((*run, points));
            }
            Ok(found)
        })
        .await
    }

    async fn each_series<F>(
        &self,
        call: &Call,
        runs: &[String],
        key: &str,
        read: F,
    ) -> Result<Vec<(String, Vec<Point>)>>
    where
        F: FnOnce(&mut Tx<'_>, &[(RunId, i64)]) -> Result<Vec<(RunId, Vec<Point>)>>
            + Send
            + 'static,
    {
        let mut homes = Vec::with_capacity(runs.len());
        for run in runs {
            homes.push(self.home(call, run, &RUN_READ).await?);
        }
        homes.sort_unstable_by_key(|home| home.run);
        homes.dedup_by_key(|home| home.run);
        let key = key.to_owned();
        self.db()
            .read(move |tx| {
                let mut series = Vec::with_capacity(homes.len());
                for home in &homes {
                    if let Some(number) = number(tx, home, &key)?
                        && runs::exists(tx, home.run)?
                    {
                        series.push((home.run, number));
                    }
                }
                let found = read(tx, &series)?;
                Ok(found.into_iter().map(|(run, points)| (run.to_string(), points)).collect())
            })
            .await
    }
}

fn number(tx: &mut Tx<'_>, home: &Home, key: &str) -> Result<Option<i64>> {
    key::find(tx, home.experiment, KeyKind::Metric, key)
}
