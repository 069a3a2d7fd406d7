//! Our values as PostgreSQL reads and writes them.

use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::db::value::Value;

type BoxedError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, BoxedError> {
        match (self, kind) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Int(value), &Type::INT8) => value.to_sql(kind, out),
            (Self::Int(value), &Type::INT4) => i32::try_from(*value)?.to_sql(kind, out),
            (Self::Int(value), &Type::BOOL) => (*value != 0).to_sql(kind, out),
            #[allow(clippy::cast_precision_loss, reason = "the column asked for a float")]
            (Self::Int(value), &Type::FLOAT8) => (*value as f64).to_sql(kind, out),
            (Self::Real(value), &Type::FLOAT8) => value.to_sql(kind, out),
            (Self::Text(value), _) => value.to_sql(kind, out),
            (Self::Blob(value), &Type::BYTEA) => value.to_sql(kind, out),
            (value, kind) => Err(format!("{value:?} cannot be bound as {kind}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, BoxedError> {
        Ok(match *kind {
            Type::INT8 => Self::Int(i64::from_sql(kind, raw)?),
            Type::INT4 => Self::Int(i32::from_sql(kind, raw)?.into()),
            Type::BOOL => Self::Int(bool::from_sql(kind, raw)?.into()),
            Type::FLOAT8 => Self::Real(f64::from_sql(kind, raw)?),
            Type::BYTEA => Self::Blob(Vec::from_sql(kind, raw)?),
            _ => Self::Text(FromSql::from_sql(kind, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxedError> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::INT4 | Type::BOOL | Type::FLOAT8 | Type::BYTEA)
            || <String as FromSql>::accepts(kind)
    }
}
