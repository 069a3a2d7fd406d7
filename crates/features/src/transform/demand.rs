//! Views that are computed from other features, and from what comes with a request, when they are
//! asked for: one row in, one row out.

use arrow_array::ArrayRef;
use falaj_base::{Ctx, Error, Result, Timestamp, code};
use falaj_governance::tenancy::Project;
use falaj_online::value::Kind;
use falaj_online::{Stamp, Value};
use falaj_transform::sql::Projection;
use serde_json::Value as Json;

use super::form::{InputForm, TransformForm};
use super::ready::{declare, given};
use super::settle::typed;
use crate::definition::Catalog;
use crate::definition::columns::authorize_columns;
use crate::definition::form::ViewForm;
use crate::name::FeatureName;
use crate::online::{Entities, Found, Picked, ViewAnswer, column_of, value_in};
use crate::reference::Reference;
use crate::{FEATURE_ONLINE, Features};

/// What SQL may call the rows that it is given.
const TABLES: [&str; 2] = ["inputs", "source"];

fn scope(inputs: &[InputForm]) -> Vec<(String, Kind)> {
    inputs.iter().map(|input| (input.column.name.to_string(), input.column.kind)).collect()
}

/// The SQL of a view on demand, read.
pub(crate) fn projection(transform: &TransformForm) -> Result<Projection> {
    let Some(sql) = &transform.sql else {
        return Err(Error::invalid("sql", "absent", "SELECT expression AS name, … FROM inputs"));
    };
    let scope = scope(&transform.inputs);
    let projection = Projection::new(sql, &typed(&scope), &TABLES)?;
    if projection.filters() {
        let allowed = "no WHERE: every row that is asked about is answered";
        return Err(Error::invalid("sql", "WHERE", allowed));
    }
    Ok(projection)
}

/// A view on demand, ready to be computed.
#[derive(Debug)]
pub(crate) struct Demand {
    projection: Projection,
    pub(crate) inputs: Vec<InputForm>,
    /// Which output each feature is.
    outputs: Vec<usize>,
}

impl Demand {
    pub(crate) fn of(view: &ViewForm) -> Result<Self> {
        let transform = view.transform.as_ref();
        let transform = transform.ok_or_else(|| Error::internal("a view without inputs"))?;
        let mut projection = projection(transform)?;
        declare(&mut projection, &view.fields)?;
        let found = given(&projection, &scope(&transform.inputs))?;
        let place = |name: &str| found.iter().position(|(known, _)| known == name);
        let outputs = view.fields.iter().map(|field| place(field.name.as_str()));
        let outputs = outputs.collect::<Option<Vec<_>>>();
        let outputs = outputs.ok_or_else(|| Error::internal("a feature that is not computed"))?;
        Ok(Self { projection, inputs: transform.inputs.clone(), outputs })
    }

    /// The features of some rows, in the order of the view.
    pub(crate) fn run(
        &self,
        column: impl Fn(&InputForm) -> Result<ArrayRef>,
        count: usize,
    ) -> Result<Vec<ArrayRef>> {
        let ran = self.projection.run(|place| column(&self.inputs[place]), count)?;
        Ok(self.outputs.iter().map(|place| ran.columns[*place].clone()).collect())
    }
}

impl Features {
    /// The views that those on demand are computed from and that are not asked for themselves. The
    /// caller may read all of them.
    pub(crate) async fn inputs_of(
        &self,
        ctx: &Ctx,
        project: &Project,
        picked: &[Picked],
    ) -> Result<Vec<Picked>> {
        let catalog = self.catalog(project.id).await?;
        let at = (project, &*catalog);
        let mut found: Vec<Picked> = Vec::new();
        let mut needed: Vec<(&Picked, &InputForm)> = Vec::new();
        for one in picked.iter().filter(|it| it.view.form().is_on_demand()) {
            needed.extend(one.view.form().inputs().iter().map(|input| (one, input)));
        }
        for (of, input) in needed {
            let Some(feature) = &input.feature else { continue };
            let is = |one: &Picked| {
                *one.view.name() == feature.view && one.view.version() == feature.version
            };
            if let Some(one) = picked.iter().chain(&found).find(|one| is(one)) {
                columns_too(ctx, at, one, &feature.feature).await?;
                continue;
            }
            let reference = Reference {
                view: feature.view.clone(),
                version: Some(feature.version),
                feature: None,
            };
            let input = self.picked_view(ctx, project, &reference).await.map_err(|error| {
                let text = format!("{}: {}", of.view.name(), error.message());
                Error::new(error.code(), text).caused_by(error)
            })?;
            columns_too(ctx, at, &input, &feature.feature).await?;
            found.push(input);
        }
        Ok(found)
    }
}

