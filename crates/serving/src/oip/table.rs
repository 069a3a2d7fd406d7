//! Every call of the protocol, with what it takes to make it.

use axum::routing::MethodRouter;
use falaj_base::Action;
use falaj_web::Doc;
use http::Method;

use super::desk::Opening;
use super::{grpc, http as rest};

/// One call.
pub(crate) struct Row {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    pub(crate) handler: MethodRouter,
}

/// How a call travels, and who may make it.
pub(crate) enum Kind {
    /// Anyone: health.
    Public(Doc),
    Rest(&'static Action, Doc),
    Grpc(&'static Action, &'static str),
}

pub(crate) fn rows(open: &Opening) -> Vec<Row> {
    let mut rows = rest::rows(open);
    rows.extend(grpc::rows(open));
    rows
}
