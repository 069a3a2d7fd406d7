use falaj_base::{Result, Timestamp};
use falaj_lake::delta::{Pin, snapshot};
use falaj_lake::{Limits, Snapshot};
use roaring::RoaringTreemap;
use serde_json::{Value, json};

use super::world::World;

const LOG: &str = "t/_delta_log/00000000000000000000.json";

fn field(name: &str, kind: &str) -> Value {
    json!({"name": name, "type": kind, "nullable": true, "metadata": {}})
}

fn metadata(fields: Vec<Value>, partitions: &[&str]) -> Value {
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    json!({"metaData": {"id": "x", "format": {"provider": "parquet", "options": {}},
        "schemaString": schema, "partitionColumns": partitions, "configuration": {}}})
}

fn plain() -> Value {
    metadata(vec![field("id", "long"), field("name", "string")], &[])
}

fn protocol() -> Value {
    json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
}

fn add(path: &str) -> Value {
    json!({"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1,
        "dataChange": true}})
}

fn remove(path: &str) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": 1, "dataChange": true}})
}

/// Actions as a log has them.
fn lines(actions: &[Value]) -> String {
    actions.iter().fold(String::new(), |lines, action| lines + &action.to_string() + "\n")
}

impl World {
    fn commit(&self, version: u64, actions: &[Value]) {
        self.text(&format!("t/_delta_log/{version:020}.json"), &lines(actions));
    }

    fn at(&self, pin: Pin) -> Result<Snapshot> {
        snapshot(&self.place(), "t", pin, &Limits::default())
    }

    fn ids(&self, pin: Pin) -> Vec<String> {
        self.read(&self.at(pin).unwrap(), &["id"]).unwrap()
    }
}

#[test]
fn a_version_is_what_was_added_and_not_removed_until_then() {
    let world = World::new();
    world.rows("t/a.parquet", 0..2);
    world.rows("t/b b.parquet", 2..4);
    world.rows("t/c.parquet", 4..6);
    world.commit(0, &[protocol(), plain(), add("a.parquet")]);
    world.commit(1, &[add("b%20b.parquet"), json!({"txn": {"appId": "x", "version": 1}})]);
    world.commit(2, &[remove("a.parquet"), add("c.parquet"), json!({"cdc": {"path": "x"}})]);
    assert_eq!(world.ids(Pin::Version(0)), ["0", "1"]);
    assert_eq!(world.ids(Pin::Version(1)), ["0", "1", "2", "3"]);
    assert_eq!(world.ids(Pin::Latest), ["2", "3", "4", "5"]);
    assert_eq!(world.at(Pin::Latest).unwrap().version, "2");
    assert_eq!(world.at(Pin::Version(3)).unwrap_err().field(), Some("version"));
    let before = Timestamp::from_micros(0);
    assert_eq!(world.at(Pin::At(before)).unwrap_err().field(), Some("timestamp"));
    // What a commit says about its time counts more than its file.
    world.commit(3, &[json!({"commitInfo": {"inCommitTimestamp": 4_000_000_000_000_i64}})]);
    let now = Timestamp::from_micros(3_000_000_000_000_000);
    assert_eq!(world.at(Pin::At(now)).unwrap().version, "2");
}

#[test]
fn columns_that_came_later_and_values_of_folders() {
    let world = World::new();
    world.rows("t/day=1/a.parquet", 0..2);
    let fields = vec![field("id", "long"), field("new", "string"), field("day", "long")];
    let file = json!({"add": {"path": "day=1/a.parquet", "partitionValues": {"day": "1"},
        "size": 1, "modificationTime": 1, "dataChange": true}});
    let nulls = json!({"add": {"path": "b.parquet", "partitionValues": {"day": null},
        "size": 1, "modificationTime": 2, "dataChange": true}});
    world.rows("t/b.parquet", 2..3);
    world.commit(0, &[protocol(), metadata(fields, &["day"]), file, nulls]);
    let snapshot = world.at(Pin::Latest).unwrap();
    let read = |columns: &[&str]| world.read(&snapshot, columns).unwrap();
    assert_eq!(read(&["day", "id", "new"]), ["1 0 -", "1 1 -", "- 2 -"]);
    // Nothing of the file itself.
    assert_eq!(read(&["new", "day"]), ["- 1", "- 1", "- -"]);
    assert_eq!(world.read(&snapshot, &["name"]).unwrap_err().field(), Some("column"));
}

