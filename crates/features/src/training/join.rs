//! The join itself: moments in, slice by slice, and out again with the features beside them.
//!
//! Must hold: every row of moments is in the result once, in its place. Memory holds one slice and
//! what answers it, whatever the length of moments and histories: a slice whose answers take too
//! much is cut in two.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use falaj_base::{Error, Result, code};
use falaj_tables::{Layout, Part, RecordWriter, Table};

use super::spec::{Chosen, What};
use crate::definition::form::ViewForm;
use crate::offline::{Answered, Gathered, Latest, MOST, Moments, Rules, least};
use crate::schema::{self, moment};
use crate::source::{Go, History, Step, Stop, fits};
use crate::transform::Ready;
use crate::transform::derived::Derived;
use crate::transform::moments::Asked;

/// Rows of moments that are read at a time.
const ROWS: usize = 65_536;
/// Rows that are written at a time: few enough that they stay in a processor's own memory between what
/// answers them and the file.
const WRITTEN: usize = 8192;
/// How hard the result is packed: it is made once and read a few times.
const LEVEL: i32 = 1;
/// What a moment takes while its answers are looked for, beside its own columns: its time and place
/// among those of its key, where the last row of that key belonged, the best row so far, and where
/// that is to go.
const ASKING: usize = 176;

/// A view's part of a training set.
pub(crate) struct Side {
    pub(crate) chosen: Chosen,
    pub(crate) history: History,
    pub(crate) keys: Vec<String>,
    pub(crate) ttl: Option<i64>,
    pub(crate) view: ViewForm,
    /// How its features are made, if they are not columns of its rows.
    pub(crate) ready: Option<Ready>,
    /// Whether it is only there for others to be computed from.
    pub(crate) hidden: bool,
}

pub(crate) struct Join {
    pub(crate) moments: Table,
    pub(crate) what: What,
    /// Those that are hidden stand last.
    pub(crate) sides: Vec<Side>,
    pub(crate) derived: Vec<Derived>,
    pub(crate) rows_at_once: usize,
    pub(crate) memory: usize,
    pub(crate) stop: Stop,
}

/// Refuses moments that lack a key or the time, or have them of another type, and columns that two
/// things would be called.
pub(crate) fn check<'a>(
    moments: &Schema,
    what: &What,
    views: impl Iterator<Item = (&'a Chosen, &'a ViewForm)>,
) -> Result<()> {
    let found = |column: &str| {
        let names = || moments.fields().iter().map(|it| it.name().as_str()).take(50);
        moments.field_with_name(column).map(Field::data_type).map_err(|_| {
            let allowed = format!("one of {}", names().collect::<Vec<_>>().join(", "));
            Error::invalid(format!("moments.{column}"), "absent", allowed)
        })
    };
    let time = found(what.time())?;
    if !fits(time, &moment()) {
        let field = format!("moments.{}", what.time());
        return Err(Error::invalid(field, time, "a column of timestamps"));
    }
    if let Some(column) = falaj_tables::unwritable(moments) {
        let field = format!("moments.{}", column.name());
        return Err(Error::invalid(field, column.data_type(), "a type that Parquet has"));
    }
    let mut names: Vec<&str> = moments.fields().iter().map(|it| it.name().as_str()).collect();
    for (chosen, view) in views {
        for key in view.keys() {
            let (there, wanted) = (found(key.name.as_str())?, schema::arrow(key.kind));
            if !fits(there, &wanted) && !fits(&wanted, there) {
                return Err(Error::invalid(format!("moments.{}", key.name), there, wanted));
            }
        }
        for input in view.inputs().iter().filter(|input| input.feature.is_none()) {
            let (name, wanted) = (&input.column.name, schema::arrow(input.column.kind));
            let there = found(name.as_str())?;
            if !fits(there, &wanted) {
                return Err(Error::invalid(format!("moments.{name}"), there, wanted));
            }
        }
        names.extend(chosen.columns.iter().map(String::as_str));
    }
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        let allowed = "columns of different names; `full_feature_names` tells features apart";
        return Err(Error::invalid("features", twice[0], allowed));
    }
    Ok(())
}

/// The result, begun with its first rows: they tell how it is packed.
struct Output<W: Write + Send> {
    schema: SchemaRef,
    place: Option<W>,
    file: Option<RecordWriter<W>>,
}

impl<W: Write + Send> Output<W> {
    /// The file, begun as suits some rows if it was not yet.
    fn file(&mut self, rows: &RecordBatch) -> Result<&mut RecordWriter<W>> {
        if let Some(place) = self.place.take() {
            let layout = Layout { level: LEVEL, ..Layout::default() };
            let mut file = RecordWriter::suited(place, rows, layout)?;
            file.note("falaj.training-set", "1");
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| Error::internal("a file that could not be begun"))
    }

