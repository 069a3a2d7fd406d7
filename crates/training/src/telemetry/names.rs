//! Samples in MLflow's words, so that its pages show them as it shows its own system metrics. Pure.

use super::reading::Sample;

/// GPUs of a start that become metrics.
const MOST_GPUS: usize = 16;
/// MLflow's megabytes are millions of bytes.
const MEGABYTE: f64 = 1e6;

/// The metrics of a sample: names and values. What it does not tell is not there.
#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
pub(crate) fn metrics(sample: &Sample, has_memory: u64) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            found.push((format!("system/{name}"), value));
        }
    };
    let megabytes = |bytes: u64| bytes as f64 / MEGABYTE;
    put("cpu_utilization_percentage", sample.cpu_percent);
    put("system_memory_usage_megabytes", sample.memory_bytes.map(megabytes));
    let share = |bytes: u64| (has_memory > 0).then(|| bytes as f64 / has_memory as f64 * 100.0);
    put("system_memory_usage_percentage", sample.memory_bytes.and_then(share));
    // MLflow has no name for what a job itself reads and writes: its own tell of the whole disk.
    put("disk_read_megabytes", sample.read_bytes.map(megabytes));
    put("disk_write_megabytes", sample.written_bytes.map(megabytes));
    for (at, gpu) in sample.gpus.iter().take(MOST_GPUS).enumerate() {
        let mut put = |name: &str, value: Option<f64>| put(&format!("gpu_{at}_{name}"), value);
        put("utilization_percentage", gpu.utilization);
        put("memory_usage_megabytes", Some(megabytes(gpu.memory_used_bytes)));
        let share = gpu.memory_used_bytes as f64 / gpu.memory_bytes.max(1) as f64 * 100.0;
        put("memory_usage_percentage", (gpu.memory_bytes > 0).then_some(share));
        put("power_usage_watts", gpu.power_watts);
        let limit = gpu.power_limit_watts.filter(|limit| *limit > 0.0);
        let share = gpu.power_watts.zip(limit).map(|(watts, limit)| watts / limit * 100.0);
        put("power_usage_percentage", share);
    }
    found
}

#[cfg(test)]
mod tests {
    use falaj_base::Timestamp;

    use super::super::reading::GpuSample;
    use super::*;

    #[test]
    fn names_are_those_that_mlflow_gives_its_own() {
        let gpu = GpuSample {
            memory_bytes: 80_000_000_000,
            memory_used_bytes: 20_000_000_000,
            utilization: Some(97.0),
            power_watts: Some(350.0),
            power_limit_watts: Some(700.0),
            ..GpuSample::default()
        };
        let sample = Sample {
            at: Timestamp::from_micros(0),
            cpu_cores: Some(2.0),
            cpu_percent: Some(50.0),
            memory_bytes: Some(3_000_000),
            peak_memory_bytes: None,
            read_bytes: Some(5_000_000),
            written_bytes: None,
            read_per_second: None,
            written_per_second: None,
            gpus: vec![gpu],
        };
        let found = metrics(&sample, 12_000_000);
        let expected = [
            ("system/cpu_utilization_percentage", 50.0),
            ("system/system_memory_usage_megabytes", 3.0),
            ("system/system_memory_usage_percentage", 25.0),
            ("system/disk_read_megabytes", 5.0),
            ("system/gpu_0_utilization_percentage", 97.0),
            ("system/gpu_0_memory_usage_megabytes", 20_000.0),
            ("system/gpu_0_memory_usage_percentage", 25.0),
            ("system/gpu_0_power_usage_watts", 350.0),
            ("system/gpu_0_power_usage_percentage", 50.0),
        ];
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(found, expected);
    }
}
