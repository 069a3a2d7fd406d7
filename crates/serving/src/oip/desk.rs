//! Who finds endpoints for a call: a project of the platform, or a folder at the edge.

use std::sync::Arc;

use axum::extract::Request;
use falaj_base::{Result, Timestamp};
use falaj_oip::Limits;
use futures::future::BoxFuture;

use crate::live::Served;
use crate::predictions::Log;
use crate::runtime::Fleet;

/// What an endpoint is looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Look,
    Predict,
}

/// Where calls are answered, for one caller.
pub(crate) trait Desk: Send + Sync {
    /// Whether the caller may look at this place at all.
    fn greet(&self) -> BoxFuture<'_, Result<()>>;

    /// Whether the caller was found to be allowed to ask a model here.
    fn may_ask(&self) -> bool;

    /// An endpoint that is there, for a caller who may do this with it.
    fn served<'a>(&'a self, name: &'a str, purpose: Purpose) -> BoxFuture<'a, Result<Arc<Served>>>;

    /// Every endpoint that the caller may see, by name.
    fn all(&self) -> BoxFuture<'_, Result<Vec<Arc<Served>>>>;

    /// Begins to answer again, with everything loaded.
    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Stops answering, and gives the memory back.
    fn unload<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;

    fn fleet(&self) -> &Fleet;

    fn limits(&self) -> &Limits;

    /// Where requests and their answers are kept, and the time they are kept under; nowhere at the
    /// edge.
    fn log(&self) -> Option<(&Log, Timestamp)>;
}

/// The desk of one request, and the request as it goes on.
pub(crate) type Opened = Result<(Arc<dyn Desk>, Request)>;

/// Finds the desk of a request.
pub(crate) type Opening = Arc<dyn Fn(Request) -> BoxFuture<'static, Opened> + Send + Sync>;
