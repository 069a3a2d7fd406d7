//! NVIDIA's own library, found and loaded at run time.

use std::collections::HashMap;
use std::fmt;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};

use super::{Gpu, GpuProcess, Gpus, MOST_GPUS, MOST_PROCESSES, Slice};

pub(super) struct Library(Nvml);

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library")
    }
}

pub(super) fn open() -> Result<Library, String> {
    Nvml::init().map(Library).map_err(|error| error.to_string())
}

impl Gpus for Library {
    fn read(&self) -> Vec<Gpu> {
        let count = self.0.device_count().unwrap_or(0).min(MOST_GPUS);
        // One that fell off the bus is left out; the others are there all the same.
        let device = |index: u32| Some(read(index, &self.0.device_by_index(index).ok()?));
        (0..count).filter_map(device).collect()
    }

    fn source(&self) -> String {
        let driver = self.0.sys_driver_version().unwrap_or_else(|_| "?".to_owned());
        let library = self.0.sys_nvml_version().unwrap_or_else(|_| "?".to_owned());
        format!("NVML {library}, driver {driver}")
    }
}

fn read(index: u32, device: &Device<'_>) -> Gpu {
    let memory = device.memory_info().ok();
    let milliwatts = |read: u32| f64::from(read) / 1000.0;
    Gpu {
        index,
        uuid: device.uuid().unwrap_or_default(),
        name: device.name().unwrap_or_default(),
        memory_bytes: memory.as_ref().map_or(0, |memory| memory.total),
        memory_used_bytes: memory.as_ref().map_or(0, |memory| memory.used),
        utilization: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu)),
        power_watts: device.power_usage().ok().map(milliwatts),
        power_limit_watts: device.enforced_power_limit().ok().map(milliwatts),
        temperature: device.temperature(TemperatureSensor::Gpu).ok(),
        sm_clock_mhz: device.clock_info(Clock::SM).ok(),
        ecc_errors: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        slowed_by: device.current_throttle_reasons().map(slowed_by).unwrap_or_default(),
        slices: slices(device),
        processes: processes(device),
    }
}

/// Reasons that somebody may want to do something about; being idle is none.
fn slowed_by(reasons: ThrottleReasons) -> Vec<&'static str> {
    let known = [
        (ThrottleReasons::SW_POWER_CAP, "power limit"),
        (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
        (ThrottleReasons::SYNC_BOOST, "kept in step with others"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "heat"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat, by hardware"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "clocks set by applications"),
    ];
    known.iter().filter(|(flag, _)| reasons.contains(*flag)).map(|(_, text)| *text).collect()
}

fn slices(device: &Device<'_>) -> Vec<Slice> {
    if device.mig_mode().map_or(0, |mode| mode.current) != 1 {
        return Vec::new();
    }
    // It tells how many there may be; places between them may be empty.
    let most = device.mig_device_count().unwrap_or(0).min(MOST_GPUS);
    let slice = |at: u32| {
        let slice = device.mig_device_by_index(at).ok()?;
        let memory = slice.memory_info().ok();
        Some(Slice {
            uuid: slice.uuid().unwrap_or_default(),
            memory_bytes: memory.as_ref().map_or(0, |memory| memory.total),
            memory_used_bytes: memory.as_ref().map_or(0, |memory| memory.used),
            sevenths: slice.attributes().ok().map(|about| about.gpu_instance_slice_count),
        })
    };
    (0..most).filter_map(slice).collect()
}

fn processes(device: &Device<'_>) -> Vec<GpuProcess> {
    let mut found: HashMap<u32, GpuProcess> = HashMap::new();
    for one in device.running_compute_processes().unwrap_or_default() {
        let memory_bytes = match one.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        found.insert(one.pid, GpuProcess { id: one.pid, memory_bytes, utilization: None });
    }
    // All samples that the driver still has: the newest of each process counts.
    let mut newest: HashMap<u32, (u64, u32)> = HashMap::new();
    for sample in device.process_utilization_stats(None).unwrap_or_default() {
        let known = newest.entry(sample.pid).or_default();
        if sample.timestamp >= known.0 {
            *known = (sample.timestamp, sample.sm_util);
        }
    }
    for (id, (_, percent)) in newest {
        if let Some(process) = found.get_mut(&id) {
            process.utilization = Some(f64::from(percent));
        }
    }
    let mut all: Vec<GpuProcess> = found.into_values().collect();
    all.sort_unstable_by_key(|process| process.id);
    all.truncate(MOST_PROCESSES);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_library_says_so() {
        // With one, it must tell of devices what it says it has.
        match open() {
            Err(why) => assert!(!why.is_empty()),
            Ok(library) => {
                assert!(library.source().starts_with("NVML"));
                for gpu in library.read() {
                    assert!(gpu.memory_bytes > 0 && gpu.uuid.starts_with("GPU-"), "{gpu:?}");
                }
            }
        }
    }

    #[test]
    fn reasons_are_told_in_words_and_idleness_is_none() {
        assert!(slowed_by(ThrottleReasons::GPU_IDLE).is_empty());
        let both = ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        assert_eq!(slowed_by(both), ["power limit", "heat, by hardware"]);
    }
}
