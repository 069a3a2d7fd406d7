//! Puts values into a statement's places.

use falaj_base::{Error, Result};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Statement, ToSql};

use super::translate;
use crate::db::value::Value;

/// Which parameter goes where: SQLite takes `$2` for a *name*, and numbers the places by where a
/// name first stands. Nearly always the two are the same.
pub(super) enum Slots {
    InOrder(usize),
    Mixed(Vec<usize>),
}

impl Slots {
    pub(super) fn of(statement: &Statement<'_>) -> Result<Self> {
        let count = statement.parameter_count();
        let number = |slot| {
            let name = statement.parameter_name(slot).unwrap_or_default();
            let number = name.strip_prefix('$').and_then(|digits| digits.parse().ok());
            number.filter(|number| (1..=count).contains(number)).ok_or_else(|| {
                Error::internal(format!("{name:?} is not one of {count} parameters"))
            })
        };
        for slot in 1..=count {
            if number(slot)? != slot {
                return (1..=count).map(number).collect::<Result<_>>().map(Self::Mixed);
            }
        }
        Ok(Self::InOrder(count))
    }

    pub(super) fn bind(&self, statement: &mut Statement<'_>, params: &[Value]) -> Result<()> {
        let count = match self {
            Self::InOrder(count) => *count,
            Self::Mixed(numbers) => numbers.len(),
        };
        if count != params.len() {
            let text = format!("the statement has {count} parameters, {} were given", params.len());
            return Err(Error::internal(text));
        }
        for slot in 1..=count {
            let number = match self {
                Self::InOrder(_) => slot,
                Self::Mixed(numbers) => numbers[slot - 1],
            };
            statement.raw_bind_parameter(slot, &params[number - 1]).map_err(translate)?;
        }
        Ok(())
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Blob(value) => ValueRef::Blob(value),
            Self::Number => {
                let text = "a number that this engine gives beforehand";
                return Err(rusqlite::Error::ToSqlConversionFailure(text.into()));
            }
        }))
    }
}
