//! The runs of one experiment, by columns, as of some version.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;

use falaj_base::{Error, Result};
use falaj_mlflow::filter::Field;
use falaj_store::db::{Row as DbRow, Tx, Value, params};

use super::column::{Column, Numbers, Row, Texts};
use crate::experiment::Stage;
use crate::key::{self, KeyKind};
use crate::run::{RunId, RunStatus, store, touch};

/// Above this share of changed runs a column is loaded anew rather than mended.
const RELOAD_ABOVE: usize = 4;

/// What every run has.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) id: RunId,
    pub(super) start_time: i64,
    pub(super) end_time: Option<i64>,
    pub(super) status: RunStatus,
}

#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// Rows stamped below this are as they stand here; `None` before the first look.
    seen: Option<i64>,
    /// When runs were last deleted for good; they leave no stamp behind.
    reset: i64,
    pub(super) runs: Vec<Base>,
    /// Apart from the rest, because every search looks at all of them.
    pub(super) stages: Vec<Stage>,
    rows: HashMap<RunId, Row>,
    columns: HashMap<Field, Loaded>,
}

#[derive(Debug)]
struct Loaded {
    column: Column,
    used: Instant,
}

impl Frame {
    /// Brings the frame to the state of this snapshot, with the columns that are asked for.
    pub(super) fn refresh(
        &mut self,
        tx: &mut Tx<'_>,
        experiment: i64,
        fields: &[Field],
    ) -> Result<()> {
        let reset = tx
            .query_opt("SELECT reset FROM experiment WHERE no = $1", &params![experiment])?
            .map_or(Ok(0), |row| row.get("reset"))?;
        if reset > self.reset {
            *self = Self { reset, ..Self::default() };
        }
        let unsettled = tx.unsettled_version()?;
        // Another search may have brought it further than this snapshot reaches: good enough. At
        // the same number there may still be news: that of a transaction above it.
        let behind = self.seen.is_some_and(|seen| seen > unsettled);
        if !behind {
            let changed = self.read_runs(tx, experiment)?;
            self.mend_columns(tx, experiment, &changed)?;
            self.seen = Some(unsettled);
        }
        for field in fields {
            if !is_column(field) || self.columns.contains_key(field) {
                continue;
            }
            if let Some(column) = self.load(tx, experiment, field)? {
                self.columns.insert(field.clone(), Loaded { column, used: Instant::now() });
                // A column of an older snapshot: the next look must go back as far.
                if behind {
                    self.seen = Some(unsettled);
                }
            }
        }
        self.touch(fields);
        Ok(())
    }

    /// Reads the runs that were touched since the last look; gives their rows.
    fn read_runs(&mut self, tx: &mut Tx<'_>, experiment: i64) -> Result<Vec<Row>> {
        let all = "SELECT id, start_time, end_time, status, stage FROM run WHERE experiment = $1";
        let (sql, values) = match self.seen {
            None => (Cow::from(all), vec![experiment.into()]),
            Some(seen) => {
                let sql = format!("{all} AND id IN ({})", touch::SINCE);
                (sql.into(), vec![experiment.into(), seen.into()])
            }
        };
        let mut changed = Vec::new();
        tx.scan(&sql, &values, |row| {
            let base = Base {
                id: row.get("id")?,
                start_time: row.get("start_time")?,
                end_time: row.get("end_time")?,
                status: row.get("status")?,
            };
            changed.push(self.place(base, row.get("stage")?)?);
            Ok(())
        })?;
        Ok(changed)
    }

    fn place(&mut self, base: Base, stage: Stage) -> Result<Row> {
        if let Some(row) = self.rows.get(&base.id) {
            self.runs[*row as usize] = base;
            self.stages[*row as usize] = stage;
            return Ok(*row);
        }
        let row = Row::try_from(self.runs.len()).map_err(Error::internal)?;
        self.rows.insert(base.id, row);
        self.runs.push(base);
        self.stages.push(stage);
        Ok(row)
    }

    fn mend_columns(&mut self, tx: &mut Tx<'_>, experiment: i64, changed: &[Row]) -> Result<()> {
        let ids: Vec<RunId> = changed.iter().map(|row| self.runs[*row as usize].id).collect();
        let anew = changed.len() * RELOAD_ABOVE > self.runs.len();
        for (field, mut loaded) in std::mem::take(&mut self.columns) {
            if anew {
                let Some(column) = self.load(tx, experiment, &field)? else { continue };
                loaded.column = column;
            } else if !changed.is_empty() {
                let mut column = loaded.column;
                column.reach(self.runs.len());
                for row in changed {
                    column.clear(*row);
                }
                self.fill(tx, experiment, &field, Some(&ids), &mut column)?;
                column.tidy();
                loaded.column = column;
            }
            self.columns.insert(field, loaded);
        }
        Ok(())
    }

    /// A whole column; none for a key that nobody has logged, which takes no memory.
    fn load(&self, tx: &mut Tx<'_>, experiment: i64, field: &Field) -> Result<Option<Column>> {
        if source(tx, experiment, field)?.is_none() {
            return Ok(None);
        }
        let mut column = match field {
            Field::Metric { .. } => Column::Numbers(Numbers::default()),
            _ => Column::Texts(Texts::default()),
        };
        column.reach(self.runs.len());
        self.fill(tx, experiment, field, None, &mut column)?;
        Ok(Some(column))
    }

