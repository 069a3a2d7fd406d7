//! `/api/datasets/{name}/versions`, `…/data`, `…/statistics`, `…/diff`, `…/rollback`, `…/tags`.

use std::sync::Arc;

use axum::RequestExt;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use falaj_base::{Error, Page, Result, Timestamp, code};
use falaj_mlflow::asked::{Nothing, Pages};
use falaj_mlflow::{Api, Call, Places};
use falaj_web::download::Download;
use falaj_web::{Doc, Endpoint, query};
use http::{Method, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::service::NewVersion;
use super::tag::Tag;
use super::version::{Version, VersionFile, Which};
use super::whole::whole;
use crate::diff::{Answer, DiffWanted};
use crate::name::TagName;
use crate::statistics::Statistics;
use crate::{DATASET_DELETE, DATASET_READ, DATASET_WRITE, Datasets};

const VERSIONS: &str = "/api/datasets/{name}/versions";
const VERSION: &str = "/api/datasets/{name}/versions/{version}";
const DATA: &str = "/api/datasets/{name}/data";
const STATISTICS: &str = "/api/datasets/{name}/statistics";
const DIFF: &str = "/api/datasets/{name}/diff";
const ROLLBACK: &str = "/api/datasets/{name}/rollback";
const TAG: &str = "/api/datasets/{name}/tags/{tag}";

const PARQUET: &str = "application/vnd.apache.parquet";
const SAMPLES: usize = 5;

const READ: Doc = Doc {
    summary: "Download the rows of a version as one file of Parquet",
    takes: None,
    gives: Some(PARQUET),
    status: 200,
    query: &[
        ("version", "its number; the latest if absent"),
        ("tag", "a tag, in place of a number"),
        ("at", "the version that was the latest at this time"),
    ],
};

pub(crate) fn routes(datasets: Arc<Datasets>, places: Places) -> Vec<Endpoint> {
    Api::new(datasets, places)
        .at(Method::POST, VERSIONS, &DATASET_WRITE, "Make a version of files that were sent", make)
        .at(Method::GET, VERSIONS, &DATASET_READ, "List the versions of a dataset", list)
        .at(Method::GET, VERSION, &DATASET_READ, "See a version and its files", show)
        .at(Method::DELETE, VERSION, &DATASET_DELETE, "Remove the files of a version", remove)
        .stream(Method::GET, DATA, &DATASET_READ, READ, data)
        .at(Method::GET, STATISTICS, &DATASET_READ, "See what the values are like", statistics)
        .at(Method::GET, DIFF, &DATASET_READ, "Compare two versions", diff)
        .at(Method::POST, ROLLBACK, &DATASET_WRITE, "Make an older version the latest", roll_back)
        .at(Method::PUT, TAG, &DATASET_WRITE, "Give a version a name", tag)
        .at(Method::DELETE, TAG, &DATASET_WRITE, "Take a name from a version", untag)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct AtVersion {
    name: String,
    /// A number, a tag, or `latest`.
    version: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct AtTag {
    name: String,
    tag: String,
}

async fn make(s: Arc<Datasets>, call: Call, at: At, new: NewVersion) -> Result<Version> {
    s.commit(&call.ctx, &call.place, &at.name, new).await
}

async fn list(s: Arc<Datasets>, call: Call, at: At, asked: Pages) -> Result<Page<Version>> {
    s.versions(&call.ctx, &call.place, &at.name, asked.query()?).await
}

/// A version and the files that it is made of.
#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    #[serde(flatten)]
    version: Version,
    parts: Vec<VersionFile>,
}

/// What is written in a path; the dataset is authorised first, whatever that says.
async fn which(s: &Datasets, call: &Call, at: &AtVersion) -> Result<Which> {
    s.seen(&call.ctx, &call.place, &at.name, &DATASET_READ).await?;
    at.version.parse()
}

async fn show(s: Arc<Datasets>, call: Call, at: AtVersion, _: Nothing) -> Result<Shown> {
    let which = which(&s, &call, &at).await?;
    let (_, version, parts) = s.version(&call.ctx, &call.place, &at.name, which).await?;
    Ok(Shown { version, parts })
}

async fn remove(s: Arc<Datasets>, call: Call, at: AtVersion, _: Nothing) -> Result<Version> {
    s.seen(&call.ctx, &call.place, &at.name, &DATASET_DELETE).await?;
    s.remove_version(&call.ctx, &call.place, &at.name, at.version.parse()?).await
}

/// Which version; queries are text.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    /// Its number; the latest if absent.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    version: Option<i64>,
    /// A tag, in place of a number.
    tag: Option<String>,
    /// The version that was the latest at this time.
    at: Option<Timestamp>,
}

impl Asked {
    fn which(self) -> Result<Which> {
        Which::of(self.version, self.tag, self.at)
    }
}

/// The statistics of a version.
#[derive(Debug, Serialize, JsonSchema)]
struct Told {
    version: i64,
    digest: String,
    #[serde(flatten)]
    statistics: Statistics,
}

async fn statistics(s: Arc<Datasets>, call: Call, at: At, asked: Asked) -> Result<Told> {
    s.seen(&call.ctx, &call.place, &at.name, &DATASET_READ).await?;
    let which = asked.which()?;
    let (version, statistics) = s.statistics(&call.ctx, &call.place, &at.name, which).await?;
    Ok(Told { version: version.version, digest: version.digest, statistics })
}

async fn data(s: Arc<Datasets>, call: Call, mut request: Request) -> Result<Response> {
    let Path(At { name }) = request
        .extract_parts::<Path<At>>()
        .await
        .map_err(|bad| Error::new(&code::INVALID_INPUT, "the path is not valid").caused_by(bad))?;
    s.seen(&call.ctx, &call.place, &name, &DATASET_READ).await?;
    let asked: Asked = query(request.uri().query().unwrap_or_default())?;
    let opened = s.open(&call.ctx, &call.place, &name, asked.which()?).await?;
    let number = opened.version.version;
    let file_name = format!("{name}-{number}.parquet");
    if let [file] = opened.files.as_slice() {
        let blob = s.blob(&call.place, file).await?;
        let extra =
            [("x-falaj-sha256", file.sha256.clone()), ("x-falaj-version", number.to_string())];
        let download = Download {
            size: blob.size(),
            tag: &file.sha256,
            content_type: PARQUET,
            file_name: &file_name,
            modified: opened.version.created_at,
            extra: &extra,
        };
        let size = blob.size();
        return download.answer(request.headers(), |part| match part {
            // Only a whole read is checked against the digest.
            part if part == (0..size) => Ok(Body::from_stream(blob.read())),
            part => blob.read_range(part).map(Body::from_stream),
        });
    }
    // Several files become one on the way; how long it will be is not known before.
    let body = Body::from_stream(whole(&s, &call.place, opened));
    let headers = [
        (header::CONTENT_TYPE.as_str(), PARQUET.to_owned()),
        (header::CONTENT_DISPOSITION.as_str(), format!("attachment; filename={file_name}")),
        (header::X_CONTENT_TYPE_OPTIONS.as_str(), "nosniff".to_owned()),
        (header::CACHE_CONTROL.as_str(), "private, no-cache".to_owned()),
        ("x-falaj-version", number.to_string()),
    ];
    Ok((headers, body).into_response())
}

/// Which versions are compared, and how.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Between {
    /// A number or a tag; the version before `to` if absent.
    from: Option<String>,
    /// A number or a tag; the latest if absent.
    to: Option<String>,
    /// The columns that tell rows apart, separated by commas; those of the dataset if absent, and
    /// none if empty.
    key: Option<String>,
    /// How many rows of each kind are shown, 0 to 100; 5 if absent.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    samples: Option<i64>,
}

