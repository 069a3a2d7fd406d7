//! Columns that are more sensitive than their view: each is authorised on its own, by those who read
//! its values.

use falaj_base::{Action, Ctx, Resource, Result};
use falaj_governance::tenancy::Project;

use super::definition::ViewVersion;
use crate::name::FeatureName;

/// What a column is authorised on, if it is classified apart from its view. A policy sees a
/// `feature` with the classification of the column.
fn resource(project: &Project, view: &ViewVersion, column: &FeatureName) -> Option<Resource> {
    let classification = view.form().field(column)?.classification.clone()?;
    let mut resource = view.resource(project);
    resource.id = format!("{}/{column}", resource.id);
    resource.attributes.classification = Some(classification);
    Some(resource.shown_as(format!("feature {}:{column}", view.name())))
}

/// What some columns are authorised on, those that are classified apart.
pub(crate) fn column_resources(
    project: &Project,
    view: &ViewVersion,
    columns: &[FeatureName],
) -> Vec<Resource> {
    columns.iter().filter_map(|column| resource(project, view, column)).collect()
}

/// Refuses columns that the caller may not read, each by its name.
pub(crate) async fn authorize_columns(
    ctx: &Ctx,
    action: &'static Action,
    project: &Project,
    view: &ViewVersion,
    columns: impl Iterator<Item = &FeatureName>,
) -> Result<()> {
    for column in columns {
        if let Some(resource) = resource(project, view, column) {
            ctx.authorize(action, &resource).await?;
        }
    }
    Ok(())
}

/// Whether the caller may read a column; one that is no feature is as open as the view.
pub(crate) fn readable_columns<'a>(
    ctx: &'a Ctx,
    action: &'static Action,
    project: &'a Project,
    view: &'a ViewVersion,
) -> impl Fn(&str) -> bool + 'a {
    move |column: &str| {
        let named = FeatureName::new(column).ok();
        let apart = named.and_then(|name| resource(project, view, &name));
        apart.is_none_or(|resource| ctx.allows(action, &resource))
    }
}
