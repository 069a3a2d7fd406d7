//! What is asked for: which features, of which entities.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use falaj_base::{Ctx, Error, Result, code};
use falaj_governance::tenancy::Project;
use serde_json::Value as Json;

use super::shape::Shape;
use crate::definition::columns::authorize_columns;
use crate::definition::form::{Form, Noun};
use crate::definition::{Catalog, Definition, ViewVersion, resource, shown};
use crate::name::FeatureName;
use crate::reference::Reference;
use crate::{FEATURE_ONLINE, Features};

/// Features by name, or those of a service.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Features(Vec<String>),
    Service(String),
}

/// Features of one version of a view.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub(crate) view: ViewVersion,
    pub(crate) shape: Arc<Shape>,
    /// Which fields, in the order asked.
    pub(crate) fields: Vec<usize>,
}

/// Entities by the names of their join keys, column by column.
pub(crate) type Entities = Vec<(String, Vec<Json>)>;

impl Features {
    /// Finds what is wanted, if the caller may read all of it.
    pub(crate) async fn pick(
        &self,
        ctx: &Ctx,
        project: &Project,
        wanted: &Wanted,
    ) -> Result<Vec<Picked>> {
        let catalog = self.catalog(project.id).await?;
        let references = match wanted {
            Wanted::Features(names) => {
                if names.is_empty() {
                    let allowed = "at least one feature, or a `feature_service`";
                    return Err(Error::invalid("features", "empty", allowed));
                }
                let most = self.config().max_fields;
                if names.len() > most {
                    let allowed = format!("at most {most} (`features.max_fields`)");
                    return Err(Error::invalid("features", names.len(), allowed));
                }
                names.iter().map(|name| name.parse()).collect::<Result<Vec<Reference>>>()?
            }
            Wanted::Service(name) => service(ctx, project, &catalog, name).await?,
        };
        let mut picked: Vec<Picked> = Vec::new();
        let mut places: HashMap<(&FeatureName, Option<i64>), usize> = HashMap::new();
        let mut chosen: Vec<HashSet<usize>> = Vec::new();
        let mut left = self.config().max_fields;
        for reference in &references {
            // Without a version the latest is meant, whatever else was asked for.
            let latest = || catalog.view(&reference.view).map(|view| view.version());
            let key = (&reference.view, reference.version.or_else(latest));
            let place = if let Some(place) = places.get(&key) {
                *place
            } else {
                let view = self.view_for(ctx, project, &catalog, reference).await?;
                let shape = self.shelf().shape(&view)?;
                picked.push(Picked { view, shape, fields: Vec::new() });
                chosen.push(HashSet::new());
                places.insert(key, picked.len() - 1);
                picked.len() - 1
            };
            let more = choose(&mut picked[place], &mut chosen[place], reference)?;
            left = left.checked_sub(more).ok_or_else(|| {
                let most = self.config().max_fields;
                let allowed = format!("at most {most} (`features.max_fields`)");
                Error::invalid("features", "more, with all those of views", allowed)
            })?;
        }
        for Picked { view, fields, .. } in &picked {
            let fields = fields.iter().filter_map(|field| view.form().fields.get(*field));
            let names = fields.map(|field| &field.name);
            authorize_columns(ctx, &FEATURE_ONLINE, (project, &catalog), view, names).await?;
        }
        Ok(picked)
    }

    /// A view that others are computed from, if the caller may read its latest values.
    pub(crate) async fn picked_view(
        &self,
        ctx: &Ctx,
        project: &Project,
        reference: &Reference,
    ) -> Result<Picked> {
        let catalog = self.catalog(project.id).await?;
        let view = self.view_for(ctx, project, &catalog, reference).await?;
        let shape = self.shelf().shape(&view)?;
        Ok(Picked { view, shape, fields: Vec::new() })
    }

    /// The version of a view that is meant, if the caller may read its latest values.
    async fn view_for(
        &self,
        ctx: &Ctx,
        project: &Project,
        catalog: &Catalog,
        reference: &Reference,
    ) -> Result<ViewVersion> {
        let latest = catalog.view(&reference.view);
        let latest = allowed(ctx, project, Noun::View, &reference.view, latest, |view| {
            view.resource(project)
        })
        .await?;
        match reference.version {
            Some(version) if version != latest.version() => {
                self.old_view(project.id, &reference.view, version).await?.ok_or_else(|| {
                    let allowed = format!("a version from 1 to {}", latest.version());
                    Error::invalid("features", reference, allowed)
                })
            }
            _ => Ok(latest),
        }
    }

    async fn old_view(
        &self,
        project: falaj_base::ProjectId,
        name: &FeatureName,
        version: i64,
    ) -> Result<Option<ViewVersion>> {
        let wanted = name.clone();
        let find = move |tx: &mut falaj_store::db::Tx<'_>| {
            crate::definition::store::find(tx, project, Noun::View, &wanted, Some(version))
        };
        Ok(self.db().read(find).await?.map(Arc::new).and_then(|found| ViewVersion::of(&found)))
    }
}

/// What was found, if the caller may read it; *not there* otherwise, and if nothing was.
async fn allowed<T>(
    ctx: &Ctx,
    project: &Project,
    noun: Noun,
    name: &FeatureName,
    found: Option<T>,
    of: impl Fn(&T) -> falaj_base::Resource,
) -> Result<T> {
    let resource = match &found {
        Some(found) => of(found),
        None => resource(project, noun, name, true),
    };
    ctx.authorize(&FEATURE_ONLINE, &resource).await?;
    found.ok_or_else(|| Error::not_found("feature", shown(noun, name)))
}

/// The features of a service, of the versions that it fixes.
async fn service(
    ctx: &Ctx,
    project: &Project,
    catalog: &Catalog,
    name: &str,
) -> Result<Vec<Reference>> {
    let missing = || Error::not_found("feature", format!("{} {name}", Noun::Service));
    let name = FeatureName::new(name).map_err(|_| missing())?;
    let found = catalog.get(Noun::Service, &name).cloned();
    let found: Arc<Definition> =
        allowed(ctx, project, Noun::Service, &name, found, |it| it.resource(project)).await?;
    let Form::Service(form) = &found.definition else { return Err(missing()) };
    let mut references = Vec::new();
    for pick in &form.picks {
        references.extend(pick.features.iter().map(|feature| Reference {
            view: pick.view.clone(),
            version: Some(pick.version),
            feature: Some(feature.clone()),
        }));
    }
    Ok(references)
}

/// Adds a feature of the view, or all of them; each stays once. Tells how many are new.
fn choose(picked: &mut Picked, known: &mut HashSet<usize>, reference: &Reference) -> Result<usize> {
    let (first, last) = match &reference.feature {
        None => (0, picked.shape.fields.len()),
        Some(name) => {
            let field = picked.shape.field(name.as_str());
            let field = field.ok_or_else(|| no_feature(picked, reference))?;
            (field, field + 1)
        }
    };
    let before = picked.fields.len();
    picked.fields.extend((first..last).filter(|field| known.insert(*field)));
    Ok(picked.fields.len() - before)
}

fn no_feature(picked: &Picked, reference: &Reference) -> Error {
    let known: Vec<_> = picked.shape.fields.iter().map(|(name, _)| name.as_str()).collect();
    let text = format!("`{reference}` names no feature; the view has {}", known.join(", "));
    Error::new(&code::NOT_FOUND, text).at("features")
}
