//! Records as rows, without a server.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use falaj_base::{ByteSize, HumanDuration, Timestamp};
use falaj_streams::{Body, Record};
use proptest::prelude::*;

use super::keep::{ToTake, take};
use super::record::{Limits, Mapping, Outcome};
use super::spec::OnBad;
use crate::config::FeaturesConfig;
use crate::definition::apply::{Existing, plan};
use crate::definition::form::{Form, Origin};
use crate::definition::spec::Definitions;
use crate::definition::{Definition, VersionId, ViewVersion};
use crate::online::Shape;

const RIDES: &str = r#"
    [[entity]]
    name = "driver"
    join_keys = [{ name = "driver_id", type = "int64" }]
    [[source]]
    name = "rides"
    kind = "stream"
    stream = "events"
    topic = "rides"
    [source.fields]
    driver_id = "/ride/driver"
    event_timestamp = { path = "at", unit = "ms" }
    key = "@key"
    stamped = "@timestamp"
    [[view]]
    name = "stats"
    entities = ["driver"]
    source = "rides"
    schema = [
        { name = "trips", type = "int64" }, { name = "key", type = "string" },
        { name = "stamped", type = "timestamp" }, { name = "tags", type = "list<string>" } ]
    [[view]]
    name = "names"
    entities = ["driver"]
    source = "rides"
    schema = [{ name = "name", type = "string" }]"#;

const NOW: i64 = 1_800_000_000_000_000;

fn mapping() -> Mapping {
    let wanted = Definitions::from_toml(RIDES).unwrap();
    let steps = plan(&Existing::new(), &wanted, &BTreeSet::new()).unwrap();
    let mut views = Vec::new();
    let mut fields = None;
    for (number, step) in (1..).zip(steps) {
        if let Form::Source(source) = &step.next.form
            && let Origin::Stream(form) = &source.origin
        {
            fields = Some(form.fields.clone());
        }
        let definition = Definition {
            kind: step.noun(),
            name: step.name().clone(),
            version: 1,
            latest: 1,
            hash: step.next.hash.clone(),
            definition: step.next.form.clone(),
            about: step.next.about.clone(),
            created_at: Timestamp::from_micros(0),
            created_by: "ada".to_owned(),
            id: VersionId(number),
            rows: VersionId(number),
        };
        if let Some(view) = ViewVersion::of(&Arc::new(definition)) {
            let shape = Arc::new(Shape::of(&view).unwrap());
            views.push((view, shape));
        }
    }
    let limits = Limits { max_row: ByteSize::kib(1), max_ahead: HumanDuration::from_mins(5) };
    Mapping::new(views, &fields.unwrap(), limits)
}

fn record(offset: i64, text: impl Into<String>) -> Record {
    let body = Body::Value(Bytes::from(text.into()));
    Record { offset, at: Some(7), key: Some(Bytes::from_static(b"k")), body }
}

