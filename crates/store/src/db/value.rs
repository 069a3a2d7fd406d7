//! What goes into a statement and what comes out: five kinds of value, the same on both engines, and one
//! that only goes in.

use std::sync::Arc;

use falaj_base::{
    BlobId, EndpointId, Error, EventId, KeyId, Name, ObjectId, PolicyId, PrincipalId, ProjectId,
    Result, Role, SessionId, TenantId, Timestamp, TokenId, UserName,
};

/// A value bound to a placeholder or read from a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
    /// The number of the transaction that it becomes a part of, which only the database knows yet: see
    /// [`super::Tx::stamp`].
    Number,
}

/// Builds the parameters of a statement: `params![id, name, now]`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { [$($crate::db::Value::from($value)),*] };
}
pub use params;

macro_rules! from {
    ($($type:ty => |$value:ident| $convert:expr;)*) => {$(
        impl From<$type> for Value {
            fn from($value: $type) -> Self { $convert }
        }
    )*};
}

from! {
    i64 => |v| Self::Int(v);
    i32 => |v| Self::Int(i64::from(v));
    u32 => |v| Self::Int(i64::from(v));
    u16 => |v| Self::Int(i64::from(v));
    bool => |v| Self::Int(i64::from(v));
    f64 => |v| Self::Real(v);
    &str => |v| Self::Text(v.to_owned());
    String => |v| Self::Text(v);
    &String => |v| Self::Text(v.clone());
    Vec<u8> => |v| Self::Blob(v);
    &[u8] => |v| Self::Blob(v.to_vec());
    Timestamp => |v| Self::Int(v.micros());
    Role => |v| Self::Text(v.as_str().to_owned());
}

// Sizes and counts never reach 2^63 here; one that does must fail loudly, not wrap.
from! {
    u64 => |v| Self::Int(i64::try_from(v).unwrap_or(i64::MAX));
    usize => |v| Self::Int(i64::try_from(v).unwrap_or(i64::MAX));
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A type a column can be read as.
pub trait FromValue: Sized {
    /// `None` if the value is of another kind.
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! read {
    ($($type:ty => $pattern:pat => $convert:expr;)*) => {$(
        impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                match value { $pattern => $convert, _ => None }
            }
        }
    )*};
}

read! {
    i64 => Value::Int(v) => Some(*v);
    u64 => Value::Int(v) => u64::try_from(*v).ok();
    u32 => Value::Int(v) => u32::try_from(*v).ok();
    u16 => Value::Int(v) => u16::try_from(*v).ok();
    usize => Value::Int(v) => usize::try_from(*v).ok();
    bool => Value::Int(v) => Some(*v != 0);
    f64 => Value::Real(v) => Some(*v);
    String => Value::Text(v) => Some(v.clone());
    Vec<u8> => Value::Blob(v) => Some(v.clone());
    Timestamp => Value::Int(v) => Some(Self::from_micros(*v));
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            other => T::from_value(other).map(Some),
        }
    }
}

/// Types that are kept as their text.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl From<$type> for Value {
            fn from(v: $type) -> Self { Self::Text(v.to_string()) }
        }
        impl From<&$type> for Value {
            fn from(v: &$type) -> Self { Self::Text(v.to_string()) }
        }
        impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                match value { Value::Text(text) => text.parse().ok(), _ => None }
            }
        }
    )*};
}

as_text!(
    TenantId,
    ProjectId,
    PrincipalId,
    TokenId,
    SessionId,
    PolicyId,
    EventId,
    BlobId,
    EndpointId,
    ObjectId,
    KeyId,
    Name,
    UserName
);

impl FromValue for Role {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

/// One row of a result.
#[derive(Clone, Debug)]
pub struct Row {
    pub(super) columns: Arc<[String]>,
    pub(super) values: Vec<Value>,
}

impl Row {
    /// Reads a column by name. A wrong name or type is a bug of ours, never the caller's.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T> {
        let value = self.value(column)?;
        T::from_value(value).ok_or_else(|| {
            let kind = std::any::type_name::<T>();
            Error::internal(format!("column {column} does not hold a {kind}"))
        })
    }

    fn value(&self, column: &str) -> Result<&Value> {
        let index = self.columns.iter().position(|name| name == column);
        index
            .and_then(|index| self.values.get(index))
            .ok_or_else(|| Error::internal(format!("the result has no column {column}")))
    }

    /// The values, in the order of the columns.
    #[must_use]
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }
}
