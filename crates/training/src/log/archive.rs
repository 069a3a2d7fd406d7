//! Keeping the output of a start that has ended.
//!
//! Must hold: of an output that is longer than what is kept, the beginning and the end are, since the end
//! says why it ended. A byte keeps its offset: what is kept is a list of runs, one after the other in one
//! blob.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use falaj_base::{BlobId, Error, Result, code};
use falaj_executors::{AttemptId, Executor, ExecutorError, Part};
use falaj_governance::tenancy::Project;
use falaj_store::db::{Tx, params};
use falaj_store::objects::{Expected, Objects, Staged};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use crate::job::store::StartRow;
use crate::name::{JobId, StartId, TaskId};
use crate::{Training, blocking};

/// Who refers to the blobs.
const OWNER: &str = "training-log";
/// How much is read at a time.
const PIECE: usize = 1 << 20;
/// No output is longer, and some systems refuse to look there.
const FARTHEST: u64 = 1 << 60;

/// The output of one rank, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) rank: u32,
    pub(crate) blob: BlobId,
    pub(crate) size: u64,
    /// Offsets and lengths of what is in the blob; all of it from 0 on if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) runs: Vec<(u64, u64)>,
}

impl Kept {
    /// What is kept from an offset of the output on: the offset it begins at, and where it lies in the
    /// blob. No piece reaches across something that is not kept.
    pub(crate) fn find(&self, offset: u64) -> Option<(u64, std::ops::Range<u64>)> {
        let whole = [(0, self.size)];
        let runs = if self.runs.is_empty() { &whole } else { self.runs.as_slice() };
        let mut before = 0;
        for &(at, length) in runs {
            if offset < at.saturating_add(length) {
                let start = offset.max(at);
                return Some((start, before + (start - at)..before + length));
            }
            before += length;
        }
        None
    }
}

/// The output of a rank that is stored and that nobody refers to yet.
#[derive(Debug)]
pub(crate) struct Stored {
    rank: u32,
    staged: Staged,
    runs: Vec<(u64, u64)>,
}

/// Stores the output of every rank. What the executor does not have any more is empty.
pub(crate) async fn keep(
    training: &Training,
    project: &Arc<Project>,
    start: &StartRow,
) -> Result<Vec<Stored>> {
    let mut kept = Vec::new();
    let Some(pool) = training.pool_list().by_name(start.shown.pool.as_str()) else {
        return Ok(kept);
    };
    let executor = training.pool_list().list[pool].executor.clone();
    let attempt = start.id.outside()?;
    let most = training.config().max_log.bytes();
    for rank in 0..start.shown.world_size {
        let mut reader = Reader::new(executor.clone(), attempt.clone(), rank, most);
        let Some(first) = reader.next().await? else { continue };
        let runs = reader.runs.clone();
        let rest = stream::unfold((Some(first), Some(reader)), |(bytes, reader)| async move {
            let (bytes, mut reader) = (bytes?, reader?);
            match reader.next().await {
                Ok(more) => Some((Ok(bytes), (more, Some(reader)))),
                Err(error) => Some((Err(error), (None, None))),
            }
        });
        // Asked once more after its end, it has still ended.
        let rest = Box::pin(rest.fuse());
        let (tenant, zone) = (project.tenant_id, &project.zone);
        let staged = training.objects().upload(tenant, zone, rest, Expected::default()).await?;
        let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if runs.first().is_some_and(|run| *run == (0, staged.size)) {
            runs.clear();
        }
        kept.push(Stored { rank, staged, runs });
    }
    Ok(kept)
}

