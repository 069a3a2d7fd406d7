//! A transformation that was read, to be run.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{Field, Schema};
use arrow_select::take::take;
use falaj_base::{Error, Result, code};
use falaj_online::value::{Kind, Scalar};
use falaj_transform::Type;
use falaj_transform::sql::Projection;
use falaj_transform::window::{Aggregate, Item, Items, Plan};

use super::form::{AggregateForm, TransformForm};
use crate::definition::form::ViewForm;
use crate::definition::spec::Column;
use crate::name::FeatureName;

/// What a kind of feature is to expressions.
pub(crate) fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::List(_) => Type::Other,
        Kind::One(scalar) => match scalar {
            Scalar::Bool => Type::Bool,
            Scalar::Int32 => Type::Int32,
            Scalar::Int64 => Type::Int64,
            Scalar::Float32 => Type::Float32,
            Scalar::Float64 => Type::Float64,
            Scalar::String => Type::Text,
            Scalar::Bytes => Type::Bytes,
            Scalar::Timestamp => Type::Time,
            // Handed on, and not computed with: what would become of them is for nobody to guess.
            Scalar::Date | Scalar::Decimal(_) => Type::Other,
        },
    }
}

/// The kind of feature that a type is; none for what is only handed on.
pub(crate) fn kind_of(of: Type) -> Option<Kind> {
    Some(Kind::One(match of {
        Type::Bool => Scalar::Bool,
        Type::Int32 => Scalar::Int32,
        Type::Int64 => Scalar::Int64,
        Type::Float32 => Scalar::Float32,
        Type::Float64 => Scalar::Float64,
        Type::Text => Scalar::String,
        Type::Bytes => Scalar::Bytes,
        Type::Time => Scalar::Timestamp,
        Type::Other => return None,
    }))
}

/// The transformation of a view over rows, ready to be run. Cheap to share.
#[derive(Debug)]
pub(crate) struct Ready {
    keys: Vec<(String, Kind)>,
    event: String,
    projection: Option<Projection>,
    /// The values that rows have once they are transformed.
    values: Vec<(String, Kind)>,
    pub(crate) windows: Option<Windows>,
}

/// The aggregates of a view.
#[derive(Debug)]
pub(crate) struct Windows {
    pub(crate) plan: Plan,
    /// Which of the values each aggregate is of.
    columns: Vec<Option<(usize, Type)>>,
}

/// Rows that were transformed: keys, values and event time, by their names.
pub(crate) struct Made {
    pub(crate) batch: RecordBatch,
    /// Which of the rows they are; all, if absent.
    pub(crate) kept: Option<UInt32Array>,
}

impl Ready {
    /// None if the view's rows are what they are, or it has none.
    pub(crate) fn of(view: &ViewForm) -> Result<Option<Self>> {
        let Some(transform) = view.transform.as_ref().filter(|_| !view.is_on_demand()) else {
            return Ok(None);
        };
        let keys: Vec<_> = view.keys().iter().map(|key| (key.name.to_string(), key.kind)).collect();
        let projection = projection(view, transform)?;
        let values = match &projection {
            Some(projection) if transform.aggregates.is_empty() => {
                let mut projection = projection.clone();
                declare(&mut projection, &view.fields)?;
                return Ok(Some(Self {
                    keys,
                    event: view.event_time.to_string(),
                    values: outputs(&projection, view, transform)?,
                    projection: Some(projection),
                    windows: None,
                }));
            }
            Some(projection) => outputs(projection, view, transform)?,
            None => named(&transform.columns),
        };
        let windows = if transform.aggregates.is_empty() {
            None
        } else {
            Some(Windows::of(&transform.aggregates, &values)?)
        };
        let event = view.event_time.to_string();
        Ok(Some(Self { keys, event, projection, values, windows }))
    }

    /// What rows become. An error names the expression, and the row of this batch.
    pub(crate) fn run(&self, batch: &RecordBatch) -> Result<Made> {
        let ran = self.projection.as_ref().map(|it| it.run_batch(batch)).transpose()?;
        let there = |name: &str| {
            batch.column_by_name(name).cloned().ok_or_else(|| {
                Error::new(&code::INTEGRITY, format!("kept rows lack the column {name}"))
            })
        };
        let kept = ran.as_ref().and_then(|ran| ran.kept.clone());
        let chosen = |column: ArrayRef| match &kept {
            Some(kept) => take(&column, kept, None).map_err(Error::internal),
            None => Ok(column),
        };
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        let mut put = |name: &str, column: ArrayRef| {
            fields.push(Field::new(name, column.data_type().clone(), true));
            columns.push(column);
        };
        for (name, _) in &self.keys {
            put(name, chosen(there(name)?)?);
        }
        match ran {
            Some(ran) => {
                for ((name, _), column) in self.values.iter().zip(ran.columns) {
                    put(name, column);
                }
            }
            None => {
                for (name, _) in &self.values {
                    put(name, there(name)?);
                }
            }
        }
        put(&self.event, chosen(there(&self.event)?)?);
        let rows = kept.as_ref().map_or(batch.num_rows(), UInt32Array::len);
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        let made = Made { batch: batch.map_err(Error::internal)?, kept };
        if let Some(windows) = &self.windows {
            self.check(windows, &made)?;
        }
        Ok(made)
    }

