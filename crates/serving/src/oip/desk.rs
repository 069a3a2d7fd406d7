//! Who finds endpoints for a call: a project of the platform, or a folder at the edge.

use std::sync::Arc;

use falaj_base::Result;
use falaj_oip::Limits;
use futures::future::BoxFuture;

use crate::live::Served;
use crate::runtime::Fleet;

/// What an endpoint is looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Look,
    Predict,
}

/// Where calls are answered, for one caller.
pub(crate) trait Desk: Send + Sync {
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
}
