//! Keeping the output of a start that has ended.

use std::sync::Arc;

use bytes::Bytes;
use falaj_base::{BlobId, Error, Result, code};
use falaj_executors::{AttemptId, Executor, ExecutorError};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::objects::{Expected, Objects, Staged};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use crate::job::store::StartRow;
use crate::name::StartId;
use crate::{Training, blocking};

/// Who refers to the blobs.
const OWNER: &str = "training-log";
/// How much is read at a time.
const PIECE: usize = 1 << 20;

/// The output of one rank, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) rank: u32,
    pub(crate) blob: BlobId,
    pub(crate) size: u64,
}

/// Stores the output of every rank. What the executor does not have any more is empty.
pub(crate) async fn keep(
    training: &Training,
    project: &Arc<Project>,
    start: &StartRow,
) -> Result<Vec<(u32, Staged)>> {
    let mut kept = Vec::new();
    let Some(pool) = training.pool_list().by_name(start.shown.pool.as_str()) else {
        return Ok(kept);
    };
    let executor = training.pool_list().list[pool].executor.clone();
    let attempt = start.id.outside()?;
    let most = training.config().max_log.bytes();
    for rank in 0..start.shown.world_size {
        let first = piece(&executor, &attempt, rank, 0, most).await?;
        if first.is_empty() {
            continue;
        }
        let (executor, attempt) = (executor.clone(), attempt.clone());
        let rest = stream::unfold(Some((first, 0u64)), move |state| {
            let (executor, attempt) = (executor.clone(), attempt.clone());
            async move {
                let (bytes, from) = state?;
                if bytes.is_empty() {
                    return None;
                }
                let next = from + bytes.len() as u64;
                match piece(&executor, &attempt, rank, next, most).await {
                    Ok(more) => Some((Ok(bytes), Some((more, next)))),
                    Err(error) => Some((Err(error), None)),
                }
            }
        });
        // Asked once more after its end, it has still ended.
        let rest = rest.fuse();
        let (tenant, zone) = (project.tenant_id, &project.zone);
        let staged = training.objects().upload(tenant, zone, rest, Expected::default()).await?;
        kept.push((rank, staged));
    }
    Ok(kept)
}

/// Makes what was stored visible; the text says where each rank's output is.
pub(crate) fn attach(tx: &mut Tx<'_>, id: StartId, staged: &[(u32, Staged)]) -> Result<String> {
    let mut kept = Vec::with_capacity(staged.len());
    for (rank, staged) in staged {
        let blob = Objects::attach(tx, staged, OWNER, &format!("{id}/{rank}"))?;
        kept.push(Kept { rank: *rank, blob, size: staged.size });
    }
    serde_json::to_string(&kept).map_err(Error::internal)
}

async fn piece(
    executor: &Arc<dyn Executor>,
    attempt: &AttemptId,
    rank: u32,
    from: u64,
    most: u64,
) -> Result<Bytes> {
    let room = usize::try_from(most.saturating_sub(from)).unwrap_or(usize::MAX).min(PIECE);
    if room == 0 {
        return Ok(Bytes::new());
    }
    let (executor, attempt) = (executor.clone(), attempt.clone());
    blocking(move || match executor.output(&attempt, rank, from, room) {
        Ok(bytes) => Ok(Bytes::from(bytes)),
        Err(ExecutorError::Unknown(_) | ExecutorError::Refused(_)) => Ok(Bytes::new()),
        Err(ExecutorError::Away(why)) => Err(Error::new(&code::UNAVAILABLE, why)),
    })
    .await
}
