//! How much one search may look at: so many traces, and so many bytes of them.

use falaj_base::{Error, Result, code};

use crate::config::TracesConfig;

/// What is left. A trace that was begun is looked at to its end, so that every search gets on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    traces: usize,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(config: &TracesConfig, looks_into_spans: bool) -> Self {
        let traces =
            if looks_into_spans { config.max_search_span_traces } else { config.max_search_traces };
        Self { traces, bytes: config.max_search_size.as_usize() }
    }

    /// How many traces are left.
    pub(crate) const fn traces(&self) -> usize {
        self.traces
    }

    /// Whether another trace may be looked at.
    pub(crate) const fn is_spent(&self) -> bool {
        self.traces == 0 || self.bytes == 0
    }

    /// One more trace.
    pub(crate) fn trace(&mut self, weight: usize) {
        self.traces = self.traces.saturating_sub(1);
        self.read(weight);
    }

    /// More of a trace.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// For what must see every trace: refuses once that cannot be.
    pub(crate) fn whole(&mut self, weight: usize) -> Result<()> {
        if self.is_spent() {
            return Err(too_many());
        }
        self.trace(weight);
        Ok(())
    }
}

pub(super) fn too_many() -> Error {
    let text = "the search would look at more traces than it may (`traces.max_search_traces`, \
                `traces.max_search_span_traces`, `traces.max_search_size`); narrow it by \
                `timestamp_ms`";
    Error::new(&code::INVALID_INPUT, text).at("filter")
}

#[cfg(test)]
mod tests {
    use falaj_base::ByteSize;

    use super::*;

    #[test]
    fn it_ends_by_count_or_by_size() {
        let config = TracesConfig {
            max_search_traces: 3,
            max_search_span_traces: 1,
            max_search_size: ByteSize::kib(1),
            ..TracesConfig::default()
        };
        for (spans, weight, fit) in [(false, 0, 3), (true, 0, 1), (false, 600, 2), (false, 9999, 1)]
        {
            let mut budget = Budget::new(&config, spans);
            let counted = (0..10).take_while(|_| budget.whole(weight).is_ok()).count();
            assert_eq!(counted, fit, "{spans} {weight}");
        }
    }
}
