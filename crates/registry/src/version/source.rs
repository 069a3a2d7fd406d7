//! Reading the source of a version: what it names, before anyone asks whether that is there.
//!
//! The text comes from a client and is handed to other clients, which fetch from it. It is never a
//! path on this machine, and nothing in it climbs.

use falaj_base::{Error, Result, percent_decoded};
use falaj_mlflow::error::refused;
use falaj_tracking::artifact::{climbs, collects_tokens};

use super::stage::Stage;
use crate::access::shown;

/// What a source names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `runs:/<run>/<path>`
    Run { run: String, path: String },
    /// `models:/<m-id>`
    LoggedModel(String),
    /// `models:/<name>/<version>` and its kin: another version of this registry.
    Version { name: String, which: Which },
    /// `mlflow-artifacts:[//<authority>]/<path>`: files that this server keeps.
    Artifacts(Location),
    /// Somewhere else, by a scheme that only clients follow.
    Elsewhere,
}

/// Which version of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Number(i64),
    Newest(Option<Stage>),
    Alias(String),
}

/// A place among the artifacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    authority: String,
    /// The parts of the path, none of them empty.
    parts: Vec<String>,
}

impl Location {
    /// Reads an `mlflow-artifacts:` URI; `None` for any other.
    pub(super) fn parse(uri: &str) -> Option<Self> {
        let rest = scheme(uri).filter(|(name, _)| name == "mlflow-artifacts")?.1;
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
            None => ("", rest),
        };
        let parts = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        Some(Self { authority: authority.to_ascii_lowercase(), parts: parts.collect() })
    }

    /// Whether it is `root` or lies inside it.
    pub(super) fn is_within(&self, root: &Self) -> bool {
        self.authority == root.authority
            && !root.parts.is_empty()
            && self.parts.starts_with(&root.parts)
    }

    /// The path without its outer slashes.
    pub(super) fn path(&self) -> String {
        self.parts.join("/")
    }

    pub(super) fn join(mut self, below: &str) -> Self {
        self.parts.extend(below.split('/').filter(|part| !part.is_empty()).map(str::to_owned));
        self
    }
}

impl Source {
    pub(super) fn parse(source: &str) -> Result<Self> {
        check_no_climbing(source)?;
        let Some((scheme, rest)) = scheme(source).filter(|(name, _)| name != "file") else {
            return Err(refused(format!(
                "Invalid model version source: '{}'. To use a local path as a model version \
                 source, the run_id request parameter has to be specified and the local path has \
                 to be contained within the artifact directory of the run specified by the \
                 run_id. This server keeps no artifacts at local paths.",
                shown(source)
            ))
            .at("source"));
        };
        match scheme.as_str() {
            "runs" => run(rest).ok_or_else(|| not_inside(source, "run_id")),
            "models" => model(rest).ok_or_else(|| not_inside(source, "model_id")),
            "mlflow-artifacts" => Location::parse(source)
                .filter(|_| !rest.contains(['?', '#']))
                .map(Self::Artifacts)
                .ok_or_else(|| not_inside(source, "run_id")),
            // Our own files by another spelling, or a host to which clients would send their tokens.
            _ if collects_tokens(source) => Err(not_inside(source, "run_id")),
            _ if has_path(rest) => Ok(Self::Elsewhere),
            _ => Err(no_absolute_path(source)),
        }
    }
}

/// A source does not lie inside the run or model that the request names.
pub(super) fn not_inside(source: &str, parameter: &str) -> Error {
    refused(format!(
        "Invalid model version source: '{}'. The {parameter} request parameter must identify the \
         resource that contains the source.",
        shown(source)
    ))
    .at("source")
}

/// The scheme in small letters, and what follows. One letter alone is a drive.
fn scheme(uri: &str) -> Option<(String, &str)> {
    let (name, rest) = uri.split_once(':')?;
    let word = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let formed = name.len() > 1
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(word);
    formed.then(|| (name.to_ascii_lowercase(), rest))
}

fn run(rest: &str) -> Option<Source> {
    let path = rest.strip_prefix('/').filter(|path| !path.starts_with('/'))?;
    let (run, path) = path.split_once('/').unwrap_or((path, ""));
    if run.is_empty() || rest.contains(['?', '#']) {
        return None;
    }
    Some(Source::Run { run: run.to_owned(), path: path.trim_matches('/').to_owned() })
}

fn model(rest: &str) -> Option<Source> {
    let path = rest.strip_prefix('/').filter(|path| !path.starts_with('/'))?;
    let (name, which) = match path.split_once('/') {
        Some((name, which)) if !which.contains('/') => {
            let which = match which {
                "" => return None,
                number if number.bytes().all(|b| b.is_ascii_digit()) => {
                    Which::Number(number.parse().ok()?)
                }
                word if word.eq_ignore_ascii_case("latest") => Which::Newest(None),
                stage => Which::Newest(Some(Stage::parse(stage).ok()?)),
            };
            (name, which)
        }
        Some(_) => return None,
        None => match path.rsplit_once('@') {
            Some((name, alias)) if !alias.is_empty() => (name, Which::Alias(alias.to_owned())),
            Some(_) => return None,
            None if path.is_empty() => return None,
            None => return Some(Source::LoggedModel(path.to_owned())),
        },
    };
    (!name.trim().is_empty()).then(|| Source::Version { name: name.to_owned(), which })
}

