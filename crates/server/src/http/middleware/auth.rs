//! Who is asking. Nothing behind this layer runs for a caller without a credential, save the
//! routes that the table calls public.

use std::sync::Arc;

use falaj_base::{Error, Principal, RequestInfo, Result};
use falaj_governance::identity::{Authenticator, LastCredential, csrf};
use http::HeaderMap;
use http::request::Parts;
use http::uri::Authority;

use super::rate::RateLimit;

/// What it takes to let a caller in.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) rate: RateLimit,
}

impl Door {
    /// Who sent a request, on a connection that brought the last credential before.
    pub(crate) async fn admit(
        &self,
        request: &Parts,
        last: &LastCredential,
    ) -> Result<Arc<Principal>> {
        self.check(request)?;
        let info = request.extensions.get::<RequestInfo>();
        let info = info.ok_or_else(|| Error::internal("the request has no name"))?;
        self.recognise(&request.headers, info, last).await
    }

    /// Whether a page of another site may have sent it.
    pub(crate) fn check(&self, request: &Parts) -> Result<()> {
        let Parts { method, extensions, headers, .. } = request;
        let host = extensions.get::<Authority>().map(Authority::as_str);
        csrf::check(method, host, headers, self.authenticator.public_origin())
    }

    /// Who sent a request that was checked.
    pub(crate) async fn recognise(
        &self,
        headers: &HeaderMap,
        info: &RequestInfo,
        last: &LastCredential,
    ) -> Result<Arc<Principal>> {
        let principal = self.authenticator.authenticate_again(headers, info, last).await?;
        self.rate.take(principal.id)?;
        Ok(principal)
    }

    /// Whether whoever sent it is known already.
    pub(crate) fn knows(&self, headers: &HeaderMap, last: &LastCredential) -> bool {
        self.authenticator.knows(headers, last)
    }
}
