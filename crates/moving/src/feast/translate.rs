//! What Feast's words are in ours.

use std::collections::BTreeMap;

use super::wire::{
    DataSource, Duration, Entity as FeastEntity, FeatureServiceSpec, FeatureViewSpec, Field,
    Registry,
};
use super::{
    About, Column, Definitions, Entity, Left, Place, Reading, Service, Source, Translated, View,
};
use crate::{Error, Result};

/// What Feast calls the entity of views that have none.
const DUMMY: &str = "__dummy";

// Kinds of sources that have a counterpart.
const FILE: i32 = 1;
const PUSH: i32 = 9;

pub(super) fn translate(registry: &Registry, reading: &Reading<'_>) -> Result<Translated> {
    let project = project(registry, reading.project)?;
    let mut work = Work { reading, out: Definitions::default(), left: Vec::new() };
    let views: Vec<&FeatureViewSpec> = registry
        .feature_views
        .iter()
        .filter_map(|it| it.spec.as_ref())
        .filter(|it| it.project == project)
        .collect();
    for FeastEntity { spec } in &registry.entities {
        if let Some(spec) = spec.as_ref().filter(|it| it.project == project && it.name != DUMMY) {
            work.entity(spec, &views);
        }
    }
    for source in registry.data_sources.iter().filter(|it| it.project == project) {
        work.declared(source);
    }
    for view in &views {
        work.view(view);
    }
    for service in registry.feature_services.iter().filter_map(|it| it.spec.as_ref()) {
        if service.project == project {
            work.service(service);
        }
    }
    work.strangers(registry, &project);
    Ok(Translated { definitions: work.out, left: work.left })
}

/// The project of Feast's that is meant.
fn project(registry: &Registry, wanted: Option<&str>) -> Result<String> {
    let views = registry.feature_views.iter().filter_map(|it| it.spec.as_ref());
    let entities = registry.entities.iter().filter_map(|it| it.spec.as_ref());
    let mut names: Vec<&str> = views.map(|it| it.project.as_str()).collect();
    names.extend(entities.map(|it| it.project.as_str()));
    names.extend(registry.data_sources.iter().map(|it| it.project.as_str()));
    names.sort_unstable();
    names.dedup();
    match (wanted, names.as_slice()) {
        (Some(wanted), names) if names.contains(&wanted) => Ok(wanted.to_owned()),
        (Some(wanted), names) => {
            let text = format!("the registry has no project {wanted}; it has {}", names.join(", "));
            Err(Error::Unsupported(text))
        }
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(Error::Unsupported("the registry declares nothing".to_owned())),
        (None, names) => {
            let text =
                format!("the registry has several projects; name one of {}", names.join(", "));
            Err(Error::Unsupported(text))
        }
    }
}

struct Work<'a> {
    reading: &'a Reading<'a>,
    out: Definitions,
    left: Vec<Left>,
}

type Outcome<T> = std::result::Result<T, String>;

