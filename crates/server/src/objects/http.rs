//! `/v1/tenants/{tenant}/projects/{project}/objects`.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use axum::routing;
use bytes::Bytes;
use falaj_base::{Ctx, Error, Name, Page, PageQuery, Result, Timestamp, code};
use falaj_store::objects::{Blob, Expected};
use falaj_web::{Doc, Input, Ok200, Routes, problem_response};
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::name::ObjectName;
use super::object::{NewObject, Object, hex, unhex};
use super::range::{self, Wanted};
use super::service::ObjectService;
use super::{OBJECT_DELETE, OBJECT_LIST, OBJECT_READ, OBJECT_WRITE};

const OBJECTS: &str = "/v1/tenants/{tenant}/projects/{project}/objects";
const OBJECT: &str = "/v1/tenants/{tenant}/projects/{project}/objects/{*name}";

/// The digest of the content, in requests (to be checked) and replies.
const SHA256: &str = "x-falaj-sha256";
/// The longest content type that is kept.
const CONTENT_TYPE_LIMIT: usize = 255;
const ANY: &str = "application/octet-stream";

#[must_use]
pub fn routes(service: Arc<ObjectService>) -> Routes<ObjectService> {
    let (s, t, u, v) = (service.clone(), service.clone(), service.clone(), service.clone());
    let doc = |summary, takes, gives, status| Doc { summary, takes, gives, status, query: &[] };
    let put =
        routing::put(move |Extension(ctx), path, request| write(s.clone(), ctx, path, request));
    let get = routing::get(move |Extension(ctx), path, headers: HeaderMap| {
        read(t.clone(), ctx, path, headers, true)
    });
    let head = routing::head(move |Extension(ctx), path, headers: HeaderMap| {
        read(u.clone(), ctx, path, headers, false)
    });
    let delete = routing::delete(move |Extension(ctx), path| remove(v.clone(), ctx, path));
    let json = Some("application/json");
    let put_doc = doc("Store an object, or replace it", Some(ANY), json, 201);
    let get_doc = doc("Read an object, or a range of it", None, Some(ANY), 200);
    let head_doc = doc("Show what is known about an object", None, None, 200);
    let delete_doc = doc("Delete an object", None, None, 204);
    Routes::new(service)
        .get(OBJECTS, &OBJECT_LIST, "List the objects of a project", list)
        .raw(Method::PUT, OBJECT, &OBJECT_WRITE, put_doc, put)
        .raw(Method::GET, OBJECT, &OBJECT_READ, get_doc, get)
        .raw(Method::HEAD, OBJECT, &OBJECT_READ, head_doc, head)
        .raw(Method::DELETE, OBJECT, &OBJECT_DELETE, delete_doc, delete)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    tenant: Name,
    project: Name,
}

type ObjectPath = Path<(String, String, String)>;

/// The query of a list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Only names that begin with this.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    prefix: String,
    /// How many items at most, 1 to 1000; 100 if absent.
    #[schemars(range(min = 1, max = 1000))]
    page_size: Option<u32>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 1024))]
    page_token: Option<String>,
}

async fn list(
    s: Arc<ObjectService>,
    ctx: Ctx,
    input: Input<ProjectPath, ListQuery>,
) -> Result<Ok200<Page<Object>>> {
    let ListQuery { prefix, page_size, page_token } = input.query;
    if prefix.len() > 1024 || prefix.contains('\0') {
        return Err(Error::invalid("prefix", prefix, "at most 1024 bytes of text"));
    }
    if page_token.as_ref().is_some_and(|token| token.len() > 1024 || token.contains('\0')) {
        return Err(Error::invalid("page_token", "(hidden)", "the token of the last page"));
    }
    let place = (&input.path.tenant, &input.path.project);
    s.list(&ctx, place, prefix, PageQuery { page_size, page_token }).await.map(Ok200)
}

async fn write(s: Arc<ObjectService>, ctx: Ctx, path: ObjectPath, request: Request) -> Response {
    let answer = async {
        let (tenant, project, name) = names(path)?;
        let headers = request.headers();
        let new = NewObject { name, content_type: content_type(headers)? };
        let expected = expected(headers)?;
        let content = pieces(request.into_body());
        s.put(&ctx, (&tenant, &project), new, content, expected).await
    };
    match answer.await {
        Ok(object) => (StatusCode::CREATED, axum::Json(object)).into_response(),
        Err(error) => problem_response(&error),
    }
}

async fn read(
    s: Arc<ObjectService>,
    ctx: Ctx,
    path: ObjectPath,
    headers: HeaderMap,
    with_body: bool,
) -> Response {
    let answer = async {
        let (tenant, project, name) = names(path)?;
        let (object, blob) = s.open(&ctx, (&tenant, &project), &name).await?;
        content(&object, &blob, &name, &headers, with_body)
    };
    answer.await.unwrap_or_else(|error| problem_response(&error))
}

async fn remove(s: Arc<ObjectService>, ctx: Ctx, path: ObjectPath) -> Response {
    let answer = async {
        let (tenant, project, name) = names(path)?;
        s.delete(&ctx, (&tenant, &project), name).await
    };
    match answer.await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => problem_response(&error),
    }
}

