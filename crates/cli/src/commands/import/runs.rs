//! Runs: what is missing of them is sent, then looked at again.

use falaj_moving::digest;
use falaj_moving::record::{Run, Series};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::mlflow::Move;
use crate::exit::Result;
use crate::moving::Kind;

/// How many runs are looked at together.
const RUNS: usize = 100;
/// About how many points and bytes of other things go into one request.
const POINTS: usize = 50_000;
const BYTES: usize = 1 << 20;

impl Move {
    pub(super) async fn runs(&mut self, experiment: &str, landed: &str) -> Result<()> {
        let ids = self.source.run_ids(experiment).await?;
        for some in ids.chunks(RUNS) {
            let mut runs = self.source.runs(experiment, some).await?;
            for run in &mut runs {
                landed.clone_into(&mut run.experiment);
            }
            self.some_runs(experiment, runs).await?;
        }
        Ok(())
    }

    async fn some_runs(&mut self, experiment: &str, mut runs: Vec<Run>) -> Result<()> {
        let ids: Vec<String> = runs.iter().map(|run| run.id.clone()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut here = self.project.check(&ids, &[]).await?;
        let (mut missing, mut sent) = (Vec::new(), Vec::new());
        for run in &mut runs {
            self.settle_files(run);
            let series = self.source.series(experiment, &run.id).await?;
            let points = series.iter().map(|one| one.points.len()).sum();
            self.account.found(Kind::Runs, 1);
            self.account.found(Kind::Params, run.params.len());
            self.account.found(Kind::Tags, run.tags.len());
            self.account.found(Kind::Points, points);
            self.account.found(Kind::Datasets, run.datasets.len());
            let expected = Expected::of(run, &series);
            let there = here.remove(&run.id);
            if there.as_ref().is_some_and(|there| expected.is(there)) {
                continue;
            }
            // Points are sent only if they are what is missing.
            let points_there = there.is_some_and(|there| there["points"] == expected.points);
            if !points_there {
                self.account.sent(Kind::Points, points);
                missing.extend(series);
            }
            sent.push(expected);
        }
        if !self.dry_run {
            self.send_runs(&runs, &sent).await?;
            self.send_points(missing).await?;
            self.verify(&sent).await?;
        }
        for run in &runs {
            if run.stays_at.is_none() {
                let to = format!("{}/{}/artifacts", run.experiment, run.id);
                self.copy_files(&run.artifact_uri, &to).await?;
            }
        }
        Ok(())
    }

    /// Decides whether a run's files come along, and remembers where they will be.
    fn settle_files(&mut self, run: &mut Run) {
        let to = format!("{}/{}/artifacts", run.experiment, run.id);
        run.stays_at = self.stays(&run.artifact_uri, &to);
    }

    async fn send_runs(&mut self, runs: &[Run], missing: &[Expected]) -> Result<()> {
        let wanted = runs.iter().filter(|run| missing.iter().any(|one| one.id == run.id));
        let mut batches: Vec<Vec<&Run>> = Vec::new();
        let mut room = 0;
        for run in wanted {
            self.account.sent(Kind::Runs, 1);
            self.account.sent(Kind::Params, run.params.len());
            self.account.sent(Kind::Tags, run.tags.len());
            self.account.sent(Kind::Datasets, run.datasets.len());
            let size = size_of(run);
            match batches.last_mut() {
                Some(batch) if size <= room => batch.push(run),
                _ => {
                    batches.push(vec![run]);
                    room = BYTES;
                }
            }
            room = room.saturating_sub(size);
        }
        for batch in batches {
            self.project.import("runs", &json!({ "runs": batch })).await?;
        }
        Ok(())
    }

    async fn send_points(&mut self, all: Vec<Series>) -> Result<()> {
        let batches = batches(all);
        let project = &self.project;
        stream::iter(batches)
            .map(|batch| async move {
                project.import("points", &json!({ "series": batch })).await.map(drop)
            })
            .buffer_unordered(self.concurrency)
            .try_collect::<()>()
            .await
    }

    async fn verify(&mut self, sent: &[Expected]) -> Result<()> {
        if sent.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = sent.iter().map(|one| one.id.as_str()).collect();
        let here = self.project.check(&ids, &[]).await?;
        for one in sent {
            let Some(there) = here.get(&one.id) else {
                self.account.differs(format!("run {} is not there", one.id));
                continue;
            };
            for (what, ours) in one.parts() {
                let label = format!("{what} of run {}", one.id);
                self.account.compare(&label, ours, there[what].as_str());
            }
        }
        Ok(())
    }
}

/// What a server should say of a run.
struct Expected {
    id: String,
    status: String,
    stage: &'static str,
    params: String,
    tags: String,
    points: String,
    datasets: String,
}

impl Expected {
    fn of(run: &Run, series: &[Series]) -> Self {
        Self {
            id: run.id.clone(),
            status: run.status.clone(),
            stage: run.stage.as_str(),
            params: digest::pairs(&run.params),
            tags: digest::pairs(&run.tags),
            points: digest::points(series),
            datasets: digest::datasets(run),
        }
    }

    fn parts(&self) -> [(&'static str, &str); 6] {
        [
            ("status", &self.status),
            ("stage", self.stage),
            ("params", &self.params),
            ("tags", &self.tags),
            ("points", &self.points),
            ("datasets", &self.datasets),
        ]
    }

    fn is(&self, there: &Value) -> bool {
        self.parts().iter().all(|(what, ours)| there[*what] == *ours)
    }
}

/// About how many bytes a run takes in a request.
fn size_of(run: &Run) -> usize {
    let pairs = run.params.iter().chain(&run.tags);
    let pairs: usize = pairs.map(|(key, value)| key.len() + value.len() + 10).sum();
    let datasets: usize = run
        .datasets
        .iter()
        .map(|one| {
            let texts = [one.schema.as_ref(), one.profile.as_ref(), Some(&one.source)];
            200 + texts.into_iter().flatten().map(String::len).sum::<usize>()
        })
        .sum();
    500 + pairs + datasets
}

/// Cuts long series and gathers short ones, so that requests are of about one size.
fn batches(all: Vec<Series>) -> Vec<Vec<Series>> {
    let mut batches: Vec<Vec<Series>> = Vec::new();
    let mut room = 0;
    for series in all {
        for points in series.points.chunks(POINTS) {
            // A series costs something even if it is short.
            let cost = points.len() + 10;
            let part = Series {
                run: series.run.clone(),
                key: series.key.clone(),
                points: points.to_vec(),
            };
            match batches.last_mut() {
                Some(batch) if cost <= room => batch.push(part),
                _ => {
                    batches.push(vec![part]);
                    room = POINTS;
                }
            }
            room = room.saturating_sub(cost);
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use falaj_moving::record::Point;

    use super::*;

    #[test]
    fn requests_of_about_one_size() {
        let series = |points: usize| Series {
            run: "r".to_owned(),
            key: "k".to_owned(),
            points: vec![Point { timestamp: 0, step: 0, value: 0.0 }; points],
        };
        let sizes = |lengths: &[usize]| {
            let all = lengths.iter().map(|length| series(*length)).collect();
            let count = |batch: &Vec<Series>| batch.iter().map(|one| one.points.len()).sum();
            batches(all).iter().map(count).collect::<Vec<usize>>()
        };
        assert_eq!(sizes(&[]), [0_usize; 0]);
        assert_eq!(sizes(&[10, 20]), [30]);
        assert_eq!(sizes(&[POINTS * 2 + 1]), [POINTS, POINTS, 1]);
        assert_eq!(sizes(&[POINTS - 100, 200]), [POINTS - 100, 200]);
    }
}
