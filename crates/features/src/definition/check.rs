//! What each definition must keep to on its own, before it is put beside others.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use falaj_base::{Error, Result};
use falaj_online::value::Kind;

use super::spec::{
    About, CheckEvery, Column, Definitions, Entity, Service, Source, SourceKind, View,
};
use crate::config::FeaturesConfig;
use crate::knowledge::skew::MOST as MAX_SAMPLE;
use crate::name::FeatureName;
use crate::source::declared;
use crate::transform::form::Share;

const MAX_OWNER: usize = 256;
const MAX_DESCRIPTION: usize = 4096;
const MAX_TAGS: usize = 64;
const MAX_TAG: usize = 256;
const MAX_PATH: usize = 1024;
const MAX_CLASSIFICATION: usize = 63;

/// Names that a training set gives to columns of its own.
const RESERVED: &str = "__";

/// Refuses what no neighbour could make right. The field is named from the request's root.
pub(super) fn check(wanted: &Definitions, config: &FeaturesConfig) -> Result<()> {
    if wanted.is_empty() {
        let allowed = "at least one of entities, sources, views or services";
        return Err(Error::invalid("body", "no definitions", allowed));
    }
    if wanted.len() > config.max_apply {
        let allowed = format!("at most {} (`features.max_apply`)", config.max_apply);
        return Err(Error::invalid("body", format!("{} definitions", wanted.len()), allowed));
    }
    each("entities", &wanted.entities, |it| &it.name, |it| entity(it, config))?;
    each("sources", &wanted.sources, |it| &it.name, source)?;
    each("views", &wanted.views, |it| &it.name, |it| view(it, config))?;
    each("services", &wanted.services, |it| &it.name, |it| service(it, config))
}

fn each<T>(
    field: &str,
    all: &[T],
    name: impl Fn(&T) -> &FeatureName,
    check: impl Fn(&T) -> Result<()>,
) -> Result<()> {
    let mut names = BTreeSet::new();
    for (place, one) in all.iter().enumerate() {
        let at = format!("{field}[{place}]");
        if !names.insert(name(one)) {
            let allowed = "each name once";
            return Err(Error::invalid(format!("{at}.name"), name(one), allowed));
        }
        check(one).map_err(|error| error.within(&at))?;
    }
    Ok(())
}

fn entity(entity: &Entity, config: &FeaturesConfig) -> Result<()> {
    about(&entity.about())?;
    columns("join_keys", &entity.join_keys, config.max_keys)?;
    for (place, key) in entity.join_keys.iter().enumerate() {
        let fits = matches!(key.kind, Kind::One(scalar) if scalar.is_key());
        if !fits {
            let allowed = "bool, int32, int64, string, bytes or timestamp as a key";
            return Err(Error::invalid(format!("join_keys[{place}].type"), key.kind, allowed));
        }
    }
    Ok(())
}

fn source(source: &Source) -> Result<()> {
    about(&source.about())?;
    let absent = |field: &str, given: Option<&dyn Display>| match given {
        Some(value) => Err(Error::invalid(field, value, "nothing for a source of this kind")),
        None => Ok(()),
    };
    if source.kind != SourceKind::Stream {
        crate::stream::unasked(source)?;
    }
    if !declared::foreign(source.kind) {
        declared::only(source, &[])?;
    }
    match source.kind {
        SourceKind::Stream => {
            absent("path", source.path.as_ref().map(|it| it as _))?;
            absent("object", source.object.as_ref().map(|it| it as _))?;
            crate::stream::checked(source)
        }
        SourceKind::Push => {
            absent("path", source.path.as_ref().map(|it| it as _))?;
            absent("object", source.object.as_ref().map(|it| it as _))
        }
        SourceKind::Delta | SourceKind::Iceberg | SourceKind::Postgres | SourceKind::Dataset => {
            declared::checked(source)
        }
        SourceKind::Parquet => {
            absent("batch", source.batch.as_ref().map(|it| it as _))?;
            match (&source.path, &source.object) {
                (Some(path), None) => super::path::check("path", path),
                (None, Some(object)) => bounded("object", object, MAX_PATH),
                (Some(path), Some(_)) => {
                    Err(Error::invalid("path", path, "either a path or an object"))
                }
                (None, None) => Err(Error::invalid("path", "absent", "a path or an object")),
            }
        }
    }
}

