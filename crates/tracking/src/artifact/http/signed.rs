//! What a signed URL leads to: no credential, only the grant.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing;
use falaj_base::{Error, RequestInfo, Result};
use falaj_store::objects::Expected;
use falaj_store::record::AuditEntry;
use falaj_web::upload::{announced, pieces};
use falaj_web::{Endpoint, Routes, problem_response};
use http::{HeaderValue, Method, StatusCode, header};
use uuid::Uuid;

use super::serve::serve;
use super::{ANY, Signing, doc};
use crate::artifact::ArtifactPath;
use crate::artifact::grant::{Grant, What, not_valid, unkept};
use crate::artifact::service::no_artifact;
use crate::{RUN_READ, RUN_WRITE};

/// Takes one part of an upload.
pub(super) const PART: &str = "/api/2.0/mlflow-artifacts/signed/part";
/// Gives one file, or a range of it.
pub(super) const FILE: &str = "/api/2.0/mlflow-artifacts/signed/file";

pub(super) fn routes(signing: Arc<Signing>) -> Vec<Endpoint> {
    let (s, t) = (signing.clone(), signing.clone());
    let put = routing::put(move |request| answer(s.clone(), request, Signing::take_part));
    let get = routing::get(move |request| answer(t.clone(), request, Signing::give_file));
    let part = doc("Send one part of an upload, by a signed URL", Some(ANY), None);
    let file = doc("Read a file, or a range of it, by a signed URL", None, Some(ANY));
    Routes::new(signing)
        .public(Method::PUT, PART, part, put)
        .public(Method::GET, FILE, file, get)
        .into_endpoints()
}

/// Looks at the grant before anything else.
async fn answer<F>(
    signing: Arc<Signing>,
    request: Request,
    handle: impl FnOnce(Arc<Signing>, Grant, Request) -> F + Send,
) -> Response
where
    F: Future<Output = Result<Response>> + Send,
{
    let now = signing.tracking.db().now();
    let result = match signing.urls.open(request.uri().query(), now) {
        Ok(grant) => handle(signing, grant, request).await,
        Err(error) => {
            let (info, reason) = (info(&request), error.message());
            let entry = AuditEntry::unauthenticated(&info, "signed URL", now, reason);
            signing.tracking.reads().note(entry);
            Err(error)
        }
    };
    let mut response = result.unwrap_or_else(|error| problem_response(&error));
    unkept(response.headers_mut());
    response
}

impl Signing {
    async fn take_part(self: Arc<Self>, grant: Grant, request: Request) -> Result<Response> {
        let What::Part(upload, no) = &grant.what else { return Err(not_valid()) };
        let id = Uuid::try_parse(upload).map_err(Error::internal)?;
        let upload = self.tracking.open_upload(id).await?;
        if !(1..=upload.parts).contains(no) {
            return Err(not_valid());
        }
        let resource = upload.resource();
        let ctx = upload.issuer.context(info(&request), &RUN_WRITE, &resource);
        ctx.authorize(&RUN_WRITE, &resource).await?;
        let expected = Expected { size: announced(request.headers()), sha256: None };
        let content = pieces(request.into_body());
        let tag = self.tracking.put_part(&ctx, &upload, *no, content, expected).await?;
        let tag = HeaderValue::from_str(&format!("\"{tag}\"")).map_err(Error::internal)?;
        Ok((StatusCode::OK, [(header::ETAG, tag)]).into_response())
    }

    async fn give_file(self: Arc<Self>, grant: Grant, request: Request) -> Result<Response> {
        let What::File(file) = &grant.what else { return Err(not_valid()) };
        let path = ArtifactPath::new(file.path.clone())?;
        let artifact = self.tracking.find_artifact(file.project, &path).await?;
        // Another file took its place: its ranges would be glued to those of the old one.
        if artifact.id.simple().to_string() != file.id {
            return Err(no_artifact(&path));
        }
        let resource = artifact.resource(file.tenant, file.project);
        let ctx = file.by.context(info(&request), &RUN_READ, &resource);
        ctx.authorize(&RUN_READ, &resource).await?;
        let content = self.tracking.content(file.tenant, &artifact).await?;
        let now = self.tracking.db().now();
        let mut entry = AuditEntry::allowed(&ctx, &RUN_READ, &resource, now);
        entry.details.insert("path".to_owned(), path.to_string());
        entry.details.insert("via".to_owned(), "signed URL".to_owned());
        self.tracking.reads().note(entry);
        serve(&artifact, &content, request.headers())
    }
}

/// What is known of the request.
fn info(request: &Request) -> RequestInfo {
    request.extensions().get::<RequestInfo>().cloned().unwrap_or_else(RequestInfo::internal)
}
