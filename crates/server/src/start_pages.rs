//! Code that was needed to start, and is not needed any more.
//!
//! Starting runs through half of the program once: every route, every table, every setting. The kernel
//! maps what is touched in pieces of 64 KiB, and keeps it mapped for as long as the process lives. Here
//! those mappings are given back; the pages stay in the kernel's cache of files, and what is called
//! again is mapped again at the price of a fault.
//!
//! Must hold: only mappings that nobody can write are given back. The others hold more than their file.

use std::ffi::c_void;
use std::fs;
use std::time::Duration;

use rustix::mm::{Advice, madvise};

/// Workers have had their first turn by then.
const SETTLED: Duration = Duration::from_secs(2);

/// Waits until the start is over and gives its code back.
pub(crate) async fn give_back() {
    tokio::time::sleep(SETTLED).await;
    // Elsewhere nothing is mapped in pieces, or cannot be read about; nothing is lost by that.
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    let Some(own) = fs::read_link("/proc/self/exe")
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
    else {
        return;
    };
    for (start, length) in code_of(&maps, &own) {
        release(start, length);
    }
}

/// Where the program's code lies: mapped from its own file, to be read and run and not written.
fn code_of<'m>(maps: &'m str, program: &'m str) -> impl Iterator<Item = (usize, usize)> + 'm {
    maps.lines().filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let (range, rights) = (fields.next()?, fields.next()?);
        let path = fields.nth(3)?;
        if rights != "r-xp" || path != program {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        let (start, end) =
            (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        Some((start, end.checked_sub(start)?))
    })
}

#[allow(unsafe_code, reason = "advice about memory is given by address")]
fn release(start: usize, length: usize) {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(start);
    // SAFETY: a private mapping of a file that cannot be written is the same after being read again,
    // as long as nobody has changed its pages in memory. The program's own code is independent of where
    // it is mapped, so the loader changes none; a debugger that set breakpoints this early loses them.
    if let Err(error) = unsafe { madvise(start, length, Advice::LinuxDontNeed) } {
        tracing::debug!(%error, "code of the start stays mapped");
    }
}

#[cfg(test)]
mod tests {
    use super::code_of;

    #[test]
    fn only_code_of_the_program_itself_that_cannot_be_written() {
        let maps = "\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 12 /opt/falaj
55d0c0001000-55d0c0003000 r-xp 00001000 fe:00 12 /opt/falaj
55d0c0003000-55d0c0004000 rw-p 00003000 fe:00 12 /opt/falaj
55d0c0004000-55d0c0005000 rwxp 00004000 fe:00 12 /opt/falaj
7f0000000000-7f0000001000 r-xp 00000000 fe:00 13 /usr/lib/libc.so.6
7f0000001000-7f0000002000 r-xp 00000000 00:00 0 [vdso]
7f0000003000-7f0000004000 r-xp 00000000 00:00 0
";
        let found: Vec<_> = code_of(maps, "/opt/falaj").collect();
        assert_eq!(found, [(0x55d0_c000_1000, 0x2000)]);
    }
}