/// Reads what is kept of an output, piece by piece.
struct Reader {
    executor: Arc<dyn Executor>,
    attempt: AttemptId,
    rank: u32,
    most: u64,
    at: u64,
    taken: u64,
    /// Whether the end was looked for: what lies between it and the beginning is passed over once.
    jumped: bool,
    runs: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Reader {
    fn new(executor: Arc<dyn Executor>, attempt: AttemptId, rank: u32, most: u64) -> Self {
        let runs = Arc::default();
        Self { executor, attempt, rank, most, at: 0, taken: 0, jumped: false, runs }
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        let half = self.most.div_ceil(2);
        if self.taken >= half && !self.jumped {
            self.jumped = true;
            let room = self.most - self.taken;
            let (executor, attempt) = (self.executor.clone(), self.attempt.clone());
            let (rank, from) = (self.rank, self.at);
            let end = blocking(move || {
                told(end_of(from, |at| {
                    executor.output(&attempt, rank, at, 1).map(|bytes| !bytes.is_empty())
                }))
            })
            .await?;
            let end = end.unwrap_or(self.at);
            if end - self.at > room {
                self.at = end - room;
            }
        }
        let until = if self.jumped { self.most } else { half };
        let room = usize::try_from(until - self.taken).unwrap_or(usize::MAX).min(PIECE);
        if room == 0 {
            return Ok(None);
        }
        let (executor, attempt) = (self.executor.clone(), self.attempt.clone());
        let (rank, from) = (self.rank, self.at);
        let read = blocking(move || told(executor.output_part(&attempt, rank, from, room))).await?;
        let Some(Part { at, bytes }) = read.filter(|part| !part.bytes.is_empty()) else {
            return Ok(None);
        };
        let length = bytes.len() as u64;
        self.at = at + length;
        self.taken += length;
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        match runs.last_mut() {
            Some(last) if last.0 + last.1 == at => last.1 += length,
            _ => runs.push((at, length)),
        }
        Ok(Some(Bytes::from(bytes)))
    }
}

/// Where an output ends, from an offset on up to which there is something, by asking whether there is
/// a byte at some offsets.
fn end_of(
    from: u64,
    mut is_there: impl FnMut(u64) -> Result<bool, ExecutorError>,
) -> Result<u64, ExecutorError> {
    let (mut there, mut step) = (from, PIECE as u64);
    // There are bytes before `there`, and none from `there + step` on.
    while is_there(there.saturating_add(step))? {
        there = there.saturating_add(step);
        step = step.saturating_mul(2);
        if there > FARTHEST {
            return Ok(there);
        }
    }
    let mut none = there + step;
    while there < none {
        let middle = there + (none - there) / 2;
        if is_there(middle)? {
            there = middle + 1;
        } else {
            none = middle;
        }
    }
    Ok(there)
}

/// What is not known any more is empty.
fn told<T>(read: Result<T, ExecutorError>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(ExecutorError::Unknown(_) | ExecutorError::Refused(_)) => Ok(None),
        Err(ExecutorError::Away(why)) => Err(Error::new(&code::UNAVAILABLE, why)),
    }
}

/// Makes what was stored visible; the text says where each rank's output is.
pub(crate) fn attach(tx: &mut Tx<'_>, id: StartId, stored: &[Stored]) -> Result<String> {
    let mut kept = Vec::with_capacity(stored.len());
    for Stored { rank, staged, runs } in stored {
        let blob = Objects::attach(tx, staged, OWNER, &format!("{id}/{rank}"))?;
        kept.push(Kept { rank: *rank, blob, size: staged.size, runs: runs.clone() });
    }
    serde_json::to_string(&kept).map_err(Error::internal)
}

