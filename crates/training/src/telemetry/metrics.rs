//! The numbers of starts and GPUs, for Prometheus.
//!
//! Must hold: labels name starts that run here, at most `training.telemetry.max_series` of them, and
//! GPUs of this machine.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;

use super::reading::{GpuSample, Sample};
use crate::Training;

/// Reads the numbers when it is asked.
#[derive(Debug)]
pub struct TelemetryCollector(Training);

impl TelemetryCollector {
    #[must_use]
    pub fn new(training: Training) -> Self {
        Self(training)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStart {
    tenant: String,
    project: String,
    job: String,
    task: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGpu {
    tenant: String,
    project: String,
    job: String,
    task: u32,
    gpu: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDevice {
    gpu: u32,
    uuid: String,
    name: String,
}

type Level<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
const STARTS: &[Level<Sample>] = &[
    ("job_cpu_cores", "Cores that a job uses", |it| it.cpu_cores),
    ("job_memory_bytes", "Memory that a job uses", |it| it.memory_bytes.map(|it| it as f64)),
    ("job_read_bytes_per_second", "What a job reads", |it| it.read_per_second),
    ("job_written_bytes_per_second", "What a job writes", |it| it.written_per_second),
];

#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
const GPUS: &[Level<GpuSample>] = &[
    ("job_gpu_utilization_percent", "How busy a GPU of a job is", |it| it.utilization),
    ("job_gpu_memory_bytes", "Memory of a GPU that a job uses", |it| {
        Some(it.memory_used_bytes as f64)
    }),
    ("job_gpu_power_watts", "What a GPU of a job draws", |it| it.power_watts),
];

#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
const DEVICES: &[Level<falaj_executors::gpu::Gpu>] = &[
    ("gpu_utilization_percent", "How busy a GPU of this machine is", |it| it.utilization),
    ("gpu_memory_used_bytes", "Memory in use", |it| Some(it.memory_used_bytes as f64)),
    ("gpu_memory_bytes", "Memory", |it| Some(it.memory_bytes as f64)),
    ("gpu_power_watts", "What it draws", |it| it.power_watts),
    ("gpu_temperature_celsius", "How hot it is", |it| it.temperature.map(f64::from)),
    ("gpu_sm_clock_megahertz", "How fast its processors run", |it| it.sm_clock_mhz.map(f64::from)),
    ("gpu_ecc_errors", "Errors of its memory that were not corrected", |it| {
        it.ecc_errors.map(|count| count as f64)
    }),
    ("gpu_slowed", "Whether something keeps it slower than it could be", |it| {
        Some(f64::from(u8::from(!it.slowed_by.is_empty())))
    }),
];

impl Collector for TelemetryCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let board = self.0.fresh_board();
        let (running, idle) = board.idle();
        for (name, help, value) in [
            ("jobs_sampled", "Starts whose use is known", running),
            ("jobs_idle", "Starts that are idle by their rule", idle),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            family.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))?;
        }
        let shown = board.some(self.0.config().telemetry.max_series);
        for (name, help, read) in STARTS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (id, entry) in &shown {
                let Some(value) = entry.last().and_then(read) else { continue };
                let labels = OfStart {
                    tenant: entry.tenant.clone(),
                    project: entry.project.clone(),
                    job: id.task.job.to_string(),
                    task: id.task.task,
                };
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        for (name, help, read) in GPUS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (id, entry) in &shown {
                for gpu in entry.last().map_or(&[][..], |last| &last.gpus) {
                    let Some(value) = read(gpu) else { continue };
                    let labels = OfGpu {
                        tenant: entry.tenant.clone(),
                        project: entry.project.clone(),
                        job: id.task.job.to_string(),
                        task: id.task.task,
                        gpu: gpu.index,
                    };
                    family.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
        }
        let devices = board.devices();
        for (name, help, read) in DEVICES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for gpu in devices.iter() {
                let Some(value) = read(gpu) else { continue };
                let labels =
                    OfDevice { gpu: gpu.index, uuid: gpu.uuid.clone(), name: gpu.name.clone() };
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}
