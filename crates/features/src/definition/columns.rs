//! Columns that are more sensitive than their view: each is authorised on its own, by those who read
//! its values.
//!
//! A column is as sensitive as the version that is read says, and as the latest says: what was found
//! to be sensitive later is so in the rows of before.

use falaj_base::{Action, Ctx, Resource, Result};
use falaj_governance::tenancy::Project;

use super::catalog::Catalog;
use super::definition::ViewVersion;
use super::form::ViewForm;
use crate::name::FeatureName;

/// What a column is authorised on, where it is classified apart from its view. A policy sees a
/// `feature` with the classification of the column.
fn resources(
    project: &Project,
    catalog: &Catalog,
    view: &ViewVersion,
    column: &FeatureName,
) -> impl Iterator<Item = Resource> {
    let asked = classification(view.form(), column);
    let latest = catalog.view(view.name());
    let latest = latest.and_then(|latest| classification(latest.form(), column));
    let other = latest.filter(|latest| asked.as_ref() != Some(latest));
    let whole = view.resource(project);
    let shown = format!("feature {}:{column}", view.name());
    let id = format!("{}/{column}", whole.id);
    asked.into_iter().chain(other).map(move |classification| {
        let mut resource = whole.clone();
        resource.id.clone_from(&id);
        resource.attributes.classification = Some(classification);
        resource.shown_as(shown.clone())
    })
}

/// How a feature is classified, or a column that features are made of.
fn classification(form: &ViewForm, column: &FeatureName) -> Option<String> {
    let raw = || form.columns().iter().find(|raw| raw.name == *column);
    form.field(column).or_else(raw)?.classification.clone()
}

/// What some columns are authorised on, those that are classified apart.
pub(crate) fn column_resources(
    project: &Project,
    catalog: &Catalog,
    view: &ViewVersion,
    columns: &[FeatureName],
) -> Vec<Resource> {
    columns.iter().flat_map(|column| resources(project, catalog, view, column)).collect()
}

/// What all columns of a view are authorised on that are classified apart.
pub(crate) fn all_column_resources(
    project: &Project,
    catalog: &Catalog,
    view: &ViewVersion,
) -> Vec<Resource> {
    let form = view.form();
    let names = form.fields.iter().chain(form.columns()).map(|column| column.name.clone());
    column_resources(project, catalog, view, &names.collect::<Vec<_>>())
}

/// Refuses columns that the caller may not read, each by its name.
pub(crate) async fn authorize_columns(
    ctx: &Ctx,
    action: &'static Action,
    (project, catalog): (&Project, &Catalog),
    view: &ViewVersion,
    columns: impl Iterator<Item = &FeatureName>,
) -> Result<()> {
    for column in columns {
        for resource in resources(project, catalog, view, column) {
            ctx.authorize(action, &resource).await?;
        }
    }
    Ok(())
}

/// Whether the caller may read a column; one that is no feature is as open as the view.
pub(crate) fn readable_columns<'a>(
    ctx: &'a Ctx,
    action: &'static Action,
    (project, catalog): (&'a Project, &'a Catalog),
    view: &'a ViewVersion,
) -> impl Fn(&str) -> bool + 'a {
    move |column: &str| {
        let Ok(named) = FeatureName::new(column) else { return true };
        resources(project, catalog, view, &named).all(|resource| ctx.allows(action, &resource))
    }
}
