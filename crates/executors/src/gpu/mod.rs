//! GPUs of this machine: what they are, how busy they are, and whose processes use them.
//!
//! Must hold:
//! - Reading changes nothing and asks for nothing: a machine without the driver has no GPUs, which is
//!   no error.
//! - What a device does not tell is absent, never zero: a reading that is not there must not look idle.
//!
//! Not here: which job a GPU was given to; how readings are kept.

mod nvml;

use std::fmt;
use std::sync::Arc;

/// The most devices and processes of one that are looked at.
pub const MOST_GPUS: u32 = 64;
pub const MOST_PROCESSES: usize = 1024;

/// One GPU as it stands now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// Its number in the order of the bus, which is that of `CUDA_VISIBLE_DEVICES`.
    pub index: u32,
    pub uuid: String,
    /// As the driver calls it, such as `NVIDIA H200`.
    pub name: String,
    pub memory_bytes: u64,
    pub memory_used_bytes: u64,
    /// Percent of the last moments in which something ran on it.
    pub utilization: Option<f64>,
    pub power_watts: Option<f64>,
    /// What it may draw.
    pub power_limit_watts: Option<f64>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    pub sm_clock_mhz: Option<u32>,
    /// Errors of its memory that could not be corrected since the driver was loaded.
    pub ecc_errors: Option<u64>,
    /// Why it is slower than it could be, in words.
    pub slowed_by: Vec<&'static str>,
    /// Its slices, if it is cut.
    pub slices: Vec<Slice>,
    pub processes: Vec<GpuProcess>,
}

/// A slice of a GPU that is cut (MIG).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    pub uuid: String,
    pub memory_bytes: u64,
    pub memory_used_bytes: u64,
    /// Sevenths of its processors.
    pub sevenths: Option<u32>,
}

/// A process that uses a GPU, by the id that the driver knows it by: that of the machine itself, which
/// inside of a container is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuProcess {
    pub id: u32,
    pub memory_bytes: Option<u64>,
    /// Percent.
    pub utilization: Option<f64>,
}

/// Where readings come from.
pub trait Gpus: fmt::Debug + Send + Sync {
    /// All GPUs, by index. Blocking, for some milliseconds.
    fn read(&self) -> Vec<Gpu>;

    /// What reads them, for people: a library and its version.
    fn source(&self) -> String;
}

/// The GPUs of this machine, or why none can be read.
pub fn found() -> Result<Arc<dyn Gpus>, String> {
    nvml::open().map(|found| Arc::new(found) as Arc<dyn Gpus>)
}
