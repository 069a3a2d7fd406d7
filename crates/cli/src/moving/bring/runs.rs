//! Runs: what is missing of them is sent, then looked at again.

use std::collections::{HashMap, HashSet};

use falaj_moving::digest;
use falaj_moving::record::{Experiment, Point, Run, Series, Stage};
use falaj_moving::series::{Sorted, Spool};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use serde_json::Value;

use super::deliver::Delivered;
use super::files::Found;
use super::{Bring, has_all, mark_of};
use crate::exit::{Exit, Failure, Result};
use crate::moving::{Kind, Way};

/// How many runs are looked at together.
const RUNS: usize = 100;
/// About how many points and bytes of other things go into one request.
const POINTS: usize = 50_000;
const BYTES: usize = 1 << 20;
/// How many points are gathered before they are sent.
const GATHERED: usize = 10 * POINTS;

/// A run, what it looks like in the store, and its files.
struct Read {
    run: Run,
    mark: String,
    files: Option<Found>,
}

/// Some runs, what the server should say of them, and what it lacks.
#[derive(Default)]
struct Part<'a> {
    runs: Vec<&'a Run>,
    sent: Vec<Expected>,
    missing: Vec<Lacking>,
    points: usize,
    spool: Spool,
}

/// Points of a run that the server lacks: those of a metric from one on.
struct Lacking {
    run: String,
    series: Sorted,
    from: usize,
}

impl Lacking {
    fn len(&self) -> usize {
        self.series.len() - self.from
    }

    /// In pieces that a request has room for, which are read as they are asked for.
    fn pieces(&self) -> impl Iterator<Item = Result<Series>> + use<'_> {
        let mut rest = self.series.points().skip(self.from);
        std::iter::from_fn(move || {
            let read: falaj_moving::Result<Vec<Point>> = rest.by_ref().take(POINTS).collect();
            let piece = |points| Series {
                run: self.run.clone(),
                key: self.series.key().to_owned(),
                points,
            };
            match read {
                Ok(points) if points.is_empty() => None,
                read => Some(read.map(piece).map_err(Failure::from)),
            }
        })
    }
}

impl<'a> Part<'a> {
    fn add(&mut self, run: &'a Run, expected: Expected, missing: Vec<Lacking>) {
        self.runs.push(run);
        self.sent.push(expected);
        self.points += missing.iter().map(Lacking::len).sum::<usize>();
        self.missing.extend(missing);
    }

    /// Says that what was read besides is not needed any more.
    fn tidy(&mut self) {
        self.spool.hold_only(self.missing.iter().map(|one| one.series.held()).sum());
    }
}

/// What became of runs that are not as in the store.
#[derive(Default)]
struct Fate {
    /// The server did not take them, or not their points.
    left_out: HashSet<String>,
    differing: HashSet<String>,
}

