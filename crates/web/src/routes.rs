//! Declaring endpoints.

use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::Request;
use axum::routing::{MethodFilter, MethodRouter};
use falaj_base::{Action, Ctx, Error, Result};
use http::{Method, request};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use crate::direct::{Direct, Plain};
use crate::gate::Guard;
use crate::handler::handled;
use crate::input::{Input, absent};
use crate::problem::problem_response;
use crate::reply::Reply;

/// One method of one path, with everything that is known about it.
pub struct Endpoint {
    pub method: Method,
    /// In axum's notation: `/v1/tenants/{tenant}`, `/files/{*path}`.
    pub path: &'static str,
    /// What it takes to call it; `None` for the few routes open to everyone.
    pub action: Option<&'static Action>,
    pub summary: &'static str,
    /// Whether its bodies are larger than those of other calls: tensors.
    pub large: bool,
    pub(crate) doc: DocSource,
    pub handler: MethodRouter,
    /// The short way to the same, if it has one.
    pub direct: Option<Direct>,
}

impl Endpoint {
    /// Whether it is a method of a gRPC service.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        matches!(self.doc, DocSource::Grpc)
    }

    /// The media types it takes and gives. What is read off a handler's types is JSON.
    pub fn media(&self) -> impl Iterator<Item = &'static str> {
        let media = match self.doc {
            DocSource::Typed(_) => [Some("application/json"), None],
            DocSource::Raw(doc) => [doc.takes, doc.gives],
            DocSource::Grpc => [Some("application/grpc"), None],
        };
        media.into_iter().flatten()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// The schemas of an endpoint's parts, for the OpenAPI document.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) path: Option<Schema>,
    pub(crate) query: Option<Schema>,
    pub(crate) body: Option<Body>,
    pub(crate) status: u16,
    pub(crate) reply: Option<Body>,
}

/// What is sent or given back.
#[derive(Clone, Debug)]
pub enum Body {
    Json(Schema),
    /// Anything else, by media type.
    Media(&'static str),
}

#[derive(Clone, Copy)]
pub(crate) enum DocSource {
    /// Read from the handler's own types. The first generator is for what callers send, the
    /// second for what they get: optional fields differ between the two.
    Typed(fn(&mut SchemaGenerator, &mut SchemaGenerator) -> Parts),
    Raw(Doc),
    /// A method of gRPC, which other documents describe.
    Grpc,
}

/// What a hand-made (streaming) endpoint says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doc {
    pub summary: &'static str,
    /// The media type of the request body, if it takes one.
    pub takes: Option<&'static str>,
    /// The media type of the success reply.
    pub gives: Option<&'static str>,
    pub status: u16,
    /// Query parameters: name and what it means.
    pub query: &'static [(&'static str, &'static str)],
}

/// Collects the endpoints of one service.
pub struct Routes<S> {
    service: Arc<S>,
    endpoints: Vec<Endpoint>,
}

impl<S> fmt::Debug for Routes<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoints.fmt(f)
    }
}

macro_rules! verbs {
    ($($verb:ident = $method:ident;)*) => {$(
        #[must_use]
        pub fn $verb<P, Q, B, R, H, F>(
            self,
            path: &'static str,
            action: &'static Action,
            summary: &'static str,
            handler: H,
        ) -> Self
        where
            P: DeserializeOwned + JsonSchema + Send + 'static,
            Q: DeserializeOwned + JsonSchema + Send + 'static,
            B: DeserializeOwned + JsonSchema + Send + 'static,
            R: Reply + 'static,
            H: Fn(Arc<S>, Ctx, Input<P, Q, B>) -> F + Clone + Send + Sync + 'static,
            F: Future<Output = Result<R>> + Send,
        {
            self.typed(Method::$method, path, action, summary, handler)
        }
    )*};
}