fn names(Path((tenant, project, name)): ObjectPath) -> Result<(Name, Name, ObjectName)> {
    let tenant = Name::new(tenant).map_err(|error| error.at("tenant"))?;
    let project = Name::new(project).map_err(|error| error.at("project"))?;
    Ok((tenant, project, ObjectName::new(name)?))
}

/// The content type as the owner states it; one that cannot be sent back later is refused.
fn content_type(headers: &HeaderMap) -> Result<String> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(ANY.to_owned()) };
    let text = value.to_str().unwrap_or("");
    let printable = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if text.is_empty() || text.len() > CONTENT_TYPE_LIMIT || !printable {
        let allowed = format!("a media type of at most {CONTENT_TYPE_LIMIT} characters");
        return Err(Error::invalid("content-type", text, allowed));
    }
    Ok(text.to_owned())
}

fn expected(headers: &HeaderMap) -> Result<Expected> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let size = text(header::CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok());
    let sha256 = match headers.get(SHA256) {
        None => None,
        Some(value) => {
            let given = value.to_str().unwrap_or("");
            Some(unhex(given).ok_or_else(|| Error::invalid(SHA256, given, "64 hex digits"))?)
        }
    };
    Ok(Expected { size, sha256 })
}

/// The body as the store takes it. A body that breaks off is the caller's fault, or the fault
/// that a guard before us has already named.
fn pieces(body: Body) -> impl Stream<Item = Result<Bytes>> + Send {
    body.into_data_stream().map(|piece| {
        piece.map_err(|error| match error.into_inner().downcast::<Error>() {
            Ok(error) => *error,
            Err(cause) => Error::new(&code::MALFORMED_BODY, "the body broke off").caused_by(cause),
        })
    })
}

fn content(
    object: &Object,
    blob: &Blob,
    name: &ObjectName,
    asked: &HeaderMap,
    with_body: bool,
) -> Result<Response> {
    let tag = format!("\"{}\"", hex(blob.sha256()));
    let size = blob.size();
    let text = |name: header::HeaderName| asked.get(name).and_then(|value| value.to_str().ok());
    if text(header::IF_NONE_MATCH).is_some_and(|tags| matches(tags, &tag)) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    // A range of something that has changed meanwhile would be glued to the wrong half.
    let same = text(header::IF_RANGE).is_none_or(|if_range| if_range == tag);
    let wanted = range::parse(text(header::RANGE).filter(|_| same), size);
    let (status, length) = match &wanted {
        Wanted::Whole => (StatusCode::OK, size),
        Wanted::Part(part) => (StatusCode::PARTIAL_CONTENT, part.end - part.start),
        Wanted::Outside => return outside(size),
    };
    let body = match &wanted {
        _ if !with_body => Body::empty(),
        Wanted::Part(part) => Body::from_stream(blob.read_range(part.clone())?),
        _ => Body::from_stream(blob.read()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name: header::HeaderName, value: &str| {
        HeaderValue::from_str(value).map(|value| headers.insert(name, value)).map(drop)
    };
    let valid = (|| {
        set(header::CONTENT_TYPE, &object.content_type)?;
        set(header::CONTENT_LENGTH, &length.to_string())?;
        set(header::CONTENT_DISPOSITION, &attachment(name))?;
        set(header::ETAG, &tag)?;
        set(header::LAST_MODIFIED, &http_date(object.created_at))?;
        set(header::ACCEPT_RANGES, "bytes")?;
        set(header::CACHE_CONTROL, "private, no-cache")?;
        set(header::X_CONTENT_TYPE_OPTIONS, "nosniff")?;
        set(header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'")?;
        set(header::HeaderName::from_static(SHA256), &hex(blob.sha256()))?;
        set(header::HeaderName::from_static("x-falaj-object-id"), &object.id.to_string())?;
        set(header::HeaderName::from_static("x-falaj-zone"), object.zone.as_str())?;
        if let Wanted::Part(part) = &wanted {
            let range = format!("bytes {}-{}/{size}", part.start, part.end - 1);
            set(header::CONTENT_RANGE, &range)?;
        }
        Ok::<(), header::InvalidHeaderValue>(())
    })();
    valid.map_err(Error::internal)?;
    Ok(response)
}

/// A moment as HTTP writes it, to the second.
fn http_date(moment: Timestamp) -> String {
    let moment = chrono::DateTime::from_timestamp(moment.seconds(), 0).unwrap_or_default();
    moment.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn outside(size: u64) -> Result<Response> {
    let error = Error::invalid("range", "outside", format!("within the {size} bytes there are"));
    let mut response = problem_response(&error);
    *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    let range = HeaderValue::from_str(&format!("bytes */{size}")).map_err(Error::internal)?;
    response.headers_mut().insert(header::CONTENT_RANGE, range);
    Ok(response)
}

fn matches(tags: &str, tag: &str) -> bool {
    tags.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

/// Names the download. Anything but plain characters is percent-encoded (RFC 6266, RFC 8187).
fn attachment(name: &ObjectName) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut encoded = String::new();
    for byte in name.file_name().bytes() {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push_str(&hex(&[byte]).to_ascii_uppercase());
        }
    }
    format!("attachment; filename*=UTF-8''{encoded}")
}
