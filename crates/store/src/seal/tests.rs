//! The formats, attacked and frozen.

use falaj_base::code;
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::layout::{FIRST, FULL};
use super::small::seal_small_with;
use super::*;

const NAME: &[u8] = b"falaj/frozen";

fn frozen_key() -> DataKey {
    DataKey::from_bytes(Zeroizing::new(std::array::from_fn(|i| u8::try_from(i).unwrap())))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect()
}

fn seal(key: &DataKey, name: &[u8], plaintext: &[u8], piece: usize) -> Vec<u8> {
    drain(Sealer::new(key, name).unwrap(), plaintext, piece)
}

fn drain(mut sealer: Sealer, plaintext: &[u8], piece: usize) -> Vec<u8> {
    let mut out = Buffer::default();
    for piece in plaintext.chunks(piece) {
        sealer.push(piece, &mut out).unwrap();
    }
    sealer.finish(&mut out).unwrap();
    out.to_vec()
}

fn open(key: &DataKey, name: &[u8], sealed: &[u8], piece: usize) -> falaj_base::Result<Vec<u8>> {
    let mut opener = Opener::new(key, name);
    let mut out = Buffer::default();
    for piece in sealed.chunks(piece) {
        opener.push(piece, &mut out)?;
    }
    opener.finish(&mut out)?;
    Ok(out.to_vec())
}

#[track_caller]
fn refused(sealed: &[u8], why: &str) {
    let error = open(&frozen_key(), NAME, sealed, 10_000).expect_err(why);
    assert_eq!(error.code(), &code::INTEGRITY, "{why}");
}

#[test]
fn lengths_around_every_edge_survive() {
    let (first, full) = (usize::try_from(FIRST).unwrap(), usize::try_from(FULL).unwrap());
    for len in [0, 1, first - 1, first, first + 1, first + full, first + full + 1, 3 * full] {
        let plaintext = pattern(len);
        let sealed = seal(&frozen_key(), NAME, &plaintext, 7000);
        let expected = Layout::new(len as u64).unwrap().sealed_len();
        assert_eq!(sealed.len() as u64, expected, "sealed length of {len}");
        assert_eq!(open(&frozen_key(), NAME, &sealed, 9001).unwrap(), plaintext, "{len}");
    }
}

#[test]
fn a_changed_stream_does_not_open() {
    let sealed = seal(&frozen_key(), NAME, &pattern(200_000), 50_000);
    for at in [0, 1, 33, 39, 40, 65_535, 65_536, 131_072, sealed.len() - 1] {
        let mut flipped = sealed.clone();
        flipped[at] ^= 1;
        refused(&flipped, &format!("byte {at} flipped"));
    }
    for len in [0, 1, 39, 40, 55, 56, 65_535, 65_536, 65_537, 131_072, sealed.len() - 1] {
        refused(&sealed[..len], &format!("cut to {len}"));
    }
    let mut longer = sealed.clone();
    longer.push(0);
    refused(&longer, "one byte longer");

    let mut swapped = sealed.clone();
    swapped[65_536..196_608].rotate_left(SEGMENT_LEN);
    refused(&swapped, "two segments swapped");
    let mut repeated = sealed.clone();
    repeated.copy_within(65_536..131_072, 131_072);
    refused(&repeated, "a segment repeated");

    let other = seal(&frozen_key(), NAME, &pattern(200_000), 50_000);
    let mut spliced = sealed.clone();
    spliced[65_536..131_072].copy_from_slice(&other[65_536..131_072]);
    refused(&spliced, "a segment of another stream with the same key and name");
}

#[test]
fn another_key_or_name_does_not_open() {
    let sealed = seal(&frozen_key(), NAME, b"hello", 5);
    for (key, name) in
        [(DataKey::generate().unwrap(), NAME), (frozen_key(), b"falaj/frozem"), (frozen_key(), b"")]
    {
        assert_eq!(open(&key, name, &sealed, 99).unwrap_err().code(), &code::INTEGRITY);
    }
}

#[test]
fn any_segment_opens_on_its_own_and_only_as_itself() {
    let plaintext = pattern(200_000);
    let sealed = seal(&frozen_key(), NAME, &plaintext, 200_000);
    let layout = Layout::new(200_000).unwrap();
    let opener = SegmentOpener::new(&frozen_key(), NAME, &sealed[..HEADER_LEN]).unwrap();
    let bytes = |range: std::ops::Range<u64>| {
        usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
    };
    for segment in (0..layout.segments()).rev() {
        let sealed = &sealed[bytes(layout.sealed_range(segment))];
        let mut out = Buffer::default();
        out.extend_from_slice(b"before");
        opener.open(segment, layout.is_last(segment), sealed, &mut out).unwrap();
        assert_eq!(out[6..], plaintext[bytes(layout.plaintext_range(segment))]);
        let len = out.len();
        for (index, last) in
            [(segment + 1, layout.is_last(segment)), (segment, !layout.is_last(segment))]
        {
            assert!(opener.open(index, last, sealed, &mut out).is_err());
            assert_eq!(out.len(), len, "nothing of what is not authentic");
        }
    }
    assert!(SegmentOpener::new(&frozen_key(), NAME, &sealed[..HEADER_LEN - 1]).is_err());
}

