//! A node as it stands: what is free on it and who is there.

use super::device::Device;
use crate::decision::Placed;
use crate::model::{Ask, GpuAsk, JobId, MigProfile, NodeSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Up,
    /// Takes nothing new.
    Drained,
    Down,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) spec: NodeSpec,
    pub(crate) status: Status,
    pub(crate) class: u32,
    pub(crate) cpu_free: u32,
    pub(crate) memory_free: u32,
    pub(crate) devices: Box<[Device]>,
    /// Devices that nobody has any part of.
    pub(crate) whole_free: u8,
    /// Slots of the jobs here.
    pub(crate) jobs: Vec<u32>,
    /// Jobs that were told to leave and have not yet.
    pub(crate) leaving: Vec<JobId>,
    /// The slot of the waiting job that this node is kept for.
    pub(crate) kept_for: Option<u32>,
}

impl Node {
    pub(crate) fn new(spec: NodeSpec, class: u32) -> Self {
        Self {
            status: Status::Up,
            class,
            cpu_free: spec.cpu,
            memory_free: spec.memory,
            devices: vec![Device::Free; spec.gpus.into()].into(),
            whole_free: spec.gpus,
            jobs: Vec::new(),
            leaving: Vec::new(),
            kept_for: None,
            spec,
        }
    }

    /// The most parts that a shared device has left.
    pub(crate) fn shared_room(&self) -> u16 {
        self.devices.iter().map(|d| d.shared_room()).max().unwrap_or(0)
    }

    /// Whether a device that is cut already has a place for the slice.
    pub(crate) fn cut_room(&self, profile: MigProfile) -> bool {
        let cut = |d: &&Device| matches!(d, Device::Cut(_));
        self.devices.iter().filter(cut).any(|d| d.place_for(profile).is_some())
    }

    /// Whether a share fits now.
    pub(crate) fn fits(&self, ask: &Ask) -> bool {
        self.cpu_free >= ask.cpu
            && self.memory_free >= ask.memory
            && match ask.gpu {
                GpuAsk::None => true,
                GpuAsk::Whole(count) => self.whole_free >= count,
                GpuAsk::Fraction(parts) => self.whole_free > 0 || self.shared_room() >= parts,
                GpuAsk::Mig(profile) => {
                    self.spec.mig && (self.whole_free > 0 || self.cut_room(profile))
                }
            }
    }

    /// Whether a share would fit, were the node empty.
    pub(crate) fn could_fit(&self, ask: &Ask) -> bool {
        self.spec.cpu >= ask.cpu
            && self.spec.memory >= ask.memory
            && match ask.gpu {
                GpuAsk::None => true,
                GpuAsk::Whole(count) => self.spec.gpus >= count,
                GpuAsk::Fraction(_) => self.spec.gpus > 0,
                GpuAsk::Mig(_) => self.spec.mig && self.spec.gpus > 0,
            }
    }

    /// Takes a share, on the devices where it leaves the fewest holes.
    pub(crate) fn take(&mut self, ask: &Ask) -> Option<Placed> {
        if !self.fits(ask) {
            return None;
        }
        let (devices, slice) = match ask.gpu {
            GpuAsk::None => (0, 0),
            GpuAsk::Whole(count) => (self.take_whole(count), 0),
            GpuAsk::Fraction(parts) => (self.take_fraction(parts)?, 0),
            GpuAsk::Mig(profile) => self.take_slice(profile)?,
        };
        self.cpu_free -= ask.cpu;
        self.memory_free -= ask.memory;
        Some(Placed { node: self.spec.id, devices, slice })
    }

