//! `/api/datasets/{name}/files`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use axum::{Json, RequestExt};
use falaj_base::{Error, Result, code};
use falaj_mlflow::{Api, Call, Places};
use falaj_store::objects::Expected;
use falaj_web::download::Download;
use falaj_web::upload::{announced, pieces};
use falaj_web::{Doc, Endpoint, query};
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::upload::{FileFormat, Manner};
use crate::{DATASET_READ, DATASET_WRITE, Datasets};

const FILES: &str = "/api/datasets/{name}/files";
const FILE: &str = "/api/datasets/{name}/files/{sha256}";

const PARQUET: &str = "application/vnd.apache.parquet";
const MOST_TYPES: usize = 2000;

const SEND: Doc = Doc {
    summary: "Send a file of Parquet or CSV, for a version to come",
    takes: Some("application/octet-stream"),
    gives: Some("application/json"),
    status: 200,
    query: &[
        ("format", "`parquet`, or `csv`"),
        ("delimiter", "what separates the fields of CSV; a comma if absent"),
        (
            "types",
            "`column=type`, separated by commas, for columns of CSV that are not what they look like",
        ),
    ],
};

const FETCH: Doc = Doc {
    summary: "Download a file of a dataset",
    takes: None,
    gives: Some(PARQUET),
    status: 200,
    query: &[],
};

pub(crate) fn routes(datasets: Arc<Datasets>, places: Places) -> Vec<Endpoint> {
    Api::new(datasets, places)
        .stream(Method::POST, FILES, &DATASET_WRITE, SEND, send)
        .stream(Method::GET, FILE, &DATASET_READ, FETCH, fetch)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct How {
    format: FileFormat,
    delimiter: Option<String>,
    types: Option<String>,
}

impl How {
    fn manner(self) -> Result<Manner> {
        let delimiter = match self.delimiter.as_deref() {
            None => b',',
            Some("\\t") => b'\t',
            Some(text) => match text.as_bytes() {
                [byte] if byte.is_ascii() && !b"\"\r\n\0".contains(byte) => *byte,
                _ => return Err(Error::invalid("delimiter", text, "one ASCII character")),
            },
        };
        let mut types = BTreeMap::new();
        for pair in self.types.iter().flat_map(|types| pairs(types)) {
            let Some((name, kind)) = pair.rsplit_once('=') else {
                return Err(Error::invalid("types", pair, "`column=type`"));
            };
            types.insert(name.to_owned(), kind.to_owned());
            if types.len() > MOST_TYPES {
                return Err(Error::invalid("types", types.len(), format!("at most {MOST_TYPES}")));
            }
        }
        Ok(Manner { format: self.format, delimiter, types })
    }
}

/// What stands between commas, but for those in parentheses: `a=decimal(10,2),b=string`.
fn pairs(types: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    types.split(move |sign: char| {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    })
}

fn bad_path(bad: axum::extract::rejection::PathRejection) -> Error {
    Error::new(&code::INVALID_INPUT, "the path is not valid").caused_by(bad)
}

async fn send(s: Arc<Datasets>, call: Call, mut request: Request) -> Result<Response> {
    let Path(At { name }) = request.extract_parts::<Path<At>>().await.map_err(bad_path)?;
    // Whoever may not write here is told so before anything is read of what they sent.
    s.seen(&call.ctx, &call.place, &name, &DATASET_WRITE).await?;
    let how: How = query(request.uri().query().unwrap_or_default())?;
    let expected = Expected { size: announced(request.headers()), sha256: None };
    let content = (pieces(request.into_body()), expected);
    let sent = s.send(&call.ctx, &call.place, &name, how.manner()?, content).await?;
    Ok(Json(sent).into_response())
}

async fn fetch(s: Arc<Datasets>, call: Call, mut request: Request) -> Result<Response> {
    let Path((name, sha256)) =
        request.extract_parts::<Path<(String, String)>>().await.map_err(bad_path)?;
    let (file, blob) = s.open_file(&call.ctx, &call.place, &name, &sha256).await?;
    let file_name = format!("{name}-{}.parquet", &file.sha256[..12.min(file.sha256.len())]);
    let extra = [("x-falaj-sha256", file.sha256.clone())];
    let download = Download {
        size: blob.size(),
        tag: &file.sha256,
        content_type: PARQUET,
        file_name: &file_name,
        modified: s.db().now(),
        extra: &extra,
    };
    let size = blob.size();
    download.answer(request.headers(), |part| match part {
        // Only a whole read is checked against the digest.
        part if part == (0..size) => Ok(Body::from_stream(blob.read())),
        part => blob.read_range(part).map(Body::from_stream),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_apart_by_commas_outside_of_parentheses() {
        let how = How { types: Some("a=decimal(10,2),b=c=string".to_owned()), ..How::default() };
        let types = how.manner().unwrap().types;
        let found: Vec<_> = types.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
        assert_eq!(found, ["a decimal(10,2)", "b=c string"]);
        let how = How { types: Some("a".to_owned()), ..How::default() };
        assert_eq!(how.manner().unwrap_err().field(), Some("types"));
    }
}