fn view(view: &View, config: &FeaturesConfig) -> Result<()> {
    about(&view.about())?;
    transformed(view, config)?;
    if let Some(classification) = &view.classification {
        bounded("classification", classification, MAX_CLASSIFICATION)?;
    }
    for (place, column) in view.schema.iter().enumerate() {
        if let Some(classification) = &column.classification {
            let field = format!("schema[{place}].classification");
            bounded(&field, classification, MAX_CLASSIFICATION)?;
        }
    }
    if view.freshness.is_some_and(|age| age.get().is_zero()) {
        return Err(Error::invalid(
            "freshness",
            "0s",
            "more than nothing; leave it out for any age",
        ));
    }
    if let Some(check) = view.check {
        checked(check).map_err(|error| error.within("check"))?;
    }
    if let Some(ttl) = view.ttl {
        let micros = i64::try_from(ttl.get().as_micros()).ok().filter(|micros| *micros > 0);
        if micros.is_none() {
            return Err(Error::invalid("ttl", ttl, "more than nothing; leave it out for ever"));
        }
    }
    let times = [("event_time", Some(&view.event_time)), ("known_time", view.known_time.as_ref())];
    for (field, time) in times {
        if let Some(time) = time {
            let mut all = view.schema.iter().chain(&view.columns).map(|column| &column.name);
            if all.any(|name| name == time) {
                return Err(Error::invalid(field, time, "a column that is no feature"));
            }
            reserved(field, time)?;
        }
    }
    if view.known_time.as_ref() == Some(&view.event_time) {
        let allowed = "another column than `event_time`, or nothing";
        return Err(Error::invalid("known_time", &view.event_time, allowed));
    }
    Ok(())
}

/// The least time between two comparisons: each reads the history of the view.
const LEAST_EVERY: Duration = Duration::from_mins(1);

fn checked(check: CheckEvery) -> Result<()> {
    if check.every.get() < LEAST_EVERY {
        return Err(Error::invalid("every", check.every, "at least 1m"));
    }
    if let Some(sample) = check.sample.filter(|sample| !(1..=MAX_SAMPLE).contains(sample)) {
        return Err(Error::invalid("sample", sample, format!("1 to {MAX_SAMPLE}")));
    }
    let wrong = |share: &Share| !(0.0..=1.0).contains(&share.0);
    check
        .threshold
        .filter(wrong)
        .map_or(Ok(()), |share| Err(Error::invalid("threshold", share.0, "0 to 1")))
}

/// What a view has depends on how its features are made.
fn transformed(view: &View, config: &FeaturesConfig) -> Result<()> {
    let nothing = |field: &str, given: bool, allowed: &str| {
        if given { Err(Error::invalid(field, "given", allowed)) } else { Ok(()) }
    };
    if let Some(sql) = &view.sql {
        bounded("sql", sql, falaj_transform::sql::MAX_BYTES)?;
    }
    if !view.kind.is_rows() {
        let allowed = "nothing for a view on demand";
        nothing("entities", !view.entities.is_empty(), "nothing: those of its inputs are meant")?;
        nothing("source", view.source.is_some(), allowed)?;
        nothing("columns", !view.columns.is_empty(), "nothing: `inputs` are what it has")?;
        nothing("aggregates", !view.aggregates.is_empty(), allowed)?;
        nothing("known_time", view.known_time.is_some(), allowed)?;
        nothing("ttl", view.ttl.is_some(), allowed)?;
        nothing("freshness", view.freshness.is_some(), allowed)?;
        nothing("check", view.check.is_some(), allowed)?;
        if view.inputs.is_empty() || view.inputs.len() > config.max_fields {
            let allowed = format!("1 to {} (`features.max_fields`)", config.max_fields);
            return Err(Error::invalid("inputs", view.inputs.len(), allowed));
        }
        return if view.schema.is_empty() {
            Ok(())
        } else {
            columns("schema", &view.schema, config.max_fields)
        };
    }
    nothing("inputs", !view.inputs.is_empty(), "nothing but for `kind = \"on_demand\"`")?;
    if view.source.is_none() {
        return Err(Error::invalid("source", "absent", "the name of a source"));
    }
    once("entities", &view.entities)?;
    if !view.columns.is_empty() {
        columns("columns", &view.columns, config.max_fields)?;
    }
    if view.aggregates.is_empty() {
        if view.sql.is_none() || !view.schema.is_empty() {
            columns("schema", &view.schema, config.max_fields)?;
        }
        return Ok(());
    }
    nothing("schema", !view.schema.is_empty(), "nothing: the aggregates tell their types")?;
    let allowed = "nothing: windows tell how long events count";
    nothing("ttl", view.ttl.is_some(), allowed)?;
    if view.aggregates.len() > config.max_fields {
        let allowed = format!("at most {} (`features.max_fields`)", config.max_fields);
        return Err(Error::invalid("aggregates", view.aggregates.len(), allowed));
    }
    let names: Vec<_> = view.aggregates.iter().map(|it| it.name.clone()).collect();
    once("aggregates", &names)?;
    for (place, name) in names.iter().enumerate() {
        reserved(&format!("aggregates[{place}].name"), name)?;
    }
    Ok(())
}

