//! What an apply would change: a pure function of what there is and what is wanted.
//!
//! Everything is resolved anew, wanted or not, since a view depends on its entities and its source
//! and a service on its views: what those changes reach gets a version too. Nothing is deleted by
//! being left out.

use std::collections::{BTreeMap, BTreeSet};

use falaj_base::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::form::{EntityForm, Form, Noun, Origin, Pick, ServiceForm, SourceForm, ViewForm};
use super::spec::{About, Column, Definitions, Source, SourceKind, View};
use crate::name::FeatureName;
use crate::reference::Reference;
use crate::source::declared;
use crate::transform::form::{FeatureOf, InputForm};
use crate::transform::settle;
use crate::transform::spec::{Input, Renamed};

/// A definition as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    pub version: i64,
    pub hash: String,
    pub form: Form,
    pub about: About,
}

/// All definitions of a project, in the order in which they depend on each other.
pub type Existing = BTreeMap<(Noun, FeatureName), Latest>;

/// Definitions that the caller may not know of.
pub type Hidden = BTreeSet<(Noun, FeatureName)>;

/// What becomes of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Created,
    NewVersion,
    /// Owner, description or tags change in place.
    Metadata,
    Unchanged,
}

/// One definition and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub outcome: Outcome,
    /// What it will be.
    pub next: Latest,
    /// Whether it was asked for, or follows from something that was.
    pub asked: bool,
}

impl Step {
    #[must_use]
    pub fn noun(&self) -> Noun {
        self.next.form.noun()
    }

    #[must_use]
    pub fn name(&self) -> &FeatureName {
        self.next.form.name()
    }
}

/// What changes, and what was asked for and does not. What is hidden cannot be built upon: to a
/// definition that is asked for, it is not there.
pub fn plan(existing: &Existing, wanted: &Definitions, hidden: &Hidden) -> Result<Vec<Step>> {
    let mut plan = Plan { existing, hidden, all: BTreeMap::new(), steps: Vec::new() };
    plan.entities(wanted)?;
    plan.sources(wanted)?;
    plan.views(wanted)?;
    plan.services(wanted)?;
    Ok(plan.steps)
}

struct Plan<'a> {
    existing: &'a Existing,
    hidden: &'a Hidden,
    /// What everything will be.
    all: Existing,
    steps: Vec<Step>,
}

/// Where in the request something was asked for.
type Place = Option<usize>;

