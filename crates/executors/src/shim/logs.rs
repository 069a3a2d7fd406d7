//! Output that does not fill the disk.
//!
//! Ranks write to their files themselves, so that nothing stands between them and the disk. When a
//! file has become too long, its middle is given back to the file system: offsets stay as they are, the
//! beginning and the latest output stay readable.

use std::fs::File;

use rustix::fs::{FallocateFlags, fallocate};

/// The part of what is kept that is the beginning: where a program says what it is.
const HEAD_SHARE: u64 = 4;
/// Holes are whole blocks.
const BLOCK: u64 = 4096;

/// What of a file of this length is to be dropped: the start and the length of the hole.
fn hole(length: u64, limit: u64) -> Option<(u64, u64)> {
    if length <= limit {
        return None;
    }
    let head = (limit / HEAD_SHARE).next_multiple_of(BLOCK);
    let end = length.saturating_sub(limit - limit / HEAD_SHARE) / BLOCK * BLOCK;
    (end > head).then(|| (head, end - head))
}

/// Drops the middle of a file that is too long. A file system without holes keeps all of it.
pub(crate) fn bound(file: &File, limit: u64) {
    let Ok(length) = file.metadata().map(|about| about.len()) else { return };
    if let Some((start, size)) = hole(length, limit) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(file, how, start, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn holes_leave_the_head_and_the_tail() {
        assert_eq!(hole(1000, 1000), None);
        assert_eq!(hole(100_000, 65_536), Some((16_384, 49_152 - 16_384)));
        // Not yet a whole block.
        assert_eq!(hole(65_537, 65_536), None);
    }

    #[test]
    fn offsets_stay() {
        let mut file = tempfile::tempfile().unwrap();
        for line in 0..200_000_u32 {
            writeln!(file, "{line:09}").unwrap();
        }
        bound(&file, 1 << 20);
        let about = file.metadata().unwrap();
        assert_eq!(about.len(), 2_000_000);
        assert!(about.blocks() * 512 < 1_200_000, "{} blocks", about.blocks());
        let mut at = |offset: u64| {
            let mut line = [0; 10];
            file.seek(std::io::SeekFrom::Start(offset)).unwrap();
            file.read_exact(&mut line).unwrap();
            line
        };
        assert_eq!(&at(0), b"000000000\n");
        assert_eq!(&at(1_999_990), b"000199999\n");
        assert_eq!(at(800_000), [0; 10]);
    }
}
