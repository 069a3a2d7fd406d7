//! The rows of a view, from wherever they lie, in one order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow_array::{Array, ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{Field, Schema, SchemaRef};
use falaj_base::{Error, Result, code};
use falaj_lake::File;
use falaj_store::db::Db;
use falaj_tables::Part;
use tokio::runtime::Handle;

use super::fit::{fit, fits};
use super::rows_of::RowsOf;
use super::spool::Spool;
use crate::definition::VersionId;
use crate::definition::form::ViewForm;
use crate::history::{Position, log};
use crate::name::FeatureName;
use crate::schema::{self, moment};

/// Rows that are read at a time, at most: so that a dozen columns of numbers stay in a processor's own
/// memory until they were looked at, and their own is used again rather than given back.
const ROWS: usize = 16_384;

/// Asked now and then by work that takes long: whether it should go on.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) deadline: Instant,
}

impl Stop {
    pub(crate) fn check(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::new(&code::SHUTTING_DOWN, "the work was stopped"));
        }
        if Instant::now() > self.deadline {
            let text = "the work took too long (`features.max_time`)";
            return Err(Error::new(&code::TOO_LARGE, text));
        }
        Ok(())
    }
}

/// One place that rows lie in.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
pub(super) enum Piece {
    Table {
        /// What people call it.
        name: String,
        table: RowsOf,
        /// The column that tells when a row became known.
        known: Option<String>,
        /// A file that could change.
        file: Option<File>,
        /// A file that goes when nobody needs it any more.
        #[allow(dead_code, reason = "held, not read: the file goes with it")]
        spool: Option<Arc<Spool>>,
    },
    /// What was pushed and was in no file when the work began. Should it be gathered meanwhile, it
    /// stays in the log for longer than the work may take.
    Log { db: Db, runtime: Handle, view: VersionId, after: Position, until: Position },
}

impl Piece {
    /// What it is called, and how many rows it has.
    pub(super) fn described(&self) -> (&str, u64) {
        match self {
            Self::Table { name, table, .. } => (name, table.rows()),
            Self::Log { .. } => ("log", 0),
        }
    }
}

/// The rows of one version of a view.
#[derive(Debug)]
pub(crate) struct History {
    pub(super) view: ViewForm,
    pub(super) pieces: Vec<Piece>,
}

/// What decides whether rows answer.
pub(crate) struct Stamps {
    pub(crate) keys: Vec<ArrayRef>,
    pub(crate) event: ArrayRef,
    pub(crate) known: Option<ArrayRef>,
}

/// What comes of a history, in its order.
pub(crate) enum Step<T> {
    /// A group of so many rows, with events between these times if that is known. It may be passed
    /// over.
    Group(u64, Option<(i64, i64)>),
    Rows(T),
}

/// What is to be done after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    On,
    /// Not into this group.
    Past,
    /// Nothing more is needed.
    Home,
}

impl History {
    /// Refuses files that lack a column, or have it of another type.
    pub(super) fn check(&self) -> Result<()> {
        let view = &self.view;
        let keys = view.keys().into_iter().cloned();
        let columns: Vec<_> = keys.chain(view.columns().iter().cloned()).collect();
        for piece in &self.pieces {
            let Piece::Table { name, table, known, .. } = piece else { continue };
            let of = |column: &str| format!("{}.{column} in {name}", view.name);
            let found = |column: &str| {
                let found = table.schema().field_with_name(column).ok();
                let names = table.schema().fields().iter().map(|it| it.name().as_str());
                found.map(|field| field.data_type().clone()).ok_or_else(|| {
                    let allowed = names.take(50).collect::<Vec<_>>().join(", ");
                    Error::invalid(of(column), "absent", format!("one of {allowed}"))
                })
            };
            for column in &columns {
                let (there, wanted) = (found(column.name.as_str())?, schema::arrow(column.kind));
                if !fits(&there, &wanted) {
                    return Err(Error::invalid(of(column.name.as_str()), there, wanted));
                }
            }
            for time in [Some(view.event_time.as_str()), known.as_deref()].into_iter().flatten() {
                let there = found(time)?;
                if !fits(&there, &moment()) {
                    return Err(Error::invalid(of(time), there, "a column of timestamps"));
                }
            }
        }
        Ok(())
    }