/// Lets go of all that is kept of a job's output.
pub(crate) fn detach(tx: &mut Tx<'_>, job: JobId) -> Result<()> {
    let sql =
        "SELECT task, attempt, logs FROM training_attempt WHERE job = $1 AND logs IS NOT NULL";
    let rows = tx.query(sql, &params![job])?;
    for row in rows {
        let task = TaskId { job, task: row.get("task")? };
        let id = StartId { task, attempt: row.get("attempt")? };
        let kept: Vec<Kept> =
            serde_json::from_str(&row.get::<String>("logs")?).map_err(Error::internal)?;
        for Kept { rank, blob, .. } in kept {
            Objects::detach(tx, blob, OWNER, &format!("{id}/{rank}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use falaj_executors::{Launch, Notice, Observed, Usage};

    use super::*;

    /// One whose only rank has said a hundred bytes, each its own offset.
    #[derive(Debug)]
    struct Hundred;

    impl Executor for Hundred {
        fn launch(&self, _: &Launch) -> Result<(), ExecutorError> {
            Ok(())
        }
        fn observe(&self) -> Result<Vec<Observed>, ExecutorError> {
            Ok(Vec::new())
        }
        fn tell(&self, _: &AttemptId, _: Notice) -> Result<(), ExecutorError> {
            Ok(())
        }
        fn output(
            &self,
            _: &AttemptId,
            _: u32,
            from: u64,
            most: usize,
        ) -> Result<Vec<u8>, ExecutorError> {
            Ok((0..100).filter(|at| u64::from(*at) >= from).take(most).collect())
        }
        fn usage(&self, _: &AttemptId) -> Result<Option<Usage>, ExecutorError> {
            Ok(None)
        }
        fn stacks(&self, _: &AttemptId) -> Result<Option<String>, ExecutorError> {
            Ok(None)
        }
        fn forget(&self, _: &AttemptId) -> Result<(), ExecutorError> {
            Ok(())
        }
        fn wait(&self, _: Duration) {}
    }

    #[tokio::test]
    async fn of_a_long_output_the_beginning_and_the_end_are_kept() {
        for (most, expected) in [
            (10, vec![(0, 5), (95, 5)]),
            (9, vec![(0, 5), (96, 4)]),
            (1, vec![(0, 1)]),
            (99, vec![(0, 50), (51, 49)]),
            (100, vec![(0, 100)]),
            (1000, vec![(0, 100)]),
        ] {
            let attempt = AttemptId::new("job-1").unwrap();
            let mut reader = Reader::new(Arc::new(Hundred), attempt, 0, most);
            let mut bytes = Vec::new();
            while let Some(more) = reader.next().await.unwrap() {
                bytes.extend_from_slice(&more);
            }
            let runs = reader.runs.lock().unwrap().clone();
            assert_eq!(runs, expected, "{most}");
            let offsets = runs.iter().flat_map(|(at, length)| *at..at + length);
            assert!(offsets.eq(bytes.iter().map(|byte| u64::from(*byte))), "{most}");
        }
    }

    #[test]
    fn the_end_is_found_wherever_it_is() {
        const MIB: u64 = 1 << 20;
        for (from, end) in [(0, 0), (0, 1), (5, 5), (5, MIB + 4), (5, MIB + 5), (5, MIB + 6)] {
            assert_eq!(end_of(from, |at| Ok(at < end)).unwrap(), end, "{from} {end}");
        }
        let mut asked = 0;
        let end = end_of(MIB, |at| {
            asked += 1;
            Ok(at < 777_777_777_777)
        });
        assert_eq!(end.unwrap(), 777_777_777_777);
        assert!(asked < 80, "{asked}");
    }

    #[test]
    fn offsets_are_those_of_the_output() {
        let blob = BlobId::new();
        let kept = Kept { rank: 0, blob, size: 30, runs: vec![(0, 10), (100, 20)] };
        assert_eq!(kept.find(3), Some((3, 3..10)));
        assert_eq!(kept.find(10), Some((100, 10..30)));
        assert_eq!(kept.find(105), Some((105, 15..30)));
        assert_eq!(kept.find(120), None);
        let whole: Kept =
            serde_json::from_str(&format!(r#"{{"rank": 0, "blob": "{blob}", "size": 9}}"#))
                .unwrap();
        assert_eq!((whole.find(2), whole.find(9)), (Some((2, 2..9)), None));
    }
}
