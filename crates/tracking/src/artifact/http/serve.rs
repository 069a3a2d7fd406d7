//! A file on its way out.

use axum::body::Body;
use axum::response::Response;
use falaj_base::{Result, hex};
use falaj_web::download::Download;
use http::HeaderMap;

use crate::artifact::{Artifact, Content};

/// Answers a request for a file, or for a range of it.
pub fn serve(artifact: &Artifact, content: &Content, asked: &HeaderMap) -> Result<Response> {
    let tag = artifact.id.simple().to_string();
    let extra: Vec<(&'static str, String)> =
        content.sha256().map(|digest| ("x-falaj-sha256", hex(&digest))).into_iter().collect();
    let download = Download {
        size: content.size(),
        tag: &tag,
        content_type: &artifact.content_type,
        file_name: artifact.path.file_name(),
        modified: artifact.created_at,
        extra: &extra,
    };
    download.answer(asked, |part| content.read_range(part).map(Body::from_stream))
}
