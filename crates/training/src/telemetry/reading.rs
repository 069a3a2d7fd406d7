//! Two readings of a start into what it uses between them. Pure.
//!
//! Must hold: a counter that went back (a process ended and took its count along) gives nothing, not a
//! rate below zero.

use falaj_base::Timestamp;
use falaj_executors::Usage;
use falaj_executors::gpu::Gpu;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was read of a start at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) at: Timestamp,
    /// As its executor tells, if it does.
    pub(crate) usage: Option<Usage>,
    pub(crate) gpus: Vec<GpuSample>,
}

/// What a GPU of a start does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuSample {
    /// What its machine calls it.
    pub index: u32,
    pub name: String,
    pub memory_bytes: u64,
    /// Of the start's own processes where they are known, of the whole GPU otherwise.
    pub memory_used_bytes: u64,
    /// Percent; absent where nobody tells, and on a shared GPU whose processes are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_errors: Option<u64>,
    /// Why it is slower than it could be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowed_by: Vec<String>,
}

/// What a start uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    pub at: Timestamp,
    /// Cores in use since the sample before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    /// The same in percent of what it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_per_second: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuSample>,
}

/// What a start has, over all its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Has {
    pub(crate) cores: f64,
    pub(crate) memory_bytes: u64,
    /// GPUs, or the part of one.
    pub(crate) gpus: f64,
}

/// The newest sample: levels of now, rates since before.
#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
pub(crate) fn sample(before: Option<&Reading>, now: &Reading, has: &Has) -> Sample {
    let both = before.and_then(|before| {
        let seconds = now.at.since(before.at).as_secs_f64();
        let usage = before.usage.zip(now.usage);
        usage.filter(|_| seconds > 0.0).map(|(old, new)| (old, new, seconds))
    });
    let cpu_cores = both.and_then(|(old, new, seconds)| {
        let used = new.cpu_seconds - old.cpu_seconds;
        (used >= 0.0).then_some(used / seconds)
    });
    let rate = |field: fn(&Usage) -> u64| {
        both.and_then(|(old, new, seconds)| {
            Some(field(&new).checked_sub(field(&old))? as f64 / seconds)
        })
    };
    Sample {
        at: now.at,
        cpu_cores,
        cpu_percent: cpu_cores.filter(|_| has.cores > 0.0).map(|used| used / has.cores * 100.0),
        memory_bytes: now.usage.map(|usage| usage.memory_bytes),
        peak_memory_bytes: now.usage.map(|usage| usage.peak_memory_bytes),
        read_bytes: now.usage.map(|usage| usage.read_bytes),
        written_bytes: now.usage.map(|usage| usage.written_bytes),
        read_per_second: rate(|usage| usage.read_bytes),
        written_per_second: rate(|usage| usage.written_bytes),
        gpus: now.gpus.clone(),
    }
}

/// What of a GPU is a start's: all of it, unless it is shared. Its own processes are told apart where
/// the driver knows them by the ids that we know.
pub(crate) fn of_start(gpu: &Gpu, processes: &[u32], shared: bool) -> GpuSample {
    let own: Vec<_> = gpu.processes.iter().filter(|one| processes.contains(&one.id)).collect();
    let memory: u64 = own.iter().filter_map(|one| one.memory_bytes).sum();
    let busy: Option<f64> = own.iter().filter_map(|one| one.utilization).reduce(|a, b| a + b);
    let (memory_used_bytes, utilization) = match (own.is_empty(), shared) {
        // Nothing of it is there, or the driver is outside of our container: whose it is nobody knows.
        (true, true) => (0, None),
        (true, false) => (gpu.memory_used_bytes, gpu.utilization),
        (false, true) => (memory, busy.map(|percent| percent.min(100.0))),
        (false, false) => (memory, gpu.utilization),
    };
    GpuSample {
        index: gpu.index,
        name: gpu.name.clone(),
        memory_bytes: gpu.memory_bytes,
        memory_used_bytes,
        utilization,
        power_watts: gpu.power_watts,
        power_limit_watts: gpu.power_limit_watts,
        temperature: gpu.temperature,
        sm_clock_mhz: gpu.sm_clock_mhz,
        ecc_errors: gpu.ecc_errors,
        slowed_by: gpu.slowed_by.iter().map(|&text| text.to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use falaj_executors::gpu::GpuProcess;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn reading(seconds: i64, cpu: f64, read: u64) -> Reading {
        let usage = Usage {
            cpu_seconds: cpu,
            memory_bytes: 100,
            peak_memory_bytes: 200,
            read_bytes: read,
            written_bytes: 5,
        };
        Reading { at: at(seconds), usage: Some(usage), gpus: Vec::new() }
    }

    #[test]
    fn rates_are_between_two_readings_and_never_below_nothing() {
        let has = Has { cores: 4.0, memory_bytes: 1000, gpus: 0.0 };
        let first = sample(None, &reading(0, 10.0, 1000), &has);
        assert_eq!((first.cpu_cores, first.memory_bytes), (None, Some(100)));
        let next = sample(Some(&reading(0, 10.0, 1000)), &reading(10, 30.0, 21_000), &has);
        assert_eq!(next.cpu_cores, Some(2.0));
        assert_eq!(next.cpu_percent, Some(50.0));
        assert_eq!(next.read_per_second, Some(2000.0));
        assert_eq!(next.written_per_second, Some(0.0));
        // A process ended and took its count along.
        let less = sample(Some(&reading(0, 10.0, 1000)), &reading(10, 5.0, 10), &has);
        assert_eq!((less.cpu_cores, less.read_per_second), (None, None));
        let same_moment = sample(Some(&reading(0, 1.0, 1)), &reading(0, 2.0, 2), &has);
        assert_eq!(same_moment.cpu_cores, None);
        let silent = Reading { at: at(20), usage: None, gpus: Vec::new() };
        assert_eq!(sample(Some(&reading(0, 1.0, 1)), &silent, &has).memory_bytes, None);
    }

    #[test]
    fn a_shared_gpu_is_told_by_its_processes_alone() {
        let process = |id, memory, percent| GpuProcess {
            id,
            memory_bytes: Some(memory),
            utilization: Some(percent),
        };
        let gpu = Gpu {
            memory_bytes: 1000,
            memory_used_bytes: 700,
            utilization: Some(90.0),
            processes: vec![process(1, 100, 20.0), process(2, 200, 30.0), process(3, 300, 40.0)],
            ..Gpu::default()
        };
        let of = |processes: &[u32], shared| {
            let found = of_start(&gpu, processes, shared);
            (found.memory_used_bytes, found.utilization)
        };
        assert_eq!(of(&[1, 2], true), (300, Some(50.0)));
        assert_eq!(of(&[7], true), (0, None));
        assert_eq!(of(&[1], false), (100, Some(90.0)));
        assert_eq!(of(&[], false), (700, Some(90.0)));
    }
}