    /// Refuses values that a tile cannot keep.
    fn check(&self, windows: &Windows, made: &Made) -> Result<()> {
        let items = windows.items(self, &made.batch)?;
        for (place, items) in items.iter().enumerate() {
            let Some(items) = items else { continue };
            for row in 0..made.batch.num_rows() {
                windows.plan.check(place, items.get(row).as_ref()).map_err(|why| {
                    let (row, name) = (made.row(row), self.column_of(windows, place));
                    let text = format!("{name} in row {row}: {why}");
                    Error::new(&code::INVALID_INPUT, text).at(name)
                })?;
            }
        }
        Ok(())
    }

    fn column_of(&self, windows: &Windows, aggregate: usize) -> &str {
        windows.columns[aggregate].map_or("", |(place, _)| self.values[place].0.as_str())
    }
}

impl Made {
    /// Which row of what went in a row is.
    pub(crate) fn row(&self, row: usize) -> usize {
        self.kept.as_ref().map_or(row, |kept| kept.value(row) as usize)
    }
}

impl Windows {
    fn of(aggregates: &[AggregateForm], values: &[(String, Kind)]) -> Result<Self> {
        let (mut plan, mut columns) = (Vec::new(), Vec::new());
        for (place, aggregate) in aggregates.iter().enumerate() {
            let at = |error: Error| error.within(&format!("aggregates[{place}]"));
            let column = match &aggregate.column {
                None => None,
                Some(name) => Some(value_of(name, values).map_err(at)?),
            };
            plan.push(ready(aggregate, column.map(|(_, of)| of)).map_err(at)?);
            columns.push(column);
        }
        Ok(Self { plan: Plan::new(plan)?, columns })
    }

    /// The values that each aggregate is of.
    fn items(&self, ready: &Ready, batch: &RecordBatch) -> Result<Vec<Option<Items>>> {
        let one = |column: &Option<(usize, Type)>| {
            let Some((place, of)) = column else { return Ok(None) };
            // Values stand behind the keys.
            Items::new(batch.column(ready.keys.len() + place).clone(), *of).map(Some)
        };
        self.columns.iter().map(one).collect()
    }
}

impl Ready {
    /// The aggregated values of each row, handed over one after the other.
    pub(crate) fn each_row(
        &self,
        made: &Made,
        mut each: impl FnMut(usize, &[Option<Item>]) -> Result<()>,
    ) -> Result<()> {
        let Some(windows) = &self.windows else { return Ok(()) };
        let items = windows.items(self, &made.batch)?;
        let mut values = vec![None; items.len()];
        for row in 0..made.batch.num_rows() {
            for (value, items) in values.iter_mut().zip(&items) {
                *value = items.as_ref().and_then(|items| items.get(row));
            }
            each(row, &values)?;
        }
        Ok(())
    }
}

/// An aggregate as it is computed.
pub(crate) fn ready(form: &AggregateForm, column: Option<Type>) -> Result<Aggregate> {
    let share = form.quantile.map(|share| share.0);
    let (window, hop) = (form.window_us, Some(form.hop_us));
    Aggregate::new(form.function, column, window, hop, share)
}

/// Which value has this name.
pub(crate) fn value_of(name: &FeatureName, values: &[(String, Kind)]) -> Result<(usize, Type)> {
    let found = values.iter().position(|(known, _)| known == name.as_str());
    let Some(place) = found else {
        let names: Vec<_> = values.iter().map(|(name, _)| name.as_str()).take(50).collect();
        return Err(Error::invalid("column", name, names.join(", ")));
    };
    Ok((place, type_of(values[place].1)))
}

pub(crate) fn named(columns: &[Column]) -> Vec<(String, Kind)> {
    columns.iter().map(|column| (column.name.to_string(), column.kind)).collect()
}

/// What SQL over the rows of a view may look at: columns, keys, and when the event was.
fn scope(view: &ViewForm, transform: &TransformForm) -> Vec<(String, Kind)> {
    let mut scope = named(&transform.columns);
    scope.extend(view.keys().iter().map(|key| (key.name.to_string(), key.kind)));
    scope.push((view.event_time.to_string(), Kind::One(Scalar::Timestamp)));
    scope
}

/// The SQL of a view over rows, read.
pub(crate) fn projection(view: &ViewForm, transform: &TransformForm) -> Result<Option<Projection>> {
    let Some(sql) = &transform.sql else { return Ok(None) };
    let scope = scope(view, transform);
    let inputs: Vec<_> = scope.iter().map(|(name, kind)| (name.as_str(), type_of(*kind))).collect();
    Projection::new(sql, &inputs, &["source", view.source.name.as_str()]).map(Some)
}

/// The columns that SQL gives, as kinds of features.
pub(crate) fn outputs(
    projection: &Projection,
    view: &ViewForm,
    transform: &TransformForm,
) -> Result<Vec<(String, Kind)>> {
    let scope = scope(view, transform);
    given(projection, &scope)
}

/// The same, over columns of these kinds.
pub(crate) fn given(
    projection: &Projection,
    scope: &[(String, Kind)],
) -> Result<Vec<(String, Kind)>> {
    let one = |output: falaj_transform::sql::Output| {
        let own = || output.column.and_then(|place| scope.get(place)).map(|(_, kind)| *kind);
        let kind = kind_of(output.kind).or_else(own);
        let kind = kind.ok_or_else(|| Error::internal("an output of no kind"))?;
        Ok((output.name.clone(), kind))
    };
    projection.outputs().map(one).collect()
}

/// Says which types the features shall be of. All that is selected is a feature, in any order.
pub(crate) fn declare(projection: &mut Projection, fields: &[Column]) -> Result<()> {
    for field in fields {
        projection.declare(field.name.as_str(), type_of(field.kind))?;
    }
    Ok(())
}