fn service(service: &Service, config: &FeaturesConfig) -> Result<()> {
    about(&service.about())?;
    if service.features.is_empty() {
        return Err(Error::invalid("features", "nothing", "at least one"));
    }
    if service.features.len() > config.max_fields {
        let allowed = format!("at most {} (`features.max_fields`)", config.max_fields);
        return Err(Error::invalid("features", service.features.len(), allowed));
    }
    for (place, reference) in service.features.iter().enumerate() {
        if reference.version.is_some() {
            let allowed = "no version: a version of the service fixes those of its views";
            return Err(Error::invalid(format!("features[{place}]"), reference, allowed));
        }
    }
    Ok(())
}

fn columns(field: &str, columns: &[Column], most: usize) -> Result<()> {
    if columns.is_empty() {
        return Err(Error::invalid(field, "nothing", "at least one column"));
    }
    if columns.len() > most {
        return Err(Error::invalid(field, columns.len(), format!("at most {most} columns")));
    }
    let names: Vec<_> = columns.iter().map(|column| column.name.clone()).collect();
    once(field, &names)?;
    for (place, name) in names.iter().enumerate() {
        reserved(&format!("{field}[{place}].name"), name)?;
    }
    Ok(())
}

fn reserved(field: &str, name: &FeatureName) -> Result<()> {
    if name.as_str().starts_with(RESERVED) {
        return Err(Error::invalid(field, name, "a name that does not begin with `__`"));
    }
    Ok(())
}

fn once(field: &str, names: &[FeatureName]) -> Result<()> {
    if names.is_empty() {
        return Err(Error::invalid(field, "nothing", "at least one"));
    }
    let mut seen = BTreeSet::new();
    let twice = names.iter().position(|name| !seen.insert(name));
    twice.map_or(Ok(()), |place| {
        Err(Error::invalid(format!("{field}[{place}]"), &names[place], "each name once"))
    })
}

fn about(about: &About) -> Result<()> {
    if let Some(owner) = &about.owner {
        bounded("owner", owner, MAX_OWNER)?;
    }
    if let Some(description) = &about.description {
        bounded("description", description, MAX_DESCRIPTION)?;
    }
    if about.tags.len() > MAX_TAGS {
        return Err(Error::invalid("tags", about.tags.len(), format!("at most {MAX_TAGS}")));
    }
    for (key, value) in &about.tags {
        bounded("tags", key, MAX_TAG)?;
        if value.len() > MAX_TAG {
            let allowed = format!("at most {MAX_TAG} bytes");
            return Err(Error::invalid(format!("tags.{key}"), value, allowed));
        }
    }
    Ok(())
}

fn bounded(field: &str, text: &str, most: usize) -> Result<()> {
    if text.is_empty() || text.len() > most || text.contains('\0') {
        return Err(Error::invalid(field, text, format!("1 to {most} bytes of text")));
    }
    Ok(())
}
