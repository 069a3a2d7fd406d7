//! Answering behind everybody who waits: the platform's own caller at the endpoints of a project.

use std::sync::Arc;

use falaj_base::{Ctx, Error, Result, Timestamp};
use falaj_governance::tenancy::Project;
use falaj_oip::Limits;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::live::Served;
use crate::oip::desk::{Desk, Purpose};
use crate::predictions::Log;
use crate::runtime::Fleet;
use crate::{ENDPOINT_PREDICT, Serving};

/// Whoever asks here was authorised and counted when the request was submitted.
pub(super) struct Behind {
    serving: Serving,
    ctx: Ctx,
    place: Project,
    limits: Limits,
}

impl Behind {
    pub(super) fn new(serving: &Serving, ctx: Ctx, place: Project) -> Self {
        // A body may be larger than those that are answered at once, and so may what is in it.
        let usual = serving.tensor_limits();
        let most = serving.config().later.max_body.as_usize();
        let limits = Limits { max_elements: usual.max_elements.max(most), ..usual.clone() };
        Self { serving: serving.clone(), ctx, place, limits }
    }
}

fn not_here() -> Error {
    Error::internal("a request that is answered later asks for an answer, and nothing else")
}

impl Desk for Behind {
    fn greet(&self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn may_ask(&self) -> bool {
        true
    }

    fn served<'a>(&'a self, name: &'a str, _: Purpose) -> BoxFuture<'a, Result<Arc<Served>>> {
        self.serving.served(&self.ctx, &self.place, name, &ENDPOINT_PREDICT).boxed()
    }

    fn all(&self) -> BoxFuture<'_, Result<Vec<Arc<Served>>>> {
        async { Err(not_here()) }.boxed()
    }

    fn load<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<()>> {
        async { Err(not_here()) }.boxed()
    }

    fn unload<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<()>> {
        async { Err(not_here()) }.boxed()
    }

    fn fleet(&self) -> &Fleet {
        self.serving.fleet()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn log(&self) -> Option<(&Log, Timestamp)> {
        Some((self.serving.predictions().log(), self.serving.db().now()))
    }
}