impl Plan<'_> {
    /// What a definition will be, for one that names it. One that was there before keeps what it
    /// was made of, whoever asks.
    fn named(&self, place: Place, noun: Noun, name: &FeatureName) -> Option<&Latest> {
        let key = (noun, name.clone());
        if place.is_some() && self.hidden.contains(&key) {
            return None;
        }
        self.all.get(&key)
    }

    /// The definitions of a kind that are there and not asked for.
    fn others<'w, T>(
        &self,
        noun: Noun,
        wanted: &'w [T],
        name: impl Fn(&T) -> &FeatureName + 'w,
    ) -> Vec<Latest> {
        let kept = self.existing.iter().filter(|((of, called), _)| {
            *of == noun && !wanted.iter().any(|one| name(one) == called)
        });
        kept.map(|(_, latest)| latest.clone()).collect()
    }

    fn entities(&mut self, wanted: &Definitions) -> Result<()> {
        for other in self.others(Noun::Entity, &wanted.entities, |it| &it.name) {
            self.settle(None, other.form, other.about)?;
        }
        for (place, entity) in wanted.entities.iter().enumerate() {
            let form =
                EntityForm { name: entity.name.clone(), join_keys: entity.join_keys.clone() };
            self.settle(Some(place), Form::Entity(form), entity.about())?;
        }
        Ok(())
    }

    fn sources(&mut self, wanted: &Definitions) -> Result<()> {
        let mut specs: Vec<(Place, Source)> = Vec::new();
        for other in self.others(Noun::Source, &wanted.sources, |it| &it.name) {
            if let Form::Source(form) = other.form {
                specs.push((None, as_source(form, other.about)));
            }
        }
        specs.extend(wanted.sources.iter().cloned().enumerate().map(|(at, it)| (Some(at), it)));
        // Those that others build upon come first.
        specs.sort_by_key(|(_, spec)| spec.batch.is_some());
        for (place, spec) in specs {
            let form = self.source(place, &spec)?;
            let about = About { reading: spec.reading(), ..spec.about() };
            self.settle(place, Form::Source(form), about)?;
        }
        Ok(())
    }

    fn source(&self, place: Place, spec: &Source) -> Result<SourceForm> {
        let origin = match (spec.kind, &spec.path, &spec.object) {
            (SourceKind::Parquet, Some(path), _) => Origin::Files { path: path.clone() },
            (SourceKind::Parquet, None, object) => {
                Origin::Object { object: object.clone().unwrap_or_default() }
            }
            (
                SourceKind::Delta
                | SourceKind::Iceberg
                | SourceKind::Postgres
                | SourceKind::Dataset,
                ..,
            ) => declared::origin(spec),
            (SourceKind::Push, ..) => Origin::Push { batch: self.batch(place, spec)? },
            (SourceKind::Stream, ..) => Origin::Stream(spec.stream_form(self.batch(place, spec)?)?),
        };
        Ok(SourceForm { name: spec.name.clone(), origin })
    }

    /// The source with the rows from before.
    fn batch(&self, place: Place, spec: &Source) -> Result<Option<Box<SourceForm>>> {
        let Some(name) = &spec.batch else { return Ok(None) };
        let found = self.named(place, Noun::Source, name);
        match found.map(|latest| &latest.form) {
            Some(Form::Source(form)) if !form.origin.is_logged() => {
                Ok(Some(Box::new(form.clone())))
            }
            Some(_) => Err(refused(Noun::Source, place, "batch", name, "no push source or stream")),
            None => {
                let allowed = "a source that is declared here or before";
                Err(refused(Noun::Source, place, "batch", name, allowed))
            }
        }
    }

    fn views(&mut self, wanted: &Definitions) -> Result<()> {
        let others = self.others(Noun::View, &wanted.views, |it| &it.name);
        // Those that are computed from others come after them.
        for on_demand in [false, true] {
            for other in &others {
                let Form::View(old) = &other.form else { continue };
                if old.is_on_demand() != on_demand {
                    continue;
                }
                let form = if on_demand {
                    self.demand(None, old.clone(), &inputs_of(old))?
                } else {
                    let entities: Vec<_> = old.entities.iter().map(|it| it.name.clone()).collect();
                    self.view(None, old.clone(), &entities, &old.source.name)?
                };
                self.settle(None, Form::View(form), other.about.clone())?;
            }
            for (place, view) in wanted.views.iter().enumerate() {
                if view.kind.is_rows() == on_demand {
                    continue;
                }
                let form = bare(view).map_err(|error| transform_at(Some(place), error))?;
                let form = if on_demand {
                    self.demand(Some(place), form, &view.inputs)?
                } else {
                    let source = form.source.name.clone();
                    self.view(Some(place), form, &view.entities, &source)?
                };
                let (freshness, check) = (view.freshness, view.check);
                let about = About { freshness, check, ..view.about() };
                self.settle(Some(place), Form::View(form), about)?;
            }
        }
        Ok(())
    }

    /// A view on demand with what it is computed from as that will be.
    fn demand(&self, place: Place, mut form: ViewForm, inputs: &[Input]) -> Result<ViewForm> {
        let mut found: Vec<InputForm> = Vec::new();
        form.entities.clear();
        for (at, input) in inputs.iter().enumerate() {
            let field = format!("inputs[{at}]");
            let wrong = |value: &dyn std::fmt::Display, allowed: &str| {
                refused(Noun::View, place, &field, value, allowed)
            };
            let input = match input {
                Input::Request(column) => InputForm { column: column.clone(), feature: None },
                Input::Feature(reference) => {
                    self.input(place, &mut form, reference, None, &wrong)?
                }
                Input::Renamed(Renamed { feature, name }) => {
                    self.input(place, &mut form, feature, Some(name), &wrong)?
                }
            };
            if found.iter().any(|known| known.column.name == input.column.name) {
                let allowed = "each name once; `{ feature, name }` gives a feature another";
                return Err(wrong(&input.column.name, allowed));
            }
            found.push(input);
        }
        for input in found.iter().filter(|input| input.feature.is_none()) {
            if form.keys().iter().any(|key| key.name == input.column.name) {
                let allowed = "another name than that of a join key of the features";
                return Err(refused(Noun::View, place, "inputs", &input.column.name, allowed));
            }
        }
        if let Some(transform) = &mut form.transform {
            transform.inputs = found;
        }
        settle::settle_demand(&mut form).map_err(|error| transform_at(place, error))?;
        Self::columns(place, &form)?;
        Ok(form)
    }

    /// A feature that a view on demand is computed from; its entities become those of the view.
    fn input(
        &self,
        place: Place,
        form: &mut ViewForm,
        reference: &Reference,
        name: Option<&FeatureName>,
        wrong: &dyn Fn(&dyn std::fmt::Display, &str) -> Error,
    ) -> Result<InputForm> {
        let Some(Latest { form: Form::View(view), version, hash, .. }) =
            self.named(place, Noun::View, &reference.view)
        else {
            return Err(wrong(reference, "a view that is declared here or before"));
        };
        if reference.version.is_some() || view.is_on_demand() {
            let allowed = "a feature of the latest version of a view that is not on demand";
            return Err(wrong(reference, allowed));
        }
        let field = reference.feature.as_ref().and_then(|feature| view.field(feature));
        let Some(field) = field else {
            return Err(wrong(reference, "`view:feature`, of the view's schema"));
        };
        for entity in &view.entities {
            if !form.entities.iter().any(|known| known.name == entity.name) {
                form.entities.push(entity.clone());
            }
        }
        let column = Column::new(name.unwrap_or(&field.name).clone(), field.kind);
        let feature = FeatureOf {
            view: reference.view.clone(),
            version: *version,
            hash: hash.clone(),
            feature: field.name.clone(),
        };
        Ok(InputForm { column, feature: Some(feature) })
    }

    /// The view with its entities and its source as they will be.
    fn view(
        &self,
        place: Place,
        mut form: ViewForm,
        entities: &[FeatureName],
        source: &FeatureName,
    ) -> Result<ViewForm> {
        let declared =
            |noun, name: &FeatureName| self.named(place, noun, name).map(|latest| &latest.form);
        let entity = |(at, name): (usize, &FeatureName)| {
            if let Some(Form::Entity(form)) = declared(Noun::Entity, name) {
                return Ok(form.clone());
            }
            let field = format!("entities[{at}]");
            let allowed = "an entity that is declared here or before";
            Err(refused(Noun::View, place, &field, name, allowed))
        };
        form.entities = entities.iter().enumerate().map(entity).collect::<Result<_>>()?;
        let Some(Form::Source(found)) = declared(Noun::Source, source) else {
            let allowed = "a source that is declared here or before";
            return Err(refused(Noun::View, place, "source", source, allowed));
        };
        form.source = found.clone();
        Self::columns(place, &form)?;
        settle::settle(&mut form).map_err(|error| transform_at(place, error))?;
        Self::columns(place, &form)?;
        Ok(form)
    }

    /// A key is the same column for all entities that have it, and no feature or time.
    fn columns(place: Place, form: &ViewForm) -> Result<()> {
        for key in form.entities.iter().flat_map(|entity| &entity.join_keys) {
            let other = |known: &Column| known.name == key.name && known.kind != key.kind;
            if form.keys().into_iter().any(other) {
                let allowed = "one type for the key in all entities of a view";
                return Err(refused(Noun::View, place, "entities", &key.name, allowed));
            }
            let time = [Some(&form.event_time), form.known_time.as_ref()];
            let column = form.columns().iter().any(|column| column.name == key.name);
            if column || form.field(&key.name).is_some() || time.contains(&Some(&key.name)) {
                let allowed = "columns that are no join keys of its entities";
                return Err(refused(Noun::View, place, "schema", &key.name, allowed));
            }
        }
        Ok(())
    }

    fn services(&mut self, wanted: &Definitions) -> Result<()> {
        for other in self.others(Noun::Service, &wanted.services, |it| &it.name) {
            if let Form::Service(old) = other.form {
                let form = self.service(None, old.name, old.features)?;
                self.settle(None, Form::Service(form), other.about)?;
            }
        }
        for (place, spec) in wanted.services.iter().enumerate() {
            let form = self.service(Some(place), spec.name.clone(), spec.features.clone())?;
            self.settle(Some(place), Form::Service(form), spec.about())?;
        }
        Ok(())
    }

    fn service(
        &self,
        place: Place,
        name: FeatureName,
        features: Vec<Reference>,
    ) -> Result<ServiceForm> {
        let views = |view: &FeatureName| match self.named(place, Noun::View, view) {
            Some(Latest { form: Form::View(form), version, hash, .. }) => {
                Some((form, *version, hash.clone()))
            }
            _ => None,
        };
        let picks = picked(&features, views).map_err(|(at, allowed)| {
            let (field, at) = (format!("features[{at}]"), &features[at]);
            if place.is_some() {
                return refused(Noun::Service, place, &field, at, allowed);
            }
            // The request took a feature away that a service has.
            let allowed = format!("what the service `{name}` is made of: it has `{at}`");
            Error::invalid("views", format!("without {at}"), allowed)
        })?;
        Ok(ServiceForm { name, features, picks })
    }

    /// Puts a definition beside what it was.
    fn settle(&mut self, place: Place, form: Form, about: About) -> Result<()> {
        let key = (form.noun(), form.name().clone());
        let hash = form.hash()?;
        let (outcome, version) = match self.existing.get(&key) {
            None => (Outcome::Created, 1),
            Some(old) if old.hash != hash => (Outcome::NewVersion, old.version + 1),
            Some(old) if old.about != about => (Outcome::Metadata, old.version),
            Some(old) => (Outcome::Unchanged, old.version),
        };
        let next = Latest { version, hash, form, about };
        self.all.insert(key, next.clone());
        if place.is_some() || outcome != Outcome::Unchanged {
            self.steps.push(Step { outcome, next, asked: place.is_some() });
        }
        Ok(())
    }
}

