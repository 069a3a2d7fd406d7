//! The layers, in one piece.
//!
//! A stack of the router's own layers copies everything below a layer each time that layer is
//! passed, so its cost grows with the square of their number. Here the layers are a list that all
//! requests share, and passing one costs one allocation.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::Route;
use futures::FutureExt;
use futures::future::Map;
use tower::{Layer, Service};

/// A reply in the making.
type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;
type Step = Box<dyn Fn(Request, Next) -> Answer + Send + Sync>;

/// Layers in the order in which a request passes them.
#[derive(Default)]
pub(crate) struct Pipeline(Vec<Step>);

impl Pipeline {
    pub(crate) fn then<F, A>(mut self, layer: F) -> Self
    where
        F: Fn(Request, Next) -> A + Send + Sync + 'static,
        A: Future<Output = Response> + Send + 'static,
    {
        self.0.push(Box::new(move |request, next| Box::pin(layer(request, next))));
        self
    }

    /// A layer with something that all requests share.
    pub(crate) fn then_with<S, F, A>(self, shared: S, layer: F) -> Self
    where
        S: Send + Sync + 'static,
        F: Fn(Arc<S>, Request, Next) -> A + Send + Sync + 'static,
        A: Future<Output = Response> + Send + 'static,
    {
        let shared = Arc::new(shared);
        self.then(move |request, next| layer(shared.clone(), request, next))
    }

    /// Puts the layers around every route of `router`, and around its answer to paths that are no
    /// route. They run once the route is known.
    pub(crate) fn around(self, router: Router) -> Router {
        router.layer(Around(self.0.into()))
    }
}

#[derive(Clone)]
struct Around(Arc<[Step]>);

impl Layer<Route> for Around {
    type Service = Piped;

    fn layer(&self, route: Route) -> Piped {
        Piped { steps: self.0.clone(), route }
    }
}

#[derive(Clone)]
struct Piped {
    steps: Arc<[Step]>,
    route: Route,
}

impl Service<Request> for Piped {
    type Response = Response;
    type Error = Infallible;
    type Future = Map<Answer, fn(Response) -> Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let next = Next { steps: self.steps.clone(), passed: 0, route: self.route.clone() };
        next.run(request).map(Ok)
    }
}

/// The rest of the way.
pub(crate) struct Next {
    steps: Arc<[Step]>,
    passed: usize,
    route: Route,
}

impl Next {
    pub(crate) fn run(mut self, request: Request) -> Answer {
        let steps = self.steps.clone();
        let Some(step) = steps.get(self.passed) else {
            return Box::pin(self.route.call(request).map(|Ok(response)| response));
        };
        self.passed += 1;
        step(request, self)
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("passed", &self.passed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::MatchedPath;
    use http::StatusCode;
    use tower::ServiceExt;

    use super::*;

    struct Mark(&'static str);

    async fn mark(mark: Arc<Mark>, mut request: Request, next: Next) -> Response {
        let mut words = request.extensions_mut().remove::<Vec<&str>>().unwrap_or_default();
        words.push(mark.0);
        request.extensions_mut().insert(words);
        next.run(request).await
    }

    async fn show(request: Request) -> String {
        let words = request.extensions().get::<Vec<&str>>().unwrap().join(" ");
        let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str);
        format!("{words}, route {route}")
    }

    async fn ask(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let reply = router.clone().oneshot(request).await.unwrap();
        let status = reply.status();
        let bytes = axum::body::to_bytes(reply.into_body(), 1000).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn layers_are_passed_in_order_by_every_request_and_may_answer_themselves() {
        let closed = |request: Request, next: Next| async move {
            if request.uri().path().ends_with("/closed") {
                return axum::response::IntoResponse::into_response(StatusCode::FORBIDDEN);
            }
            next.run(request).await
        };
        let routes = Router::new().route("/a/{id}", axum::routing::get(show)).fallback(show);
        let layers = Pipeline::default().then_with(Mark("first"), mark).then(closed);
        let whole = layers.then_with(Mark("last"), mark).around(routes);
        let ok = |text: &str| (StatusCode::OK, text.to_owned());
        assert_eq!(ask(&whole, "/a/1").await, ok("first last, route /a/{id}"));
        assert_eq!(ask(&whole, "/b").await, ok("first last, route none"));
        assert_eq!(ask(&whole, "/a/closed").await, (StatusCode::FORBIDDEN, String::new()));
    }
}
