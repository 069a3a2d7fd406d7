//! All samples of a start in bounded space: means, peaks, a high percentile, and how long it was idle.
//! Pure.
//!
//! Must hold: its size does not grow with the length of the start; the same samples give the same
//! summary.

use falaj_base::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reading::{Has, Sample};

/// Values that a spread keeps for its percentiles.
const KEPT: usize = 64;
/// GPUs of a start that are told apart.
const MOST_GPUS: usize = 64;
/// A gap between samples that is longer than this counts as this much: nobody looked.
const LONGEST_GAP: f64 = 300.0;

/// How a number was spread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    count: u64,
    sum: f64,
    peak: f64,
    /// Every `stride`th value is kept; when there are too many, every second of them goes.
    stride: u64,
    kept: Vec<f32>,
}

impl Spread {
    fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.stride = self.stride.max(1);
        if self.count.is_multiple_of(self.stride) {
            if self.kept.len() >= KEPT {
                let mut at = 0;
                self.kept.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                #[allow(clippy::cast_possible_truncation, reason = "a percentile, roughly")]
                self.kept.push(value as f32);
            }
        }
        self.count += 1;
        self.sum += value;
        self.peak = if self.count == 1 { value } else { self.peak.max(value) };
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    #[must_use]
    pub fn peak(&self) -> Option<f64> {
        (self.count > 0).then_some(self.peak)
    }

    /// What 95 of 100 values do not exceed.
    #[must_use]
    pub fn high(&self) -> Option<f64> {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f32::total_cmp);
        let at = (sorted.len() * 95).div_ceil(100).checked_sub(1)?;
        sorted.get(at).map(|value| f64::from(*value))
    }

    fn shown(&self) -> Option<Shown> {
        let round = |value: f64| (value * 100.0).round() / 100.0;
        Some(Shown {
            mean: round(self.mean()?),
            high: round(self.high()?),
            peak: round(self.peak()?),
        })
    }
}

/// A spread as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Shown {
    pub mean: f64,
    /// What 95 of 100 samples do not exceed.
    pub high: f64,
    pub peak: f64,
}

/// What one GPU of a start did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSum {
    /// Since when every reading was below the limit.
    pub idle_since: Option<Timestamp>,
    /// Seconds in which it was not.
    pub busy_seconds: f64,
    pub peak_memory_bytes: u64,
}

/// All that is kept of a start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub(crate) has: Has,
    pub(crate) since: Option<Timestamp>,
    pub(crate) last: Option<Sample>,
    /// Seconds that were looked at.
    pub(crate) seconds: f64,
    /// Cores.
    pub(crate) cpu: Spread,
    /// MiB.
    pub(crate) memory: Spread,
    pub(crate) peak_memory_bytes: u64,
    /// Percent, the mean over its GPUs.
    pub(crate) gpu: Spread,
    /// MiB of the one that has the most.
    pub(crate) gpu_memory: Spread,
    /// Of all its GPUs.
    pub(crate) watt_seconds: f64,
    pub(crate) gpus: Vec<GpuSum>,
    pub(crate) idle_since: Option<Timestamp>,
    pub(crate) idle_seconds: f64,
}

impl Summary {
    pub(crate) fn new(has: Has) -> Self {
        Self { has, ..Self::default() }
    }

    /// Takes a sample in. `below` is the limit of idleness in percent; `by_cpu` says whether one
    /// without GPUs is judged by its cores.
    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    pub(crate) fn add(&mut self, sample: Sample, below: f64, by_cpu: bool) {
        let gap = self.last.as_ref().map_or(0.0, |last| sample.at.since(last.at).as_secs_f64());
        let gap = gap.min(LONGEST_GAP);
        self.since.get_or_insert(sample.at);
        self.seconds += gap;
        if let Some(cores) = sample.cpu_cores {
            self.cpu.add(cores);
        }
        if let Some(bytes) = sample.memory_bytes {
            self.memory.add(bytes as f64 / MIB);
        }
        self.peak_memory_bytes = self.peak_memory_bytes.max(sample.peak_memory_bytes.unwrap_or(0));
        let known: Vec<f64> = sample.gpus.iter().filter_map(|gpu| gpu.utilization).collect();
        if !known.is_empty() {
            self.gpu.add(known.iter().sum::<f64>() / known.len() as f64);
        }
        if let Some(most) = sample.gpus.iter().map(|gpu| gpu.memory_used_bytes).max() {
            self.gpu_memory.add(most as f64 / MIB);
        }
        let watts: f64 = sample.gpus.iter().filter_map(|gpu| gpu.power_watts).sum();
        self.watt_seconds += watts * gap;
        let count = sample.gpus.len().min(MOST_GPUS);
        self.gpus.resize(count.max(self.gpus.len()), GpuSum::default());
        for (sum, gpu) in self.gpus.iter_mut().zip(&sample.gpus) {
            sum.peak_memory_bytes = sum.peak_memory_bytes.max(gpu.memory_used_bytes);
            match gpu.utilization {
                Some(percent) if percent < below => {
                    sum.idle_since.get_or_insert(sample.at);
                }
                Some(_) => {
                    sum.idle_since = None;
                    sum.busy_seconds += gap;
                }
                // Nobody knows: neither idle nor busy.
                None => sum.idle_since = None,
            }
        }
        let idle = if sample.gpus.is_empty() {
            by_cpu && self.has.gpus == 0.0 && sample.cpu_percent.is_some_and(|it| it < below)
        } else {
            known.len() == sample.gpus.len() && known.iter().all(|percent| *percent < below)
        };
        if idle {
            if self.idle_since.is_some() {
                self.idle_seconds += gap;
            }
            self.idle_since.get_or_insert(sample.at);
        } else {
            self.idle_since = None;
        }
        self.last = Some(sample);
    }