impl<S: Send + Sync + 'static> Routes<S> {
    #[must_use]
    pub fn new(service: Arc<S>) -> Self {
        Self { service, endpoints: Vec::new() }
    }

    verbs! { get = GET; post = POST; put = PUT; patch = PATCH; delete = DELETE; }

    fn typed<P, Q, B, R, H, F>(
        mut self,
        method: Method,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        P: DeserializeOwned + JsonSchema + Send + 'static,
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        B: DeserializeOwned + JsonSchema + Send + 'static,
        R: Reply + 'static,
        H: Fn(Arc<S>, Ctx, Input<P, Q, B>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R>> + Send,
    {
        let service = self.service.clone();
        let call = move |request: Request| {
            let (service, handler) = (service.clone(), handler.clone());
            async move {
                let answer = async {
                    let ctx = context(&request)?;
                    handler(service, ctx, Input::read(request).await?).await
                };
                answer.await.map_or_else(|error| problem_response(&error), Reply::into_response)
            }
        };
        let doc = DocSource::Typed(parts::<P, Q, B, R>);
        let handler = handled(filter(&method), call);
        self.endpoints.push(guarded(method, path, action, summary, doc, handler));
        self
    }

    /// An endpoint that streams, or speaks another media type: a plain axum handler. It finds its
    /// context as `Extension<Ctx>` and answers errors with [`problem_response`].
    #[must_use]
    pub fn raw(
        mut self,
        method: Method,
        path: &'static str,
        action: &'static Action,
        doc: Doc,
        handler: MethodRouter,
    ) -> Self {
        let source = DocSource::Raw(doc);
        self.endpoints.push(guarded(method, path, action, doc.summary, source, handler));
        self
    }

    /// An endpoint that reads its input in a way of its own, yet is described by types: `()` for
    /// a part it does not take.
    #[must_use]
    pub fn described<P, Q, B, R>(
        mut self,
        method: Method,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: MethodRouter,
    ) -> Self
    where
        P: JsonSchema + 'static,
        Q: JsonSchema + 'static,
        B: JsonSchema + 'static,
        R: Reply + 'static,
    {
        let doc = DocSource::Typed(parts::<P, Q, B, R>);
        self.endpoints.push(guarded(method, path, action, summary, doc, handler));
        self
    }

    /// A method of a gRPC service: a handler that reads and writes gRPC's frames.
    #[must_use]
    pub fn grpc(
        mut self,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: MethodRouter,
    ) -> Self {
        let doc = DocSource::Grpc;
        self.endpoints.push(guarded(Method::POST, path, action, summary, doc, handler));
        self
    }

    /// An endpoint open to everyone: health and sign-in, nothing else.
    #[must_use]
    pub fn public(
        mut self,
        method: Method,
        path: &'static str,
        doc: Doc,
        handler: MethodRouter,
    ) -> Self {
        let (summary, doc) = (doc.summary, DocSource::Raw(doc));
        self.endpoints.push(Endpoint {
            method,
            path,
            action: None,
            summary,
            large: false,
            doc,
            handler,
            direct: None,
        });
        self
    }

    /// Gives the last endpoint a short way, see [`Endpoint::directly`].
    #[must_use]
    pub fn directly<H, F>(mut self, handler: H) -> Self
    where
        H: Fn(Ctx, Arc<request::Parts>, Bytes) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Plain>> + Send + 'static,
    {
        if let Some(last) = self.endpoints.last_mut() {
            last.directly(handler);
        }
        self
    }

    #[must_use]
    pub fn into_endpoints(self) -> Vec<Endpoint> {
        self.endpoints
    }
}

fn guarded(
    method: Method,
    path: &'static str,
    action: &'static Action,
    summary: &'static str,
    doc: DocSource,
    handler: MethodRouter,
) -> Endpoint {
    let handler = handler.layer(Guard(action));
    let (action, direct) = (Some(action), None);
    Endpoint { method, path, action, summary, large: false, doc, handler, direct }
}

/// The context that the authentication layer put into the request.
fn context(request: &Request) -> Result<Ctx> {
    request
        .extensions()
        .get::<Ctx>()
        .cloned()
        .ok_or_else(|| Error::internal("the request has no context"))
}

fn filter(method: &Method) -> MethodFilter {
    MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET)
}

fn parts<P, Q, B, R>(sent: &mut SchemaGenerator, given: &mut SchemaGenerator) -> Parts
where
    P: JsonSchema + 'static,
    Q: JsonSchema + 'static,
    B: JsonSchema + 'static,
    R: Reply,
{
    Parts {
        path: (!absent::<P>()).then(|| sent.subschema_for::<P>()),
        query: (!absent::<Q>()).then(|| sent.subschema_for::<Q>()),
        body: (!absent::<B>()).then(|| Body::Json(sent.subschema_for::<B>())),
        status: R::STATUS.as_u16(),
        reply: R::schema(given).map(Body::Json),
    }
}

impl<S: Send + Sync + 'static> From<Routes<S>> for Vec<Endpoint> {
    fn from(routes: Routes<S>) -> Self {
        routes.into_endpoints()
    }
}
