//! The rows of one file of a table, as the table has them: columns by their names of today, values
//! that stand in no file, and nothing that was deleted.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{Field, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use falaj_base::{Error, Result};
use falaj_tables::{Part, Records, Table};
use roaring::RoaringTreemap;

use crate::column::{Column, conformed, known, unread};
use crate::constant::repeated;
use crate::deleted;
use crate::equal::Equal;
use crate::limits::Limits;
use crate::place::File;
use crate::snapshot::{DataFile, Snapshot};

const READ: &str =
    "numbers, decimals, booleans, texts, bytes, dates, times and lists of them: no structs or maps";

/// The rows of a file. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Rows {
    name: String,
    table: Table,
    schema: SchemaRef,
    columns: Arc<[Bound]>,
    deleted: Option<Arc<RoaringTreemap>>,
    /// Each with its own columns, as this file has them.
    equals: Vec<(Arc<Equal>, Vec<Bound>)>,
}

/// A column of the table, in this file.
#[derive(Clone, Debug)]
struct Bound {
    column: Column,
    from: From,
}

#[derive(Clone, Debug)]
enum From {
    /// A column of the file, by its name there.
    File(String),
    Constant(ArrayRef),
    /// Nulls: the column came later than the file.
    Nowhere,
}

impl Rows {
    /// The rows of a file of a table.
    pub fn open(
        snapshot: &Snapshot,
        data: &DataFile,
        file: &File,
        limits: &Limits,
    ) -> Result<Self> {
        let table = opened(file, limits)?;
        known(&snapshot.columns, table.schema(), file.name())?;
        let mut rows = Self::plain(file.name(), table, &snapshot.columns);
        let bound = rows.columns.iter().enumerate().map(|(number, bound)| {
            let mut bound = bound.clone();
            // What stands in the file is what was written; the table's value is for what does not.
            if let (From::Nowhere, Some(value)) = (&bound.from, data.constants.get(&number)) {
                bound.from = From::Constant(value.clone());
            }
            bound
        });
        rows.columns = bound.collect();
        rows.deleted.clone_from(&data.deleted);
        let own = rows.columns.clone();
        let bind = |column: &Column| {
            let same = own.iter().find(|bound| bound.column.at == column.at);
            let from = same.map(|bound| bound.from.clone());
            from.unwrap_or_else(|| found(column, rows.table.schema()))
        };
        let equals = data.equals.iter().map(|equal| {
            let bound = equal.columns.iter().map(|it| Bound { column: it.clone(), from: bind(it) });
            (equal.clone(), bound.collect())
        });
        rows.equals = equals.collect();
        Ok(rows)
    }

    /// All rows of a file, with some columns.
    pub(crate) fn plain(name: &str, table: Table, columns: &[Column]) -> Self {
        let file = table.schema().clone();
        let bound = columns
            .iter()
            .map(|column| Bound { column: column.clone(), from: found(column, &file) });
        let fields: Vec<Field> =
            columns.iter().map(|it| Field::new(&it.name, it.kind.clone(), true)).collect();
        Self {
            name: name.to_owned(),
            schema: Arc::new(Schema::new(fields)),
            columns: bound.collect(),
            table,
            deleted: None,
            equals: Vec::new(),
        }
    }

    /// The columns of the table.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many rows the file has, deleted ones among them.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.table.rows()
    }

    /// How many rows each row group has; none if rows of the file were deleted.
    #[must_use]
    pub fn sizes(&self) -> Option<Vec<u64>> {
        let whole = self.deleted.is_none() && self.equals.is_empty();
        whole.then(|| self.table.groups().collect())
    }

    /// The rows of a part, batch by batch. Row groups are those of the file.
    pub fn records(&self, part: &Part) -> Result<Batches> {
        let wanted: Vec<usize> = match &part.columns {
            None => (0..self.columns.len()).collect(),
            Some(names) => names.iter().map(|name| self.place(name)).collect::<Result<_>>()?,
        };
        let wanted: Vec<Bound> = wanted.iter().map(|place| self.columns[*place].clone()).collect();
        let compared = self.equals.iter().flat_map(|(_, bound)| bound);
        let mut physical: Vec<String> = Vec::new();
        for bound in wanted.iter().chain(compared) {
            if let From::File(name) = &bound.from
                && !physical.contains(name)
            {
                physical.push(name.clone());
            }
        }
        let fields: Vec<Field> = wanted
            .iter()
            .map(|it| Field::new(&it.column.name, it.column.kind.clone(), true))
            .collect();
        let sizes: Vec<u64> = self.table.groups().collect();
        let groups = part.groups.clone().unwrap_or_else(|| (0..sizes.len()).collect());
        if let Some(beyond) = groups.iter().find(|group| **group >= sizes.len()) {
            return Err(Error::invalid("row group", beyond, format!("below {}", sizes.len())));
        }
        Ok(Batches {
            rows: self.clone(),
            wanted,
            physical,
            schema: Arc::new(Schema::new(fields)),
            groups: groups.into(),
            sizes,
            rows_at_once: part.rows_at_once.max(1),
            current: None,
            at: 0,
        })
    }

    fn place(&self, name: &str) -> Result<usize> {
        self.schema.index_of(name).map_err(|_| {
            let names = self.schema.fields().iter().map(|field| field.name().as_str());
            Error::invalid("column", name, names.take(50).collect::<Vec<_>>().join(", "))
        })
    }
}

