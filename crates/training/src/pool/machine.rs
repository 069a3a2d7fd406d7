//! What this machine has, read from the kernel's own files and the GPUs' own library. What cannot be
//! read is not there.

use std::fs;
use std::path::Path;

use falaj_executors::gpu::{self, Gpu};

use crate::config::LocalConfig;
use crate::name::GpuTypeName;

/// Cores, memory and GPUs of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub cpu: f64,
    pub memory_mib: u64,
    pub gpus: u8,
    pub gpu_type: Option<GpuTypeName>,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn found() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let (gpus, gpu_type) = match gpu::found() {
            Ok(library) => of_library(&library.read()),
            Err(_) => gpus(Path::new("/proc/driver/nvidia/gpus")),
        };
        Self {
            cpu: f64::from(u32::try_from(cores).unwrap_or(1)),
            memory_mib: total_memory(&memory).unwrap_or(1024),
            gpus,
            gpu_type,
        }
    }

    /// What of it jobs may have.
    #[must_use]
    pub fn shared(&self, config: &LocalConfig) -> Self {
        let memory = config.memory.map(|memory| memory.bytes() >> 20);
        Self {
            cpu: config.cpu.unwrap_or(self.cpu),
            memory_mib: memory.unwrap_or(self.memory_mib / 4 * 3),
            gpus: config.gpus.unwrap_or(self.gpus),
            gpu_type: config.gpu_type.clone().or_else(|| self.gpu_type.clone()),
        }
    }
}

/// MiB, of the text of `/proc/meminfo`.
fn total_memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// GPUs as their library tells of them, in the order that jobs are given them by.
fn of_library(found: &[Gpu]) -> (u8, Option<GpuTypeName>) {
    let count = u8::try_from(found.len()).unwrap_or(u8::MAX);
    let kind = found.iter().find_map(|gpu| named(&gpu.name));
    (count.min(falaj_scheduler::model::MAX_GPUS), kind)
}

fn gpus(folder: &Path) -> (u8, Option<GpuTypeName>) {
    let Ok(found) = fs::read_dir(folder) else { return (0, None) };
    let about: Vec<String> = found
        .flatten()
        .map(|entry| fs::read_to_string(entry.path().join("information")).unwrap_or_default())
        .collect();
    let count = u8::try_from(about.len()).unwrap_or(u8::MAX);
    let kind = about.iter().find_map(|text| model(text));
    (count.min(falaj_scheduler::model::MAX_GPUS), kind)
}

/// The model as a name: `NVIDIA H200` is `h200`.
fn model(text: &str) -> Option<GpuTypeName> {
    let line = text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim();
    named(line)
}

fn named(text: &str) -> Option<GpuTypeName> {
    let name = text.strip_prefix("NVIDIA").unwrap_or(text).trim().to_lowercase();
    GpuTypeName::new(name.replace(' ', "-")).ok()
}

#[cfg(test)]
mod tests {
    use falaj_base::ByteSize;

    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        assert_eq!(total_memory("MemTotal:        8152340 kB\nMemFree: 1 kB\n"), Some(7961));
        assert_eq!(total_memory("MemFree: 1 kB\n"), None);
        let about = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 1\n";
        assert_eq!(model(about).map(|name| name.to_string()).as_deref(), Some("h100-80gb-hbm3"));
        assert_eq!(model("IRQ: 1\n"), None);
        let gpu = Gpu { name: "NVIDIA H200".to_owned(), ..Gpu::default() };
        let (count, kind) = of_library(&[gpu.clone(), gpu]);
        assert_eq!((count, kind.map(|it| it.to_string()).as_deref()), (2, Some("h200")));
        assert!(Machine::found().cpu >= 1.0);
    }

    #[test]
    fn what_is_set_is_shared_and_the_rest_is_found() {
        let machine = Machine { cpu: 8.0, memory_mib: 4000, gpus: 2, gpu_type: None };
        assert_eq!(machine.shared(&LocalConfig::default()).memory_mib, 3000);
        let config = LocalConfig {
            cpu: Some(2.0),
            memory: Some(ByteSize::gib(1)),
            gpus: Some(0),
            ..LocalConfig::default()
        };
        let shared = machine.shared(&config);
        assert_eq!((shared.cpu, shared.memory_mib, shared.gpus), (2.0, 1024, 0));
    }
}
