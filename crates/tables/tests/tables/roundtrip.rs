//! What is written is what is read.

use bytes::Bytes;
use falaj_inference::{Data, DataType};
use falaj_tables::{Batch, Column, Field, Item, Layout, Limits, Many, Part, Table, Writer};
use proptest::prelude::*;

use super::{all, open, written};

/// A column's rows as text: what they hold, however it is laid out.
fn shown(field: &Field, column: &Column, rows: usize) -> Vec<String> {
    let item = |place: usize| match &column.items {
        // Bits, so that one NaN is another and zeros keep their sign.
        Data::F32(all) => format!("{:08x}", all[place].to_bits()),
        Data::F64(all) => format!("{:016x}", all[place].to_bits()),
        Data::Bool(all) => all[place].to_string(),
        Data::U8(all) => all[place].to_string(),
        Data::U16(all) | Data::F16(all) | Data::Bf16(all) => all[place].to_string(),
        Data::U32(all) => all[place].to_string(),
        Data::U64(all) => all[place].to_string(),
        Data::I8(all) => all[place].to_string(),
        Data::I16(all) => all[place].to_string(),
        Data::I32(all) => all[place].to_string(),
        Data::I64(all) => all[place].to_string(),
        Data::Bytes(all) => format!("{:?}", all[place]),
    };
    let range = |row: usize| match (&field.many, &column.ends) {
        (_, Some(ends)) => (if row == 0 { 0 } else { ends[row - 1] })..ends[row],
        (Many::Fixed(shape), _) => {
            let width: usize = shape.iter().product();
            row * width..(row + 1) * width
        }
        _ => row..row + 1,
    };
    let row = |row: usize| {
        if column.is_missing(row) {
            return "nothing".to_owned();
        }
        range(row).map(item).collect::<Vec<_>>().join(" ")
    };
    (0..rows).map(row).collect()
}

fn table_shown(table: &Table, part: &Part) -> Vec<(String, Vec<String>)> {
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    for batch in table.read(part).unwrap() {
        let batch = batch.unwrap();
        assert!(batch.rows() <= part.rows_at_once);
        for (place, (field, column)) in batch.columns().iter().enumerate() {
            if columns.len() <= place {
                columns.push((field.name.clone(), Vec::new()));
            }
            columns[place].1.extend(shown(field, column, batch.rows()));
        }
    }
    columns
}

fn data(kind: DataType, count: usize) -> BoxedStrategy<Data> {
    fn many<T: Strategy>(element: T, count: usize) -> impl Strategy<Value = Vec<T::Value>> {
        prop::collection::vec(element, count)
    }
    match kind {
        DataType::Bool => many(any::<bool>(), count).prop_map(Data::Bool).boxed(),
        DataType::U8 => many(any::<u8>(), count).prop_map(Data::U8).boxed(),
        DataType::U16 => many(any::<u16>(), count).prop_map(Data::U16).boxed(),
        DataType::U32 => many(any::<u32>(), count).prop_map(Data::U32).boxed(),
        DataType::U64 => many(any::<u64>(), count).prop_map(Data::U64).boxed(),
        DataType::I8 => many(any::<i8>(), count).prop_map(Data::I8).boxed(),
        DataType::I16 => many(any::<i16>(), count).prop_map(Data::I16).boxed(),
        DataType::I32 => many(any::<i32>(), count).prop_map(Data::I32).boxed(),
        DataType::I64 => many(any::<i64>(), count).prop_map(Data::I64).boxed(),
        DataType::F16 | DataType::Bf16 => many(any::<u16>(), count).prop_map(Data::F16).boxed(),
        DataType::F32 => many(any::<f32>(), count).prop_map(Data::F32).boxed(),
        DataType::F64 => many(any::<f64>(), count).prop_map(Data::F64).boxed(),
        DataType::Bytes => many(prop::collection::vec(any::<u8>(), 0..9), count)
            .prop_map(|all| Data::Bytes(all.into_iter().map(Bytes::from).collect()))
            .boxed(),
    }
}

fn item(count: usize) -> BoxedStrategy<(Item, Data)> {
    let text = prop::collection::vec("\\PC{0,8}", count).prop_map(|texts: Vec<String>| {
        (Item::Text, Data::Bytes(texts.into_iter().map(Bytes::from).collect()))
    });
    let times =
        prop::collection::vec(any::<i64>(), count).prop_map(|all| (Item::Time, Data::I64(all)));
    let kinds: Vec<_> =
        DataType::ALL.iter().copied().filter(|kind| *kind != DataType::Bf16).collect();
    let plain = prop::sample::select(kinds).prop_flat_map(move |kind| {
        data(kind, count).prop_map(move |data| (Item::Element(kind), data))
    });
    prop_oneof![1 => text, 1 => times, 4 => plain].boxed()
}

