//! Which columns are worth packing, and which a dictionary, told by a sample of them.
//!
//! Measured values are noise in most of their bits: packing them takes more than half as long again
//! as all else that is done to write them, and a reader as long to unpack them, for a thirteenth of
//! their size.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use parquet::schema::types::ColumnPath;

use super::path;

/// Rows of a sample that are looked at; with fewer there is little to tell, and little to gain.
const MOST: usize = 8192;
const LEAST: usize = 1024;
/// Of fewer texts there is nothing to tell.
const FEW: usize = 64;
/// A column is packed if that takes off one part of so many, at least.
const WORTH: usize = 8;

/// What is not done to some columns.
#[derive(Debug, Default)]
pub(super) struct Suited {
    /// Floats that hardly become smaller.
    pub(super) unpacked: Vec<ColumnPath>,
    /// Texts that hardly repeat: a dictionary would list each of them.
    pub(super) unlisted: Vec<ColumnPath>,
}

impl Suited {
    pub(super) fn of(sample: &RecordBatch, level: i32) -> Self {
        let fields = sample.schema_ref().fields().iter().zip(sample.columns());
        let paths = |unsuited: &dyn Fn(&ArrayRef) -> bool| {
            let found = fields.clone().filter(|(_, column)| unsuited(column));
            found.map(|(field, _)| path(field)).collect()
        };
        Self {
            unpacked: paths(&|column| is_noise(inner(column), level)),
            unlisted: paths(&|column| hardly_repeats(column)),
        }
    }
}

/// The values of a column, those of its lists if it has such.
fn inner(column: &ArrayRef) -> &ArrayRef {
    column.as_list_opt::<i32>().map_or(column, |lists| lists.values())
}

fn hardly_repeats(column: &ArrayRef) -> bool {
    let Some(texts) = column.as_string_opt::<i32>() else { return false };
    let some = || texts.iter().take(LEAST).flatten();
    let (all, different) = (some().count(), some().collect::<HashSet<_>>().len());
    all >= FEW && different > all / 2
}

fn is_noise(column: &ArrayRef, level: i32) -> bool {
    let Some(values) = values(column) else { return false };
    let packed = zstd::bulk::compress(&values, level).map_or(0, |packed| packed.len());
    packed > values.len() - values.len() / WORTH
}

/// The bytes of values that are there, if they are floats and there are enough.
fn values(column: &ArrayRef) -> Option<Vec<u8>> {
    let part = column.slice(0, column.len().min(MOST));
    if part.len() - part.null_count() < LEAST {
        return None;
    }
    Some(match part.data_type() {
        DataType::Float32 => {
            let values = part.as_primitive::<Float32Type>().iter().flatten();
            values.flat_map(f32::to_le_bytes).collect()
        }
        DataType::Float64 => {
            let values = part.as_primitive::<Float64Type>().iter().flatten();
            values.flat_map(f64::to_le_bytes).collect()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float32Array, Float64Array, Int64Array};
    use bytes::Bytes;

    use super::*;
    use crate::{Layout, Limits, Part, RecordWriter, Table};

    /// Numbers between 0 and 1 that jump about.
    fn jumps() -> impl Iterator<Item = f64> {
        let next = |last: &u64| Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        #[allow(clippy::cast_precision_loss, reason = "any number will do")]
        std::iter::successors(Some(7_u64), next).map(|jump| (jump >> 11) as f64 / 2_f64.powi(53))
    }

    #[test]
    fn a_file_with_noise_is_a_little_larger_and_reads_the_same() {
        let noise = Float64Array::from_iter_values(jumps().take(4096));
        let counted = Int64Array::from_iter_values(0..4096);
        let columns: [(&str, ArrayRef); 2] = [("n", Arc::new(noise)), ("c", Arc::new(counted))];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let layout = Layout { level: 1, ..Layout::default() };
        let packed = RecordWriter::new(Vec::new(), rows.schema(), layout).unwrap();
        let suited = RecordWriter::suited(Vec::new(), &rows, layout).unwrap();
        let [packed, suited] = [packed, suited].map(|mut file| {
            file.write(&rows).unwrap();
            file.close().unwrap()
        });
        // What repeats is packed all the same.
        assert!(packed.len() < suited.len() && suited.len() < 8 * 4096 + 20_000);
        let table = Table::open(Bytes::from(suited), Limits::default()).unwrap();
        let part = Part { columns: None, groups: None, rows_at_once: 4096 };
        let read: Vec<_> = table.records(&part).unwrap().map(Result::unwrap).collect();
        assert_eq!(read[0].columns(), rows.columns());
    }

    #[test]
    fn lists_of_noise_and_texts_that_differ_are_left_as_they_are() {
        use arrow_array::{ListArray, StringArray};
        use parquet::basic::{Compression, Encoding};
        use parquet::file::reader::{FileReader, SerializedFileReader};

        let rows = 512;
        #[allow(clippy::cast_possible_truncation, reason = "any number will do")]
        let lists = |mut next: Box<dyn FnMut() -> f64>| {
            let row = |_| Some((0..4).map(|_| Some(next() as f32)).collect::<Vec<_>>());
            ListArray::from_iter_primitive::<Float32Type, _, _>((0..rows).map(row))
        };
        let mut noise = jumps();
        let columns: [(&str, ArrayRef); 4] = [
            ("noise", Arc::new(lists(Box::new(move || noise.next().unwrap())))),
            ("zeros", Arc::new(lists(Box::new(|| 0.0)))),
            (
                "id",
                Arc::new((0..rows).map(|row| Some(format!("{row:036}"))).collect::<StringArray>()),
            ),
            (
                "kind",
                Arc::new((0..rows).map(|row| Some(["a", "b"][row % 2])).collect::<StringArray>()),
            ),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut file = RecordWriter::suited(Vec::new(), &batch, Layout::default()).unwrap();
        file.write(&batch).unwrap();
        let file = SerializedFileReader::new(Bytes::from(file.close().unwrap())).unwrap();
        let told = file.metadata().row_group(0).columns().iter().map(|column| {
            let packed = column.compression() != Compression::UNCOMPRESSED;
            let listed = column.encodings().any(|encoding| encoding == Encoding::RLE_DICTIONARY);
            (column.column_path().parts()[0].clone(), packed, listed)
        });
        let expected = [
            ("noise", false, false),
            ("zeros", true, false),
            ("id", true, false),
            ("kind", true, true),
        ];
        let expected = expected.map(|(name, packed, listed)| (name.to_owned(), packed, listed));
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn noise_is_told_from_what_repeats() {
        let rows = 4096;
        #[allow(clippy::cast_possible_truncation, reason = "any number will do")]
        let noise = || jumps().map(|jump| jump as f32).take(rows);
        let sparse = noise().zip(0..).map(|(value, row)| (row % 8 == 0).then_some(value));
        let columns: [(&str, ArrayRef, bool); 6] = [
            ("noise", Arc::new(Float32Array::from_iter_values(noise())), true),
            ("wide", Arc::new(Float64Array::from_iter_values(jumps().take(rows))), true),
            (
                "prices",
                Arc::new(
                    noise().map(|value| Some((value * 99.0).round())).collect::<Float32Array>(),
                ),
                false,
            ),
            ("zeros", Arc::new(Float32Array::from(vec![0.0; rows])), false),
            // What is not there says nothing, and few values say little.
            ("sparse", Arc::new(sparse.collect::<Float32Array>()), false),
            ("counted", Arc::new(Int64Array::from_iter_values(0..4096)), false),
        ];
        for (name, column, expected) in columns {
            assert_eq!(is_noise(&column, 1), expected, "{name}");
        }
    }
}
