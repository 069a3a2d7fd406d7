//! What a transformation makes of a view when it is applied: everything that can be wrong with it
//! is found here, and its features are told.

use falaj_base::{Error, HumanDuration, Result};
use falaj_online::value::Kind;
use falaj_transform::sql::Projection;
use falaj_transform::window::{Aggregate, Function, Plan};

use super::form::{AggregateForm, Share, TransformForm};
use super::ready::{declare, given, kind_of, named, outputs, projection, ready, type_of, value_of};
use super::spec;
use crate::definition::form::ViewForm;
use crate::definition::spec::{Column, View};
use crate::name::FeatureName;

/// What a view says of its transformation; what it is computed from on demand is found later.
pub(crate) fn form(view: &View) -> Result<Option<TransformForm>> {
    let plain = view.sql.is_none() && view.aggregates.is_empty() && view.kind.is_rows();
    if plain {
        return match view.columns.first() {
            None => Ok(None),
            Some(column) => {
                let allowed = "nothing without `sql` or `aggregate`: `schema` has the columns";
                Err(Error::invalid("columns", &column.name, allowed))
            }
        };
    }
    let aggregate = |(place, spec): (usize, &spec::Aggregate)| {
        aggregate(spec).map_err(|error| error.within(&format!("aggregates[{place}]")))
    };
    Ok(Some(TransformForm {
        columns: view.columns.clone(),
        sql: view.sql.clone(),
        aggregates: view.aggregates.iter().enumerate().map(aggregate).collect::<Result<_>>()?,
        inputs: Vec::new(),
    }))
}

fn aggregate(spec: &spec::Aggregate) -> Result<AggregateForm> {
    let micros = |field: &str, length: HumanDuration| {
        let micros = i64::try_from(length.get().as_micros()).ok();
        micros.ok_or_else(|| Error::invalid(field, length, "at most 290000 years"))
    };
    let window_us = micros("window", spec.window)?;
    let hop = spec.hop.map(|hop| micros("hop", hop)).transpose()?;
    // The hop that is chosen does not depend on what is counted.
    let counted = Aggregate::new(Function::Count, None, window_us, hop, None)?;
    Ok(AggregateForm {
        name: spec.name.clone(),
        column: spec.column.clone(),
        function: spec.function,
        window_us,
        hop_us: counted.hop(),
        quantile: spec.quantile.map(Share),
    })
}

/// Checks a view over rows whose entities and source are known, and tells its features. What was
/// declared of them in `schema` stands in its fields.
pub(crate) fn settle(view: &mut ViewForm) -> Result<()> {
    let Some(transform) = view.transform.clone() else { return Ok(()) };
    if transform.columns.is_empty() && !counts_only(&transform) {
        let allowed = "the columns of the source's rows, `{ name, type }` each";
        return Err(Error::invalid("columns", "nothing", allowed));
    }
    let projection = projection(view, &transform)?;
    if transform.aggregates.is_empty() {
        let Some(projection) = projection else { return Ok(()) };
        let found = outputs(&projection, view, &transform)?;
        apart(view, &found)?;
        view.fields = told(projection, found, &view.fields)?;
        return Ok(());
    }
    let values = match &projection {
        Some(projection) => {
            let found = outputs(projection, view, &transform)?;
            apart(view, &found)?;
            found
        }
        None => named(&transform.columns),
    };
    let (mut fields, mut plan) = (Vec::new(), Vec::new());
    for (place, form) in transform.aggregates.iter().enumerate() {
        let at = |error: Error| error.within(&format!("aggregates[{place}]"));
        let column = match &form.column {
            None => None,
            Some(name) => Some(value_of(name, &values).map_err(at)?.1),
        };
        let aggregate = ready(form, column).map_err(at)?;
        let kind = kind_of(aggregate.output()).ok_or_else(|| Error::internal("no kind"))?;
        fields.push(field(form.name.as_str(), kind)?);
        plan.push(aggregate);
    }
    Plan::new(plan)?;
    view.fields = fields;
    Ok(())
}

/// Refuses what is selected under the name of a key or a time: those stay as they are.
fn apart(view: &ViewForm, found: &[(String, Kind)]) -> Result<()> {
    let times = [Some(&view.event_time), view.known_time.as_ref()];
    for (name, _) in found {
        let key = view.keys().iter().any(|key| key.name.as_str() == name);
        if key || times.into_iter().flatten().any(|time| time.as_str() == name) {
            let allowed = "other names than those of keys and times, which rows keep";
            return Err(Error::invalid("sql", format!("AS {name}"), allowed));
        }
    }
    Ok(())
}

/// Whether only events are counted, for which no column is needed.
fn counts_only(transform: &TransformForm) -> bool {
    transform.sql.is_none() && transform.aggregates.iter().all(|it| it.column.is_none())
}

/// The features that SQL gives, in the order and of the types that were declared, if they were.
pub(crate) fn told(
    mut projection: Projection,
    found: Vec<(String, Kind)>,
    declared: &[Column],
) -> Result<Vec<Column>> {
    if declared.is_empty() {
        return found.iter().map(|(name, kind)| field(name, *kind)).collect();
    }
    for column in declared {
        // What is only handed on stays what it is.
        let as_it_is = type_of(column.kind) == falaj_transform::Type::Other;
        let other = found.iter().find(|(name, _)| name == column.name.as_str());
        if let (true, Some((name, kind))) = (as_it_is, other)
            && *kind != column.kind
        {
            return Err(Error::invalid("schema", format!("{name} {}", column.kind), kind));
        }
    }
    declare(&mut projection, declared)?;
    if let Some((name, _)) =
        found.iter().find(|(name, _)| !declared.iter().any(|it| it.name.as_str() == name))
    {
        let allowed = "a feature of `schema` for everything that is selected";
        return Err(Error::invalid("sql", name, allowed));
    }
    Ok(declared.to_vec())
}

/// A feature of this name; what SQL calls a column must be one.
fn field(name: &str, kind: Kind) -> Result<Column> {
    let name = FeatureName::new(name).map_err(|error| error.at("sql"))?;
    if name.as_str().starts_with("__") {
        return Err(Error::invalid("sql", name, "a name that does not begin with `__`"));
    }
    Ok(Column::new(name, kind))
}

/// The features of a view on demand whose inputs are known.
pub(crate) fn settle_demand(view: &mut ViewForm) -> Result<()> {
    let Some(transform) = &view.transform else { return Ok(()) };
    let scope: Vec<_> = transform
        .inputs
        .iter()
        .map(|input| (input.column.name.to_string(), input.column.kind))
        .collect();
    let projection = super::demand::projection(transform)?;
    let found = given(&projection, &scope)?;
    view.fields = told(projection, found, &view.fields)?;
    Ok(())
}

/// What inputs are to expressions.
pub(crate) fn typed(scope: &[(String, Kind)]) -> Vec<(&str, falaj_transform::Type)> {
    scope.iter().map(|(name, kind)| (name.as_str(), type_of(*kind))).collect()
}