    /// Reads a column's values, of all runs or of some.
    fn fill(
        &self,
        tx: &mut Tx<'_>,
        experiment: i64,
        field: &Field,
        only: Option<&[RunId]>,
        column: &mut Column,
    ) -> Result<()> {
        let Some((select, id, key)) = source(tx, experiment, field)? else { return Ok(()) };
        let mut put = |row: DbRow| self.put(&row, column);
        let Some(only) = only else { return tx.scan(&select, &[Value::Int(key)], put) };
        for ids in only.chunks(500) {
            let (list, mut values) = store::id_list(ids);
            let sql = format!("{select} AND {id} IN ({list})");
            // The key comes first in the text; the list's own numbers follow it.
            let sql = shift(&sql, values.len());
            values.insert(0, Value::Int(key));
            tx.scan(&sql, &values, &mut put)?;
        }
        Ok(())
    }

    fn put(&self, row: &DbRow, column: &mut Column) -> Result<()> {
        // A run that this look has not seen yet belongs to the next one.
        let Some(at) = self.rows.get(&row.get::<RunId>("run")?) else { return Ok(()) };
        match column {
            Column::Texts(texts) => texts.set(*at, &row.get::<String>("value")?),
            Column::Numbers(numbers) => {
                let number = |name| row.get::<Option<f64>>(name).map(|n| n.unwrap_or(f64::NAN));
                numbers.set(*at, number("value")?, number("min")?, number("max")?);
            }
        }
        Ok(())
    }

    pub(super) fn texts(&self, field: &Field) -> Option<&Texts> {
        match &self.columns.get(field)?.column {
            Column::Texts(texts) => Some(texts),
            Column::Numbers(_) => None,
        }
    }

    pub(super) fn numbers(&self, field: &Field) -> Option<&Numbers> {
        match &self.columns.get(&loaded_as(field))?.column {
            Column::Numbers(numbers) => Some(numbers),
            Column::Texts(_) => None,
        }
    }

    fn touch(&mut self, fields: &[Field]) {
        let now = Instant::now();
        for field in fields {
            if let Some(loaded) = self.columns.get_mut(field) {
                loaded.used = now;
            }
        }
    }

    /// Roughly what it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        let columns: usize = self.columns.values().map(|loaded| loaded.column.bytes()).sum();
        let runs = self.runs.capacity() * size_of::<Base>() + self.stages.capacity();
        runs + self.rows.capacity() * 24 + columns
    }

    /// Lets the column go that was not asked for longest, unless it is the last one.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let oldest = self.columns.iter().min_by_key(|(_, loaded)| loaded.used);
        match oldest.map(|(field, _)| field.clone()) {
            Some(field) if self.columns.len() > 1 => self.columns.remove(&field).is_some(),
            _ => false,
        }
    }
}

/// The one column behind the three values of a metric.
pub(super) fn loaded_as(field: &Field) -> Field {
    match field {
        Field::Metric { key, .. } => {
            Field::Metric { key: key.clone(), aggregate: falaj_mlflow::filter::Aggregate::Latest }
        }
        other => other.clone(),
    }
}

/// Whether a field is kept as a column, rather than with the run itself or beside it.
fn is_column(field: &Field) -> bool {
    match field {
        Field::Metric { .. } | Field::Param(_) | Field::Tag(_) => true,
        Field::Attribute(name) => matches!(*name, "run_name" | "user_id" | "artifact_uri"),
        _ => false,
    }
}

/// Where a column's values come from: the statement, the name of the run's id in it, and its one
/// parameter. `None` for a key that nobody has logged.
fn source(
    tx: &mut Tx<'_>,
    experiment: i64,
    field: &Field,
) -> Result<Option<(String, &'static str, i64)>> {
    let keyed = |tx: &mut Tx<'_>, kind, name: &str, select: &str| {
        Ok(key::find(tx, experiment, kind, name)?.map(|key| (select.to_owned(), "run", key)))
    };
    match field {
        Field::Metric { key, .. } => keyed(
            tx,
            KeyKind::Metric,
            key,
            "SELECT run, value, min, max FROM latest_metric WHERE key = $1",
        ),
        Field::Param(name) => {
            keyed(tx, KeyKind::Param, name, "SELECT run, value FROM param WHERE key = $1")
        }
        Field::Tag(name) => {
            keyed(tx, KeyKind::Tag, name, "SELECT run, value FROM run_tag WHERE key = $1")
        }
        Field::Attribute(name) => {
            let column = match *name {
                "run_name" => "name",
                other => other,
            };
            let select =
                format!("SELECT id AS run, {column} AS value FROM run WHERE experiment = $1");
            Ok(Some((select, "id", experiment)))
        }
        _ => Ok(None),
    }
}

/// Numbers the placeholders of an id list on by one, since `$1` is taken.
fn shift(sql: &str, count: usize) -> String {
    let (head, list) = sql.rsplit_once('(').unwrap_or((sql, ""));
    let numbered: Vec<String> = (2..count + 2).map(|at| format!("${at}")).collect();
    if list.is_empty() { sql.to_owned() } else { format!("{head}({})", numbered.join(", ")) }
}