impl Work<'_> {
    fn leave(&mut self, kind: &'static str, name: &str, reason: impl Into<String>) {
        self.left.push(Left { kind, name: name.to_owned(), reason: reason.into() });
    }

    fn entity(&mut self, spec: &super::wire::EntitySpec, views: &[&FeatureViewSpec]) {
        let made = named(&spec.name).and_then(|()| {
            let key = if spec.join_key.is_empty() { &spec.name } else { &spec.join_key };
            named(key)?;
            // Views know what the column is; an entity often says nothing, or `string`.
            let columns = views.iter().filter(|view| view.entities.contains(&spec.name));
            let mut kinds: Vec<i32> = columns
                .flat_map(|view| &view.entity_columns)
                .filter(|column| column.name == *key)
                .map(|column| column.value_type)
                .collect();
            kinds.sort_unstable();
            kinds.dedup();
            let kind = match kinds.as_slice() {
                [] => spec.value_type,
                [only] => *only,
                _ => return Err(format!("views have the key {key} of several types")),
            };
            let kind = kind_of(kind).map_err(|why| format!("the key {key} is {why}"))?;
            let about = about(&spec.owner, &spec.description, &spec.tags);
            let join_keys = vec![Column { name: key.clone(), kind }];
            Ok(Entity { name: spec.name.clone(), join_keys, about })
        });
        match made {
            Ok(entity) => self.out.entity.push(entity),
            Err(why) => self.leave("entity", &spec.name, why),
        }
    }

    /// A source that is declared on its own. One that views need is looked at again with them, so
    /// that what is missing is told once.
    fn declared(&mut self, source: &DataSource) {
        if let Err(why) = self.source(source) {
            self.leave("source", &source.name, why);
        }
    }

    /// Makes a source one of ours, once; its name.
    fn source(&mut self, source: &DataSource) -> Outcome<String> {
        if self.out.source.iter().any(|known| known.name == source.name) {
            return Ok(source.name.clone());
        }
        named(&source.name)?;
        if let Some((from, to)) = source.field_mapping.iter().find(|(from, to)| from != to) {
            return Err(format!("it renames the column {from} to {to}"));
        }
        let about = about(&source.owner, &source.description, &source.tags);
        let mut made = Source {
            name: source.name.clone(),
            kind: "parquet",
            path: None,
            object: None,
            batch: None,
            about,
        };
        match source.kind {
            FILE => {
                let options = source.file_options.as_ref().ok_or("it has no file")?;
                let format = options.file_format.as_ref();
                let delta = format.is_some_and(|format| format.delta_format.is_some());
                if delta {
                    made.kind = "delta";
                }
                match (self.reading.place)(&options.uri, delta)? {
                    Place::Path(path) => made.path = Some(path),
                    Place::Object(object) => made.object = Some(object),
                }
            }
            PUSH => {
                made.kind = "push";
                if let Some(batch) = &source.batch_source {
                    let name = self.source(batch);
                    made.batch = Some(name.map_err(|why| format!("{}: {why}", batch.name))?);
                }
            }
            other => return Err(kind_of_source(other, &source.class)),
        }
        self.out.source.push(made);
        Ok(source.name.clone())
    }

    fn view(&mut self, spec: &FeatureViewSpec) {
        match self.as_view(spec) {
            Ok(view) => self.out.view.push(view),
            Err(why) => self.leave("view", &spec.name, why),
        }
    }

    fn as_view(&mut self, spec: &FeatureViewSpec) -> Outcome<View> {
        named(&spec.name)?;
        if spec.disabled {
            return Err("it is disabled".to_owned());
        }
        if spec.feature_transformation.is_some() || !spec.source_views.is_empty() {
            return Err("its features are computed by Python that was pickled, which is never run"
                .to_owned());
        }
        let entities: Vec<String> =
            spec.entities.iter().filter(|name| *name != DUMMY).cloned().collect();
        if entities.is_empty() {
            return Err("it is about no entity".to_owned());
        }
        let unknown =
            entities.iter().find(|name| self.out.entity.iter().all(|it| it.name != **name));
        if let Some(unknown) = unknown {
            return Err(format!("its entity {unknown} did not come"));
        }
        let batch = spec.batch_source.as_ref().ok_or("it has no source of history")?;
        let of = |why: String, source: &DataSource| format!("its source {}: {why}", source.name);
        let history = self.source(batch).map_err(|why| of(why, batch))?;
        let source = match &spec.stream_source {
            Some(push) if push.kind == PUSH => {
                // In a view, a push source stands without what it was declared with.
                let whole = DataSource {
                    batch_source: push
                        .batch_source
                        .clone()
                        .or_else(|| Some(Box::new(batch.clone()))),
                    ..push.clone()
                };
                self.source(&whole).map_err(|why| of(why, push))?
            }
            Some(stream) => {
                let why = format!(
                    "its stream {} ({}) did not come: declare it as a source of the kind `stream`",
                    stream.name,
                    kind_of_source(stream.kind, &stream.class)
                );
                self.leave("view", &spec.name, why);
                history
            }
            None => history,
        };
        if batch.timestamp_field.is_empty() {
            return Err("its source names no column with the time of events".to_owned());
        }
        let known = Some(batch.created_timestamp_column.clone()).filter(|name| !name.is_empty());
        Ok(View {
            name: spec.name.clone(),
            entities,
            source,
            schema: spec.features.iter().map(column).collect::<Outcome<_>>()?,
            event_time: batch.timestamp_field.clone(),
            known_time: known,
            ttl: spec.ttl.as_ref().and_then(duration),
            about: about(&spec.owner, &spec.description, &spec.tags),
        })
    }

    fn service(&mut self, spec: &FeatureServiceSpec) {
        match self.as_service(spec) {
            Ok(service) => self.out.service.push(service),
            Err(why) => self.leave("service", &spec.name, why),
        }
    }

    fn as_service(&self, spec: &FeatureServiceSpec) -> Outcome<Service> {
        named(&spec.name)?;
        let mut features = Vec::new();
        for projection in &spec.features {
            let view = &projection.view;
            if self.out.view.iter().all(|known| known.name != *view) {
                return Err(format!("its view {view} did not come"));
            }
            if !projection.alias.is_empty() && projection.alias != *view {
                return Err(format!("it calls the view {view} {}", projection.alias));
            }
            if projection.join_key_map.iter().any(|(from, to)| from != to) {
                return Err(format!("it renames the keys of the view {view}"));
            }
            features.extend(projection.features.iter().map(|it| format!("{view}:{}", it.name)));
        }
        if features.is_empty() {
            return Err("it has no features".to_owned());
        }
        let about = about(&spec.owner, &spec.description, &spec.tags);
        Ok(Service { name: spec.name.clone(), features, about })
    }

    /// What has no counterpart.
    fn strangers(&mut self, registry: &Registry, project: &str) {
        let python = "it is computed by Python that was pickled, which is never run";
        let kinds = [
            ("on-demand view", python, &registry.on_demand_feature_views),
            ("stream view", python, &registry.stream_feature_views),
            ("label view", "there are no label views", &registry.label_views),
            ("saved dataset", "put its files as a dataset", &registry.saved_datasets),
            ("permission", "write a policy in its place", &registry.permissions),
        ];
        for (kind, why, all) in kinds {
            for spec in all.iter().filter_map(|it| it.spec.as_ref()) {
                if spec.project == project {
                    self.leave(kind, &spec.name, why);
                }
            }
        }
        for reference in registry.validation_references.iter().filter(|it| it.project == project) {
            let why = "its profiler is Python that was pickled, which is never run";
            self.leave("validation reference", &reference.name, why);
        }
    }
}

