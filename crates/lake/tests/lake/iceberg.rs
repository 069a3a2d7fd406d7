//! What stock writers never write; what they do is compared with what they read in `tests/lake`.

use falaj_base::{Result, Timestamp};
use falaj_lake::iceberg::{Pin, snapshot};
use falaj_lake::{Limits, Snapshot};
use serde_json::{Value, json};

use super::world::World;

fn metadata() -> Value {
    json!({
        "format-version": 2, "table-uuid": "x", "location": "s3://old/place/t",
        "last-sequence-number": 1, "last-updated-ms": 5, "last-column-id": 2,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [
            {"id": 1, "name": "id", "required": false, "type": "long"},
            {"id": 2, "name": "name", "required": false, "type": "string"}]}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0,
        "properties": {}, "current-snapshot-id": 7,
        "snapshots": [{"snapshot-id": 7, "sequence-number": 1, "timestamp-ms": 5, "schema-id": 0,
            "manifest-list": "s3://old/place/t/metadata/list.avro", "summary": {}}],
        "snapshot-log": [{"snapshot-id": 7, "timestamp-ms": 5}],
        "refs": {"main": {"snapshot-id": 7, "type": "branch"}},
    })
}

impl World {
    fn metadata(&self, change: impl FnOnce(&mut Value)) {
        let mut metadata = metadata();
        change(&mut metadata);
        self.text("t/metadata/v1.metadata.json", &metadata.to_string());
    }

    fn iceberg(&self, pin: &Pin) -> Result<Snapshot> {
        snapshot(&self.place(), "t", None, pin, &Limits::default())
    }
}

#[test]
fn an_empty_table_has_columns_and_no_files() {
    let world = World::new();
    for none in [json!(null), json!(-1)] {
        world.metadata(|it| it["current-snapshot-id"] = none);
        let found = world.iceberg(&Pin::Latest).unwrap();
        assert_eq!((found.version.as_str(), found.files.len()), ("none", 0));
    }
}

#[test]
fn the_newest_metadata_is_meant_unless_something_says_otherwise() {
    let world = World::new();
    world.metadata(|it| it["current-snapshot-id"] = json!(-1));
    world.text("t/metadata/00010-b.metadata.json", "{}");
    world.text("t/metadata/00009-a.metadata.json", "{}");
    let error = world.iceberg(&Pin::Latest).unwrap_err();
    assert!(error.message().contains("00010-b"), "{error}");
    world.text("t/metadata/version-hint.text", "1\n");
    world.iceberg(&Pin::Latest).unwrap();
    for hint in ["999", "x", "../../etc"] {
        world.text("t/metadata/version-hint.text", hint);
        assert!(world.iceberg(&Pin::Latest).unwrap_err().message().contains("00010-b"), "{hint}");
    }
    let named =
        |name: &str| snapshot(&world.place(), "t", Some(name), &Pin::Latest, &Limits::default());
    named("metadata/v1.metadata.json").unwrap();
    for bad in ["metadata/v2.metadata.json", "../t/metadata/v1.metadata.json", "/etc/passwd"] {
        assert_eq!(named(bad).unwrap_err().field(), Some("metadata"), "{bad}");
    }
}

#[test]
fn hostile_tables_are_refused_by_name() {
    type Change = fn(&mut Value);
    let cases: Vec<(&str, Change, &str)> = vec![
        ("tomorrow", |it| it["format-version"] = json!(3), "format-version"),
        ("yesterday", |it| it["format-version"] = json!(0), "format-version"),
        ("nothing", |it| *it = json!({}), "v1.metadata.json"),
        ("no list", |it| it["schemas"] = json!(7), "v1.metadata.json"),
        ("schema", |it| it["current-schema-id"] = json!(9), "current-schema-id"),
        ("snapshot", |it| it["current-snapshot-id"] = json!(8), "snapshot"),
        (
            "elsewhere",
            |it| it["snapshots"][0]["manifest-list"] = json!("s3://other/list.avro"),
            "below the table's location",
        ),
        (
            "up",
            |it| it["snapshots"][0]["manifest-list"] = json!("s3://old/place/t/../x/list.avro"),
            "below the table",
        ),
        ("location", |it| it["location"] = json!("s3://old/other"), "below the table's location"),
        ("root", |it| it["location"] = json!("/"), "below the table"),
        (
            "absent",
            |it| it["snapshots"][0]["manifest-list"] = json!("s3://old/place/t/metadata/x.avro"),
            "x.avro",
        ),
        (
            "no manifests",
            |it| drop(it["snapshots"][0].as_object_mut().unwrap().remove("manifest-list")),
            "manifest-list",
        ),
        ("no Avro", |_| {}, "list.avro"),
        (
            "names",
            |it| it["properties"] = json!({"schema.name-mapping.default": "{"}),
            "name-mapping",
        ),
    ];
    for (what, change, words) in cases {
        let world = World::new();
        world.metadata(change);
        world.text("t/metadata/list.avro", "no Avro");
        let error = world.iceberg(&Pin::Latest).unwrap_err();
        assert!(error.message().contains(words), "{what}: {error}");
        assert!(!error.kind().is_ours(), "{what}: {error:?}");
    }
}

#[test]
fn moments_that_were_never() {
    let world = World::new();
    world.metadata(|_| {});
    for (pin, field) in [
        (Pin::Snapshot(1), "snapshot"),
        (Pin::Reference("x".to_owned()), "ref"),
        (Pin::At(Timestamp::from_micros(4999)), "timestamp"),
    ] {
        assert_eq!(world.iceberg(&pin).unwrap_err().field(), Some(field));
    }
}
