//! Files that `PyArrow` wrote, and what it reads of ours.

use std::process::Command;

use bytes::Bytes;
use falaj_inference::{Data, DataType};
use falaj_tables::{Batch, Column, Field, Item, Layout, Limits, Many, Part, Table};

use super::{all, open, written};

/// Written by `PyArrow` 25 with zstd, two row groups, and the Arrow schema inside.
static THEIRS: &[u8] = include_bytes!("../fixtures/pyarrow.parquet");
/// The same with snappy and data pages of the second version.
static SNAPPY: &[u8] = include_bytes!("../fixtures/pyarrow-v2-snappy.parquet");
static GZIP: &[u8] = include_bytes!("../fixtures/pyarrow-gzip.parquet");

fn read(table: &Table, name: &str) -> (Field, Column) {
    let part =
        Part { columns: Some(vec![name.to_owned()]), groups: Some(vec![0]), rows_at_once: 9 };
    let mut batches: Vec<_> = table.read(&part).unwrap().collect();
    assert_eq!(batches.len(), 1);
    batches.remove(0).unwrap().into_columns().remove(0)
}

#[test]
fn every_type_of_theirs_is_read() {
    let table = open(Bytes::from_static(THEIRS));
    assert_eq!(table.groups().collect::<Vec<_>>(), [2, 1]);
    let texts = |all: [&'static str; 2]| Data::Bytes(all.map(Bytes::from).to_vec());
    let when = Data::I64(vec![1_769_850_000_123_456, -1_000_000]);
    for (name, item, items) in [
        ("id", Item::Element(DataType::I64), Data::I64(vec![1, 2])),
        ("name", Item::Text, texts(["ada", "بدر"])),
        ("kind", Item::Text, texts(["a", "b"])),
        (
            "raw",
            Item::Element(DataType::Bytes),
            Data::Bytes(vec![Bytes::from_static(b"\x00\xff"), Bytes::new()]),
        ),
        ("when", Item::Time, when),
        ("flag", Item::Element(DataType::Bool), Data::Bool(vec![true, false])),
        ("half", Item::Element(DataType::F16), Data::F16(vec![0x3e00, 0xc000])),
        ("small", Item::Element(DataType::I8), Data::I8(vec![-1, 0])),
        ("big", Item::Element(DataType::U64), Data::U64(vec![0, 1 << 63])),
        ("tokens", Item::Element(DataType::I32), Data::I32(vec![1, 2, 3])),
        ("vector", Item::Element(DataType::F32), Data::F32(vec![0.5, 1.5, 2.5, 3.5])),
        (
            "matrix",
            Item::Element(DataType::F32),
            Data::F32(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
        ),
    ] {
        let (field, column) = read(&table, name);
        assert_eq!((field.item, &column.items), (item, &items), "{name}");
    }
    assert_eq!(read(&table, "tokens").1.ends, Some(vec![3, 3]));
    assert_eq!(read(&table, "matrix").1.ends, Some(vec![4, 8]));
    let (_, ages) = read(&table, "age");
    assert_eq!(ages.missing, Some(vec![false, true]));
    let Data::F64(ages) = ages.items else { panic!("doubles") };
    assert!((ages[0] - 30.5).abs() < f64::EPSILON && ages[1].is_nan());
}

#[test]
fn what_cannot_be_read_is_named_only_when_it_is_asked_for() {
    let table = open(Bytes::from_static(THEIRS));
    let error = table.read(&all(10)).map(|_| ()).unwrap_err();
    assert!(error.message().contains("column price"), "{error}");
    let part = Part { columns: Some(vec!["id".to_owned()]), ..all(10) };
    assert_eq!(table.read(&part).unwrap().map(|batch| batch.unwrap().rows()).sum::<usize>(), 3);
}

#[test]
fn other_pages_and_compressions() {
    let table = open(Bytes::from_static(SNAPPY));
    let rows: usize = table.read(&all(10)).unwrap().map(|batch| batch.unwrap().rows()).sum();
    assert_eq!(rows, 3);
    let gzip = open(Bytes::from_static(GZIP));
    assert!(gzip.read(&all(10)).unwrap().all(|batch| batch.is_ok_and(|batch| batch.rows() > 0)));
}

/// Three hundred rows in two row groups, with both versions of data pages.
static PACKED: [(&str, &[u8]); 6] = [
    ("gzip 1", include_bytes!("../fixtures/pyarrow-gzip-v1.parquet")),
    ("gzip 2", include_bytes!("../fixtures/pyarrow-gzip-v2.parquet")),
    ("lz4 1", include_bytes!("../fixtures/pyarrow-lz4-v1.parquet")),
    ("lz4 2", include_bytes!("../fixtures/pyarrow-lz4-v2.parquet")),
    ("brotli 1", include_bytes!("../fixtures/pyarrow-brotli-v1.parquet")),
    ("brotli 2", include_bytes!("../fixtures/pyarrow-brotli-v2.parquet")),
];

#[test]
fn every_compression_of_theirs_is_read() {
    for (name, bytes) in PACKED {
        let table = open(Bytes::from_static(bytes));
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for batch in table.read(&all(1000)).unwrap() {
            let batch = batch.unwrap_or_else(|error| panic!("{name}: {error}"));
            match &batch.column("id").unwrap().1.items {
                Data::I64(found) => ids.extend_from_slice(found),
                other => panic!("{name}: {other:?}"),
            }
            match &batch.column("name").unwrap().1.items {
                Data::Bytes(found) => names.extend(found.iter().cloned()),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(ids, (0..300).collect::<Vec<i64>>(), "{name}");
        assert!(names.iter().enumerate().all(|(at, it)| *it == format!("name {}", at % 7)));
    }
}

#[test]
fn a_file_on_disk_reads_like_one_in_memory() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pyarrow.parquet");
    let disk = Table::open(std::fs::File::open(path).unwrap(), Limits::default()).unwrap();
    let memory = open(Bytes::from_static(THEIRS));
    for name in ["id", "name", "matrix"] {
        assert_eq!(read(&disk, name), read(&memory, name));
    }
}

const SCRIPT: &str = r#"
import sys, pyarrow.parquet as pq
t = pq.read_table(sys.argv[1])
assert t.num_rows == 2, t
f = {n: str(t.schema.field(n).type) for n in t.schema.names}
assert f["x"] == "float" and f["t"] == "string" and f["b"] == "binary", f
assert f["at"] == "timestamp[us, tz=UTC]" and f["half"] == "halffloat", f
assert f["pair"].startswith("fixed_size_list") and f["list"].startswith("list"), f
assert "fixed_shape_tensor" in f["matrix"] and "[2,2]" in f["matrix"].replace(" ", ""), f
assert t["x"].to_pylist() == [0.5, -1.0]
assert t["t"].to_pylist() == ["a", None]
assert t["b"].to_pylist() == [b"\x00", b"\xff"]
assert [v.value for v in t["at"]] == [5, -7]
assert t["half"].to_pylist() == [1.0, 2.0]
assert t["pair"].to_pylist() == [[1, 2], [3, 4]]
assert t["list"].to_pylist() == [[1], [2, 3]]
assert t["matrix"].chunk(0).to_numpy_ndarray().tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
"#;

#[test]
fn pyarrow_reads_ours() {
    let python = std::env::var("FALAJ_TEST_PYTHON").ok();
    let has = |python: &String| {
        let import = Command::new(python).args(["-c", "import pyarrow"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    let Some(python) = python.filter(has) else {
        eprintln!("--- oracle: pyarrow SKIPPED: FALAJ_TEST_PYTHON is not set or lacks pyarrow");
        return;
    };
    let element = |kind| Item::Element(kind);
    let batch = Batch::new(vec![
        (Field::one("x", element(DataType::F32)), Column::of(Data::F32(vec![0.5, -1.0]))),
        (Field::one("t", Item::Text).optional(), Column::optional_texts([Some("a"), None])),
        (
            Field::one("b", element(DataType::Bytes)),
            Column::of(Data::Bytes(vec![Bytes::from_static(b"\0"), Bytes::from_static(b"\xff")])),
        ),
        (Field::one("at", Item::Time), Column::of(Data::I64(vec![5, -7]))),
        (Field::one("half", element(DataType::F16)), Column::of(Data::F16(vec![0x3c00, 0x4000]))),
        (
            Field::one("pair", element(DataType::I64)).many(Many::Fixed(vec![2])),
            Column::of(Data::I64(vec![1, 2, 3, 4])),
        ),
        (
            Field::one("list", element(DataType::U8)).many(Many::Varied),
            Column::lists(Data::U8(vec![1, 2, 3]), vec![1, 3]),
        ),
        (
            Field::one("matrix", element(DataType::F64)).many(Many::Fixed(vec![2, 2])),
            Column::of(Data::F64((1..9).map(f64::from).collect())),
        ),
    ])
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ours.parquet");
    std::fs::write(&path, written(&[batch], Layout::default())).unwrap();
    let output = Command::new(python).args(["-c", SCRIPT]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
