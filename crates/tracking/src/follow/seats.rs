//! Who follows what at the moment: so many at once, and so many of them one caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use falaj_base::{Error, PrincipalId, Result, code};

use super::FollowConfig;

const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The streams that are open, by who opened them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Arc<Mutex<HashMap<PrincipalId, usize>>>);

/// One stream. Its place is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Seats,
    principal: PrincipalId,
}

impl Seats {
    pub(super) fn take(&self, principal: PrincipalId, config: &FollowConfig) -> Result<Seat> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.values().sum::<usize>() >= config.max_streams {
            let text = "as many runs are followed as may be (`tracking.follow.max_streams`)";
            return Err(Error::new(&code::OVERLOADED, text).retry_after(RETRY_AFTER));
        }
        let own = taken.entry(principal).or_default();
        if *own >= config.max_streams_per_caller {
            let text = format!(
                "you follow {own} runs at once, and may not follow more \
                 (`tracking.follow.max_streams_per_caller`)"
            );
            return Err(Error::new(&code::RATE_LIMITED, text).retry_after(RETRY_AFTER));
        }
        *own += 1;
        Ok(Seat { seats: self.clone(), principal })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn everyone_has_a_share() {
        let config =
            FollowConfig { max_streams: 3, max_streams_per_caller: 2, ..FollowConfig::default() };
        let seats = Seats::default();
        let [one, two] = [1, 2].map(|id| PrincipalId::from_uuid(Uuid::from_u128(id)));
        let first = seats.take(one, &config).unwrap();
        let _second = seats.take(one, &config).unwrap();
        assert_eq!(seats.take(one, &config).unwrap_err().code(), &code::RATE_LIMITED);
        let third = seats.take(two, &config).unwrap();
        assert_eq!(seats.take(two, &config).unwrap_err().code(), &code::OVERLOADED);
        drop((first, third));
        assert!(seats.take(one, &config).is_ok() && seats.take(two, &config).is_ok());
        assert_eq!(seats.0.lock().unwrap().len(), 1, "who follows nothing is forgotten");
    }
}
