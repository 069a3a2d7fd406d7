//! What a file says of its row groups, so that those need not be read which cannot matter.

use arrow_schema::{DataType, TimeUnit};
use parquet::file::statistics::Statistics;

use super::Table;

impl Table {
    /// The earliest and the latest time of a column in each row group, in microseconds and rounded
    /// away from each other; none where the file does not tell, or there are gaps. A file that lies about it is read as
    /// if it had fewer rows.
    #[must_use]
    pub fn times(&self, column: &str) -> Vec<Option<(i64, i64)>> {
        let groups = self.metadata.metadata().row_groups().iter();
        let Some((leaf, unit)) = self.leaf(column) else { return groups.map(|_| None).collect() };
        let bounds = |statistics: &Statistics| match statistics {
            Statistics::Int64(found) if found.null_count_opt() == Some(0) => {
                let (least, greatest) = (*found.min_opt()?, *found.max_opt()?);
                Some((micros(least, unit, false)?, micros(greatest, unit, true)?))
            }
            _ => None,
        };
        groups.map(|group| group.column(leaf).statistics().and_then(bounds)).collect()
    }

    /// Where a column of timestamps lies, if it is one.
    fn leaf(&self, column: &str) -> Option<(usize, TimeUnit)> {
        let field = self.metadata.schema().field_with_name(column).ok()?;
        let DataType::Timestamp(unit, _) = field.data_type() else { return None };
        let leaves = self.metadata.parquet_schema().columns();
        let leaf = leaves.iter().position(|leaf| leaf.path().parts() == [column])?;
        Some((leaf, *unit))
    }
}

fn micros(value: i64, unit: TimeUnit, up: bool) -> Option<i64> {
    match unit {
        TimeUnit::Second => value.checked_mul(1_000_000),
        TimeUnit::Millisecond => value.checked_mul(1000),
        TimeUnit::Microsecond => Some(value),
        TimeUnit::Nanosecond => {
            Some(value.div_euclid(1000) + i64::from(up && value.rem_euclid(1000) > 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray, TimestampMillisecondArray,
        TimestampNanosecondArray,
    };
    use bytes::Bytes;

    use super::*;
    use crate::{Layout, Limits, RecordWriter};

    #[test]
    fn groups_tell_their_times_in_microseconds() {
        let nanos = TimestampNanosecondArray::from(vec![1, 1000, 2001, -1]);
        let gaps = TimestampMicrosecondArray::from(vec![Some(7), Some(5), None, Some(9)]);
        let columns: [(&str, ArrayRef); 4] = [
            ("nanos", Arc::new(nanos)),
            ("millis", Arc::new(TimestampMillisecondArray::from(vec![3, 2, i64::MAX, 1]))),
            ("gaps", Arc::new(gaps)),
            ("number", Arc::new(Int64Array::from(vec![1, 2, 3, 4]))),
        ];
        let columns = columns.map(|(name, column)| (name, column, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let layout = Layout { group_rows: 2, ..Layout::default() };
        let mut writer = RecordWriter::new(Vec::new(), batch.schema(), layout).unwrap();
        writer.write(&batch).unwrap();
        let table = Table::open(Bytes::from(writer.close().unwrap()), Limits::default()).unwrap();
        assert_eq!(table.times("nanos"), [Some((0, 1)), Some((-1, 3))]);
        // More than microseconds can tell.
        assert_eq!(table.times("millis"), [Some((2000, 3000)), None]);
        assert_eq!(table.times("gaps"), [Some((5, 7)), None]);
        assert_eq!(table.times("number"), [None, None]);
        assert_eq!(table.times("absent"), [None, None]);
    }
}
