//! First come, first served; strictly, or with backfilling around the first.

use super::{Head, Order, Standing};

#[derive(Clone, Copy, Debug)]
pub struct Fifo {
    head: Head,
}

impl Fifo {
    #[must_use]
    pub fn strict() -> Self {
        Self { head: Head::Blocks }
    }

    #[must_use]
    pub fn backfilling() -> Self {
        Self { head: Head::Reserves }
    }
}

impl Order for Fifo {
    fn name(&self) -> &'static str {
        if self.head == Head::Blocks { "fifo" } else { "fifo-backfill" }
    }

    fn head(&self) -> Head {
        self.head
    }

    fn preempts(&self) -> bool {
        false
    }

    fn score(&self, _job: &Standing) -> f64 {
        0.0
    }
}