#[test]
fn days_and_decimals_in_files_and_in_folders() {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Date32Array, Decimal128Array, RecordBatch};
    let world = World::new();
    let price = Decimal128Array::from(vec![Some(1250), None, Some(-1)]);
    let columns: [(&str, ArrayRef); 2] = [
        ("price", Arc::new(price.with_precision_and_scale(5, 2).unwrap())),
        ("day", Arc::new(Date32Array::from(vec![Some(20_000), Some(-1), None]))),
    ];
    let columns = columns.map(|(name, column)| (name, column, true));
    world.batch("t/a.parquet", &RecordBatch::try_from_iter_with_nullable(columns).unwrap());
    // Since then more digits fit, and there are partitions.
    let fields = vec![
        field("price", "decimal(9,2)"),
        field("day", "date"),
        field("fee", "decimal(5,1)"),
        field("on", "date"),
        json!({"name": "nested", "type": {"type": "struct", "fields": []}, "nullable": true,
            "metadata": {}}),
    ];
    let file = |fee: &str| {
        json!({"add": {"path": "a.parquet", "partitionValues": {"fee": fee, "on": "1970-01-02"},
            "size": 1, "modificationTime": 1, "dataChange": true}})
    };
    world.commit(0, &[protocol(), metadata(fields.clone(), &["fee", "on"]), file("-7.5")]);
    let snapshot = world.at(Pin::Latest).unwrap();
    let read = world.read(&snapshot, &["price", "day", "fee", "on"]).unwrap();
    assert_eq!(read, ["12.50 20000 -7.5 1", "- -1 -7.5 1", "-0.01 - -7.5 1"]);
    let error = world.read(&snapshot, &["nested"]).unwrap_err();
    assert!(error.message().contains("a struct") && error.message().contains("nested"), "{error}");
    // A text that would have to be rounded.
    world.commit(1, &[remove("a.parquet"), file("7.55")]);
    assert!(world.at(Pin::Latest).unwrap_err().message().contains("7.55"));
}

#[test]
fn rows_that_are_gone_are_counted_over_groups() {
    let world = World::new();
    world.rows("t/a.parquet", 0..10);
    let gone: RoaringTreemap = [0, 2, 3, 9].into_iter().collect();
    let mut bytes = 1_681_511_377_u32.to_le_bytes().to_vec();
    gone.serialize_into(&mut bytes).unwrap();
    let size = bytes.len();
    bytes.resize(size.next_multiple_of(4), 0);
    let file = |vector: Value| {
        json!({"add": {"path": "a.parquet", "partitionValues": {}, "size": 1,
            "modificationTime": 1, "dataChange": true, "deletionVector": vector}})
    };
    let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}});
    let vector = json!({"storageType": "i", "pathOrInlineDv": z85(&bytes), "sizeInBytes": size,
        "cardinality": 4});
    world.commit(0, &[protocol.clone(), plain(), add("a.parquet")]);
    world.commit(1, &[remove("a.parquet"), file(vector.clone())]);
    assert_eq!(world.ids(Pin::Latest), ["1", "4", "5", "6", "7", "8"]);
    // The same file with more rows gone is another entry, and takes the place of the first.
    let mut wrong = vector.clone();
    wrong["cardinality"] = json!(5);
    let mut removed = remove("a.parquet");
    removed["remove"]["deletionVector"] = vector.clone();
    world.commit(2, &[removed, file(wrong)]);
    let error = world.at(Pin::Latest).unwrap_err();
    assert!(error.message().contains("deletion vector"), "{error}");
    for (key, value) in [
        ("storageType", json!("p")),
        ("storageType", json!("x")),
        ("pathOrInlineDv", json!("~~~~~")),
        ("sizeInBytes", json!(-1)),
        ("sizeInBytes", json!(1_u64 << 40)),
    ] {
        let mut bad = vector.clone();
        bad[key] = value;
        world.commit(0, &[protocol.clone(), plain(), file(bad)]);
        let error = world.at(Pin::Version(0)).unwrap_err();
        assert!(error.message().contains("deletion vector"), "{error}");
    }
}