    /// How many of its GPUs were idle in every reading since before then.
    pub(crate) fn gpus_idle(&self, before: Timestamp) -> usize {
        let idle = |gpu: &&GpuSum| gpu.idle_since.is_some_and(|since| since <= before);
        self.gpus.iter().filter(idle).count()
    }

    #[must_use]
    pub(crate) fn shown(&self) -> SummaryShown {
        SummaryShown {
            since: self.since,
            seconds: self.seconds.round(),
            cpu_cores: self.cpu.shown(),
            memory_mib: self.memory.shown(),
            peak_memory_bytes: (self.peak_memory_bytes > 0).then_some(self.peak_memory_bytes),
            gpu_utilization: self.gpu.shown(),
            gpu_memory_mib: self.gpu_memory.shown(),
            gpu_watt_hours: (self.watt_seconds > 0.0)
                .then(|| (self.watt_seconds / 36.0).round() / 100.0),
            idle_seconds: self.idle_seconds.round(),
        }
    }
}

const MIB: f64 = 1_048_576.0;

/// A summary as it is shown.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SummaryShown {
    /// When it was first looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// For how long it was looked at.
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<Shown>,
    /// As its executor counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Percent, the mean over its GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_utilization: Option<Shown>,
    /// Of the GPU that has the most in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mib: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_watt_hours: Option<f64>,
    /// How long it used what it is judged by less than its rule asks for.
    pub idle_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::super::reading::GpuSample;
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn sample(seconds: i64, cores: f64, gpus: &[Option<f64>]) -> Sample {
        let gpu = |utilization: &Option<f64>| GpuSample {
            utilization: *utilization,
            memory_used_bytes: 3 << 20,
            power_watts: Some(100.0),
            ..GpuSample::default()
        };
        Sample {
            at: at(seconds),
            cpu_cores: Some(cores),
            cpu_percent: Some(cores * 25.0),
            memory_bytes: Some(2 << 20),
            peak_memory_bytes: Some(5 << 20),
            read_bytes: None,
            written_bytes: None,
            read_per_second: None,
            written_per_second: None,
            gpus: gpus.iter().map(gpu).collect(),
        }
    }

    #[test]
    fn a_million_values_are_few_and_their_percentile_is_about_right() {
        let mut spread = Spread::default();
        for value in 0..1_000_000 {
            spread.add(f64::from(value % 1000));
        }
        assert!(spread.kept.len() <= KEPT);
        assert!((spread.mean().unwrap() - 499.5).abs() < 1e-6);
        assert_eq!(spread.peak(), Some(999.0));
        assert!((900.0..=999.0).contains(&spread.high().unwrap()), "{:?}", spread.high());
        assert_eq!(Spread::default().high(), None);
        spread.add(f64::NAN);
        assert_eq!(spread.count(), 1_000_000);
    }

    #[test]
    fn one_busy_reading_ends_idleness() {
        let mut summary = Summary::new(Has { cores: 4.0, memory_bytes: 1, gpus: 2.0 });
        let mut add = |seconds, gpus: &[Option<f64>]| {
            summary.add(sample(seconds, 1.0, gpus), 5.0, false);
            (summary.idle_since, summary.gpus_idle(at(1000)))
        };
        assert_eq!(add(0, &[Some(0.0), Some(80.0)]), (None, 1));
        assert_eq!(add(15, &[Some(0.0), Some(1.0)]), (Some(at(15)), 2));
        assert_eq!(add(30, &[Some(4.9), Some(0.0)]), (Some(at(15)), 2));
        // What is not known is not idle.
        assert_eq!(add(45, &[Some(0.0), None]), (None, 1));
        assert_eq!(add(60, &[Some(5.0), Some(0.0)]), (None, 1));
        assert_eq!(add(75, &[Some(0.0), Some(0.0)]), (Some(at(75)), 2));
        let seconds = [
            (summary.idle_seconds, 15.0),
            (summary.gpus[1].busy_seconds, 0.0),
            (summary.gpus[0].busy_seconds, 15.0),
            (summary.watt_seconds, 200.0 * 75.0),
        ];
        for (found, expected) in seconds {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
    }

    #[test]
    fn without_gpus_cores_count_if_the_rule_says_so() {
        let idle = |by_cpu, gpus: f64| {
            let mut summary = Summary::new(Has { cores: 4.0, memory_bytes: 1, gpus });
            summary.add(sample(0, 0.1, &[]), 5.0, by_cpu);
            summary.idle_since
        };
        assert_eq!(idle(false, 0.0), None);
        assert_eq!(idle(true, 0.0), Some(at(0)));
        // One that has GPUs of which nothing is known is not judged by its cores.
        assert_eq!(idle(true, 1.0), None);
    }

    #[test]
    fn a_summary_is_read_as_it_was_written() {
        let mut summary = Summary::new(Has { cores: 4.0, memory_bytes: 1, gpus: 1.0 });
        for step in 0..500 {
            summary.add(sample(step * 15, 1.0, &[Some(50.0)]), 5.0, false);
        }
        let text = serde_json::to_string(&summary).unwrap();
        assert!(text.len() < 8192, "{}", text.len());
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
        let shown = summary.shown();
        let (gpu, memory) = (shown.gpu_utilization.unwrap(), shown.memory_mib.unwrap());
        assert!((gpu.mean - 50.0).abs() < 1e-9 && (memory.peak - 2.0).abs() < 1e-9);
    }
}
