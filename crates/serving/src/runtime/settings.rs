//! How a model runs, and what all of them share.

use std::time::Duration;

use falaj_base::{Error, Result};
use falaj_inference::Limits;

/// The most instances of one model.
pub const MAX_INSTANCES: usize = 64;
/// The most rows of a batch that is put together from several requests.
pub const MAX_BATCH_ROWS: usize = 4096;
/// The longest that a request is let wait for others to share its batch.
pub const MAX_DELAY: Duration = Duration::from_secs(1);

/// How one model runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How many requests are computed at a time; 0 means one for each processor. They share the
    /// weights.
    pub instances: usize,
    pub batching: Batching,
    /// How many requests may wait.
    pub max_queue: usize,
    /// How many bytes the inputs of those that wait may take.
    pub max_queue_bytes: usize,
    /// How long a request may take, waiting included.
    pub timeout: Duration,
    /// Whether every instance computes something before it is asked.
    pub warm_up: bool,
    /// Whether answers are kept and given again for the same inputs.
    pub cache: bool,
}

/// Requests that are computed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batching {
    /// The most rows of a batch; 1 means that no request shares one. A request that has more rows
    /// by itself is computed alone.
    pub max_rows: usize,
    /// How long a request waits for others while an instance has nothing to do. With none, those
    /// are put together that came while all instances were busy, and nobody waits for anybody.
    pub delay: Duration,
    /// Sizes that the model computes best: a batch that reaches one waits no longer.
    pub preferred: Vec<usize>,
}

impl Default for Batching {
    fn default() -> Self {
        Self { max_rows: 32, delay: Duration::ZERO, preferred: Vec::new() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            instances: 0,
            batching: Batching::default(),
            max_queue: 1000,
            max_queue_bytes: 64 << 20,
            timeout: Duration::from_secs(30),
            warm_up: true,
            cache: false,
        }
    }
}

impl Settings {
    /// Refuses what cannot work, naming the field.
    pub fn check(&self) -> Result<()> {
        within("instances", self.instances, 0, MAX_INSTANCES)?;
        within("batching.max_rows", self.batching.max_rows, 1, MAX_BATCH_ROWS)?;
        for &size in &self.batching.preferred {
            within("batching.preferred", size, 1, self.batching.max_rows)?;
        }
        if self.batching.delay > MAX_DELAY {
            let delay = format!("{:?}", self.batching.delay);
            return Err(Error::invalid("batching.delay", delay, "at most 1 s"));
        }
        within("max_queue", self.max_queue, 1, 1_000_000)?;
        within("max_queue_bytes", self.max_queue_bytes, 1, 1 << 40)?;
        if self.timeout.is_zero() {
            return Err(Error::invalid("timeout", "0", "more than nothing"));
        }
        Ok(())
    }
}

fn within(field: &str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(field, value, format!("{least} to {most}")))
}

/// What all models share.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// How many bytes loaded models may take together.
    pub memory: u64,
    /// How many models are loaded at a time.
    pub loads: usize,
    /// How long a model stays loaded that nobody asks; without it, until memory is needed.
    pub idle: Option<Duration>,
    /// How many bytes the inputs of all requests that wait may take together.
    pub queue_bytes: usize,
    /// How many bytes kept answers may take together.
    pub cache_bytes: usize,
    /// How long a model that could not be loaded is not tried again.
    pub failed_for: Duration,
    /// How long unloading waits for those who still use a model.
    pub drain: Duration,
    /// How long loading waits for memory that models in use hold.
    pub room_within: Duration,
    /// What a model's file may be made of.
    pub limits: Limits,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            memory: 4 << 30,
            loads: 2,
            idle: None,
            queue_bytes: 512 << 20,
            cache_bytes: 64 << 20,
            failed_for: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            room_within: Duration::from_secs(5),
            limits: Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_allowed_and_mistakes_are_named() {
        Settings::default().check().unwrap();
        let batching = |batching| Settings { batching, ..Settings::default() };
        let cases = [
            (Settings { instances: 65, ..Settings::default() }, "instances"),
            (Settings { max_queue: 0, ..Settings::default() }, "max_queue"),
            (Settings { max_queue_bytes: 0, ..Settings::default() }, "max_queue_bytes"),
            (Settings { timeout: Duration::ZERO, ..Settings::default() }, "timeout"),
            (batching(Batching { max_rows: 0, ..Batching::default() }), "batching.max_rows"),
            (
                batching(Batching { preferred: vec![64], ..Batching::default() }),
                "batching.preferred",
            ),
            (
                batching(Batching { delay: Duration::from_secs(2), ..Batching::default() }),
                "batching.delay",
            ),
        ];
        for (settings, field) in cases {
            assert_eq!(settings.check().unwrap_err().field(), Some(field));
        }
    }
}