fn z85(bytes: &[u8]) -> String {
    const DIGITS: &[u8] =
        b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let mut text = String::new();
    for four in bytes.chunks_exact(4) {
        let number = u32::from_be_bytes(four.try_into().unwrap());
        for power in [4, 3, 2, 1, 0] {
            text.push(char::from(DIGITS[(number / 85_u32.pow(power) % 85) as usize]));
        }
    }
    text
}

#[test]
fn hostile_tables_are_refused_by_name() {
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    let many: Vec<Value> = (0..20_000).map(|n| field(&format!("c{n}"), "long")).collect();
    let reader = |version: i64, features: &[&str]| {
        json!({"protocol": {"minReaderVersion": version, "minWriterVersion": 7,
            "readerFeatures": features, "writerFeatures": features}})
    };
    for (what, log, words) in [
        ("no line", "{".to_owned(), "line 1"),
        ("deep", format!("{{\"add\": {deep}}}"), "line 1"),
        ("no protocol", lines(&[plain()]), "protocol"),
        ("no metadata", lines(&[protocol()]), "metaData"),
        ("old reader", lines(&[reader(0, &[]), plain()]), "minReaderVersion"),
        ("new reader", lines(&[reader(4, &[]), plain()]), "minReaderVersion 4"),
        ("feature", lines(&[reader(3, &["catalogManaged"]), plain()]), "catalogManaged"),
        ("columns", lines(&[protocol(), metadata(many, &[])]), "20000 columns"),
        ("partition", lines(&[protocol(), metadata(vec![field("id", "long")], &["x"])]), "\"x\""),
        ("up", lines(&[protocol(), plain(), add("../a.parquet")]), "below the table"),
        ("hidden up", lines(&[protocol(), plain(), add("%2E%2E/a")]), "below the table"),
        ("absolute", lines(&[protocol(), plain(), add("/etc/passwd")]), "below the table"),
        ("other", lines(&[protocol(), plain(), add("s3://x/a")]), "below the table"),
        ("nul", lines(&[protocol(), plain(), add("a%00")]), "below the table"),
        ("empty", lines(&[protocol(), plain(), add("")]), "below the table"),
    ] {
        let world = World::new();
        world.text(LOG, &log);
        let error = world.at(Pin::Latest).unwrap_err();
        assert!(error.message().contains(words), "{what}: {error}");
        assert!(!error.kind().is_ours(), "{what}: {error:?}");
    }
}

#[test]
fn what_a_table_takes_is_bounded() {
    let world = World::new();
    world.rows("t/a.parquet", 0..2);
    world.commit(0, &[protocol(), plain(), add("a.parquet"), add("b.parquet"), add("c.parquet")]);
    let whole = Limits::default();
    for (limits, words) in [
        (Limits { file: 100, ..whole }, "bytes"),
        (Limits { total: 100, ..whole }, "at most"),
        (Limits { actions: 2, ..whole }, "added and removed"),
        (Limits { files: 2, ..whole }, "3 files"),
        (Limits { listed: 0, ..whole }, "folder of at most"),
        (Limits { columns: 1, ..whole }, "2 columns"),
    ] {
        let error = snapshot(&world.place(), "t", Pin::Latest, &limits).unwrap_err();
        assert!(error.message().contains(words), "{words}: {error}");
    }
}

#[test]
fn a_checkpoint_that_is_none_is_a_fault_of_the_table() {
    let world = World::new();
    world.text("t/_delta_log/00000000000000000001.checkpoint.parquet", "no Parquet");
    let error = world.at(Pin::Latest).unwrap_err();
    assert!(error.message().contains("checkpoint.parquet"), "{error}");
    // Columns of other types than a checkpoint's.
    world.rows("t/_delta_log/00000000000000000001.checkpoint.parquet", 0..3);
    assert!(world.at(Pin::Latest).unwrap_err().message().contains("protocol"));
}

#[test]
fn a_hint_that_points_nowhere_is_no_hint() {
    let world = World::new();
    world.rows("t/a.parquet", 0..2);
    world.commit(0, &[protocol(), plain(), add("a.parquet")]);
    for hint in ["{\"version\": 7}", "no JSON", "{\"version\": 18446744073709551615}"] {
        world.text("t/_delta_log/_last_checkpoint", hint);
        assert_eq!(world.ids(Pin::Latest), ["0", "1"], "{hint}");
    }
}
