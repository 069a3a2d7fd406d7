//! How much memory all request bodies together may take.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::{Error, Result, code};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is counted in blocks: a permit count is 32 bits wide.
const BLOCK: usize = 1024;

#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<Semaphore>);

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new((bytes / BLOCK).clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Nothing yet; it grows with the body.
    pub(super) fn reserve(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0, permit: None }
    }
}

/// What one body holds of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Budget,
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Reservation {
    /// Takes room for `more` bytes, or refuses at once: waiting while holding some of it could
    /// block everyone.
    pub(crate) fn grow(&mut self, more: usize) -> Result<()> {
        self.bytes += more;
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = self.bytes.div_ceil(BLOCK).saturating_sub(held);
        let Ok(missing @ 1..) = u32::try_from(missing) else { return Ok(()) };
        let more = Arc::clone(&self.budget.0).try_acquire_many_owned(missing).map_err(|_| {
            let message = "request bodies fill the memory set aside for them";
            Error::new(&code::OVERLOADED, format!("{message} (`limits.max_buffered_size`)"))
                .retry_after(Duration::from_secs(1))
        })?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_shared_and_given_back() {
        let budget = Budget::new(4 * BLOCK);
        let (mut one, mut two) = (budget.reserve(), budget.reserve());
        one.grow(10).unwrap();
        one.grow(2 * BLOCK).unwrap();
        assert_eq!(budget.0.available_permits(), 1);
        assert_eq!(two.grow(2 * BLOCK).unwrap_err().code(), &code::OVERLOADED);
        drop(one);
        two.grow(1).unwrap();
        drop(two);
        assert_eq!(budget.0.available_permits(), 4);
    }
}
