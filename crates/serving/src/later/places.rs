//! Which endpoints are being served, and whose turn is next. Pure.

use std::collections::HashMap;

use falaj_base::EndpointId;

/// The places of one server: no endpoint has more than half of them.
#[derive(Debug)]
pub(super) struct Places {
    at_once: usize,
    taken: HashMap<EndpointId, usize>,
    /// Who was the last to get a place: the next one is after it.
    last: Option<EndpointId>,
}

impl Places {
    pub(super) fn new(at_once: usize) -> Self {
        Self { at_once: at_once.max(1), taken: HashMap::new(), last: None }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.values().sum()
    }

    /// Whom to look for, if there is a place: after whom, and leaving out whom. While a place is
    /// free, at most one endpoint has its half.
    pub(super) fn wanted(&self) -> Option<(Option<EndpointId>, Option<EndpointId>)> {
        if self.taken() >= self.at_once {
            return None;
        }
        let half = self.at_once.div_ceil(2);
        let crowd = self.taken.iter().find(|(_, count)| **count >= half);
        Some((self.last, crowd.map(|(endpoint, _)| *endpoint)))
    }

    pub(super) fn enter(&mut self, endpoint: EndpointId) {
        self.last = Some(endpoint);
        *self.taken.entry(endpoint).or_default() += 1;
    }

    pub(super) fn leave(&mut self, endpoint: EndpointId) {
        if let Some(count) = self.taken.get_mut(&endpoint) {
            *count -= 1;
            if *count == 0 {
                self.taken.remove(&endpoint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round_and_half_is_enough() {
        let (one, two) = (EndpointId::new(), EndpointId::new());
        let mut places = Places::new(4);
        assert_eq!(places.wanted(), Some((None, None)));
        places.enter(one);
        assert_eq!(places.wanted(), Some((Some(one), None)));
        places.enter(one);
        assert_eq!(places.wanted(), Some((Some(one), Some(one))), "half is enough");
        places.enter(two);
        places.enter(two);
        assert_eq!((places.wanted(), places.taken()), (None, 4));
        places.leave(one);
        assert_eq!(places.wanted(), Some((Some(two), Some(two))));
        for _ in 0..5 {
            places.leave(one);
            places.leave(two);
        }
        assert_eq!(places.taken(), 0);
        // A single place is still a place, for whoever waits.
        let mut places = Places::new(0);
        assert_eq!(places.wanted(), Some((None, None)));
        places.enter(one);
        assert_eq!(places.wanted(), None);
    }
}