fn about(owner: &str, description: &str, tags: &BTreeMap<String, String>) -> About {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    About { owner: text(owner), description: text(description), tags: tags.clone() }
}

/// Refuses a name that definitions cannot have.
fn named(name: &str) -> Outcome<()> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = name.len() <= 127
        && name.bytes().next().is_some_and(word)
        && name.bytes().all(|byte| word(byte) || matches!(byte, b'-' | b'.'));
    if fits { Ok(()) } else { Err(format!("{name:?} is no name that definitions can have")) }
}

fn column(field: &Field) -> Outcome<Column> {
    named(&field.name)?;
    let kind = kind_of(field.value_type).map_err(|why| format!("{} is {why}", field.name))?;
    Ok(Column { name: field.name.clone(), kind })
}

/// The type of a column; else what it is.
fn kind_of(number: i32) -> Outcome<String> {
    let single = |number: i32| {
        Some(match number {
            1 => "bytes",
            2 => "string",
            3 => "int32",
            4 => "int64",
            5 => "float64",
            6 => "float32",
            7 => "bool",
            8 => "timestamp",
            _ => return None,
        })
    };
    match (single(number), single(number - 10)) {
        (Some(one), _) => Ok(one.to_owned()),
        (None, Some(of)) if (11..=18).contains(&number) => Ok(format!("list<{of}>")),
        _ => Err(format!("of a type that there is not here (number {number} of Feast's)")),
    }
}

fn kind_of_source(number: i32, class: &str) -> String {
    let name = match number {
        2 => "BigQuery",
        3 => "Kafka",
        4 => "Kinesis",
        5 => "Redshift",
        7 => "data of the request",
        8 => "Snowflake",
        10 => "Trino",
        11 => "Spark",
        12 => "Athena",
        13 => "Iceberg",
        _ => class,
    };
    let name = if name.is_empty() { "of a kind that is not known" } else { name };
    format!("{name}, which cannot be read from here")
}

