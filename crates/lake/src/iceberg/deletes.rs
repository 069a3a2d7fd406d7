//! Which rows are gone: by their place in a file, or by their values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use falaj_base::{Error, Result};
use falaj_tables::Part;
use roaring::RoaringTreemap;

use super::manifest::Entry;
use crate::column::{At, Column, known};
use crate::equal::Equal;
use crate::limits::Budget;
use crate::place::File;
use crate::rows::{Rows, damaged, opened};

/// The numbers that the specification gives to the columns of places.
const FILE_PATH: i32 = 2_147_483_546;
const POS: i32 = 2_147_483_545;
/// Rows that are looked at together.
const ROWS: usize = 65_536;

/// Rows that are gone by their place: by the path of their file below the root.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<String, Vec<(i64, RoaringTreemap)>>);

impl Places {
    /// Reads a file of places. `relocated` tells where the file at an address lies now; one that
    /// lies elsewhere has no rows in this table.
    pub(super) fn add(
        &mut self,
        entry: &Entry,
        file: &File,
        budget: &mut Budget,
        relocated: impl Fn(&str) -> Result<String>,
    ) -> Result<()> {
        let column = |name: &str, kind, id| Column {
            name: name.to_owned(),
            kind,
            at: At::Id { id, names: Some(vec![name.to_owned()]) },
        };
        let columns =
            [column("file_path", DataType::Utf8, FILE_PATH), column("pos", DataType::Int64, POS)];
        let table = opened(file, budget.limits())?;
        if let Some(absent) = columns.iter().find(|it| it.found(table.schema()).is_none()) {
            let allowed = "the columns file_path and pos";
            return Err(Error::invalid(file.name(), format!("without {}", absent.name), allowed));
        }
        let rows = Rows::plain(file.name(), table, &columns);
        let part = Part { columns: None, groups: None, rows_at_once: ROWS };
        let mut found: HashMap<String, RoaringTreemap> = HashMap::new();
        let at = |error| damaged(file, error);
        for batch in rows.records(&part).map_err(at)? {
            let batch = batch.map_err(at)?;
            let (paths, places) =
                (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int64Type>());
            if paths.null_count() + places.null_count() > 0 {
                return Err(Error::invalid(file.name(), "null", "a path and a place in every row"));
            }
            let mut from = 0;
            while from < batch.num_rows() {
                // Sorted by path, as they are written, most rows are of the file before.
                let path = paths.value(from);
                let until = (from..batch.num_rows()).find(|row| paths.value(*row) != path);
                let until = until.unwrap_or(batch.num_rows());
                let gone = found.entry(path.to_owned()).or_default();
                for place in &places.values()[from..until] {
                    let place = u64::try_from(*place)
                        .map_err(|_| Error::invalid(file.name(), place, "places from 0 on"))?;
                    gone.insert(place);
                }
                from = until;
            }
            let weight: usize = found
                .iter()
                .map(|(path, rows)| path.len() + 64 + crate::deleted::weight(rows))
                .sum();
            if weight > budget.limits().deletes {
                budget.deletes(weight)?;
            }
        }
        for (address, rows) in found {
            budget.deletes(address.len() + 64 + crate::deleted::weight(&rows))?;
            self.0.entry(relocated(&address)?).or_default().push((entry.sequence, rows));
        }
        Ok(())
    }

    /// The rows of a file that are gone.
    pub(super) fn of(&self, path: &str, sequence: i64) -> Option<Arc<RoaringTreemap>> {
        let later = self.0.get(path)?.iter().filter(|(of, _)| *of >= sequence);
        let all = later.fold(RoaringTreemap::new(), |all, (_, rows)| all | rows);
        (!all.is_empty()).then(|| Arc::new(all))
    }
}

/// Rows that are gone by their values: each list with the files that it is about.
#[derive(Debug, Default)]
pub(super) struct Values(Vec<(Entry, bool, Arc<Equal>)>);

impl Values {
    /// Reads a list. `columns` are those that it compares; `everywhere` tells that it is about all
    /// partitions.
    pub(super) fn add(
        &mut self,
        entry: Entry,
        everywhere: bool,
        columns: Vec<Column>,
        file: &File,
        budget: &mut Budget,
    ) -> Result<()> {
        let table = opened(file, budget.limits())?;
        known(&columns, table.schema(), file.name())?;
        if let Some(absent) = columns.iter().find(|it| it.found(table.schema()).is_none()) {
            let allowed = "every column that is compared";
            return Err(Error::invalid(file.name(), format!("without {}", absent.name), allowed));
        }
        let rows = Rows::plain(file.name(), table, &columns);
        let mut equal = Equal::new(columns);
        let part = Part { columns: None, groups: None, rows_at_once: ROWS };
        let at = |error| damaged(file, error);
        for batch in rows.records(&part).map_err(at)? {
            let batch = batch.map_err(at)?;
            budget.deletes(equal.add(batch.columns(), file.name())?)?;
        }
        self.0.push((entry, everywhere, Arc::new(equal)));
        Ok(())
    }

    /// The lists that are about a file: those that came after it, for its partition.
    pub(super) fn of(&self, data: &Entry) -> Vec<Arc<Equal>> {
        let about = self.0.iter().filter(|(list, everywhere, _)| {
            let here = list.spec == data.spec && list.partition == data.partition;
            list.sequence > data.sequence && (*everywhere || here)
        });
        about.map(|(_, _, equal)| equal.clone()).collect()
    }
}