    /// Hands over what decides whether rows answer, batch by batch.
    pub(crate) fn stamps(
        &self,
        stop: &Stop,
        mut each: impl FnMut(Stamps) -> Result<()>,
    ) -> Result<()> {
        self.stamp_steps(stop, |step| match step {
            Step::Group(..) => Ok(Go::On),
            Step::Rows(stamps) => each(stamps).map(|()| Go::On),
        })
    }

    /// The same, where groups of rows can be passed over.
    pub(crate) fn stamp_steps(
        &self,
        stop: &Stop,
        mut each: impl FnMut(Step<Stamps>) -> Result<Go>,
    ) -> Result<()> {
        let keys: Vec<_> = self.view.keys().into_iter().cloned().collect();
        let mut columns: Vec<String> = keys.iter().map(|key| key.name.to_string()).collect();
        columns.push(self.view.event_time.to_string());
        for piece in &self.pieces {
            let go = match piece {
                Piece::Table { name, known, .. } => {
                    let mut columns = columns.clone();
                    columns.extend(known.clone());
                    let mut row = 0;
                    self.groups(piece, columns, stop, &mut |step| {
                        let batch = match step {
                            Step::Rows(batch) => batch,
                            Step::Group(rows, times) => {
                                let go = each(Step::Group(rows, times))?;
                                row += if go == Go::Past { rows } else { 0 };
                                return Ok(go);
                            }
                        };
                        let at = keys.len();
                        let time = |place: usize| -> Result<ArrayRef> {
                            let column = batch.column(place);
                            let called = batch.schema_ref().field(place).name().clone();
                            let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
                            let gap = nulls.and_then(|nulls| nulls.iter().position(|it| !it));
                            if let Some(gap) = gap {
                                let gap = row + gap as u64;
                                let field = format!("{}.{called}[{gap}] in {name}", self.view.name);
                                return Err(Error::invalid(field, "null", "a time in every row"));
                            }
                            Ok(column.clone())
                        };
                        let known = (batch.num_columns() > at + 1).then(|| time(at + 1));
                        let (event, known) = (time(at)?, known.transpose()?);
                        row += batch.num_rows() as u64;
                        let keys = batch.columns()[..at].to_vec();
                        each(Step::Rows(Stamps { keys, event, known }))
                    })?
                }
                Piece::Log { .. } => {
                    let mut go = Go::On;
                    Self::log(piece, stop, &mut |batch, at| {
                        let known = TimestampMicrosecondArray::from(vec![at; batch.num_rows()]);
                        let batch = chosen(&batch, &columns)?;
                        let (event, keys) = batch
                            .columns()
                            .split_last()
                            .ok_or_else(|| Error::internal("no columns"))?;
                        let (keys, event) = (keys.to_vec(), event.clone());
                        let known = Some(Arc::new(known) as ArrayRef);
                        go = each(Step::Rows(Stamps { keys, event, known }))?;
                        Ok(go != Go::Home)
                    })?;
                    go
                }
            };
            if go == Go::Home {
                break;
            }
        }
        Ok(())
    }

    /// The types of some features.
    pub(crate) fn schema(&self, features: &[FeatureName]) -> Result<SchemaRef> {
        let field = |name: &FeatureName| {
            let field = self.view.field(name).ok_or_else(|| Error::internal("no such feature"))?;
            Ok(Field::new(name.as_str(), schema::arrow(field.kind), true))
        };
        Ok(Arc::new(Schema::new(features.iter().map(field).collect::<Result<Vec<_>>>()?)))
    }

    /// Hands over the values of some features, batch by batch, until enough was seen.
    pub(crate) fn values(
        &self,
        features: &[FeatureName],
        stop: &Stop,
        mut each: impl FnMut(Step<&RecordBatch>) -> Result<Go>,
    ) -> Result<()> {
        let wanted = self.schema(features)?;
        let columns: Vec<String> = features.iter().map(ToString::to_string).collect();
        for piece in &self.pieces {
            let mut go = Go::On;
            match piece {
                Piece::Table { .. } => {
                    go = self.groups(piece, columns.clone(), stop, &mut |step| {
                        let batch = match step {
                            Step::Rows(batch) => batch,
                            Step::Group(rows, times) => return each(Step::Group(rows, times)),
                        };
                        let place = |name: &str| format!("{}.{name}", self.view.name);
                        let fitted =
                            wanted.fields().iter().zip(batch.columns()).map(|(field, column)| {
                                fit(&place(field.name()), column, field.data_type())
                            });
                        let fitted = fitted.collect::<Result<Vec<_>>>()?;
                        let batch = RecordBatch::try_new(wanted.clone(), fitted);
                        each(Step::Rows(&batch.map_err(Error::internal)?))
                    })?;
                }
                Piece::Log { .. } => Self::log(piece, stop, &mut |batch, _| {
                    go = each(Step::Rows(&chosen(&batch, &columns)?))?;
                    Ok(go != Go::Home)
                })?,
            }
            if go == Go::Home {
                break;
            }
        }
        Ok(())
    }

