//! `/v1/tenants/{tenant}/projects/{project}/objects`.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use axum::routing;
use falaj_base::{Ctx, Error, Name, Page, PageQuery, Result, hex};
use falaj_store::objects::{Blob, Expected};
use falaj_web::download::Download;
use falaj_web::upload::{announced, pieces};
use falaj_web::{Doc, Input, Ok200, Routes, problem_response};
use http::{HeaderMap, Method, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::name::ObjectName;
use super::object::{NewObject, Object, unhex};
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
    let sha256 = match headers.get(SHA256) {
        None => None,
        Some(value) => {
            let given = value.to_str().unwrap_or("");
            Some(unhex(given).ok_or_else(|| Error::invalid(SHA256, given, "64 hex digits"))?)
        }
    };
    Ok(Expected { size: announced(headers), sha256 })
}

fn content(
    object: &Object,
    blob: &Blob,
    name: &ObjectName,
    asked: &HeaderMap,
    with_body: bool,
) -> Result<Response> {
    let digest = hex(blob.sha256());
    let extra = [
        (SHA256, digest.clone()),
        ("x-falaj-object-id", object.id.to_string()),
        ("x-falaj-zone", object.zone.to_string()),
    ];
    let download = Download {
        size: blob.size(),
        tag: &digest,
        content_type: &object.content_type,
        file_name: name.file_name(),
        modified: object.created_at,
        extra: &extra,
    };
    download.answer(asked, |part| match part {
        _ if !with_body => Ok(Body::empty()),
        // Only a whole read is checked against the digest.
        part if part == (0..blob.size()) => Ok(Body::from_stream(blob.read())),
        part => blob.read_range(part).map(Body::from_stream),
    })
}
