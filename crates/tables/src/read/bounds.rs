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
