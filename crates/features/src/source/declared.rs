//! Sources in tables and databases of others, as their authors declare them.

use std::fmt::Display;

use falaj_base::{Error, Result};
use falaj_catalog::name::{DatasetName, TagName};

use crate::definition::form::Origin;
use crate::definition::path;
use crate::definition::spec::{Source, SourceKind};

const MAX_NAME: usize = 256;
const MAX_QUERY: usize = 64 << 10;

/// Whether sources of a kind lie with others.
pub(crate) fn foreign(kind: SourceKind) -> bool {
    matches!(
        kind,
        SourceKind::Delta | SourceKind::Iceberg | SourceKind::Postgres | SourceKind::Dataset
    )
}

/// The fields that only sources of these kinds have.
fn own(source: &Source) -> [(&'static str, Option<&dyn Display>); 10] {
    [
        ("version", source.version.as_ref().map(|it| it as _)),
        ("timestamp", source.timestamp.as_ref().map(|it| it as _)),
        ("snapshot", source.snapshot.as_ref().map(|it| it as _)),
        ("ref", source.reference.as_ref().map(|it| it as _)),
        ("metadata", source.metadata.as_ref().map(|it| it as _)),
        ("database", source.database.as_ref().map(|it| it as _)),
        ("table", source.table.as_ref().map(|it| it as _)),
        ("query", source.query.as_ref().map(|it| it as _)),
        ("dataset", source.dataset.as_ref().map(|it| it as _)),
        ("tag", source.tag.as_ref().map(|it| it as _)),
    ]
}

/// Refuses those fields but for some.
pub(crate) fn only(source: &Source, allowed: &[&str]) -> Result<()> {
    let given =
        own(source).into_iter().find(|(field, value)| value.is_some() && !allowed.contains(field));
    match given {
        Some((field, Some(value))) => {
            Err(Error::invalid(field, value, "nothing for a source of this kind"))
        }
        _ => Ok(()),
    }
}

/// Whether sources of a kind are found by something else than a path.
fn pathless(kind: SourceKind) -> bool {
    matches!(kind, SourceKind::Postgres | SourceKind::Dataset)
}

/// Refuses what no source of its kind can be.
pub(crate) fn checked(source: &Source) -> Result<()> {
    let others = [
        ("object", source.object.as_ref().map(|it| it as &dyn Display)),
        ("batch", source.batch.as_ref().map(|it| it as _)),
        ("path", source.path.as_ref().filter(|_| pathless(source.kind)).map(|it| it as _)),
    ];
    for (field, value) in others {
        if let Some(value) = value {
            return Err(Error::invalid(field, value, "nothing for a source of this kind"));
        }
    }
    match source.kind {
        SourceKind::Delta => {
            only(source, &["version", "timestamp"])?;
            folder(source)?;
            if let Some(version) = source.version.filter(|version| *version < 0) {
                return Err(Error::invalid("version", version, "0 or more"));
            }
            one_of(source, &["version", "timestamp"])
        }
        SourceKind::Dataset => {
            only(source, &["dataset", "version", "tag"])?;
            let Some(dataset) = &source.dataset else {
                return Err(Error::invalid("dataset", "absent", "the name of a dataset"));
            };
            DatasetName::new(dataset).map_err(|error| error.at("dataset"))?;
            if let Some(version) = source.version.filter(|version| *version < 1) {
                return Err(Error::invalid("version", version, "1 or more"));
            }
            if let Some(tag) = &source.tag {
                TagName::new(tag)?;
            }
            one_of(source, &["version", "tag"])
        }
        SourceKind::Iceberg => {
            only(source, &["snapshot", "ref", "timestamp", "metadata"])?;
            folder(source)?;
            if let Some(name) = &source.reference {
                bounded("ref", name, MAX_NAME)?;
            }
            if let Some(metadata) = &source.metadata {
                path::check("metadata", metadata).and_then(|()| plain("metadata", metadata))?;
            }
            one_of(source, &["snapshot", "ref", "timestamp"])
        }
        _ => {
            only(source, &["database", "table", "query"])?;
            let Some(database) = &source.database else {
                return Err(Error::invalid("database", "absent", "one of `features.databases`"));
            };
            bounded("database", database, MAX_NAME)?;
            match (&source.table, &source.query) {
                (Some(table), None) => {
                    let parts: Vec<&str> = table.split('.').collect();
                    let named =
                        |part: &&str| (1..=63).contains(&part.len()) && !part.contains('\0');
                    if parts.len() <= 2 && parts.iter().all(named) {
                        return Ok(());
                    }
                    Err(Error::invalid("table", table, "`name` or `schema.name`"))
                }
                (None, Some(query)) => queried(query),
                (Some(table), Some(_)) => {
                    Err(Error::invalid("table", table, "either a table or a query"))
                }
                (None, None) => Err(Error::invalid("table", "absent", "a table or a query")),
            }
        }
    }
}

fn folder(source: &Source) -> Result<()> {
    let Some(path) = &source.path else {
        return Err(Error::invalid("path", "absent", "the folder of the table"));
    };
    path::check("path", path).and_then(|()| plain("path", path))
}

/// A path that means one thing.
fn plain(field: &str, path: &str) -> Result<()> {
    if path.contains(['*', '?']) {
        return Err(Error::invalid(field, path, "a path without `*` and `?`"));
    }
    Ok(())
}

fn one_of(source: &Source, fields: &[&str]) -> Result<()> {
    let own = own(source);
    let mut given = own.iter().filter(|(field, value)| fields.contains(field) && value.is_some());
    if let (Some((first, _)), Some((field, Some(value)))) = (given.next(), given.next()) {
        return Err(Error::invalid(*field, value, format!("nothing beside `{first}`")));
    }
    Ok(())
}

fn queried(query: &str) -> Result<()> {
    bounded("query", query, MAX_QUERY)?;
    let text = query.trim();
    let word: String = text.chars().take_while(char::is_ascii_alphabetic).collect();
    if !["select", "with"].contains(&word.to_ascii_lowercase().as_str()) || text.ends_with(';') {
        let allowed = "one SELECT, or WITH … SELECT, without a semicolon";
        return Err(Error::invalid("query", query, allowed));
    }
    Ok(())
}

fn bounded(field: &str, text: &str, most: usize) -> Result<()> {
    if text.is_empty() || text.len() > most || text.contains('\0') {
        return Err(Error::invalid(field, text, format!("1 to {most} bytes of text")));
    }
    Ok(())
}

/// What decides the numbers of such a source.
pub(crate) fn origin(source: &Source) -> Origin {
    let path = source.path.clone().unwrap_or_default();
    match source.kind {
        SourceKind::Delta => Origin::Delta {
            path,
            version: source.version.and_then(|version| u64::try_from(version).ok()),
            timestamp: source.timestamp,
        },
        SourceKind::Iceberg => Origin::Iceberg {
            path,
            metadata: source.metadata.clone(),
            snapshot: source.snapshot,
            reference: source.reference.clone(),
            timestamp: source.timestamp,
        },
        SourceKind::Dataset => Origin::Dataset {
            dataset: source.dataset.clone().unwrap_or_default(),
            version: source.version,
            tag: source.tag.clone(),
        },
        _ => Origin::Postgres {
            database: source.database.clone().unwrap_or_default(),
            table: source.table.clone(),
            query: source.query.clone(),
        },
    }
}

/// The same as it would be asked for.
pub(crate) fn put_back(source: &mut Source, origin: Origin) {
    match origin {
        Origin::Delta { path, version, timestamp } => {
            source.kind = SourceKind::Delta;
            source.path = Some(path);
            source.version = version.and_then(|version| i64::try_from(version).ok());
            source.timestamp = timestamp;
        }
        Origin::Iceberg { path, metadata, snapshot, reference, timestamp } => {
            source.kind = SourceKind::Iceberg;
            source.path = Some(path);
            (source.metadata, source.snapshot) = (metadata, snapshot);
            (source.reference, source.timestamp) = (reference, timestamp);
        }
        Origin::Postgres { database, table, query } => {
            source.kind = SourceKind::Postgres;
            source.database = Some(database);
            (source.table, source.query) = (table, query);
        }
        Origin::Dataset { dataset, version, tag } => {
            source.kind = SourceKind::Dataset;
            source.dataset = Some(dataset);
            (source.version, source.tag) = (version, tag);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::spec::Definitions;

    fn read(text: &str) -> Source {
        let toml = format!("[[source]]\nname = \"s\"\n{text}");
        Definitions::from_toml(&toml).unwrap().sources.remove(0)
    }

    #[test]
    fn what_is_declared_comes_back_as_it_was() {
        for text in [
            "kind = \"delta\"\npath = \"lake/t\"",
            "kind = \"delta\"\npath = \"lake/a/t\"\nversion = 3",
            "kind = \"delta\"\npath = \"lake/t\"\ntimestamp = \"2026-01-01T00:00:00Z\"",
            "kind = \"iceberg\"\npath = \"lake/t\"\nsnapshot = 9223372036854775807",
            "kind = \"iceberg\"\npath = \"lake/t\"\nref = \"audit\"",
            "kind = \"iceberg\"\npath = \"lake/t\"\nmetadata = \"metadata/v3.metadata.json\"",
            "kind = \"postgres\"\ndatabase = \"w\"\ntable = \"public.t\"",
            "kind = \"postgres\"\ndatabase = \"w\"\nquery = \"\"\"with a as (select 1)\nselect * from a\"\"\"",
        ] {
            let source = read(text);
            checked(&source).unwrap_or_else(|error| panic!("{text}: {error}"));
            let mut again = read("kind = \"push\"");
            put_back(&mut again, origin(&source));
            assert_eq!(source, again);
        }
    }

    #[test]
    fn what_cannot_be_is_named_by_its_field() {
        for (text, field) in [
            ("kind = \"delta\"", "path"),
            ("kind = \"delta\"\npath = \"lake\"", "path"),
            ("kind = \"delta\"\npath = \"lake/*\"", "path"),
            ("kind = \"delta\"\npath = \"lake/../x\"", "path"),
            ("kind = \"delta\"\npath = \"lake/t\"\nversion = -1", "version"),
            ("kind = \"delta\"\npath = \"lake/t\"\nsnapshot = 1", "snapshot"),
            ("kind = \"delta\"\npath = \"lake/t\"\nobject = \"x\"", "object"),
            (
                "kind = \"delta\"\npath = \"lake/t\"\nversion = 1\ntimestamp = \"2026-01-01T00:00:00Z\"",
                "timestamp",
            ),
            ("kind = \"iceberg\"\npath = \"lake/t\"\nversion = 1", "version"),
            ("kind = \"iceberg\"\npath = \"lake/t\"\nsnapshot = 1\nref = \"a\"", "ref"),
            ("kind = \"iceberg\"\npath = \"lake/t\"\nmetadata = \"/etc/passwd\"", "metadata"),
            ("kind = \"postgres\"\ntable = \"t\"", "database"),
            ("kind = \"postgres\"\ndatabase = \"w\"", "table"),
            ("kind = \"postgres\"\ndatabase = \"w\"\ntable = \"a.b.c\"", "table"),
            ("kind = \"postgres\"\ndatabase = \"w\"\ntable = \"a\"\nquery = \"select 1\"", "table"),
            ("kind = \"postgres\"\ndatabase = \"w\"\nquery = \"drop table x\"", "query"),
            ("kind = \"postgres\"\ndatabase = \"w\"\nquery = \"select 1;\"", "query"),
            ("kind = \"postgres\"\ndatabase = \"w\"\npath = \"lake/t\"\ntable = \"t\"", "path"),
        ] {
            assert_eq!(checked(&read(text)).unwrap_err().field(), Some(field), "{text}");
        }
    }
}