impl Bring<'_> {
    pub(super) async fn runs(&mut self, from: &Experiment, landed: &str) -> Result<()> {
        // Before the runs themselves are read: what is added meanwhile makes another mark next time.
        let extents = match self.way {
            Way::Sync => self.source.extents(&from.id).await?,
            Way::Import => HashMap::new(),
        };
        let ids = self.source.run_ids(&from.id).await?;
        for some in ids.chunks(RUNS) {
            let mut wanted = Vec::new();
            for mut run in self.source.runs(&from.id, some).await? {
                if self.way == Way::Sync && run.stage == Stage::Deleted {
                    self.thrown_away(&run);
                    continue;
                }
                // Old versions of MLflow left the runs of a deleted experiment as they were.
                if from.stage == Stage::Deleted {
                    run.stage = Stage::Deleted;
                }
                landed.clone_into(&mut run.experiment);
                self.account.found(Kind::Runs, 1);
                self.account.found(Kind::Params, run.params.len());
                self.account.found(Kind::Tags, run.tags.len());
                self.account.found(Kind::Datasets, run.datasets.len());
                let to = folder(&run);
                run.stays_at = self.stays(&run.artifact_uri, &to);
                let mut files = None;
                if run.stays_at.is_none() {
                    files = self.look(&format!("run {}", run.id), &run.artifact_uri, &to).await?;
                }
                let extent = extents.get(&run.id).map_or("", String::as_str);
                let mark = mark_of(&run, extent, &Found::extent(files.as_ref()));
                if self.way == Way::Import || self.wants("the run", &run.id, &mark) {
                    wanted.push(Read { run, mark, files });
                } else if self.is_lost(&run.id) {
                    self.left_out.insert(run.id);
                }
            }
            self.some_runs(&from.id, wanted).await?;
        }
        Ok(())
    }

    /// A run that is in the store's bin does not come; one that came before stays.
    fn thrown_away(&mut self, run: &Run) {
        let came = self.memory.came.as_ref().and_then(|all| all.get(&run.id));
        if came.is_some_and(|came| came.stage == "active") {
            let id = &run.id;
            self.account
                .note(format!("the run {id} was deleted in the store; the server keeps it"));
        } else {
            self.left_out.insert(run.id.clone());
        }
    }

    /// Whether a run came once and is not on the server any more, or in its bin.
    fn is_lost(&self, run: &str) -> bool {
        let came = self.memory.came.as_ref().and_then(|all| all.get(run));
        came.is_some_and(|came| came.stage == "gone" || came.stage == "deleted")
    }

    async fn some_runs(&mut self, experiment: &str, all: Vec<Read>) -> Result<()> {
        let ids: Vec<&str> = all.iter().map(|one| one.run.id.as_str()).collect();
        let mut here = self.project.check(&ids, &[]).await?;
        let (mut part, mut fate) = (Part::default(), Fate::default());
        for Read { run, .. } in &all {
            part.tidy();
            let series = self.source.series(experiment, &run.id, &mut part.spool).await?;
            self.account.found(Kind::Points, series.iter().map(Sorted::len).sum());
            let expected = Expected::of(run, &series);
            let there = here.remove(&run.id);
            if there.as_ref().is_some_and(|there| expected.is(there)) {
                continue;
            }
            part.add(run, expected, lacking(&run.id, series, there.as_ref())?);
            if part.points >= GATHERED {
                self.send_part(std::mem::take(&mut part), &mut fate).await?;
            }
        }
        self.send_part(part, &mut fate).await?;
        let mut marks = Vec::new();
        for Read { run, mark, files } in all {
            if fate.left_out.contains(&run.id) {
                self.incomplete.insert(folder(&run));
                continue;
            }
            let complete = match files {
                Some(files) => self.copy_files(files, &folder(&run)).await?,
                None => true,
            };
            // What is not there as it should be is looked at again the next time.
            if complete && !fate.differing.contains(&run.id) {
                marks.push((run.id, mark));
            }
        }
        self.settle("runs", marks).await
    }

    /// Sends some runs with what is missing of their points, and looks at them.
    async fn send_part(&mut self, part: Part<'_>, fate: &mut Fate) -> Result<()> {
        if self.dry_run {
            self.account.sent(Kind::Points, part.points);
            return Ok(());
        }
        let Part { mut runs, mut sent, mut missing, .. } = part;
        let refused = self.send_runs(&runs).await?;
        // Nothing can point at them either.
        self.left_out.extend(refused.iter().cloned());
        missing.retain(|one| !refused.contains(&one.run));
        let unwritten = self.send_points(missing).await?;
        runs.retain(|run| !refused.contains(&run.id));
        sent.retain(|one| !refused.contains(&one.id) && !unwritten.contains(&one.id));
        fate.differing.extend(self.verify(&runs, &sent).await?);
        fate.left_out.extend(refused.into_iter().chain(unwritten));
        Ok(())
    }

    /// Tells which did not come.
    async fn send_runs(&mut self, runs: &[&Run]) -> Result<HashSet<String>> {
        let mut left_out = HashSet::new();
        for batch in packed(runs.iter().copied(), BYTES, |run| size_of(run)) {
            let done = self.deliver(("runs", "runs"), &batch, |run| &run.id).await?;
            let without = self.account_for("run", done);
            for run in batch.iter().filter(|run| !without.contains(&run.id)) {
                self.account.sent(Kind::Runs, 1);
                self.account.sent(Kind::Params, run.params.len());
                self.account.sent(Kind::Tags, run.tags.len());
                self.account.sent(Kind::Datasets, run.datasets.len());
            }
            left_out.extend(without);
        }
        Ok(left_out)
    }

    /// Tells to which runs nothing could be added.
    async fn send_points(&mut self, all: Vec<Lacking>) -> Result<HashSet<String>> {
        let this = &*self;
        let done: Vec<Delivered> = stream::iter(batches(&all))
            .map(async |batch: Result<Vec<Series>>| {
                this.deliver(("points", "series"), &batch?, |one| &one.run).await
            })
            .buffer_unordered(self.concurrency)
            .try_collect()
            .await?;
        let mut left_out = HashSet::new();
        for one in done {
            left_out.extend(self.account_for("points of the run", one));
        }
        let sent = all.iter().filter(|one| !left_out.contains(&one.run));
        self.account.sent(Kind::Points, sent.map(Lacking::len).sum());
        Ok(left_out)
    }

    /// Looks at what was sent, and tells which runs are not as they should be.
    async fn verify(&mut self, runs: &[&Run], sent: &[Expected]) -> Result<HashSet<String>> {
        let mut differing = HashSet::new();
        if sent.is_empty() {
            return Ok(differing);
        }
        let ids: Vec<&str> = sent.iter().map(|one| one.id.as_str()).collect();
        let here = self.project.check(&ids, &[]).await?;
        for one in sent {
            let Some(there) = here.get(&one.id) else {
                self.account.differs(format!("run {} is not there", one.id));
                differing.insert(one.id.clone());
                continue;
            };
            for (what, ours) in one.parts() {
                let theirs = there[what].as_str();
                if self.way == Way::Sync && self.holds(runs, one, what, theirs).await? {
                    continue;
                }
                let label = format!("{what} of run {}", one.id);
                if !self.account.compare(&label, ours, theirs) {
                    differing.insert(one.id.clone());
                }
            }
        }
        Ok(differing)
    }

    /// Whether the server holds everything that the store does: others may have added to it there.
    async fn holds(
        &mut self,
        runs: &[&Run],
        sent: &Expected,
        what: &str,
        theirs: Option<&str>,
    ) -> Result<bool> {
        let ours = sent.parts().into_iter().find(|(name, _)| *name == what);
        let (Some((_, ours)), Some(theirs)) = (ours, theirs) else { return Ok(false) };
        if ours == theirs {
            return Ok(true);
        }
        let run = runs.iter().find(|run| run.id == sent.id);
        match (what, run) {
            // What was deleted there stays so.
            ("stage", _) => Ok(true),
            ("params" | "tags", Some(run)) => {
                let call = self.project.mlflow(Method::GET, "mlflow/runs/get")?;
                let found = self.project.client.json(call.query("run_id", Some(&sent.id))).await;
                // Deleted for good meanwhile.
                let found = match found {
                    Err(gone) if gone.exit() == Exit::NotFound => return Ok(false),
                    found => found?,
                };
                let wanted = if what == "params" { &run.params } else { &run.tags };
                Ok(has_all(&found["run"]["data"][what], wanted))
            }
            ("points" | "datasets", _) => {
                Ok(self.has_more(&format!("{what} of run {}", sent.id), ours, theirs))
            }
            _ => Ok(false),
        }
    }
}

