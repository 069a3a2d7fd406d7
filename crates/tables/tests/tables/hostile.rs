//! Files that were cut, bent or made up: an error, never a crash, never much memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use falaj_base::{Error, code};
use falaj_inference::{Data, DataType};
use falaj_tables::{Batch, Column, Field, Item, Layout, Limits, Many, Part, Ranges, Table};
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

/// The library unpacks gzip and brotli to their end, whatever the page says.
#[test]
fn a_page_that_unpacks_to_more_than_it_says_is_refused() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{BrotliLevel, Compression, GzipLevel};
    use parquet::file::properties::WriterProperties;
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 1_000_000]));
    let batch = RecordBatch::try_from_iter([("x", zeros)]).unwrap();
    for compression in
        [Compression::GZIP(GzipLevel::default()), Compression::BROTLI(BrotliLevel::default())]
    {
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(64 << 20)
            .set_data_page_row_count_limit(usize::MAX);
        let writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build()));
        let mut writer = writer.unwrap();
        writer.write(&batch).unwrap();
        let mut bytes = writer.into_inner().unwrap();
        assert_eq!(drain(bytes.clone().into(), Limits::default()), Ok(1_000_000));
        // A page begins with its kind and then says how much it unpacks to: eight million bytes.
        assert_eq!((bytes[4], bytes[6]), (0x15, 0x15));
        assert!(bytes[7..10].iter().all(|byte| byte & 0x80 != 0) && bytes[10] & 0x80 == 0);
        bytes[7..11].copy_from_slice(&[0xc8, 0x81, 0x80, 0x00]);
        let error = drain(bytes.into(), Limits::default()).unwrap_err();
        assert!(error.contains("a page that unpacks to more"), "{error}");
    }
}

/// A number as Thrift writes it.
fn int(number: i64) -> Vec<u8> {
    let mut left = ((number << 1) ^ (number >> 63)).cast_unsigned();
    let mut bytes = Vec::new();
    while left >= 0x80 {
        bytes.push(u8::try_from(left & 0x7f).unwrap() | 0x80);
        left >>= 7;
    }
    bytes.push(u8::try_from(left).unwrap());
    bytes
}

/// A page's header, by how many bytes follow it.
type Header<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

/// Pieces of a page's header, one after the other.
fn joined(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}

/// The library takes the last of a field that comes twice, and never looks at its type.
#[test]
fn a_page_that_can_be_read_in_two_ways_is_refused() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Compression, GzipLevel};
    use parquet::file::properties::WriterProperties;
    let random = (1..1000_i64).map(|n| n.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(random));
    let batch = RecordBatch::try_from_iter([("x", numbers)]).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_dictionary_enabled(false);
    let writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build()));
    let mut writer = writer.unwrap();
    writer.write(&batch).unwrap();
    writer.flush().unwrap();
    let group = writer.flushed_row_groups()[0].column(0).clone();
    let whole = writer.into_inner().unwrap();
    let (start, length) = group.byte_range();
    let [start, length] = [start, length].map(|it| usize::try_from(it).unwrap());
    assert_eq!(drain(whole.clone().into(), Limits::default()), Ok(999));

    // The only page of the file with another header, and no page behind it.
    let said = |header: Header<'_>| {
        let packed = (0..length)
            .rev()
            .find(|packed| header(&int(i64::try_from(*packed).unwrap())).len() + packed == length);
        let header = header(&int(i64::try_from(packed.unwrap()).unwrap()));
        let mut bytes = whole.clone();
        bytes[start..start + header.len()].copy_from_slice(&header);
        bytes[start + header.len()..start + length].fill(0);
        drain(bytes.into(), Limits::default()).unwrap_err()
    };
    let (kind, size) = (joined(&[&[0x15], &int(3)]), joined(&[&[0x15], &int(8000)]));
    // How many values, nulls and rows, and how they are written; then how long their levels are.
    let values = joined(&[&[0x5c, 0x15], &int(999), &[0x15], &int(0), &[0x15], &int(999)]);
    let values = joined(&[&values, &[0x15], &int(0)]);
    let levels = joined(&[&[0x15], &int(0), &[0x15], &int(0)]);
    let plain = |packed: &[u8]| {
        joined(&[&kind, &size, &[0x15], packed, &values, &levels, &[0x11, 0x00, 0x00]])
    };
    let error = said(&plain);
    assert!(error.contains("a page that cannot be unpacked"), "{error}");
    let forged: [(&str, Header<'_>); 8] = [
        ("not packed, and packed", &|packed| {
            let twice = joined(&[&[0x12, 0x01], &int(7), &[0x00, 0x00]]);
            joined(&[&kind, &size, &[0x15], packed, &values, &levels, &twice])
        }),
        ("levels, and none", &|packed| {
            let levels = joined(&[&[0x15], &int(99), &[0x05], &int(5), &int(0), &[0x15], &int(0)]);
            joined(&[&kind, &size, &[0x15], packed, &values, &levels, &[0x11, 0x00, 0x00]])
        }),
        ("small, and two gigabytes", &|packed| {
            let large = joined(&[&size, &[0x04], &int(2), &int(i64::from(i32::MAX))]);
            joined(&[&kind, &large, &[0x15], packed, &values, &levels, &[0x11, 0x00, 0x00]])
        }),
        ("a size of another type", &|packed| {
            let other = joined(&[&[0x16], &int(8000)]);
            joined(&[&kind, &other, &[0x15], packed, &values, &levels, &[0x11, 0x00, 0x00]])
        }),
        ("a size by a number that is cut", &|packed| {
            let cut = joined(&[&size, &[0x05], &int(65538), &int(i64::from(i32::MAX))]);
            joined(&[&kind, &cut, &[0x15], packed, &values, &levels, &[0x11, 0x00, 0x00]])
        }),
        ("booleans in a list", &|packed| {
            let end = [0x11, 0x00, 0x19, 0x11, 0x00, 0x00];
            joined(&[&kind, &size, &[0x15], packed, &values, &levels, &end])
        }),
        ("both kinds of data", &|packed| {
            let first = joined(&[&[0x2c, 0x15], &int(1), &[0x15], &int(0), &[0x15], &int(3)]);
            let first = joined(&[&first, &[0x15], &int(3), &[0x00]]);
            let second = joined(&[&[0x3c], &values[1..], &levels, &[0x11, 0x00, 0x00]]);
            joined(&[&kind, &size, &[0x15], packed, &first, &second])
        }),
        ("one kind, described as the other", &|packed| {
            let kind = joined(&[&[0x15], &int(0)]);
            joined(&[&kind, &size, &[0x15], packed, &values, &levels, &[0x11, 0x00, 0x00]])
        }),
    ];
    for (what, header) in forged {
        let error = said(header);
        assert!(error.contains("a description that does not add up"), "{what}: {error}");
    }
}