fn column(name: String, rows: usize) -> BoxedStrategy<(Field, Column)> {
    let holes = prop::option::of(prop::collection::vec(any::<bool>(), rows));
    let one_name = name.clone();
    let one = (item(rows), holes).prop_map(move |((item, items), missing)| {
        let field = Field::one(&one_name, item);
        let field = if missing.is_some() { field.optional() } else { field };
        (field, Column { missing, ..Column::of(items) })
    });
    let fixed_name = name.clone();
    let fixed =
        prop::sample::select(vec![vec![1], vec![3], vec![2, 2]]).prop_flat_map(move |shape| {
            let (name, width) = (fixed_name.clone(), shape.iter().product::<usize>());
            item(rows * width).prop_map(move |(item, items)| {
                (Field::one(&name, item).many(Many::Fixed(shape.clone())), Column::of(items))
            })
        });
    let varied = prop::collection::vec(0..4_usize, rows).prop_flat_map(move |lengths| {
        let name = name.clone();
        let ends: Vec<_> = lengths
            .iter()
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect();
        item(ends.last().copied().unwrap_or(0)).prop_map(move |(item, items)| {
            (Field::one(&name, item).many(Many::Varied), Column::lists(items, ends.clone()))
        })
    });
    prop_oneof![3 => one, 1 => fixed, 1 => varied].boxed()
}

fn batch() -> impl Strategy<Value = Batch> {
    (1..6_usize, 0..20_usize).prop_flat_map(|(columns, rows)| {
        let columns: Vec<_> = (0..columns).map(|n| column(format!("c{n}"), rows)).collect();
        columns.prop_map(|columns| Batch::new(columns).unwrap())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_is_read(batch in batch(), group_rows in 1..8_usize, at_once in 1..9_usize) {
        let layout = Layout { group_rows, ..Layout::default() };
        let table = open(written(std::slice::from_ref(&batch), layout));
        prop_assert_eq!(table.rows(), batch.rows() as u64);
        prop_assert!(table.groups().all(|rows| rows <= group_rows as u64));
        let wanted: Vec<_> = batch
            .columns()
            .iter()
            .map(|(field, column)| (field.name.clone(), shown(field, column, batch.rows())))
            .collect();
        if batch.rows() > 0 {
            prop_assert_eq!(table_shown(&table, &all(at_once)), wanted);
        }
        for ((ours, _), read) in batch.columns().iter().zip(table.fields()) {
            prop_assert_eq!((&ours.name, &ours.item, ours.optional), (&read.name, &read.item, read.optional));
        }
    }
}

fn numbers(count: i64) -> Batch {
    let double = (0..count).map(|n| 2 * n).collect();
    Batch::new(vec![
        (
            Field::one("n", Item::Element(DataType::I64)),
            Column::of(Data::I64((0..count).collect())),
        ),
        (Field::one("double", Item::Element(DataType::I64)), Column::of(Data::I64(double))),
    ])
    .unwrap()
}

#[test]
fn columns_and_row_groups_can_be_chosen() {
    let layout = Layout { group_rows: 10, ..Layout::default() };
    let table = open(written(&[numbers(25)], layout));
    assert_eq!(table.groups().collect::<Vec<_>>(), [10, 10, 5]);
    let part = Part {
        columns: Some(vec!["double".to_owned()]),
        groups: Some(vec![2, 0]),
        rows_at_once: 100,
    };
    let found = table_shown(&table, &part);
    let wanted: Vec<_> = (20..25).chain(0..10).map(|n| (2 * n).to_string()).collect();
    assert_eq!(found, [("double".to_owned(), wanted)]);
    let both = Part { columns: Some(vec!["double".to_owned(), "n".to_owned()]), ..all(7) };
    let names: Vec<_> = table_shown(&table, &both).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["double", "n"]);
    for (columns, groups) in [(Some(vec!["m".to_owned()]), None), (None, Some(vec![3]))] {
        assert!(table.read(&Part { columns, groups, rows_at_once: 1 }).is_err());
    }
}

#[test]
fn row_groups_end_when_they_are_large() {
    let layout = Layout { group_bytes: 10_000, ..Layout::default() };
    let batches: Vec<_> = (0..20).map(|_| numbers(1_000)).collect();
    let table = open(written(&batches, layout));
    assert!(table.groups().len() >= 5, "{:?}", table.groups().collect::<Vec<_>>());
}

#[test]
fn a_batch_has_fewer_rows_where_they_are_large() {
    let rows = 64;
    let long = "x".repeat(10_000);
    let text = (Field::one("t", Item::Text), Column::texts((0..rows).map(|_| long.as_str())));
    let bytes = written(&[Batch::new(vec![text]).unwrap()], Layout::default());
    let table = Table::open(bytes, Limits { batch: 100_000, ..Limits::default() }).unwrap();
    let sizes: Vec<_> = table.read(&all(1_000)).unwrap().map(|b| b.unwrap().rows()).collect();
    // One text in the dictionary, pointed at by all rows: each may be as large as that.
    assert!(sizes.iter().all(|size| *size <= 10), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), rows);
}

