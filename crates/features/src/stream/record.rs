//! A record as the rows of its views, or why it is none. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use falaj_base::{ByteSize, Error, HumanDuration, Result, Timestamp, code};
use falaj_online::{Kind, Scalar, Value};
use falaj_streams::{Body, Record};
use serde_json::Value as Json;

use super::spec::{FieldPath, KEY, TIMESTAMP, Unit};
use crate::definition::ViewVersion;
use crate::name::FeatureName;
use crate::online::{Shape, column, size};
use crate::schema;

/// The most that a reason says.
const MAX_REASON: usize = 500;

/// What a record becomes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Rows, one in each view.
    Row,
    /// Nothing: it only says that its key has no value any more.
    Passed,
    Bad(String),
}

/// How the records of one source become rows of its views.
#[derive(Debug)]
pub(super) struct Mapping {
    views: Vec<ViewMapping>,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The values of one row at most.
    pub(super) max_row: ByteSize,
    /// How far ahead of us an event may lie.
    pub(super) max_ahead: HumanDuration,
}

#[derive(Debug)]
struct ViewMapping {
    view: ViewVersion,
    shape: Arc<Shape>,
    /// Join keys, fields, event time: as [`schema::rows`] has them.
    columns: Vec<ColumnMapping>,
}

/// Where a record has the values of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ColumnMapping {
    name: String,
    kind: Kind,
    from: Where,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Field,
    Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Where {
    Name(String),
    Pointer(String),
    Key,
    Time,
    /// A number that counts something since 1970.
    Number(Box<Where>, Unit),
}

impl Where {
    fn of(path: &FieldPath) -> Self {
        let plain = match path.path() {
            KEY => Self::Key,
            TIMESTAMP => Self::Time,
            pointer if pointer.starts_with('/') => Self::Pointer(pointer.to_owned()),
            name => Self::Name(name.to_owned()),
        };
        match path.unit() {
            Some(unit) => Self::Number(Box::new(plain), unit),
            None => plain,
        }
    }
}

/// Rows being gathered for the views of a source.
#[derive(Debug)]
pub(super) struct Gathered<'a> {
    mapping: &'a Mapping,
    /// By view, by column.
    values: Vec<Vec<Vec<Value>>>,
    pub(super) rows: usize,
}

impl Mapping {
    pub(super) fn new(
        views: Vec<(ViewVersion, Arc<Shape>)>,
        fields: &BTreeMap<FeatureName, FieldPath>,
        limits: Limits,
    ) -> Self {
        let map = |(view, shape): (ViewVersion, Arc<Shape>)| {
            let column =
                |name: &str, kind: Kind, role| ColumnMapping::new(name, (kind, role), fields);
            let keys = shape.keys.iter().map(|(name, kind)| column(name, *kind, Role::Key));
            let fields = shape.columns.iter().map(|(name, kind)| column(name, *kind, Role::Field));
            let time = Kind::One(Scalar::Timestamp);
            let event = column(&shape.event_time, time, Role::Event);
            let columns = keys.chain(fields).chain([event]).collect();
            ViewMapping { view, shape, columns }
        };
        Self { views: views.into_iter().map(map).collect(), limits }
    }

    pub(super) fn views(&self) -> impl Iterator<Item = (&ViewVersion, &Arc<Shape>)> {
        self.views.iter().map(|it| (&it.view, &it.shape))
    }

    pub(super) fn gather(&self) -> Gathered<'_> {
        let empty = |view: &ViewMapping| vec![Vec::new(); view.columns.len()];
        Gathered { mapping: self, values: self.views.iter().map(empty).collect(), rows: 0 }
    }

    /// The record's values, view by view; else what is wrong with it.
    fn read(&self, record: &Record, json: &Json, now: Timestamp) -> Result<Vec<Vec<Value>>> {
        self.views.iter().map(|view| self.row(view, record, json, now)).collect()
    }

    fn row(
        &self,
        view: &ViewMapping,
        record: &Record,
        json: &Json,
        now: Timestamp,
    ) -> Result<Vec<Value>> {
        let mut row = Vec::with_capacity(view.columns.len());
        let mut taken = 0;
        for column in &view.columns {
            let mut value = column.read(record, json)?;
            match column.role {
                Role::Field => {
                    taken += size(&value);
                    let most = self.limits.max_row;
                    if taken as u64 > most.bytes() {
                        let found = format!("{taken} bytes with what stands before it");
                        let allowed =
                            format!("a row of at most {most} (`features.online.max_row`)");
                        return Err(Error::invalid(&column.name, found, allowed));
                    }
                }
                Role::Key | Role::Event if value == Value::Null => {
                    let allowed = "a value: keys and event times are always there";
                    return Err(Error::invalid(&column.name, "absent", allowed));
                }
                Role::Key => {}
                Role::Event => self.by_our_clock(&column.name, &mut value, now)?,
            }
            row.push(value);
        }
        let keys = row[..view.shape.keys.len()].iter();
        view.shape.key(keys).map_err(|error| {
            let field = error.field().unwrap_or_default().to_owned();
            Error::invalid(field, "too long", "a key that can be kept")
        })?;
        Ok(row)
    }

    /// Refuses an event that lies further ahead than clocks differ, and takes one that lies ahead
    /// by less as of now, as a push does.
    fn by_our_clock(&self, name: &str, value: &mut Value, now: Timestamp) -> Result<()> {
        let Value::Timestamp(event) = value else { return Ok(()) };
        let most = self.limits.max_ahead;
        if *event > (now + most.get()).micros() {
            let allowed = format!(
                "at most {most} after the server's time, {now} (`features.online.max_ahead`)"
            );
            return Err(Error::invalid(name, Timestamp::from_micros(*event), allowed));
        }
        *event = (*event).min(now.micros());
        Ok(())
    }
}

