//! Files that were cut, bent or made up: an error, never a crash, never much memory.

use bytes::Bytes;
use falaj_inference::{Data, DataType};
use falaj_tables::{Batch, Column, Field, Item, Layout, Limits, Many, Part, Table};
use proptest::prelude::*;

use super::{all, open, written};

static THEIRS: &[u8] = include_bytes!("../fixtures/pyarrow.parquet");

fn ours() -> Bytes {
    let numbers = Data::F32((0..50_u8).map(f32::from).collect());
    let words: Vec<_> = (0..50).map(|n| format!("word {}", n % 7)).collect();
    let lists = Data::I64((0..100).collect());
    let batch = Batch::new(vec![
        (Field::one("x", Item::Element(DataType::F32)), Column::of(numbers)),
        (Field::one("t", Item::Text), Column::texts(words.iter().map(String::as_str))),
        (
            Field::one("l", Item::Element(DataType::I64)).many(Many::Varied),
            Column::lists(lists, (1..=50).map(|row| 2 * row).collect()),
        ),
    ]);
    written(&[batch.unwrap()], Layout { group_rows: 20, ..Layout::default() })
}

/// Reads whatever can be read; how much came out, or what was said.
fn drain(bytes: Bytes, limits: Limits) -> Result<usize, String> {
    let table = Table::open(bytes, limits).map_err(|error| error.message().to_owned())?;
    let readable = table.fields().iter().filter(|field| !matches!(field.item, Item::Other(_)));
    let columns = Some(readable.map(|field| field.name.clone()).collect());
    let part = Part { columns, groups: None, rows_at_once: 64 };
    let mut rows = 0;
    for batch in table.read(&part).map_err(|error| error.message().to_owned())? {
        rows += batch.map_err(|error| error.message().to_owned())?.rows();
    }
    Ok(rows)
}

#[test]
fn every_limit_is_kept() {
    let plain = Limits::default();
    assert_eq!(drain(ours(), plain), Ok(50));
    for (limits, said) in [
        (Limits { footer: 100, ..plain }, "bytes of description"),
        (Limits { columns: 2, ..plain }, "3 columns"),
        (Limits { depth: 1, ..plain }, "levels"),
        (Limits { row_groups: 2, ..plain }, "`row groups` is \"3\""),
        (Limits { group_rows: 19, ..plain }, "`rows` is \"20\""),
        (Limits { group_values: 30, ..plain }, "too many values"),
        (Limits { page: 50, ..plain }, "a page of"),
    ] {
        let found = drain(ours(), limits).unwrap_err();
        assert!(found.contains(said), "{found}");
    }
    // Batches get smaller, nothing else.
    assert_eq!(drain(ours(), Limits { batch: 10, ..plain }), Ok(50));
}

#[test]
fn a_footer_that_claims_gigabytes_is_refused_before_they_are_asked_for() {
    let file = |footer: &[u8]| {
        let mut bytes = b"PAR1".to_vec();
        bytes.extend_from_slice(footer);
        bytes.extend_from_slice(&u32::try_from(footer.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(b"PAR1");
        Bytes::from(bytes)
    };
    // Two billion schema elements; a schema a hundred thousand levels deep; row groups without end.
    let mut deep = vec![0x15, 0x02, 0x19, 0xfc, 0xa0, 0x8d, 0x06];
    for _ in 0..100_000 {
        // A name of one letter, one child.
        deep.extend_from_slice(&[0x48, 0x01, b'a', 0x15, 0x02, 0x00]);
    }
    deep.push(0);
    for footer in [
        &[0x15, 0x02, 0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07][..],
        &[0x15, 0x02, 0x19, 0x1c, 0x48, 0xff, 0xff, 0xff, 0xff, 0x07],
        &[0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07],
        &deep,
        &[],
    ] {
        assert!(drain(file(footer), Limits::default()).is_err());
    }
    for bytes in [&b""[..], b"PAR1", b"PAR1PAR1", b"\xff\xff\xff\xffPAR1", b"not a table at all"] {
        assert!(drain(Bytes::copy_from_slice(bytes), Limits::default()).is_err());
    }
}

#[test]
fn a_file_that_was_cut_anywhere_is_refused() {
    let whole = ours();
    for length in (0..whole.len()).step_by(7) {
        assert!(drain(whole.slice(..length), Limits::default()).is_err(), "{length}");
    }
}

#[test]
fn many_values_in_few_bytes_are_counted_before_they_are_unpacked() {
    // A million zeros in one row: some bytes on disk, four megabytes in memory.
    let field = Field::one("l", Item::Element(DataType::I32)).many(Many::Varied);
    let column = Column::lists(Data::I32(vec![0; 1_000_000]), vec![1_000_000]);
    let bytes = written(&[Batch::new(vec![(field, column)]).unwrap()], Layout::default());
    assert!(bytes.len() < 20_000, "{}", bytes.len());
    assert_eq!(open(bytes.clone()).read(&all(1)).unwrap().count(), 1);
    let tight = Limits { group_values: 999_999, ..Limits::default() };
    assert!(drain(bytes, tight).unwrap_err().contains("too many values"));
}

#[test]
fn what_the_library_only_asserts_is_refused() {
    // A length in a page of lists, bent: the rows claim more values than there are.
    let mut bytes = THEIRS.to_vec();
    bytes[1485] = 129;
    assert!(drain(bytes.into(), Limits::default()).unwrap_err().contains("out of bounds"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn bent_bytes_never_crash_a_reader(
        theirs: bool,
        bends in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        at_the_end: bool,
    ) {
        let mut bytes = if theirs { THEIRS.to_vec() } else { ours().to_vec() };
        let length = bytes.len();
        for (place, value) in bends {
            // Most of what can go wrong stands in the description at the end.
            let from = if at_the_end { length * 2 / 3 } else { 0 };
            bytes[from + place.index(length - from)] = value;
        }
        let limits = Limits { page: 1 << 20, group_values: 1 << 20, ..Limits::default() };
        let _ = drain(bytes.into(), limits);
    }
}