    /// Takes exactly what was given before.
    pub(crate) fn retake(&mut self, ask: &Ask, placed: &Placed) {
        self.cpu_free -= ask.cpu;
        self.memory_free -= ask.memory;
        for (index, device) in self.devices.iter_mut().enumerate() {
            if placed.devices >> index & 1 == 0 {
                continue;
            }
            self.whole_free -= u8::from(*device == Device::Free);
            *device = match (ask.gpu, *device) {
                (GpuAsk::Fraction(parts), Device::Shared(used)) => Device::Shared(used + parts),
                (GpuAsk::Fraction(parts), _) => Device::Shared(parts),
                (GpuAsk::Mig(_), Device::Cut(used)) => Device::Cut(used | placed.slice),
                (GpuAsk::Mig(_), _) => Device::Cut(placed.slice),
                _ => Device::Whole,
            };
        }
    }

    /// Whether exactly what was given before is still free.
    pub(crate) fn could_retake(&self, ask: &Ask, placed: &Placed) -> bool {
        let device_free = |(index, device): (usize, &Device)| {
            placed.devices >> index & 1 == 0
                || match (ask.gpu, *device) {
                    (_, Device::Free) => true,
                    (GpuAsk::Fraction(parts), device) => device.shared_room() >= parts,
                    (GpuAsk::Mig(_), Device::Cut(used)) => used & placed.slice == 0,
                    _ => false,
                }
        };
        self.cpu_free >= ask.cpu
            && self.memory_free >= ask.memory
            && self.devices.iter().enumerate().all(device_free)
    }

    fn take_whole(&mut self, count: u8) -> u16 {
        let mut taken = 0;
        let mut left = count;
        for (index, device) in self.devices.iter_mut().enumerate() {
            if left > 0 && *device == Device::Free {
                *device = Device::Whole;
                taken |= 1 << index;
                left -= 1;
            }
        }
        self.whole_free -= count;
        taken
    }

    fn take_fraction(&mut self, parts: u16) -> Option<u16> {
        let fullest = (0..self.devices.len())
            .filter(|&i| self.devices[i].shared_room() >= parts)
            .min_by_key(|&i| self.devices[i].shared_room());
        let index = fullest.or_else(|| self.free_device())?;
        self.devices[index] = if let Device::Shared(used) = self.devices[index] {
            Device::Shared(used + parts)
        } else {
            self.whole_free -= 1;
            Device::Shared(parts)
        };
        Some(1 << index)
    }

    fn take_slice(&mut self, profile: MigProfile) -> Option<(u16, u8)> {
        let fullest = (0..self.devices.len())
            .filter_map(|i| match self.devices[i] {
                Device::Cut(used) => Some((used.count_ones(), i, self.devices[i])),
                _ => None,
            })
            .filter(|(_, _, device)| device.place_for(profile).is_some())
            .max_by_key(|&(used, i, _)| (used, std::cmp::Reverse(i)));
        let index = fullest.map(|(_, i, _)| i).or_else(|| self.free_device())?;
        let slice = self.devices[index].place_for(profile)?;
        self.devices[index] = if let Device::Cut(used) = self.devices[index] {
            Device::Cut(used | slice)
        } else {
            self.whole_free -= 1;
            Device::Cut(slice)
        };
        Some((1 << index, slice))
    }

    fn free_device(&self) -> Option<usize> {
        self.devices.iter().position(|d| *d == Device::Free)
    }

    /// Gives a share back.
    pub(crate) fn give_back(&mut self, ask: &Ask, placed: &Placed) {
        self.cpu_free += ask.cpu;
        self.memory_free += ask.memory;
        for (index, device) in self.devices.iter_mut().enumerate() {
            if placed.devices >> index & 1 == 0 {
                continue;
            }
            *device = match (ask.gpu, *device) {
                (GpuAsk::Fraction(parts), Device::Shared(used)) if used > parts => {
                    Device::Shared(used - parts)
                }
                (GpuAsk::Mig(_), Device::Cut(used)) if used & !placed.slice != 0 => {
                    Device::Cut(used & !placed.slice)
                }
                _ => Device::Free,
            };
            self.whole_free += u8::from(*device == Device::Free);
        }
    }
}
