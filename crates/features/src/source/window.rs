//! The time that events are needed of, for sources that can leave out the rest.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use falaj_base::{Error, Result};
use falaj_tables::{Part, Table};

use super::fit::fit;
use crate::schema::moment;

/// Events from one time to another, both included, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Rows that are looked at together.
const ROWS: usize = 65_536;

/// The events that could answer some moments, if each answers for as long as `ttl`; none if there
/// are no moments.
pub(crate) fn bounds(moments: &Table, time: &str, ttl: Option<i64>) -> Result<Option<Window>> {
    let part = Part { columns: Some(vec![time.to_owned()]), groups: None, rows_at_once: ROWS };
    let mut found: Option<Window> = None;
    for batch in moments.records(&part)? {
        let batch = batch?;
        let column: &ArrayRef = batch.column(0);
        let column = fit(time, column, &moment())?;
        let times = column
            .as_primitive_opt::<TimestampMicrosecondType>()
            .ok_or_else(|| Error::internal("times that are none"))?;
        for at in times.iter().flatten() {
            let known = found.get_or_insert(Window { from: at, to: at });
            (known.from, known.to) = (known.from.min(at), known.to.max(at));
        }
    }
    Ok(found.map(|all| Window {
        from: ttl.map_or(i64::MIN, |ttl| all.from.saturating_sub(ttl)),
        // Moments may be finer than a microsecond; one more is asked for than could answer.
        to: all.to.saturating_add(1),
    }))
}
