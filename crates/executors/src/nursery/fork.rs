//! Making a process that goes on in the same program, for which neither `std` nor `rustix` has a door.
//!
//! Must hold: only a process with one thread does it. What another thread held would stay held in the new
//! process, where that thread is not.

#![allow(unsafe_code, reason = "fork and close_range are calls of the C library")]

use std::fs;
use std::io;

use rustix::process::Pid;

/// Descriptors up to this one are the standard ones.
const STANDARD: libc::c_uint = 2;

/// A process that has one thread, which starts no other.
#[derive(Debug)]
pub(super) struct Alone(());

/// Who returns from a fork.
#[derive(Debug)]
pub(super) enum Who {
    Parent(Pid),
    Child,
}

impl Alone {
    /// Says that this process has one thread and will have no other; refused if it has others already.
    pub(super) fn here() -> io::Result<Self> {
        match fs::read_dir("/proc/self/task")?.count() {
            1 => Ok(Self(())),
            count => Err(io::Error::other(format!("{count} threads, where there must be one"))),
        }
    }
}

/// Closes everything but the standard descriptors: what a careless starter left open goes no further. At the
/// very beginning only, when nothing has been opened here yet.
pub(super) fn close_others(_: &Alone) {
    // SAFETY: no pointer is handed over, and nobody here owns a descriptor yet. Kernels before 5.9 do not
    // know the call; there, what was left open stays open.
    unsafe { libc::syscall(libc::SYS_close_range, STANDARD + 1, libc::c_uint::MAX, 0) };
}

/// Makes a process that is this one, but for its id.
pub(super) fn fork(_: &Alone) -> io::Result<Who> {
    // SAFETY: there is no other thread, so the child's memory is whole: no lock in it is held by a thread
    // that it does not have.
    match unsafe { libc::fork() } {
        0 => Ok(Who::Child),
        // Negative ones too, of which there is only one.
        id => Pid::from_raw(id.max(0)).map(Who::Parent).ok_or_else(io::Error::last_os_error),
    }
}
