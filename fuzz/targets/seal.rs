//! The sealed stream: nothing opens that was not sealed so, and what was sealed opens.
#![no_main]

use std::sync::LazyLock;

use falaj_store::seal::{Buffer, DataKey, Opener, Sealer};
use libfuzzer_sys::fuzz_target;

static KEY: LazyLock<DataKey> = LazyLock::new(|| DataKey::generate().expect("random numbers"));

fn open(pieces: &[&[u8]]) -> Option<Vec<u8>> {
    let mut opener = Opener::new(&KEY, b"fuzz");
    let mut out = Buffer::default();
    for piece in pieces {
        opener.push(piece, &mut out).ok()?;
    }
    opener.finish(&mut out).ok()?;
    Some(out.to_vec())
}

fuzz_target!(|data: (&[u8], u32, u8)| {
    let (bytes, place, flip) = data;
    assert!(open(&[bytes]).is_none(), "bytes that nobody sealed were opened");
    let mut sealer = Sealer::new(&KEY, b"fuzz").expect("a sealer");
    let mut out = Buffer::default();
    sealer.push(bytes, &mut out).expect("sealing");
    sealer.finish(&mut out).expect("sealing");
    let mut sealed = out.to_vec();
    let cut = place as usize % (sealed.len() + 1);
    let (left, right) = sealed.split_at(cut);
    assert_eq!(open(&[left, right]).as_deref(), Some(bytes), "cut at {cut}");
    assert!(cut == sealed.len() || open(&[left]).is_none(), "a stream cut at {cut} was opened");
    if flip != 0 && cut < sealed.len() {
        sealed[cut] ^= flip;
        assert!(open(&[&sealed]).is_none(), "a changed byte at {cut} went unnoticed");
    }
});
