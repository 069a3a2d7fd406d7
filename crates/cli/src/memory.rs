//! Memory: who hands it out, and how it goes back to the system.
//!
//! What is freed is kept for a second, in case it is wanted again: pages that come and go cost more than
//! most of what is done with them. It goes back when memory is next asked for after that. A server that has
//! answered something large and has nothing to do then would keep it for as long, so one thread asks.

use std::thread;
use std::time::Duration;

/// A request makes and drops some hundred small things on several threads; the system's allocator
/// took a quarter of the server's time for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EVERY: Duration = Duration::from_secs(1);

/// Gives back what has been free for a while, from now on.
pub(crate) fn give_back() -> std::io::Result<()> {
    let tidy = || {
        // A thread that has never had memory is passed over.
        drop(std::hint::black_box(Box::new(0_u8)));
        loop {
            thread::sleep(EVERY);
            collect();
        }
    };
    thread::Builder::new().name("memory".to_owned()).stack_size(64 << 10).spawn(tidy).map(drop)
}

#[allow(unsafe_code, reason = "the allocator is written in C")]
fn collect() {
    // SAFETY: it may be called at any time, on any thread.
    unsafe { libmimalloc_sys::mi_collect(false) }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const MUCH: usize = 256 << 20;

    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    fn what_was_freed_goes_back_though_nobody_asks_for_memory() {
        give_back().unwrap();
        let before = resident();
        // In pieces, as most of it is.
        let pieces: Vec<Vec<u8>> = (0..MUCH >> 16).map(|_| vec![1; 1 << 16]).collect();
        assert!(resident() > before + MUCH / 2);
        drop(pieces);
        for _ in 0..100 {
            thread::sleep(Duration::from_millis(100));
            if resident() < before + MUCH / 8 {
                return;
            }
        }
        panic!("{} MB are still there", resident() >> 20);
    }
}