    fn write(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        let rows = RecordBatch::try_new(self.schema.clone(), columns).map_err(Error::internal)?;
        self.file(&rows)?.write(&rows)
    }

    /// Tells how many rows it has.
    fn close(mut self) -> Result<u64> {
        // If there were no rows, it is begun now.
        self.file(&RecordBatch::new_empty(self.schema.clone()))?;
        let file = self.file.ok_or_else(|| Error::internal("a file that was never begun"))?;
        let rows = file.rows();
        file.close()?.flush().map_err(Error::internal)?;
        Ok(rows)
    }
}

impl Join {
    /// The columns of the result.
    fn schema(&self) -> Result<SchemaRef> {
        let mut fields: Vec<Field> =
            self.moments.schema().fields().iter().map(|it| Field::clone(it)).collect();
        for side in self.sides.iter().filter(|side| !side.hidden) {
            let types = side.history.schema(&side.chosen.pick.features)?;
            for (name, field) in side.chosen.columns.iter().zip(types.fields()) {
                fields.push(Field::new(name, field.data_type().clone(), true));
            }
        }
        for derived in &self.derived {
            fields.extend(derived.fields()?);
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    /// How many moments are joined at a time: as many as what answers them has room for, at least
    /// if no answer is of unusual length.
    fn most_rows(&self) -> Result<usize> {
        let mut row = 0;
        for side in &self.sides {
            let types = side.history.schema(&side.chosen.pick.features)?;
            row += types.fields().iter().map(|field| least(field.data_type())).sum::<usize>();
        }
        let fitting = self.memory.min(MOST) / row.max(1);
        Ok(self.rows_at_once.min(fitting).max(1))
    }

    /// Writes the result as a Parquet file; tells how many rows it has.
    pub(crate) fn run<W: Write + Send>(&self, out: W) -> Result<u64> {
        let mut to = Output { schema: self.schema()?, place: Some(out), file: None };
        let most = self.most_rows()?;
        let part = Part { columns: None, groups: None, rows_at_once: ROWS.min(most) };
        let (mut slice, mut rows, mut bytes, mut done) = (Vec::new(), 0, 0, 0);
        for batch in self.moments.records(&part)? {
            let batch = batch?;
            let size = batch.get_array_memory_size() + ASKING * batch.num_rows();
            let full = rows + batch.num_rows() > most || bytes + size > self.memory.min(MOST);
            if full && !slice.is_empty() {
                done += self.whole(std::mem::take(&mut slice), done, &mut to)?;
                (rows, bytes) = (0, 0);
            }
            rows += batch.num_rows();
            bytes += size;
            slice.push(batch);
        }
        if !slice.is_empty() {
            self.whole(slice, done, &mut to)?;
        }
        for side in &self.sides {
            side.history.unchanged()?;
        }
        to.close()
    }

    fn whole<W: Write + Send>(
        &self,
        slice: Vec<RecordBatch>,
        before: u64,
        to: &mut Output<W>,
    ) -> Result<u64> {
        let moments = concat_batches(self.moments.schema(), &slice).map_err(Error::internal)?;
        drop(slice);
        self.times(&moments, before)?;
        self.slice(&moments, before, to)
    }

    fn slice<W: Write + Send>(
        &self,
        moments: &RecordBatch,
        before: u64,
        to: &mut Output<W>,
    ) -> Result<u64> {
        let Some(answers) = self.answers(moments)? else {
            let rows = moments.num_rows();
            if rows < 2 {
                let text = "the features of one row take more than `features.memory` allows";
                return Err(Error::new(&code::TOO_LARGE, text).at(format!("moments[{before}]")));
            }
            let half = rows / 2;
            let first = self.slice(&moments.slice(0, half), before, to)?;
            let rest = moments.slice(half, rows - half);
            return Ok(first + self.slice(&rest, before + first, to)?);
        };
        for start in (0..moments.num_rows()).step_by(WRITTEN) {
            self.stop.check()?;
            let rows = WRITTEN.min(moments.num_rows() - start);
            to.write(self.columns(&moments.slice(start, rows), &answers, start)?)?;
        }
        Ok(moments.num_rows() as u64)
    }

    /// The columns of some of the moments that were answered, from one on.
    fn columns(
        &self,
        moments: &RecordBatch,
        answers: &[Answered],
        start: usize,
    ) -> Result<Vec<ArrayRef>> {
        let (mut columns, mut inputs) = (moments.columns().to_vec(), Vec::new());
        for (side, answers) in self.sides.iter().zip(answers) {
            let found = answers.part(start..start + moments.num_rows())?;
            if side.hidden {
                inputs.push(found);
            } else {
                columns.extend(found);
            }
        }
        for derived in &self.derived {
            columns.extend(derived.run(moments, &inputs)?);
        }
        Ok(columns)
    }

    /// The features of all sides; none if they take too much memory.
    fn answers(&self, moments: &RecordBatch) -> Result<Option<Vec<Answered>>> {
        let (mut answers, mut left) = (Vec::with_capacity(self.sides.len()), self.memory);
        let mut asked: Option<(&[String], Moments)> = None;
        for side in &self.sides {
            // Views of the same entities are asked the same.
            let found = if let Some(ready) = &side.ready {
                self.transformed(side, ready, moments, left)?
            } else {
                let same = asked.take().filter(|(keys, _)| *keys == side.keys);
                let known = same.map_or_else(|| self.asked(side, moments), |(_, it)| Ok(it))?;
                let (_, known) = asked.insert((&side.keys, known));
                self.side(side, known, left)?
            };
            let Some((found, rest)) = found else { return Ok(None) };
            left = rest;
            answers.push(found);
        }
        Ok(Some(answers))
    }

    /// Who is asked about, and when, as far as a side is concerned.
    fn asked(&self, side: &Side, moments: &RecordBatch) -> Result<Moments> {
        let keys = side.keys.iter().map(|key| Ok((key.as_str(), column(moments, key)?.clone())));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let time = column(moments, self.what.time())?;
        Moments::new(&keys, (self.what.time(), time.as_ref()))
    }

    /// A row without a time cannot be answered, and is not passed over either.
    fn times(&self, moments: &RecordBatch, before: u64) -> Result<()> {
        let time = column(moments, self.what.time())?;
        let gap = (0..time.len()).find(|row| time.is_null(*row));
        gap.filter(|_| time.null_count() > 0).map_or(Ok(()), |row| {
            let field = format!("moments.{}[{}]", self.what.time(), before + row as u64);
            Err(Error::invalid(field, "null", "a time in every row"))
        })
    }

    fn rules(&self, side: &Side) -> Rules {
        Rules {
            ttl: side.ttl,
            known_by: self.what.as_of.map(falaj_base::Timestamp::micros),
            hindsight: self.what.hindsight,
        }
    }

    /// The same of a side whose features are made of its rows.
    fn transformed(
        &self,
        side: &Side,
        ready: &Ready,
        moments: &RecordBatch,
        memory: usize,
    ) -> Result<Option<(Answered, usize)>> {
        let asked = Asked {
            view: &side.view,
            history: &side.history,
            features: &side.chosen.pick.features,
            moments,
            time: self.what.time(),
            rules: self.rules(side),
            memory,
            stop: &self.stop,
        };
        asked.answer(ready)
    }

    /// The features of a side and how much memory is left; none if that is not enough.
    fn side(
        &self,
        side: &Side,
        asked: &Moments,
        memory: usize,
    ) -> Result<Option<(Answered, usize)>> {
        let mut latest = Latest::new(asked, self.rules(side));
        let names: Vec<&str> = side.keys.iter().map(String::as_str).collect();
        side.history.stamp_steps(&self.stop, |step| {
            let stamps = match step {
                Step::Rows(stamps) => stamps,
                Step::Group(rows, Some(events)) if !latest.could_answer(events) => {
                    latest.skip(rows);
                    return Ok(Go::Past);
                }
                Step::Group(..) => return Ok(Go::On),
            };
            let keys: Vec<_> = names.iter().copied().zip(stamps.keys).collect();
            let known = stamps.known.as_ref().map(|known| ("known", known.as_ref()));
            latest.add(&keys, ("event", stamps.event.as_ref()), known).map(|()| Go::On)
        })?;
        let features = &side.chosen.pick.features;
        let mut gathered = Gathered::new(latest.finish(), side.history.schema(features)?, memory);
        if !gathered.is_complete() && gathered.left().is_some() {
            side.history.values(features, &self.stop, |step| {
                match step {
                    Step::Rows(batch) => gathered.add(batch)?,
                    Step::Group(rows, _) if !gathered.wants(rows) => {
                        gathered.skip(rows);
                        return Ok(Go::Past);
                    }
                    Step::Group(..) => {}
                }
                let done = gathered.is_complete() || gathered.left().is_none();
                Ok(if done { Go::Home } else { Go::On })
            })?;
        }
        let Some(left) = gathered.left() else { return Ok(None) };
        Ok(Some((gathered.finish()?, left)))
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::internal("a column that was checked is gone"))
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, UnionFields};

    use super::*;

    #[test]
    fn a_column_that_no_file_can_have_is_named() {
        let time = Field::new("event_timestamp", moment(), false);
        let union = DataType::Union(UnionFields::empty(), arrow_schema::UnionMode::Sparse);
        let label = |kind| Schema::new(vec![time.clone(), Field::new("label", kind, false)]);
        let checked = |schema: &Schema| check(schema, &What::default(), std::iter::empty());
        assert_eq!(checked(&label(union)).unwrap_err().field(), Some("moments.label"));
        checked(&label(DataType::Utf8)).unwrap();
    }
}