/// A schema that hides how deep it is.
#[test]
fn a_schema_that_can_be_read_in_two_ways_is_refused() {
    let named = [0x48, 0x01, b'a'];
    for (what, node) in [
        ("children twice", joined(&[&named, &[0x15], &int(0), &[0x05], &int(5), &int(1)])),
        ("children of another type", joined(&[&named, &[0x16], &int(1)])),
        ("children by a number that is cut", joined(&[&named, &[0x15], &int(1 - (1 << 32))])),
        // A decimal is a structure; as bytes it could hold anything.
        ("a meaning of another type", joined(&[&named, &[0x6c, 0x58, 0x02, 0x00, 0x00, 0x00]])),
        ("a unit of another type", {
            // Field 10, field 8 in it: adjusted or not, and the unit.
            joined(&[&named, &[0x6c, 0x8c, 0x11, 0x1c, 0x11, 0x00, 0x00, 0x00]])
        }),
    ] {
        let footer = joined(&[&[0x15, 0x02, 0x19, 0x1c], &node, &[0x00, 0x00]]);
        let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
        let bytes = joined(&[b"PAR1", &footer, &length, b"PAR1"]);
        let error = drain(bytes.into(), Limits::default()).unwrap_err();
        assert!(error.contains("a description that does not add up"), "{what}: {error}");
    }
}

/// Bytes that are away from some time on.
#[derive(Debug)]
struct Away {
    bytes: Bytes,
    away: AtomicBool,
}

impl Ranges for Away {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
        if self.away.load(Ordering::Relaxed) {
            return Err(io::Error::other("away"));
        }
        let start = usize::try_from(start).unwrap();
        Ok(self.bytes.slice(start..start + length))
    }

    fn failure(&self) -> Option<Error> {
        let away = self.away.load(Ordering::Relaxed);
        away.then(|| Error::new(&code::UNAVAILABLE, "the place is away"))
    }
}

#[test]
fn a_file_that_is_away_is_not_taken_for_a_damaged_one() {
    let place = Arc::new(Away { bytes: ours(), away: AtomicBool::new(false) });
    let source = || -> Arc<dyn Ranges> { place.clone() };
    let table = Table::open(source(), Limits::default()).unwrap();
    let mut batches = table.read(&all(20)).unwrap();
    assert_eq!(batches.next().unwrap().unwrap().rows(), 20);
    place.away.store(true, Ordering::Relaxed);
    let error = batches.find_map(Result::err).unwrap();
    assert_eq!(error.code(), &code::UNAVAILABLE);
    let error = Table::open(source(), Limits::default()).unwrap_err();
    assert_eq!(error.code(), &code::UNAVAILABLE);
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