/// A feature that is more sensitive than its view is so for what is computed from it.
async fn columns_too(
    ctx: &Ctx,
    at: (&Project, &Catalog),
    input: &Picked,
    feature: &FeatureName,
) -> Result<()> {
    let columns = std::iter::once(feature);
    authorize_columns(ctx, &FEATURE_ONLINE, at, &input.view, columns).await
}

/// Splits what came into what names entities and what views on demand are computed from.
pub(crate) fn request(picked: &[Picked], entities: Entities) -> (Entities, Entities) {
    let asked = |name: &str| {
        let forms = picked.iter().map(|it| it.view.form()).filter(|it| it.is_on_demand());
        let mut inputs = forms.flat_map(ViewForm::inputs);
        inputs.any(|input| input.feature.is_none() && input.column.name.as_str() == name)
    };
    entities.into_iter().partition(|(name, _)| !asked(name))
}

/// Computes the views on demand among those that were read, entity by entity.
pub(crate) fn compute(
    mut views: Vec<ViewAnswer>,
    request: &Entities,
    count: usize,
    now: Timestamp,
) -> Result<Vec<ViewAnswer>> {
    for place in 0..views.len() {
        if !views[place].picked.view.form().is_on_demand() {
            continue;
        }
        let view = &views[place].picked.view;
        let demand = view.form().demand()?;
        let column = |input: &InputForm| match &input.feature {
            Some(_) => of_feature(&views, input, count, now),
            None => of_request(view.name().as_str(), request, input),
        };
        let columns = demand.run(column, count).map_err(|error| {
            let text = format!("the feature view {}: {}", view.name(), error.message());
            Error::new(error.code(), text).caused_by(error)
        })?;
        let shape = views[place].picked.shape.clone();
        let stamp = Stamp { event: now.micros(), known: now.micros(), log: 0, row: 0 };
        let mut rows = Vec::with_capacity(count);
        for row in 0..count {
            let values = columns
                .iter()
                .zip(&*shape.fields)
                .map(|(column, (_, kind))| value_in(column, row, *kind))
                .collect::<Result<Vec<_>>>()?;
            rows.push(Some(shape.layout.pack(stamp, &values)?.into_vec().into()));
        }
        views[place].set_rows(rows);
    }
    Ok(views)
}

/// The values of a feature; null where there is none, or one that is too old.
fn of_feature(
    views: &[ViewAnswer],
    input: &InputForm,
    count: usize,
    now: Timestamp,
) -> Result<ArrayRef> {
    let missing = || Error::internal("a view on demand without what it is computed from");
    let feature = input.feature.as_ref().ok_or_else(missing)?;
    let is = |view: &&ViewAnswer| {
        let own = &view.picked.view;
        *own.name() == feature.view && own.version() == feature.version
    };
    let view = views.iter().find(is).ok_or_else(missing)?;
    let field = view.picked.shape.field(feature.feature.as_str()).ok_or_else(missing)?;
    let rows = view.rows(now)?;
    let one = |row: &Found<'_>| match row {
        Found::Row(row) => row.value(field),
        Found::Missing | Found::Expired(_) => Ok(Value::Null),
    };
    let values = rows.iter().map(one).collect::<Result<Vec<_>>>()?;
    debug_assert_eq!(values.len(), count, "a row for each entity");
    column_of(input.column.kind, &values)
}

/// The values of something that came with the request.
fn of_request(view: &str, request: &Entities, input: &InputForm) -> Result<ArrayRef> {
    let (name, kind) = (input.column.name.as_str(), input.column.kind);
    let Some((_, values)) = request.iter().find(|(given, _)| given == name) else {
        let allowed = format!("a list of its values ({kind}): {view} is computed from it");
        return Err(Error::invalid(format!("entities.{name}"), "absent", allowed));
    };
    let one = |(row, value): (usize, &Json)| kind.read(value, || format!("entities.{name}[{row}]"));
    let values = values.iter().enumerate().map(one).collect::<Result<Vec<_>>>()?;
    column_of(kind, &values)
}

/// Refuses what would be read or written of a view that has no rows.
pub(crate) fn refuse(view: &ViewForm, what: &str) -> Result<()> {
    if !view.is_on_demand() {
        return Ok(());
    }
    let text = format!("the feature view {} is computed on demand: {what}", view.name);
    Err(Error::new(&code::INVALID_INPUT, text).at("view"))
}