/// Refuses what would lead upwards once someone decodes it, however often that takes.
fn check_no_climbing(source: &str) -> Result<()> {
    let plain = decoded(source);
    if climbs(&plain) || plain.chars().any(char::is_control) {
        return Err(no_absolute_path(source));
    }
    Ok(())
}

fn no_absolute_path(source: &str) -> Error {
    refused(format!(
        "Invalid model version source: '{}'. If supplying a source as an http, https, local file \
         path, ftp, objectstore, or mlflow-artifacts uri, an absolute path must be provided \
         without relative path references present. Please provide an absolute path.",
        shown(source)
    ))
    .at("source")
}

/// Whether something is named below the host: a bucket or a server alone is no model.
fn has_path(rest: &str) -> bool {
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let path = match rest[..end].strip_prefix("//") {
        Some(named) => named.find('/').map_or("", |at| &named[at..]),
        None => &rest[..end],
    };
    path.starts_with('/') && !path.trim_matches('/').is_empty()
}

/// The text with all its percent signs resolved, until there are none.
fn decoded(text: &str) -> String {
    let mut text = text.to_owned();
    loop {
        let next = percent_decoded(&text);
        if next.len() >= text.len() {
            return next;
        }
        text = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_sources_name() {
        let run = |run: &str, path: &str| Source::Run { run: run.into(), path: path.into() };
        let version = |name: &str, which| Source::Version { name: name.into(), which };
        for (text, source) in [
            ("runs:/abc/model", run("abc", "model")),
            ("runs:/abc", run("abc", "")),
            ("RUNS:/abc/a/b/", run("abc", "a/b")),
            ("models:/m-1", Source::LoggedModel("m-1".into())),
            ("models:/a b/3", version("a b", Which::Number(3))),
            ("models:/a/latest", version("a", Which::Newest(None))),
            ("models:/a/production", version("a", Which::Newest(Some(Stage::Production)))),
            ("models:/a@champion", version("a", Which::Alias("champion".into()))),
            ("models:/a@b@c", version("a@b", Which::Alias("c".into()))),
            ("s3://bucket/a/b", Source::Elsewhere),
            ("dbfs:/a", Source::Elsewhere),
            ("hdfs://h/a..b", Source::Elsewhere),
        ] {
            assert_eq!(Source::parse(text).unwrap(), source, "{text}");
        }
        let Source::Artifacts(place) = Source::parse("mlflow-artifacts:/1//r/artifacts/").unwrap()
        else {
            panic!("not an artifact");
        };
        assert_eq!(place.path(), "1/r/artifacts");
    }

    #[test]
    fn what_is_no_source() {
        for text in [
            "",
            "model",
            "/etc/passwd",
            "./x",
            "../x",
            "file:/x",
            "FILE:///x",
            "C:/x",
            "c:\\x",
            "\\\\host\\x",
            "runs:",
            "runs:/",
            "runs://host/x",
            "runs:x/y",
            "runs:/x?y",
            "models:/",
            "models://h/a/1",
            "models:/a/b/c",
            "models:/a/",
            "models:/a@",
            "models:/ /1",
            "models:/a/nostage",
            "mlflow-artifacts:/1/../2",
            "mlflow-artifacts:/1/%2e%2e/2",
            "mlflow-artifacts:/1/%252e%252e/2",
            "mlflow-artifacts:/1?x",
            "s3://b/..",
            "s3://b/%2E%2e/x",
            "s3://b/..%5cx",
            "s3://b/x%00",
            "s3://b/\n",
            "https://h/model",
            "HTTP://h/model",
            "https://h/api/2.0/mlflow-artifacts/artifacts/1/r",
            "https://h/api/2.0/mlflow%2dartifacts/artifacts/1/r",
        ] {
            assert!(Source::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn inside() {
        let at = |text: &str| Location::parse(text).unwrap();
        let root = at("mlflow-artifacts:/1/r/artifacts");
        for (text, inside) in [
            ("mlflow-artifacts:/1/r/artifacts", true),
            ("mlflow-artifacts:1/r/artifacts/model", true),
            ("mlflow-artifacts:///1/r/artifacts/model", true),
            ("mlflow-artifacts:/1/r/artifacts2", false),
            ("mlflow-artifacts:/1/r", false),
            ("mlflow-artifacts:/", false),
            ("mlflow-artifacts://h/1/r/artifacts/model", false),
        ] {
            assert_eq!(at(text).is_within(&root), inside, "{text}");
        }
        assert!(!root.is_within(&at("mlflow-artifacts:/")), "everything lies below the root");
    }

    proptest! {
        #[test]
        fn nothing_that_is_accepted_climbs(text in "(runs:/|models:/|mlflow-artifacts:/|s3://)[a.%25ef/\\\\]{0,12}") {
            if Source::parse(&text).is_ok() {
                prop_assert!(!decoded(&text).split(['/', '\\']).any(|part| part == ".."));
            }
        }
    }
}
