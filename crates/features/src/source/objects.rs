//! The objects of a project, as far as sources name them. What keeps them stands above this crate.

use falaj_base::{BlobId, Ctx, Result};
use falaj_governance::tenancy::Project;
use futures::future::BoxFuture;

/// An object that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundObject {
    pub blob: BlobId,
    pub size: u64,
}

/// Finds objects by name.
pub trait ProjectObjects: Send + Sync {
    /// The object, if the caller may read it; one that is not there and one that the caller may not
    /// know of are refused alike.
    fn find<'a>(
        &'a self,
        ctx: &'a Ctx,
        project: &'a Project,
        name: &'a str,
    ) -> BoxFuture<'a, Result<FoundObject>>;
}