    /// The rows of a table, group by group where it has such.
    fn groups(
        &self,
        piece: &Piece,
        columns: Vec<String>,
        stop: &Stop,
        each: &mut dyn FnMut(Step<&RecordBatch>) -> Result<Go>,
    ) -> Result<Go> {
        let Piece::Table { table, known, .. } = piece else { return Ok(Go::On) };
        let mut go = Go::On;
        let Some(sizes) = table.sizes() else {
            Self::table(piece, columns, None, stop, &mut |batch| {
                go = each(Step::Rows(batch))?;
                Ok(go != Go::Home)
            })?;
            return Ok(go);
        };
        let events = table.times(self.view.event_time.as_str());
        let knowns = known.as_ref().map(|known| table.times(known));
        for (group, size) in sizes.into_iter().enumerate() {
            // A gap among times is refused wherever it is, so such a group must be read.
            let whole = knowns.as_ref().is_none_or(|it| it.get(group).is_some_and(Option::is_some));
            let times = events.get(group).copied().flatten().filter(|_| whole);
            go = each(Step::Group(size, times))?;
            if go == Go::On {
                let (columns, group) = (columns.clone(), Some(vec![group]));
                Self::table(piece, columns, group, stop, &mut |batch| {
                    go = each(Step::Rows(batch))?;
                    Ok(go != Go::Home)
                })?;
            }
            if go == Go::Home {
                break;
            }
        }
        Ok(go)
    }

    /// Refuses to have read files that were written to meanwhile.
    pub(crate) fn unchanged(&self) -> Result<()> {
        for piece in &self.pieces {
            if let Piece::Table { file: Some(file), .. } = piece {
                file.unchanged()?;
            }
        }
        Ok(())
    }

    pub(super) fn table(
        piece: &Piece,
        columns: Vec<String>,
        groups: Option<Vec<usize>>,
        stop: &Stop,
        each: &mut dyn FnMut(&RecordBatch) -> Result<bool>,
    ) -> Result<()> {
        let Piece::Table { name, table, file, .. } = piece else { return Ok(()) };
        let part = Part { columns: Some(columns), groups, rows_at_once: ROWS };
        // Why bytes did not come is not what is wrong with them.
        let failure = || file.as_ref().and_then(File::failure);
        let at = |error: Error| {
            failure().unwrap_or_else(|| match error.field() {
                // The library's words are about a file; which one it was is known here.
                Some("file" | "column") => {
                    Error::invalid(name, error.message(), "a Parquet file that can be read")
                }
                _ => error,
            })
        };
        for batch in table.records(&part).map_err(at)? {
            stop.check()?;
            if !each(&batch.map_err(at)?)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn log(
        piece: &Piece,
        stop: &Stop,
        each: &mut dyn FnMut(RecordBatch, i64) -> Result<bool>,
    ) -> Result<()> {
        let Piece::Log { db, runtime, view, after, until } = piece else { return Ok(()) };
        let (view, until, mut after) = (*view, *until, *after);
        loop {
            stop.check()?;
            let page = runtime
                .block_on(db.read(move |tx| log::read_view(tx, view, after, until, false)))?;
            let Some(last) = page.last().map(|entry| entry.position) else { return Ok(()) };
            for entry in page {
                if !each(entry.batch()?, entry.at.micros())? {
                    return Ok(());
                }
            }
            after = last;
        }
    }
}

fn chosen(batch: &RecordBatch, columns: &[String]) -> Result<RecordBatch> {
    let places: Result<Vec<_>, _> =
        columns.iter().map(|name| batch.schema_ref().index_of(name)).collect();
    batch.project(&places.map_err(Error::internal)?).map_err(Error::internal)
}
