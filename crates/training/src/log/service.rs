//! Reading the output of a rank.

use std::time::Duration;

use bytes::BytesMut;
use falaj_base::{Error, Result, code};
use falaj_executors::{ExecutorError, Part};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use futures::TryStreamExt;

use super::archive::Kept;
use crate::job::State;
use crate::job::store::{self as jobs, StartRow};
use crate::name::TaskId;
use crate::{JOB_READ, Training, blocking};

/// The most of one answer.
const MOST: usize = 1 << 20;
/// The longest that a request waits for news.
const LONGEST: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(150);

/// Which output is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) task: u32,
    /// The last start if absent.
    pub(crate) attempt: Option<u32>,
    pub(crate) rank: u32,
    pub(crate) offset: u64,
    pub(crate) limit: usize,
    /// How long to wait for something to show.
    pub(crate) wait: Duration,
}

/// A piece of output.
#[derive(Clone, Debug)]
pub struct Piece {
    pub bytes: Vec<u8>,
    /// Where it begins: later than asked for if something before it is not kept.
    pub start: u64,
    /// Of which start it is; 0 if there has been none.
    pub attempt: u32,
    pub state: State,
    /// Whether nothing more comes: the start is over and all of it was shown.
    pub done: bool,
}

impl Training {
    /// The output of a rank from an offset on. Where there is none yet, it waits a while.
    pub(crate) async fn log(&self, call: &Call, job: &str, wanted: Wanted) -> Result<Piece> {
        let job = self.seen(call, job, &JOB_READ).await?;
        if wanted.task >= job.tasks.count {
            return Err(Error::invalid("task", wanted.task, format!("below {}", job.tasks.count)));
        }
        if !(1..=MOST).contains(&wanted.limit) {
            return Err(Error::invalid("limit", wanted.limit, format!("1 to {MOST}")));
        }
        if wanted.wait > LONGEST {
            let allowed = format!("at most {}s", LONGEST.as_secs());
            return Err(Error::invalid("wait", format!("{:?}", wanted.wait), allowed));
        }
        let task = TaskId { job: job.id, task: wanted.task };
        let until = tokio::time::Instant::now() + wanted.wait;
        loop {
            let read = move |tx: &mut Tx<'_>| {
                Ok((
                    jobs::find_start(tx, task, wanted.attempt)?,
                    jobs::task(tx, task)?,
                    jobs::by_id(tx, task.job)?,
                ))
            };
            let (start, row, now) = self.db().read(read).await?;
            let state = row.map(|(state, _)| state);
            let whole = now.map_or(job.state, |job| job.state);
            let state = state.unwrap_or(if whole.is_over() { whole } else { State::Pending });
            let piece = match start {
                Some(start) => self.piece(call, &start, wanted, state).await?,
                None if wanted.attempt.is_some() => {
                    return Err(Error::invalid(
                        "attempt",
                        wanted.attempt.unwrap_or(0),
                        "one that there has been",
                    ));
                }
                None => {
                    let done = state.is_over();
                    Piece { bytes: Vec::new(), start: 0, attempt: 0, state, done }
                }
            };
            let late = tokio::time::Instant::now() >= until;
            if !piece.bytes.is_empty() || piece.done || late {
                return Ok(piece);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn piece(
        &self,
        call: &Call,
        start: &StartRow,
        wanted: Wanted,
        state: State,
    ) -> Result<Piece> {
        if wanted.rank >= start.shown.world_size {
            let allowed = format!("below {}", start.shown.world_size);
            return Err(Error::invalid("rank", wanted.rank, allowed));
        }
        let mut kept = start.logs.clone();
        let mut part = Part { at: wanted.offset, bytes: Vec::new() };
        if kept.is_none() {
            if let Some(found) = self.at_executor(start, wanted).await? {
                part = found;
            } else {
                // It may have been kept, and forgotten there, since the row was read.
                let id = start.id;
                let read = move |tx: &mut Tx<'_>| jobs::find_start(tx, id.task, Some(id.attempt));
                kept = self.db().read(read).await?.and_then(|start| start.logs);
            }
        }
        if let Some(text) = &kept {
            let kept: Vec<Kept> = serde_json::from_str(text).map_err(Error::internal)?;
            let kept = kept.into_iter().find(|kept| kept.rank == wanted.rank);
            part = self.in_store(call, kept, wanted).await?;
        }
        let done = start.open < 2 && part.bytes.is_empty();
        let begins = if part.bytes.is_empty() { wanted.offset } else { part.at };
        let attempt = start.id.attempt;
        Ok(Piece { bytes: part.bytes, start: begins, attempt, state, done })
    }

    async fn in_store(&self, call: &Call, kept: Option<Kept>, wanted: Wanted) -> Result<Part> {
        let found = kept.and_then(|kept| Some((kept.blob, kept.find(wanted.offset)?)));
        let Some((blob, (at, within))) = found else { return Ok(Part::default()) };
        let blob = self.objects().blob(call.place.tenant_id, blob).await?;
        let end = within.start.saturating_add(wanted.limit as u64).min(within.end);
        let mut pieces = blob.read_range(within.start..end)?;
        let mut bytes = BytesMut::new();
        while let Some(piece) = pieces.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(Part { at, bytes: bytes.to_vec() })
    }

    async fn at_executor(&self, start: &StartRow, wanted: Wanted) -> Result<Option<Part>> {
        let Some(pool) = self.pool_list().by_name(start.shown.pool.as_str()) else {
            return Ok(None);
        };
        let executor = self.pool_list().list[pool].executor.clone();
        let attempt = start.id.outside()?;
        // No file is longer, and some systems refuse to look there.
        let (rank, offset, limit) = (wanted.rank, wanted.offset.min(1 << 60), wanted.limit);
        blocking(move || match executor.output_part(&attempt, rank, offset, limit) {
            Ok(part) => Ok(Some(part)),
            Err(ExecutorError::Unknown(_) | ExecutorError::Refused(_)) => Ok(None),
            Err(ExecutorError::Away(why)) => Err(Error::new(&code::UNAVAILABLE, why)),
        })
        .await
    }
}
