//! How much one source holds at once: connections, or slots of the public routes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use falaj_governance::identity::one_source;

/// Counts by source; an entry lives as long as what it counts.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    limit: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Sources {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, counts: Arc::default() }
    }

    /// Counts one more for the source until the guard is dropped; none if that is over its share.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<SourceGuard> {
        let source = one_source(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(source).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(SourceGuard { sources: self.clone(), source })
    }
}

#[derive(Debug)]
pub(crate) struct SourceGuard {
    sources: Sources,
    source: IpAddr,
}

impl Drop for SourceGuard {
    fn drop(&mut self) {
        let mut counts = self.sources.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_cannot_take_everything() {
        let sources = Sources::new(2);
        let enter = |address: &str| sources.enter(address.parse().unwrap());
        let first = enter("10.0.0.1");
        let _second = enter("::ffff:10.0.0.1");
        assert!(first.is_some() && enter("10.0.0.1").is_none());
        assert!(enter("10.0.0.2").is_some());
        drop(first);
        assert!(enter("10.0.0.1").is_some());
        assert_eq!(sources.counts.lock().unwrap().len(), 1);
        let _one = enter("2001:db8::1");
        let _two = enter("2001:db8::2");
        assert!(enter("2001:db8::3").is_none(), "one network of one customer");
    }
}
