//! Strict parsing of what a caller sends: path, query and JSON body, each into its own type.
//!
//! Anything unknown, double, of the wrong type or out of place is refused with the field's name.

use std::any::TypeId;

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::path::ErrorKind as PathError;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, Path, Request};
use falaj_base::{Error, Result, code};
use http::header;
use serde::de::DeserializeOwned;

/// Everything a handler gets from the request. Write `()` for a part the endpoint does not take.
#[derive(Debug)]
pub struct Input<P = (), Q = (), B = ()> {
    pub path: P,
    pub query: Q,
    pub body: B,
}

/// Whether `T` is `()`: the endpoint does not take this part.
pub(crate) fn absent<T: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<()>()
}

impl<P, Q, B> Input<P, Q, B>
where
    P: DeserializeOwned + Send + 'static,
    Q: DeserializeOwned + 'static,
    B: DeserializeOwned + 'static,
{
    pub(crate) async fn read(mut request: Request) -> Result<Self> {
        let path = read_path(&mut request).await?;
        let query_part = query(request.uri().query().unwrap_or(""))?;
        let body = read_body(request).await?;
        Ok(Self { path, query: query_part, body })
    }
}

async fn read_path<P: DeserializeOwned + Send + 'static>(request: &mut Request) -> Result<P> {
    if absent::<P>() {
        return serde_json::from_str("null").map_err(Error::internal);
    }
    let Path(path) = request.extract_parts::<Path<P>>().await.map_err(|rejection| {
        let PathRejection::FailedToDeserializePathParams(failed) = &rejection else {
            return Error::internal(rejection);
        };
        let (field, why) = match failed.kind() {
            PathError::DeserializeError { key, message, .. } => (key.as_str(), message.clone()),
            PathError::ParseErrorAtKey { key, expected_type, .. } => {
                (key.as_str(), format!("`{key}` is not a {expected_type}"))
            }
            _ => ("path", "the path is not valid".to_owned()),
        };
        Error::new(&code::INVALID_INPUT, why).at(field)
    })?;
    Ok(path)
}

/// Reads the query of a raw endpoint as strictly as that of a typed one.
pub fn query<Q: DeserializeOwned + 'static>(text: &str) -> Result<Q> {
    if absent::<Q>() {
        return if text.is_empty() {
            serde_json::from_str("null").map_err(Error::internal)
        } else {
            Err(Error::invalid("query", text, "no query parameters"))
        };
    }
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
    serde_path_to_error::deserialize(pairs).map_err(|error| malformed(&error, "query"))
}

async fn read_body<B: DeserializeOwned + 'static>(request: Request) -> Result<B> {
    if absent::<B>() {
        return serde_json::from_str("null").map_err(Error::internal);
    }
    // A page of another site can send a form or plain text without asking; JSON it cannot.
    if !is_json(&request) {
        return Err(Error::new(&code::UNSUPPORTED_MEDIA, "the body must be application/json")
            .at("content-type"));
    }
    let bytes = Bytes::from_request(request, &()).await.map_err(body_error)?;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let value =
        serde_path_to_error::deserialize(&mut json).map_err(|error| malformed(&error, "body"))?;
    json.end().map_err(|error| Error::new(&code::MALFORMED_BODY, error.to_string()))?;
    Ok(value)
}

fn is_json(request: &Request) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    content_type
        .and_then(|value| value.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

fn body_error(rejection: BytesRejection) -> Error {
    let status = rejection.status();
    if status == http::StatusCode::PAYLOAD_TOO_LARGE {
        Error::new(&code::TOO_LARGE, "the body is larger than this route accepts").at("body")
    } else {
        Error::new(&code::MALFORMED_BODY, "the body could not be read").caused_by(rejection)
    }
}

/// Names the field by its path (`tags.owner`), and says what the parser expected there.
fn malformed<E: std::error::Error>(error: &serde_path_to_error::Error<E>, part: &str) -> Error {
    let path = error.path().to_string();
    let field = if path == "." { part.to_owned() } else { path };
    let why: String = error.inner().to_string().chars().take(300).collect();
    Error::new(&code::INVALID_INPUT, format!("`{field}`: {why}")).at(field)
}