/// The features that references mean, view by view in the order in which they are first named;
/// else which reference means nothing, and what could stand there.
pub(crate) fn picked<'a>(
    features: &[Reference],
    views: impl Fn(&FeatureName) -> Option<(&'a ViewForm, i64, String)>,
) -> Result<Vec<Pick>, (usize, &'static str)> {
    let mut picks: Vec<Pick> = Vec::new();
    for (at, reference) in features.iter().enumerate() {
        let (form, version, hash) =
            views(&reference.view).ok_or((at, "a view that is declared here or before"))?;
        let named: Vec<FeatureName> = match &reference.feature {
            Some(feature) if form.field(feature).is_none() => {
                return Err((at, "a feature of the view's schema"));
            }
            Some(feature) => vec![feature.clone()],
            None => form.fields.iter().map(|field| field.name.clone()).collect(),
        };
        let place = picks.iter().position(|pick| pick.view == reference.view);
        let place = place.unwrap_or_else(|| {
            picks.push(Pick { view: reference.view.clone(), version, hash, features: Vec::new() });
            picks.len() - 1
        });
        for feature in named {
            if picks[place].features.contains(&feature) {
                return Err((at, "each feature once"));
            }
            picks[place].features.push(feature);
        }
    }
    Ok(picks)
}

fn refused(
    noun: Noun,
    place: Place,
    field: &str,
    value: impl std::fmt::Display,
    allowed: &str,
) -> Error {
    let at = place.map_or(String::new(), |place| format!("[{place}]"));
    Error::invalid(format!("{}{at}.{field}", noun.field()), value, allowed)
}