impl ColumnMapping {
    fn new(
        name: &str,
        (kind, role): (Kind, Role),
        fields: &BTreeMap<FeatureName, FieldPath>,
    ) -> Self {
        let mapped = fields.iter().find(|(column, _)| column.as_str() == name);
        let from = mapped.map_or(Where::Name(name.to_owned()), |(_, path)| Where::of(path));
        Self { name: name.to_owned(), kind, from, role }
    }

    /// Where a join key is found.
    pub(super) fn key_of(
        name: &str,
        kind: Kind,
        fields: &BTreeMap<FeatureName, FieldPath>,
    ) -> Self {
        Self::new(name, (kind, Role::Key), fields)
    }

    pub(super) fn read(&self, record: &Record, json: &Json) -> Result<Value> {
        let wrong = |found: &dyn std::fmt::Display, allowed: &str| {
            Err(Error::invalid(&self.name, found, allowed))
        };
        let field = || self.name.clone();
        match &self.from {
            Where::Name(name) => self.kind.read(json.get(name).unwrap_or(&Json::Null), field),
            Where::Pointer(pointer) => {
                self.kind.read(json.pointer(pointer).unwrap_or(&Json::Null), field)
            }
            Where::Key => self.kind.read(&self.key(record)?, field),
            Where::Time if self.kind != Kind::One(Scalar::Timestamp) => {
                wrong(&TIMESTAMP, "a column of the type timestamp")
            }
            Where::Time => Ok(record.at.map_or(Value::Null, Value::Timestamp)),
            Where::Number(from, unit) => {
                if self.kind != Kind::One(Scalar::Timestamp) {
                    return wrong(&"a unit", "a unit for columns of the type timestamp only");
                }
                let owned;
                let number = match &**from {
                    Where::Name(name) => json.get(name),
                    Where::Pointer(pointer) => json.pointer(pointer),
                    Where::Key => {
                        owned = self.key(record)?;
                        Some(&owned)
                    }
                    Where::Time | Where::Number(..) => None,
                };
                let number = match number {
                    None | Some(Json::Null) => return Ok(Value::Null),
                    Some(number) => number,
                };
                match number.as_i64().and_then(|number| micros(number, *unit)) {
                    Some(micros) => Ok(Value::Timestamp(micros)),
                    None => wrong(&number, "a whole number that is a time"),
                }
            }
        }
    }

    /// The key as JSON: text for columns of text, else what the text says.
    fn key(&self, record: &Record) -> Result<Json> {
        let Some(key) = &record.key else { return Ok(Json::Null) };
        let text = std::str::from_utf8(key);
        let text = text.map_err(|_| Error::invalid(&self.name, "no text", "a key of UTF-8"))?;
        let scalar = self.kind.scalar();
        let plain = matches!(
            scalar,
            Scalar::String | Scalar::Bytes | Scalar::Timestamp | Scalar::Date | Scalar::Decimal(_)
        );
        if plain {
            return Ok(Json::String(text.to_owned()));
        }
        let read = serde_json::from_str(text);
        read.map_err(|_| {
            Error::invalid(&self.name, text, format!("a key of the type {}", self.kind))
        })
    }
}

/// The years that times lie in: 1 to 9999.
const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

fn micros(number: i64, unit: Unit) -> Option<i64> {
    let micros = match unit {
        Unit::S => number.checked_mul(1_000_000),
        Unit::Ms => number.checked_mul(1000),
        Unit::Us => Some(number),
        Unit::Ns => Some(number.div_euclid(1000)),
    };
    micros.filter(|micros| TIMES.contains(micros))
}

impl Gathered<'_> {
    /// Takes a record for all views, or for none.
    pub(super) fn take(&mut self, record: &Record, now: Timestamp) -> Outcome {
        let value = match &record.body {
            Body::Value(value) => value,
            Body::Nothing => return Outcome::Passed,
            Body::Unreadable(why) => return Outcome::Bad(short(why)),
        };
        let json: Json = match serde_json::from_slice(value) {
            Ok(json @ Json::Object(_)) => json,
            Ok(_) => return Outcome::Bad("it is JSON, and no object".to_owned()),
            Err(error) => return Outcome::Bad(short(&format!("it is no JSON: {error}"))),
        };
        let rows = match self.mapping.read(record, &json, now) {
            Ok(rows) => rows,
            Err(error) => return Outcome::Bad(short(error.message())),
        };
        for (columns, row) in self.values.iter_mut().zip(rows) {
            for (column, value) in columns.iter_mut().zip(row) {
                column.push(value);
            }
        }
        self.rows += 1;
        Outcome::Row
    }

    /// What was taken, view by view, as it is kept. Refused if a view cannot compute its features of
    /// it: later nobody could be told.
    pub(super) fn batches(&self) -> Result<Vec<RecordBatch>> {
        let of = |(view, values): (&ViewMapping, &Vec<Vec<Value>>)| {
            let columns = view.columns.iter().zip(values);
            let arrays =
                columns.map(|(it, values)| column(it.kind, values)).collect::<Result<Vec<_>>>()?;
            let batch = RecordBatch::try_new(schema::rows(view.view.form()), arrays);
            let batch = batch.map_err(Error::internal)?;
            if let Some(ready) = view.shape.ready.as_ref().filter(|_| batch.num_rows() > 0) {
                ready.run(&batch).map_err(|error| {
                    let text =
                        format!("the feature view {}: {}", view.view.name(), error.message());
                    Error::new(&code::INVALID_INPUT, text).caused_by(error)
                })?;
            }
            Ok(batch)
        };
        self.mapping.views.iter().zip(&self.values).map(of).collect()
    }
}

fn short(text: &str) -> String {
    text.chars().take(MAX_REASON).collect()
}
