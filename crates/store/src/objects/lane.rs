//! Work on bytes that arrive in batches, done in their order on a thread of its own once they are
//! many.

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use falaj_base::{Error, Result};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::INLINE;

/// How many batches may wait: enough that the work goes on while the next one arrives, few enough
/// that a transfer stays small in memory.
const WAITING: usize = 2;

/// What is done with the bytes; it may block.
pub(super) trait Work: Send + 'static {
    fn take(&mut self, batch: &[Bytes]) -> Result<()>;
}

/// One worker and the batches that wait for it.
pub(super) enum Lane<W> {
    /// The worker is here, and so little has come that it was not worth sending it away.
    Here(W, usize),
    Away(mpsc::Sender<Vec<Bytes>>, JoinHandle<Result<W>>),
    /// The work failed, and has said so.
    Broken,
}

impl<W: Work> Lane<W> {
    pub(super) fn new(worker: W) -> Self {
        Self::Here(worker, 0)
    }

    /// Hands over a batch; waits while enough of them do.
    pub(super) async fn push(&mut self, batch: Vec<Bytes>) -> Result<()> {
        let len = batch.iter().map(Bytes::len).sum::<usize>();
        match std::mem::replace(self, Self::Broken) {
            Self::Here(mut worker, so_far) if so_far + len <= INLINE => {
                worker.take(&batch)?;
                *self = Self::Here(worker, so_far + len);
            }
            Self::Here(worker, _) => {
                let (sender, batches) = mpsc::channel(WAITING);
                let work = tokio::spawn(work_through(worker, batches));
                // There is room for the first.
                sender.send(batch).await.map_err(Error::internal)?;
                *self = Self::Away(sender, work);
            }
            Self::Away(sender, work) => {
                if sender.send(batch).await.is_err() {
                    let ended = work.await.map_err(Error::internal)?;
                    return Err(ended.err().unwrap_or_else(broken));
                }
                *self = Self::Away(sender, work);
            }
            Self::Broken => return Err(broken()),
        }
        Ok(())
    }

    /// Waits until all is done, and gives the worker back.
    pub(super) async fn finish(self) -> Result<W> {
        match self {
            Self::Here(worker, _) => Ok(worker),
            Self::Away(batches, work) => {
                drop(batches);
                work.await.map_err(Error::internal)?
            }
            Self::Broken => Err(broken()),
        }
    }
}

/// Works until there will be no more batches. A blocking thread is held only while one is there: a
/// client that sends slowly must not hold one for as long as it likes.
async fn work_through<W: Work>(
    mut worker: W,
    mut batches: mpsc::Receiver<Vec<Bytes>>,
) -> Result<W> {
    while let Some(first) = batches.recv().await {
        let work = move || {
            let mut next = Some(first);
            while let Some(batch) = next {
                worker.take(&batch)?;
                next = batches.try_recv().ok();
            }
            Ok((worker, batches))
        };
        (worker, batches) = spawn_blocking(work).await.map_err(Error::internal)??;
    }
    Ok(worker)
}

fn broken() -> Error {
    Error::internal("a lane was used after it had failed")
}

/// A SHA-256 in the making.
pub(super) struct Hasher(Context);

impl Hasher {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn finish(self) -> Result<[u8; 32]> {
        let digest = self.0.finish();
        digest.as_ref().try_into().map_err(|_| Error::internal("SHA-256 is 32 bytes long"))
    }
}

impl Work for Hasher {
    fn take(&mut self, batch: &[Bytes]) -> Result<()> {
        for piece in batch {
            self.0.update(piece);
        }
        Ok(())
    }
}