/// Where in the request a transformation is wrong.
fn transform_at(place: Place, error: Error) -> Error {
    match place {
        Some(place) => error.within(&format!("{}[{place}]", Noun::View.field())),
        None => error.within(Noun::View.field()),
    }
}

/// What a view on demand was computed from, as it would be asked for.
fn inputs_of(form: &ViewForm) -> Vec<Input> {
    let one = |input: &InputForm| match &input.feature {
        None => Input::Request(input.column.clone()),
        Some(of) => Input::Renamed(Renamed {
            feature: Reference {
                view: of.view.clone(),
                version: None,
                feature: Some(of.feature.clone()),
            },
            name: input.column.name.clone(),
        }),
    };
    form.inputs().iter().map(one).collect()
}

/// The view without what it depends on.
fn bare(view: &View) -> Result<ViewForm> {
    let nothing = if view.kind.is_rows() { Origin::Push { batch: None } } else { Origin::Request };
    let source = view.source.clone().unwrap_or_else(|| view.name.clone());
    Ok(ViewForm {
        name: view.name.clone(),
        entities: Vec::new(),
        source: SourceForm { name: source, origin: nothing },
        fields: view.schema.clone(),
        event_time: view.event_time.clone(),
        known_time: view.known_time.clone(),
        ttl_us: view.ttl.and_then(|ttl| i64::try_from(ttl.get().as_micros()).ok()),
        classification: view.classification.clone(),
        zone: view.zone.clone(),
        transform: settle::form(view)?,
    })
}

/// A source as it would be asked for.
fn as_source(form: SourceForm, about: About) -> Source {
    let mut source = Source {
        name: form.name,
        kind: SourceKind::Parquet,
        path: None,
        version: None,
        timestamp: None,
        snapshot: None,
        reference: None,
        metadata: None,
        database: None,
        table: None,
        query: None,
        dataset: None,
        tag: None,
        object: None,
        batch: None,
        stream: None,
        topic: None,
        subject: None,
        format: None,
        fields: BTreeMap::new(),
        on_bad: None,
        on_gap: None,
        start: None,
        owner: about.owner,
        description: about.description,
        tags: about.tags,
    };
    match form.origin {
        Origin::Files { path } => source.path = Some(path),
        Origin::Object { object } => source.object = Some(object),
        foreign @ (Origin::Delta { .. }
        | Origin::Iceberg { .. }
        | Origin::Postgres { .. }
        | Origin::Dataset { .. }) => {
            declared::put_back(&mut source, foreign);
        }
        Origin::Push { batch } => {
            source.kind = SourceKind::Push;
            source.batch = batch.map(|batch| batch.name);
        }
        Origin::Stream(form) => {
            source.kind = SourceKind::Stream;
            source.take_stream(form, about.reading);
        }
        // Of views on demand, which have no source that is declared.
        Origin::Request => {}
    }
    source
}