fn duration(ttl: &Duration) -> Option<String> {
    // Nothing means for ever, there as here.
    let micros = ttl.seconds.checked_mul(1_000_000)?.checked_add(i64::from(ttl.nanos) / 1000)?;
    match micros {
        ..=0 => None,
        whole if whole % 1_000_000 == 0 => Some(format!("{}s", whole / 1_000_000)),
        other => Some(format!("{other}us")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Entity as WireEntity, EntitySpec, FeatureView, FileOptions};
    use super::*;

    fn file(name: &str) -> DataSource {
        DataSource {
            name: name.to_owned(),
            project: "p".to_owned(),
            kind: FILE,
            timestamp_field: "ts".to_owned(),
            file_options: Some(FileOptions {
                uri: format!("data/{name}.parquet"),
                file_format: None,
            }),
            ..DataSource::default()
        }
    }

    fn registry() -> Registry {
        let entity = EntitySpec {
            name: "driver".into(),
            join_key: "id".into(),
            project: "p".into(),
            ..EntitySpec::default()
        };
        let view = FeatureViewSpec {
            name: "stats".into(),
            project: "p".into(),
            entities: vec!["driver".into()],
            features: vec![Field { name: "rate".into(), value_type: 6 }],
            entity_columns: vec![Field { name: "id".into(), value_type: 4 }],
            ttl: Some(Duration { seconds: 86_400, nanos: 0 }),
            batch_source: Some(file("trips")),
            ..FeatureViewSpec::default()
        };
        Registry {
            entities: vec![WireEntity { spec: Some(entity) }],
            data_sources: vec![file("trips")],
            feature_views: vec![FeatureView { spec: Some(view) }],
            ..Registry::default()
        }
    }

    fn run(registry: &Registry) -> Translated {
        let place = |uri: &str, _: bool| Ok(Place::Path(format!("lake/{uri}")));
        translate(registry, &Reading { project: None, place: &place }).unwrap()
    }

    #[test]
    fn definitions_come_with_their_types_and_times() {
        let found = run(&registry());
        assert_eq!(found.left, []);
        assert_eq!(found.definitions.entity[0].join_keys[0].kind, "int64");
        assert_eq!(found.definitions.source[0].path.as_deref(), Some("lake/data/trips.parquet"));
        let view = &found.definitions.view[0];
        assert_eq!((view.ttl.as_deref(), view.event_time.as_str()), (Some("86400s"), "ts"));
        assert_eq!(view.schema[0].kind, "float32");
    }

    fn changed(change: impl Fn(&mut FeatureViewSpec)) -> Translated {
        let mut registry = registry();
        change(registry.feature_views[0].spec.as_mut().unwrap());
        registry.data_sources.clear();
        run(&registry)
    }

    #[test]
    fn what_cannot_come_is_named_with_its_reason() {
        type Change = fn(&mut FeatureViewSpec);
        let table: [(Change, &str); 7] = [
            (|it| it.feature_transformation = Some(super::super::wire::Presence {}), "pickled"),
            (|it| it.entities = vec!["__dummy".into()], "no entity"),
            (|it| it.features[0].value_type = 34, "number 34"),
            (|it| it.batch_source.as_mut().unwrap().kind = 8, "Snowflake"),
            (|it| it.batch_source = None, "no source"),
            (|it| it.name = "a b".into(), "no name"),
            (
                |it| {
                    drop(
                        it.batch_source
                            .as_mut()
                            .unwrap()
                            .field_mapping
                            .insert("a".into(), "b".into()),
                    );
                },
                "renames the column a",
            ),
        ];
        for (change, words) in table {
            let found = changed(change);
            assert!(found.definitions.view.is_empty(), "{words}");
            assert!(
                found.left.iter().any(|it| it.kind == "view" && it.reason.contains(words)),
                "{words}: {:?}",
                found.left
            );
        }
    }

    #[test]
    fn a_project_is_named_where_there_are_several() {
        let mut registry = registry();
        registry.data_sources.push(DataSource { project: "q".into(), ..file("x") });
        let place = |_: &str, _: bool| Err("nowhere".to_owned());
        let read = |project| translate(&registry, &Reading { project, place: &place });
        assert!(read(None).unwrap_err().to_string().contains("p, q"));
        assert!(read(Some("z")).unwrap_err().to_string().contains("no project z"));
        assert_eq!(read(Some("q")).unwrap().left.len(), 1);
    }
}