async fn diff(s: Arc<Datasets>, call: Call, at: At, asked: Between) -> Result<Answer> {
    s.seen(&call.ctx, &call.place, &at.name, &DATASET_READ).await?;
    let samples = asked.samples.map(|count| {
        usize::try_from(count).map_err(|_| Error::invalid("samples", count, "0 to 100"))
    });
    let key = asked.key.map(|text| {
        text.split(',').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect()
    });
    let parse = |text: String, field: &str| text.parse::<Which>().map_err(|error| error.at(field));
    let wanted = DiffWanted {
        from: asked.from.map(|text| parse(text, "from")).transpose()?,
        to: asked.to.map_or(Ok(Which::Latest), |text| parse(text, "to"))?,
        key,
        samples: samples.transpose()?.unwrap_or(SAMPLES),
    };
    s.diff(&call.ctx, &call.place, &at.name, wanted).await
}

/// Where to go back to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Back {
    /// A number or a tag.
    to: String,
    /// Why, for the history.
    #[serde(default)]
    message: Option<String>,
}

async fn roll_back(s: Arc<Datasets>, call: Call, at: At, back: Back) -> Result<Version> {
    s.seen(&call.ctx, &call.place, &at.name, &DATASET_WRITE).await?;
    let which = back.to.parse::<Which>().map_err(|error| error.at("to"))?;
    s.roll_back(&call.ctx, &call.place, &at.name, which, back.message).await
}

/// The version that gets a name.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Named {
    /// The latest if absent.
    version: Option<i64>,
    /// Whether the name stays with it for ever.
    fixed: bool,
}

async fn tag(s: Arc<Datasets>, call: Call, at: AtTag, named: Named) -> Result<Tag> {
    s.seen(&call.ctx, &call.place, &at.name, &DATASET_WRITE).await?;
    let (which, name) = (Which::of(named.version, None, None)?, TagName::new(at.tag)?);
    s.tag(&call.ctx, &call.place, (&at.name, name), which, named.fixed).await
}

async fn untag(s: Arc<Datasets>, call: Call, at: AtTag, _: Nothing) -> Result<Tag> {
    s.seen(&call.ctx, &call.place, &at.name, &DATASET_WRITE).await?;
    let name = TagName::new(&at.tag).map_err(|_| Error::not_found("tag", &at.tag))?;
    s.untag(&call.ctx, &call.place, (&at.name, name)).await
}