fn found(column: &Column, file: &Schema) -> From {
    column.found(file).map_or(From::Nowhere, |field| From::File(field.name().clone()))
}

/// A Parquet file of a table.
pub(crate) fn opened(file: &File, limits: &Limits) -> Result<Table> {
    Table::open(file.source(), limits.tables).map_err(|error| damaged(file, error))
}

/// What went wrong while a file was read: why its bytes did not come, or what is wrong with them.
pub(crate) fn damaged(file: &File, error: Error) -> Error {
    if let Some(why) = file.failure() {
        return why;
    }
    match error.field() {
        Some("file" | "column") => {
            Error::invalid(file.name(), error.message(), "a Parquet file that can be read")
        }
        _ => error,
    }
}

/// The rows of a part of a file, as an iterator. After an error there is no more.
#[derive(Debug)]
pub struct Batches {
    rows: Rows,
    wanted: Vec<Bound>,
    /// The columns of the file that are read.
    physical: Vec<String>,
    schema: SchemaRef,
    groups: VecDeque<usize>,
    sizes: Vec<u64>,
    rows_at_once: usize,
    current: Option<Group>,
    /// The place of the next row in the file.
    at: u64,
}

/// The row group that is being read.
#[derive(Debug)]
enum Group {
    Read(Box<Records>),
    /// Nothing of the file is needed but how many rows there are.
    Counted(u64),
}

impl Batches {
    fn step(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let most = self.rows_at_once;
            let read = match &mut self.current {
                Some(Group::Read(records)) => records.next().transpose()?,
                Some(Group::Counted(0)) | None => None,
                Some(Group::Counted(left)) => {
                    let rows = usize::try_from(*left).unwrap_or(usize::MAX).min(most);
                    *left -= rows as u64;
                    Some(bare(rows)?)
                }
            };
            if let Some(batch) = read {
                let first = self.at;
                self.at += batch.num_rows() as u64;
                return self.made(&batch, first).map(Some);
            }
            let Some(group) = self.groups.pop_front() else { return Ok(None) };
            self.at = self.sizes[..group].iter().sum();
            self.current = Some(if self.physical.is_empty() {
                Group::Counted(self.sizes[group])
            } else {
                let part = Part {
                    columns: Some(self.physical.clone()),
                    groups: Some(vec![group]),
                    rows_at_once: most,
                };
                Group::Read(Box::new(self.rows.table.records(&part)?))
            });
        }
    }

    fn made(&self, batch: &RecordBatch, first: u64) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let column = |bound: &Bound| self.column(bound, batch);
        let arrays = self.wanted.iter().map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let made = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        let made = made.map_err(Error::internal)?;
        let gone = self.rows.deleted.as_ref();
        let mut kept = gone.and_then(|gone| deleted::kept(gone, first, rows));
        for (equal, bound) in &self.rows.equals {
            let compared = bound.iter().map(column).collect::<Result<Vec<_>>>()?;
            let kept = kept.get_or_insert_with(|| vec![true; rows]);
            equal.mark(&compared, kept, &self.rows.name)?;
        }
        match kept {
            Some(kept) if kept.iter().any(|kept| !kept) => {
                filter_record_batch(&made, &BooleanArray::from(kept)).map_err(Error::internal)
            }
            _ => Ok(made),
        }
    }

    fn column(&self, bound: &Bound, batch: &RecordBatch) -> Result<ArrayRef> {
        let kind = &bound.column.kind;
        if *kind == unread() {
            let place = format!("{} in {}", bound.column.name, self.rows.name);
            return Err(Error::invalid(
                place,
                "a struct, a map or something else that is nested",
                READ,
            ));
        }
        match &bound.from {
            From::File(name) => {
                let array = batch
                    .column_by_name(name)
                    .ok_or_else(|| Error::internal("a column that was asked for did not come"))?;
                let place = format!("{} in {}", bound.column.name, self.rows.name);
                conformed(&place, array, kind)
            }
            From::Constant(value) => repeated(value, batch.num_rows()),
            From::Nowhere => Ok(new_null_array(kind, batch.num_rows())),
        }
    }
}

fn bare(rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)
        .map_err(Error::internal)
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            (self.current, self.groups) = (None, VecDeque::new());
        }
        step.transpose()
    }
}