fn folder(run: &Run) -> String {
    format!("{}/{}/artifacts", run.experiment, run.id)
}

/// What the server lacks of a run's points.
fn lacking(run: &str, all: Vec<Sorted>, there: Option<&Value>) -> Result<Vec<Lacking>> {
    let there = there.and_then(|there| there["series"].as_array());
    let pairs = there.into_iter().flatten();
    let said: HashMap<&str, &str> =
        pairs.filter_map(|pair| Some((pair[0].as_str()?, pair[1].as_str()?))).collect();
    let mut rest = Vec::new();
    for series in all {
        let from = said.get(series.key()).map_or(Ok(0), |said| series.lacking(said))?;
        if from < series.len() {
            rest.push(Lacking { run: run.to_owned(), series, from });
        }
    }
    Ok(rest)
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
    fn of(run: &Run, series: &[Sorted]) -> Self {
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

/// Cuts long series and gathers short ones, so that requests are of about one size; each is made
/// when it is asked for.
fn batches(all: &[Lacking]) -> impl Iterator<Item = Result<Vec<Series>>> + use<'_> {
    // A series costs something even if it is short.
    let cost = |piece: &Series| piece.points.len() + 10;
    let mut pieces = all.iter().flat_map(Lacking::pieces).peekable();
    std::iter::from_fn(move || {
        let mut batch = match pieces.next()? {
            Ok(first) => vec![first],
            Err(unread) => return Some(Err(unread)),
        };
        let mut left = POINTS.saturating_sub(cost(&batch[0]));
        let fits = |piece: &Result<Series>, left| piece.as_ref().is_ok_and(|one| cost(one) <= left);
        while let Some(Ok(next)) = pieces.next_if(|piece| fits(piece, left)) {
            left -= cost(&next);
            batch.push(next);
        }
        Some(Ok(batch))
    })
}

/// Gathers things into batches that have room for so much; what is larger goes alone.
fn packed<T>(all: impl Iterator<Item = T>, room: usize, cost: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    let mut left = 0;
    for one in all {
        let cost = cost(&one);
        match batches.last_mut() {
            Some(batch) if cost <= left => batch.push(one),
            _ => {
                batches.push(vec![one]);
                left = room;
            }
        }
        left = left.saturating_sub(cost);
    }
    batches
}

#[cfg(test)]
mod tests {
    use falaj_moving::series::Sorter;

    use super::*;

    #[test]
    fn requests_of_about_one_size() {
        let mut spool = Spool::default();
        let mut lacking = |(points, from): (usize, usize)| {
            let mut sorter = Sorter::new("k".to_owned());
            for step in 0..i64::try_from(points).unwrap() {
                sorter.push(Point { timestamp: 0, step, value: 0.0 }, &mut spool).unwrap();
            }
            Lacking { run: "r".to_owned(), series: sorter.finish(&mut spool).unwrap(), from }
        };
        let mut sizes = |all: &[(usize, usize)]| {
            let all: Vec<Lacking> = all.iter().map(|one| lacking(*one)).collect();
            let count = |batch: Result<Vec<Series>>| -> Vec<usize> {
                batch.unwrap().iter().map(|one| one.points.len()).collect()
            };
            batches(&all).map(count).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(sizes(&[(10, 0), (20, 0)]), [[10, 20]]);
        assert_eq!(sizes(&[(POINTS * 2 + 1, 0)]), [[POINTS], [POINTS], [1]]);
        assert_eq!(sizes(&[(POINTS * 2 + 1, POINTS * 2)]), [[1]]);
        assert_eq!(sizes(&[(POINTS - 100, 0), (200, 0)]), [[POINTS - 100], [200]]);
    }
}
