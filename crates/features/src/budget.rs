//! Memory that requests share: those that would take more wait for a while, and are then refused.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::{ByteSize, Error, Result, code};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is counted at a time.
const UNIT: u64 = 1024;
/// How long a request waits for others to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// So many bytes for all requests of a kind. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    permits: Arc<Semaphore>,
    all: u32,
    /// The setting that bounds it.
    setting: &'static str,
}

/// What a request has of a budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    _permit: OwnedSemaphorePermit,
}

impl Budget {
    pub(crate) fn new(size: ByteSize, setting: &'static str) -> Self {
        let all = u32::try_from(size.bytes().div_ceil(UNIT)).unwrap_or(u32::MAX);
        let all = all.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX)).max(1);
        Self { permits: Arc::new(Semaphore::new(all as usize)), all, setting }
    }

    /// How much there is for all.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.all) * UNIT
    }

    /// One that takes more than there is at all takes everything, and so is alone.
    fn units(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(1, self.all)
    }

    /// Waits for a while until there is room.
    pub(crate) async fn take(&self, bytes: u64) -> Result<Share> {
        let permit = self.permits.clone().acquire_many_owned(self.units(bytes));
        match tokio::time::timeout(PATIENCE, permit).await {
            Ok(Ok(permit)) => Ok(Share { _permit: permit }),
            _ => Err(self.full()),
        }
    }

    /// Refused at once if there is no room: for those who hold some already, and would keep others
    /// waiting while they wait.
    pub(crate) fn take_now(&self, bytes: u64) -> Result<Share> {
        let permit = self.permits.clone().try_acquire_many_owned(self.units(bytes));
        permit.map(|permit| Share { _permit: permit }).map_err(|_| self.full())
    }

    fn full(&self) -> Error {
        let text =
            format!("others take all the memory that there is for this (`{}`)", self.setting);
        Error::new(&code::OVERLOADED, text).retry_after(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_waits_and_is_refused() {
        let budget = Budget::new(ByteSize::kib(10), "features.x");
        let first = budget.take(6 << 10).await.unwrap();
        let small = budget.take_now(4 << 10).unwrap();
        assert_eq!(budget.take_now(1).unwrap_err().code().id, "overloaded");
        let refused = budget.take(1).await.unwrap_err();
        assert!(refused.message().contains("features.x"), "{refused:?}");
        drop(small);
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.take(1 << 30).await.map(drop) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished(), "it takes everything");
        drop(first);
        waiting.await.unwrap().unwrap();
        drop(budget.take_now(10 << 10).unwrap());
    }
}
