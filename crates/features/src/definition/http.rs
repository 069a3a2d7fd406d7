//! `/api/features/apply`, `…/entities`, `…/sources`, `…/views`, `…/services`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use falaj_base::{Error, Page, Resource, Result, code};
use falaj_mlflow::asked::Pages;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::{Doc, Endpoint, query};
use http::{Method, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::definition::Definition;
use super::form::Noun;
use super::service::Diff;
use super::spec::Definitions;
use crate::name::FeatureName;
use crate::{FEATURE_APPLY, FEATURE_READ, Features};

const APPLY: Doc = Doc {
    summary: "Declare entities, sources, feature views and services, as JSON or as TOML",
    takes: Some("application/json"),
    gives: Some("application/json"),
    status: 200,
    query: &[("dry_run", "`true` to see what would change, and change nothing")],
};

macro_rules! nouns {
    ($api:ident: $($noun:ident at $path:literal as $one:literal;)*) => {
        $api$(
            .get(
                concat!("/api/features/", $path),
                &FEATURE_READ,
                concat!("List ", $path),
                |s: Arc<Features>, call: Call, asked: Pages| list(s, call, Noun::$noun, asked),
            )
            .at(
                Method::GET,
                concat!("/api/features/", $path, "/{name}"),
                &FEATURE_READ,
                concat!("See one of the ", $path),
                |s: Arc<Features>, call: Call, at: At, asked: Which| {
                    show(s, call, Noun::$noun, at, asked)
                },
            )
            .at(
                Method::GET,
                concat!("/api/features/", $path, "/{name}/diff"),
                &FEATURE_READ,
                concat!("See what changed between two versions of one of the ", $path),
                |s: Arc<Features>, call: Call, at: At, asked: Between| {
                    diff(s, call, Noun::$noun, at, asked)
                },
            )
        )*
    };
}

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    let api = Api::new(features, places).stream(
        Method::POST,
        "/api/features/apply",
        &FEATURE_APPLY,
        APPLY,
        apply,
    );
    nouns! { api:
        Entity at "entities" as "entity";
        Source at "sources" as "source";
        View at "views" as "view";
        Service at "services" as "service";
    }
    .into()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct How {
    dry_run: bool,
}

async fn apply(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    let How { dry_run } = query(request.uri().query().unwrap_or_default())?;
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim().to_owned();
    let body = Bytes::from_request(request, &()).await.map_err(|rejected| {
        Error::new(&code::MALFORMED_BODY, "the body broke off").caused_by(rejected)
    })?;
    let wanted = match kind.to_ascii_lowercase().as_str() {
        "application/json" => Definitions::from_json(&body)?,
        "application/toml" => {
            let text = std::str::from_utf8(&body)
                .map_err(|_| Error::new(&code::MALFORMED_BODY, "the body is not UTF-8"))?;
            Definitions::from_toml(text)?
        }
        _ => {
            let text = "the body must be application/json or application/toml";
            return Err(Error::new(&code::UNSUPPORTED_MEDIA, text).at("content-type"));
        }
    };
    let report = s.apply(&call.ctx, &call.place, wanted, dry_run).await?;
    Ok(Json(report).into_response())
}

async fn list(s: Arc<Features>, call: Call, noun: Noun, asked: Pages) -> Result<Page<Definition>> {
    s.definitions(&call.ctx, &call.place, noun, asked.query()?).await
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    name: String,
}

/// Which version; queries are text.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Which {
    /// The latest if absent.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    version: Option<i64>,
}

/// A name that nothing can have is that of nothing, for whoever may ask.
async fn name(call: &Call, noun: Noun, text: &str) -> Result<FeatureName> {
    let Ok(name) = FeatureName::new(text) else {
        let shown = format!("{noun} {text}");
        let absent = Resource::absent("feature", &shown, call.place.scope());
        call.ctx.authorize(&FEATURE_READ, &absent.with(call.place.attributes())).await?;
        return Err(Error::not_found("feature", shown));
    };
    Ok(name)
}

async fn show(
    s: Arc<Features>,
    call: Call,
    noun: Noun,
    at: At,
    asked: Which,
) -> Result<Definition> {
    let name = name(&call, noun, &at.name).await?;
    s.definition(&call.ctx, &call.place, noun, &name, asked.version).await
}

/// Which versions are compared.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Between {
    /// The one before `to` if absent.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    from: Option<i64>,
    /// The latest if absent.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    to: Option<i64>,
}

async fn diff(s: Arc<Features>, call: Call, noun: Noun, at: At, asked: Between) -> Result<Diff> {
    let name = name(&call, noun, &at.name).await?;
    s.diff(&call.ctx, &call.place, noun, &name, (asked.from, asked.to)).await
}