#[test]
fn notes_are_found_again_and_other_columns_refused() {
    let batch = numbers(3);
    let fields: Vec<_> = batch.columns().iter().map(|(field, _)| field.clone()).collect();
    let mut writer = Writer::new(Vec::new(), fields, Layout::default()).unwrap();
    let other = Batch::new(vec![batch.columns()[0].clone()]).unwrap();
    writer.write(batch).unwrap();
    assert!(writer.write(other).is_err());
    writer.note("falaj.kind", "numbers");
    let table = open(writer.close().unwrap().into());
    assert_eq!(table.note("falaj.kind"), Some("numbers"));
    assert_eq!(table.note("other"), None);
}

#[test]
fn a_suited_file_begins_with_the_rows_it_is_suited_for() {
    let field = Field::one("x", Item::Text);
    let rows = |texts: [&str; 2]| Batch::new(vec![(field.clone(), Column::texts(texts))]).unwrap();
    let mut writer = Writer::suited(Vec::new(), rows(["bc", ""]), Layout::default()).unwrap();
    writer.write(rows(["a", "b"])).unwrap();
    assert_eq!(writer.rows(), 4);
    let table = open(writer.close().unwrap().into());
    let read: Vec<_> = table.read(&all(10)).unwrap().map(Result::unwrap).collect();
    assert_eq!(read[0].columns(), [(field, Column::texts(["bc", "", "a", "b"]))]);
}

#[test]
fn a_file_tells_what_its_columns_hold_and_who_wrote_it() {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    let floats = || Data::F32(vec![1.0, 2.0, 3.0, 4.0]);
    let of_floats = |name, many| Field::one(name, Item::Element(DataType::F32)).many(many);
    let columns = vec![
        (Field::one("name", Item::Text), Column::texts(["b", "a"])),
        (of_floats("fixed", Many::Fixed(vec![2])), Column::of(floats())),
        (of_floats("varied", Many::Varied), Column::lists(floats(), vec![1, 4])),
    ];
    let file = written(&[Batch::new(columns).unwrap()], Layout::default());
    let file = SerializedFileReader::new(file).unwrap();
    let by = file.metadata().file_metadata().created_by().unwrap();
    assert_eq!(by, format!("falaj version {}", env!("CARGO_PKG_VERSION")));
    let all = file.metadata().row_group(0).columns().iter();
    let bounded =
        all.map(|column| column.statistics().is_some_and(|all| all.min_bytes_opt().is_some()));
    assert_eq!(bounded.collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn columns_that_do_not_add_up_are_refused() {
    let one = |data: Data| (Field::one("x", Item::Element(data.data_type())), Column::of(data));
    let holes = Column { missing: Some(vec![true]), ..Column::of(Data::U8(vec![1])) };
    for columns in [
        vec![one(Data::U8(vec![1])), one(Data::U8(vec![1]))],
        vec![(Field::one("x", Item::Text), Column::of(Data::U8(vec![1])))],
        vec![(Field::one("x", Item::Element(DataType::U8)), holes)],
        vec![(
            Field::one("x", Item::Element(DataType::U8)).many(Many::Fixed(vec![2])),
            Column::of(Data::U8(vec![1, 2, 3])),
        )],
        vec![(
            Field::one("x", Item::Element(DataType::U8)).many(Many::Varied),
            Column::lists(Data::U8(vec![1, 2]), vec![2, 1]),
        )],
        vec![(
            Field::one("x", Item::Element(DataType::U8)),
            Column::lists(Data::U8(vec![]), vec![]),
        )],
    ] {
        assert!(Batch::new(columns.clone()).is_err(), "{columns:?}");
    }
    let bad = Column::of(Data::Bytes(vec![Bytes::from_static(b"\xff")]));
    let batch = Batch::new(vec![(Field::one("x", Item::Text), bad)]).unwrap();
    let fields = vec![Field::one("x", Item::Text)];
    assert!(Writer::new(Vec::new(), fields, Layout::default()).unwrap().write(batch).is_err());
}
