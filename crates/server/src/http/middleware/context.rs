//! Joins who asks, what is known of the request and the gate into the [`Ctx`] every verb takes.

use std::sync::Arc;

use super::pipeline::Next;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Ctx, Gate, Principal, RequestInfo};

/// The gate that decides, shared by all requests.
pub(crate) struct SharedGate(pub(crate) Arc<dyn Gate>);

pub(crate) async fn build(gate: Arc<SharedGate>, mut request: Request, next: Next) -> Response {
    let extensions = request.extensions_mut();
    let known = (extensions.get::<Arc<Principal>>(), extensions.get::<RequestInfo>());
    if let (Some(principal), Some(info)) = known {
        let ctx = Ctx::new(Arc::clone(principal), info.clone(), gate.0.clone());
        extensions.insert(ctx);
    }
    next.run(request).await
}