#[test]
fn small_values_open_only_as_what_they_are() {
    let sealed = seal_small(&frozen_key(), NAME, b"value").unwrap();
    assert_eq!(sealed.len(), 5 + SMALL_OVERHEAD);
    assert_eq!(open_small(&frozen_key(), NAME, &sealed).unwrap(), b"value");
    assert_ne!(sealed, seal_small(&frozen_key(), NAME, b"value").unwrap());
    for at in 0..sealed.len() {
        let mut flipped = sealed.clone();
        flipped[at] ^= 1;
        assert!(open_small(&frozen_key(), NAME, &flipped).is_err(), "byte {at} flipped");
        assert!(open_small(&frozen_key(), NAME, &sealed[..at]).is_err(), "cut to {at}");
    }
    assert!(open_small(&frozen_key(), b"other", &sealed).is_err());
    assert!(open_small(&DataKey::generate().unwrap(), NAME, &sealed).is_err());
}

#[test]
fn a_key_does_not_show_itself() {
    let shown = format!("{:?} {:?}", frozen_key(), Sealer::new(&frozen_key(), NAME).unwrap());
    assert!(shown.contains("DataKey(hidden)"));
    assert!(!shown.contains("1, 2, 3") && !shown.contains("010203"), "{shown}");
}

/// The files were written once and may never change: data sealed years ago must open.
#[test]
fn frozen_streams_open_and_are_still_written_the_same() {
    let random = std::array::from_fn(|i| 0xA0 ^ u8::try_from(i).unwrap());
    for (len, file) in [
        (0, &include_bytes!("../../tests/sealed/stream-0.bin")[..]),
        (1000, include_bytes!("../../tests/sealed/stream-1000.bin")),
        (140_000, include_bytes!("../../tests/sealed/stream-140000.bin")),
    ] {
        assert_eq!(open(&frozen_key(), NAME, file, 4096).unwrap(), pattern(len), "opens: {len}");
        let sealer = Sealer::with_random(&frozen_key(), NAME, &random).unwrap();
        assert!(drain(sealer, &pattern(len), 4096) == file, "is written the same: {len}");
    }
    // Written by the Python `tink` package.
    let by_tink = include_bytes!("../../tests/sealed/by-tink-70000.bin");
    assert_eq!(open(&frozen_key(), NAME, by_tink, 4096).unwrap(), pattern(70_000));
}

#[test]
fn frozen_small_values_open_and_are_still_written_the_same() {
    let random = std::array::from_fn(|i| 0xA0 ^ u8::try_from(i).unwrap());
    let file = include_bytes!("../../tests/sealed/small-100.bin");
    assert_eq!(open_small(&frozen_key(), NAME, file).unwrap(), pattern(100));
    assert_eq!(seal_small_with(&frozen_key(), NAME, &pattern(100), &random).unwrap(), file);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pieces_do_not_matter(
        len in 0usize..200_000, put in 1usize..90_000, take in 1usize..90_000,
    ) {
        let plaintext = pattern(len);
        let sealed = seal(&frozen_key(), NAME, &plaintext, put);
        prop_assert!(open(&frozen_key(), NAME, &sealed, take).unwrap() == plaintext);
    }

    #[test]
    fn rubbish_never_opens_and_never_panics(mut rubbish in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(open(&frozen_key(), NAME, &rubbish, 50).is_err());
        prop_assert!(open_small(&frozen_key(), NAME, &rubbish).is_err());
        if let Some(first) = rubbish.first_mut() {
            *first = 40;
        }
        prop_assert!(open(&frozen_key(), NAME, &rubbish, 50).is_err());
    }

    #[test]
    fn one_flipped_bit_anywhere_is_found(len in 0usize..150_000, bit in any::<prop::sample::Index>()) {
        let mut sealed = seal(&frozen_key(), NAME, &pattern(len), 50_000);
        let bit = bit.index(sealed.len() * 8);
        sealed[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(open(&frozen_key(), NAME, &sealed, 50_000).is_err());
    }
}

#[test]
fn two_streams_never_share_a_salt() {
    let headers: std::collections::HashSet<_> =
        (0..100).map(|_| Sealer::new(&frozen_key(), NAME).unwrap().header()).collect();
    assert_eq!(headers.len(), 100);
}
