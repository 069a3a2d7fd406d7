//! Kinds of features as Arrow has them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use falaj_online::value::{Kind, Scalar};

use crate::definition::form::ViewForm;

/// A moment: microseconds, UTC.
#[must_use]
pub fn moment() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The type of a column of this kind.
#[must_use]
pub fn arrow(kind: Kind) -> DataType {
    match kind {
        Kind::One(scalar) => single(scalar),
        Kind::List(scalar) => DataType::List(Arc::new(Field::new_list_field(single(scalar), true))),
    }
}

fn single(scalar: Scalar) -> DataType {
    match scalar {
        Scalar::Bool => DataType::Boolean,
        Scalar::Int32 => DataType::Int32,
        Scalar::Int64 => DataType::Int64,
        Scalar::Float32 => DataType::Float32,
        Scalar::Float64 => DataType::Float64,
        Scalar::String => DataType::Utf8,
        Scalar::Bytes => DataType::Binary,
        Scalar::Timestamp => moment(),
        Scalar::Date => DataType::Date32,
        Scalar::Decimal(of) => DataType::Decimal128(of.precision(), of.scale().cast_signed()),
    }
}

/// The columns of a view's rows, as they are pushed and kept: join keys, fields, event time. Keys
/// and times are always there.
#[must_use]
pub fn rows(view: &ViewForm) -> SchemaRef {
    let keys = view.keys();
    let keys = keys.iter().map(|key| Field::new(key.name.as_str(), arrow(key.kind), false));
    let fields =
        view.columns().iter().map(|field| Field::new(field.name.as_str(), arrow(field.kind), true));
    let event = Field::new(view.event_time.as_str(), moment(), false);
    Arc::new(Schema::new(keys.chain(fields).chain([event]).collect::<Vec<_>>()))
}
