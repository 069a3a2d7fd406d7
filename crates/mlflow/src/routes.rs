//! Declaring endpoints of the protocol.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use axum::{Json, RequestExt};
use falaj_base::{Action, Ctx, Error, Result, code};
use falaj_web::{ConnectionLife, Endpoint, Ok200, Plain, Reply, Routes, handled, problem_response};
use http::Method;
use http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::place::{Place, Places};
use crate::wire;

/// One request: who asks, and about which project.
#[derive(Clone, Debug)]
pub struct Call {
    pub ctx: Ctx,
    pub place: Place,
    /// The connection it came on, where there is one.
    pub connection: Option<ConnectionLife>,
}

/// Collects the endpoints of one service.
pub struct Api<S> {
    service: Arc<S>,
    places: Places,
    routes: Routes<S>,
}

impl<S> fmt::Debug for Api<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.routes.fmt(f)
    }
}

impl<S: Send + Sync + 'static> Api<S> {
    #[must_use]
    pub fn new(service: Arc<S>, places: Places) -> Self {
        Self { routes: Routes::new(service.clone()), service, places }
    }

    /// An endpoint whose fields stand in the query.
    #[must_use]
    pub fn get<Q, R, H, F>(
        mut self,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + 'static,
        H: Fn(Arc<S>, Call, Q) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R>> + Send,
    {
        let handler = self.answer(MethodFilter::GET, handler);
        self.routes = self.routes.described::<(), Q, (), Ok200<R>>(
            Method::GET,
            path,
            action,
            summary,
            handler,
        );
        self
    }

    /// An endpoint whose fields are a JSON body.
    #[must_use]
    pub fn post<B, R, H, F>(
        self,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        B: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + 'static,
        H: Fn(Arc<S>, Call, B) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R>> + Send,
    {
        self.with_body(Method::POST, path, action, summary, handler)
    }

    /// The same for calls that come by the ten thousand a second: they have a short way as well.
    #[must_use]
    pub fn post_often<B, R, H, F>(
        mut self,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        B: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + 'static,
        H: Fn(Arc<S>, Call, B) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R>> + Send,
    {
        let (service, places) = (self.service.clone(), Arc::new(self.places.clone()));
        let answer = handler.clone();
        self = self.post(path, action, summary, handler);
        self.routes = self.routes.directly(move |ctx, parts, body| {
            let (service, places, answer) = (service.clone(), places.clone(), answer.clone());
            async move {
                let place = places.of(&ctx, &parts).await?;
                let call = Call { ctx, place, connection: None };
                let reply = answer(service, call, wire::given(&parts.headers, &body)?).await?;
                let body = serde_json::to_vec(&reply).map_err(Error::internal)?.into();
                Ok(Plain { media: "application/json", beside: None, body })
            }
        });
        self
    }

    /// The same by another method: PATCH and DELETE carry bodies here.
    #[must_use]
    pub fn with_body<B, R, H, F>(
        mut self,
        method: Method,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        B: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + 'static,
        H: Fn(Arc<S>, Call, B) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R>> + Send,
    {
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::POST);
        let handler = self.answer(filter, handler);
        self.routes =
            self.routes.described::<(), (), B, Ok200<R>>(method, path, action, summary, handler);
        self
    }

    /// An endpoint with parameters in its path as well; `P` is read from there. The fields of a
    /// GET stand in the query, of any other method in the body.
    #[must_use]
    pub fn at<P, B, R, H, F>(
        mut self,
        method: Method,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        P: DeserializeOwned + JsonSchema + Send + 'static,
        B: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + 'static,
        H: Fn(Arc<S>, Call, P, B) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R>> + Send,
    {
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::POST);
        let (service, places) = (self.service.clone(), self.places.clone());
        let call = move |mut request: Request| {
            let (service, places, handler) = (service.clone(), places.clone(), handler.clone());
            async move {
                let result = async {
                    let Path(path) = request.extract_parts::<Path<P>>().await.map_err(|bad| {
                        Error::new(&code::INVALID_INPUT, "the path is not valid").caused_by(bad)
                    })?;
                    let (call, request) = open(&places, request).await?;
                    handler(service, call, path, wire::read(request).await?).await
                };
                reply(result.await)
            }
        };
        let handler = handled(filter, call);
        self.routes = if method == Method::GET {
            self.routes.described::<P, B, (), Ok200<R>>(method, path, action, summary, handler)
        } else {
            self.routes.described::<P, (), B, Ok200<R>>(method, path, action, summary, handler)
        };
        self
    }

    /// An endpoint that streams. The handler gets the request as it is.
    #[must_use]
    pub fn stream<H, F>(
        mut self,
        method: Method,
        path: &'static str,
        action: &'static Action,
        doc: falaj_web::Doc,
        handler: H,
    ) -> Self
    where
        H: Fn(Arc<S>, Call, Request) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response>> + Send,
    {
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::POST);
        let handler = self.streaming(filter, handler);
        self.routes = self.routes.raw(method, path, action, doc, handler);
        self
    }

    /// An endpoint that reads its body in a way of its own, and is described by types all the same.
    #[must_use]
    pub fn reading<B, R, H, F>(
        mut self,
        method: Method,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        B: DeserializeOwned + JsonSchema + Send + 'static,
        R: Reply + 'static,
        H: Fn(Arc<S>, Call, Request) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response>> + Send,
    {
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::POST);
        let handler = self.streaming(filter, handler);
        self.routes = self.routes.described::<(), (), B, R>(method, path, action, summary, handler);
        self
    }

    /// A method of gRPC, whose handler reads and writes its frames.
    #[must_use]
    pub fn grpc<H, F>(
        mut self,
        path: &'static str,
        action: &'static Action,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Fn(Arc<S>, Call, Request) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response>> + Send,
    {
        let handler = self.streaming(MethodFilter::POST, handler);
        self.routes = self.routes.grpc(path, action, summary, handler);
        self
    }

    fn streaming<H, F>(&self, filter: MethodFilter, handler: H) -> MethodRouter
    where
        H: Fn(Arc<S>, Call, Request) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response>> + Send,
    {
        let (service, places) = (self.service.clone(), self.places.clone());
        let call = move |request: Request| {
            let (service, places, handler) = (service.clone(), places.clone(), handler.clone());
            async move {
                let result = async {
                    let (call, request) = open(&places, request).await?;
                    handler(service, call, request).await
                };
                result.await.unwrap_or_else(|error| problem_response(&error))
            }
        };
        handled(filter, call)
    }

    fn answer<B, R, H, F>(&self, filter: MethodFilter, handler: H) -> MethodRouter
    where
        B: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        H: Fn(Arc<S>, Call, B) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R>> + Send,
    {
        let (service, places) = (self.service.clone(), self.places.clone());
        let call = move |request: Request| {
            let (service, places, handler) = (service.clone(), places.clone(), handler.clone());
            async move {
                let result = async {
                    let (call, request) = open(&places, request).await?;
                    handler(service, call, wire::read(request).await?).await
                };
                reply(result.await)
            }
        };
        handled(filter, call)
    }
}

impl<S: Send + Sync + 'static> From<Api<S>> for Vec<Endpoint> {
    fn from(api: Api<S>) -> Self {
        api.routes.into_endpoints()
    }
}

/// Answers a question that came in another envelope as the endpoint would.
pub async fn asked<S, B, R, H, F>(
    service: Arc<S>,
    call: &Call,
    input: &[u8],
    handler: H,
) -> Result<serde_json::Value>
where
    B: DeserializeOwned,
    R: Serialize,
    H: FnOnce(Arc<S>, Call, B) -> F,
    F: Future<Output = Result<R>>,
{
    let reply = handler(service, call.clone(), wire::from_json(input)?).await?;
    serde_json::to_value(reply).map_err(Error::internal)
}

/// Who asks, and about what.
async fn open(places: &Places, request: Request) -> Result<(Call, Request)> {
    let (parts, body) = request.into_parts();
    let ctx = context(&parts)?;
    let place = places.of(&ctx, &parts).await?;
    let connection = parts.extensions.get::<ConnectionLife>().cloned();
    Ok((Call { ctx, place, connection }, Request::from_parts(parts, body)))
}

fn context(parts: &Parts) -> Result<Ctx> {
    let ctx = parts.extensions.get::<Ctx>().cloned();
    ctx.ok_or_else(|| Error::internal("the request has no context"))
}

fn reply<R: Serialize>(result: Result<R>) -> Response {
    match result {
        Ok(body) => Json(body).into_response(),
        Err(error) => problem_response(&error),
    }
}
