//! The frames of all experiments, within one budget of memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use super::frame::Frame;

type Shared = Arc<RwLock<Frame>>;

#[derive(Debug)]
pub(crate) struct Frames {
    budget: usize,
    frames: Mutex<HashMap<i64, (Shared, Instant)>>,
}

impl Frames {
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget, frames: Mutex::default() }
    }

    pub(super) fn get(&self, experiment: i64) -> Shared {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let (frame, used) =
            frames.entry(experiment).or_insert_with(|| (Arc::default(), Instant::now()));
        *used = Instant::now();
        frame.clone()
    }

    /// Lets go of what was not asked for longest until the rest fits; what is being searched at
    /// this moment is passed over.
    pub(super) fn trim(&self) {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total: usize = frames.values().map(|(frame, _)| bytes(frame)).sum();
        let mut by_age: Vec<(Instant, i64)> =
            frames.iter().map(|(experiment, (_, used))| (*used, *experiment)).collect();
        by_age.sort_unstable();
        let newest = by_age.pop();
        for (_, experiment) in by_age {
            if total <= self.budget {
                return;
            }
            if let Some((frame, _)) = frames.remove(&experiment) {
                total = total.saturating_sub(bytes(&frame));
            }
        }
        let Some(frame) = newest.and_then(|(_, experiment)| frames.get(&experiment)) else {
            return;
        };
        let Ok(mut frame) = frame.0.try_write() else { return };
        while frame.bytes() > self.budget && frame.drop_oldest() {}
    }
}

fn bytes(frame: &Shared) -> usize {
    frame.try_read().map_or(0, |frame| frame.bytes())
}