fn good(driver: i64) -> String {
    format!(r#"{{"ride": {{"driver": {driver}}}, "at": 1767225600000, "trips": {driver}}}"#)
}

#[test]
fn a_record_is_a_row_of_every_view_or_of_none() {
    let now = Timestamp::from_micros(NOW);
    let long = format!(r#"{{"ride": {{"driver": 1}}, "at": 1, "name": "{}"}}"#, "x".repeat(2000));
    let table = [
        (good(1), None),
        (r#"{"ride": {"driver": 1}, "at": 1}"#.to_owned(), None),
        (r#"{"ride": {"driver": 1}, "at": 1, "tags": ["a", null]}"#.to_owned(), Some("tags[1]")),
        (r#"{"ride": {"driver": 1}, "at": 1, "name": 5}"#.to_owned(), Some("name")),
        (r#"{"ride": {"driver": 1}}"#.to_owned(), Some("event_timestamp")),
        (r#"{"ride": {"driver": null}, "at": 1}"#.to_owned(), Some("driver_id")),
        (r#"{"ride": [], "at": 1}"#.to_owned(), Some("driver_id")),
        (r#"{"ride": {"driver": 1.5}, "at": 1}"#.to_owned(), Some("driver_id")),
        (r#"{"ride": {"driver": 1}, "at": 1.5}"#.to_owned(), Some("event_timestamp")),
        (r#"{"ride": {"driver": 1}, "at": 9e18}"#.to_owned(), Some("event_timestamp")),
        (r#"{"ride": {"driver": 1}, "at": 1900000000000}"#.to_owned(), Some("max_ahead")),
        (long, Some("max_row")),
        ("[]".to_owned(), Some("no object")),
        ("{".to_owned(), Some("no JSON")),
        (String::new(), Some("no JSON")),
    ];
    let mapping = mapping();
    for (text, expected) in table {
        let mut gathered = mapping.gather();
        let outcome = gathered.take(&record(0, text.clone()), now);
        match expected {
            None => assert_eq!(outcome, Outcome::Row, "{text}"),
            Some(why) => {
                let Outcome::Bad(reason) = outcome else { panic!("{text} was taken") };
                assert!(reason.contains(why), "{reason} lacks {why}");
                assert_eq!(gathered.rows, 0);
            }
        }
        let batches = gathered.batches().unwrap();
        assert_eq!(batches.len(), 2);
        assert!(batches.iter().all(|batch| batch.num_rows() == gathered.rows));
    }
}

#[test]
fn what_lies_ahead_is_taken_as_of_now() {
    let mapping = mapping();
    let mut gathered = mapping.gather();
    let ahead = format!(r#"{{"ride": {{"driver": 1}}, "at": {}}}"#, NOW / 1000 + 1000);
    assert_eq!(gathered.take(&record(0, ahead), Timestamp::from_micros(NOW)), Outcome::Row);
    let batch = &gathered.batches().unwrap()[0];
    let events = batch.column_by_name("event_timestamp").unwrap();
    let events = arrow_array::cast::AsArray::as_primitive::<
        arrow_array::types::TimestampMicrosecondType,
    >(events);
    assert_eq!(events.value(0), NOW);
    let keys = arrow_array::cast::AsArray::as_string::<i32>(batch.column_by_name("key").unwrap());
    assert_eq!(keys.value(0), "k");
}

fn to_take<'a>(mapping: &'a Mapping, records: &'a [Record], on_bad: OnBad) -> ToTake<'a> {
    let next = records.last().map_or(0, |record| record.offset + 1);
    let now = Timestamp::from_micros(NOW);
    ToTake { mapping, records, from: 0, next, lag: 3, on_bad, now }
}

#[test]
fn reading_stops_before_a_bad_record_or_goes_around_it() {
    let mapping = mapping();
    let config = FeaturesConfig::default();
    let records = [record(0, good(0)), record(4, "bad"), record(5, good(5)), record(9, good(9))];
    let stopped = take(to_take(&mapping, &records, OnBad::Refuse), &config).unwrap();
    assert_eq!((stopped.step.rows, stopped.step.next, stopped.step.bad), (1, 4, 0));
    assert_eq!(stopped.stop.as_ref().unwrap().0, 4);
    assert_eq!(stopped.step.lag, 6);
    let around = take(to_take(&mapping, &records, OnBad::Quarantine), &config).unwrap();
    assert_eq!((around.step.rows, around.step.next, around.step.bad), (3, 10, 1));
    assert_eq!((around.bad[0].offset, around.bad[0].record.as_deref()), (4, Some(&b"bad"[..])));
    assert!(around.stop.is_none() && around.loads.len() == 2);
    let nothing = Record { body: Body::Nothing, ..record(7, "") };
    let passed = take(to_take(&mapping, &[nothing], OnBad::Refuse), &config).unwrap();
    assert_eq!((passed.step.passed, passed.step.next, passed.loads.len()), (1, 8, 0));
}

#[test]
fn what_is_kept_at_a_time_is_bounded() {
    let mapping = mapping();
    let small = FeaturesConfig { max_push_size: ByteSize::kib(4), ..FeaturesConfig::default() };
    let records: Vec<_> = (0..500).map(|n| record(n, good(n))).collect();
    let some = take(to_take(&mapping, &records, OnBad::Refuse), &small).unwrap();
    assert!(some.step.rows > 0 && some.step.rows < 500, "{:?}", some.step);
    assert_eq!((some.step.next, some.step.lag), (some.step.rows, 503 - some.step.rows));
    let none = FeaturesConfig { max_push_size: ByteSize::from_bytes(10), ..small };
    let refused = take(to_take(&mapping, &records, OnBad::Refuse), &none).unwrap();
    assert_eq!((refused.step.rows, refused.step.next), (0, 0));
    assert!(refused.stop.unwrap().1.contains("max_push_size"));
    let aside = take(to_take(&mapping, &records, OnBad::Quarantine), &none).unwrap();
    assert_eq!((aside.step.bad, aside.step.next, aside.bad.len()), (1, 1, 1));
}

proptest! {
    #[test]
    fn anything_is_a_row_or_has_a_reason(text in "\\PC{0,60}", bytes: Vec<u8>) {
        let mapping = mapping();
        let mut gathered = mapping.gather();
        let now = Timestamp::from_micros(NOW);
        let plain = Record { body: Body::Value(bytes.into()), ..record(0, "") };
        for record in [record(0, text), plain] {
            match gathered.take(&record, now) {
                Outcome::Bad(reason) => prop_assert!(!reason.is_empty() && reason.len() <= 2000),
                Outcome::Row | Outcome::Passed => {}
            }
        }
        gathered.batches().unwrap();
    }
}
