//! Who is asking. Nothing behind this layer runs for a caller without a credential, save the
//! routes that the table calls public.

use std::sync::Arc;

use super::pipeline::Next;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Principal, PrincipalId, RequestInfo, Result};
use falaj_governance::identity::{Authenticator, csrf};
use http::request::Parts;
use http::uri::Authority;

use super::rate::RateLimit;
use crate::http::reply::refuse;
use crate::http::route::is_open;

/// What it takes to let a caller in.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) rate: RateLimit,
}

/// On the reply: who it was for. The access log reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnsweredTo(pub(crate) PrincipalId);

impl Door {
    async fn admit(&self, request: &Parts) -> Result<Arc<Principal>> {
        let extensions = &request.extensions;
        let host = extensions.get::<Authority>().map(Authority::as_str);
        let headers = &request.headers;
        csrf::check(&request.method, host, headers, self.authenticator.public_origin())?;
        let info = extensions.get::<RequestInfo>();
        let info = info.ok_or_else(|| Error::internal("the request has no name"))?;
        let principal = self.authenticator.authenticate_request(headers, info).await?;
        self.rate.take(principal.id)?;
        Ok(principal)
    }
}

/// Puts the principal beside the request, or refuses it.
pub(crate) async fn authenticate(door: Arc<Door>, request: Request, next: Next) -> Response {
    if is_open(&request) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let principal = match door.admit(&parts).await {
        Ok(principal) => principal,
        Err(error) => return refuse(error),
    };
    let id = principal.id;
    parts.extensions.insert(principal);
    let mut response = next.run(Request::from_parts(parts, body)).await;
    response.extensions_mut().insert(AnsweredTo(id));
    response
}
