//! The memory that the library takes and gives back.

/// Blocks from this size on are mapped on their own, and unmapped when they are freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 256 << 10;

/// Makes the C library hand back what ONNX Runtime frees.
///
/// Unasked, glibc maps large blocks only until the first of them is freed; from then on it takes
/// blocks of up to 32 MiB from heaps that shrink at their ends alone. Weights are blocks of such
/// sizes, taken and freed in turn while a model is loaded: models of 60 MB took 110 MB each, and
/// all of it stayed when they were unloaded. A threshold that somebody has set is not moved: the
/// same models take 61 MB each and leave nothing behind.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "a setting of the C library, which has no other door")]
pub(super) fn give_back_what_is_freed() {
    // SAFETY: `mallopt` takes two numbers, locks the allocator itself, and may be called any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn give_back_what_is_freed() {}
