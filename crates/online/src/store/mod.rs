//! Where the rows lie: a file of this server, or Redis.
//!
//! Must hold, for both, and is tested for both by one suite (`tests/store`):
//! - Of all rows given for a key the one with the greatest stamp is found, in whatever order, how
//!   often and by how many they were given.
//! - What `apply` has acknowledged is read by whoever reads afterwards.
//! - Rows need not survive a crash before `settle`; the position it was given survives with them or
//!   not at all. Whoever applies the log from `reached` on has lost nothing.
//! - A store belongs to whoever settled in first, until it is cleared.
//! - What is erased is found no more; rows that became known later stay.
//! - A store that does not answer is an error within the time set, and the next call tries anew.

mod batch;
mod embedded;
mod home;
mod redis;

use bytes::Bytes;
use falaj_base::{ByteSize, Error, Result, code};

pub use batch::Batch;
pub use embedded::{Embedded, EmbeddedConfig};
pub use home::{About, Home};
pub use redis::{Redis, RedisConfig};

use crate::key::{Key, Pattern};

/// The most rows that are looked for on the thread that asks: on a cold disk each may be a read.
const AT_ONCE: usize = 500;

/// A place in the log of pushed rows: everything up to it has been applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub tx: i64,
    pub seq: i64,
}

/// The online store.
#[derive(Clone, Debug)]
pub enum Online {
    Embedded(Embedded),
    Redis(Redis),
}

impl Online {
    /// The row of each key, in the order asked; refused as *too large* once they take more than
    /// `most` bytes.
    pub async fn read(&self, keys: &[Key], most: usize) -> Result<Vec<Option<Bytes>>> {
        match self {
            Self::Embedded(store) if keys.len() > AT_ONCE => {
                let (store, keys) = (store.clone(), keys.to_vec());
                blocking(move || store.read(&keys, most)).await
            }
            // Microseconds of work, and mostly in memory: not worth another thread.
            Self::Embedded(store) => store.read(keys, most),
            Self::Redis(store) => store.read(keys, most).await,
        }
    }

    /// Lets rows take their places; says how many have them now, those that had them before with
    /// the same stamp included.
    pub async fn apply(&self, batch: Batch) -> Result<usize> {
        match self {
            Self::Embedded(store) => match store.apply_at_once(batch) {
                Ok(placed) => placed,
                Err(batch) => {
                    let store = store.clone();
                    blocking(move || store.apply(batch)).await
                }
            },
            Self::Redis(store) => store.apply(batch).await,
        }
    }

    /// What it remembers of itself.
    pub async fn about(&self) -> Result<About> {
        match self {
            Self::Embedded(store) => Ok(store.about()),
            Self::Redis(store) => store.about().await,
        }
    }

    /// Settles in, with a name for the store, unless somebody has already; says what it is now. What
    /// rows there are stay.
    pub async fn settle_in(&self, home: &Home, id: &str) -> Result<About> {
        match self {
            Self::Embedded(store) => {
                let (store, home, id) = (store.clone(), home.clone(), id.to_owned());
                blocking(move || store.settle_in(&home, &id)).await
            }
            Self::Redis(store) => store.settle_in(home, id).await,
        }
    }

    /// Forgets everything: rows, positions, and whose they were.
    pub async fn clear(&self) -> Result<()> {
        match self {
            Self::Embedded(store) => {
                let store = store.clone();
                blocking(move || store.clear()).await
            }
            Self::Redis(store) => store.clear().await,
        }
    }

    /// Takes away the rows of some entities that were known at this time, in microseconds; says how
    /// many. They are gone once this is acknowledged, and stay so through a crash.
    pub async fn erase(&self, pattern: &Pattern, known: i64) -> Result<u64> {
        match self {
            Self::Embedded(store) => {
                let (store, pattern) = (store.clone(), pattern.clone());
                blocking(move || store.erase(&pattern, known)).await
            }
            Self::Redis(store) => store.erase(pattern, known).await,
        }
    }

    /// The position that survives a crash together with the rows applied before it.
    pub async fn reached(&self) -> Result<Position> {
        match self {
            Self::Embedded(store) => Ok(store.reached()),
            Self::Redis(store) => store.reached().await,
        }
    }

    /// Makes everything applied so far last; the position stays. Redis lasts as it is set up to.
    pub async fn flush(&self) -> Result<()> {
        match self {
            Self::Embedded(store) => {
                let store = store.clone();
                blocking(move || store.flush()).await
            }
            Self::Redis(_) => Ok(()),
        }
    }

    /// Makes everything applied so far last, and remembers how far in the log that was. Says
    /// whether it did: a store that others settle too, or that has lost rows since, does so only
    /// if it still remembers `from`.
    pub async fn settle(&self, from: Position, position: Position) -> Result<bool> {
        match self {
            Self::Embedded(store) => {
                let store = store.clone();
                blocking(move || store.settle(position)).await?;
                Ok(true)
            }
            Self::Redis(store) => store.settle(from, position).await,
        }
    }
}

/// Takes what a row takes off what may still be read.
fn spend(left: &mut usize, row: &Bytes, most: usize) -> Result<()> {
    *left = left.checked_sub(row.len()).ok_or_else(|| {
        let most = ByteSize::from_bytes(most as u64);
        Error::new(&code::TOO_LARGE, format!("the rows take more than {most}"))
    })?;
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}
