//! The way of every request: through the layers to the handler, and back.
//!
//! The layers are called one after the other rather than stacked upon each other, so that passing
//! one costs no more than what it does. What each is for stands in [`super::middleware`].

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use axum::routing::Route;
use falaj_base::{Ctx, Error, Gate, Principal, PrincipalId, RequestId, RequestInfo, Result};
use falaj_store::db::Db;
use falaj_web::{Answer, Direct};
use futures::future::BoxFuture;
use http::request::Parts;
use tower::{Layer, Service};

use super::connection::Line;
use super::express::Head;
use super::held::Held;
use super::middleware::admit::Rules;
use super::middleware::auth::Door;
use super::middleware::body::Intake;
use super::middleware::budget::Reservation;
use super::middleware::deadline::{self, Deadlines};
use super::middleware::observe::{Observed, Seen};
use super::middleware::shed::{Slot, Slots};
use super::middleware::unread::Reading;
use super::middleware::{catch_panic, idempotency, request_id, security_headers};
use super::reply::refuse;
use super::route::{Class, Pattern, RouteKind, RouteTable};
use crate::grpc;
use crate::metrics::{InFlight, Metrics};

/// What the layers share between requests.
pub(super) struct Port {
    pub(super) table: RouteTable,
    pub(super) metrics: Metrics,
    pub(super) rules: Rules,
    pub(super) slots: Slots,
    pub(super) deadlines: Deadlines,
    pub(super) door: Door,
    pub(super) intake: Intake,
    pub(super) db: Db,
    pub(super) gate: Arc<dyn Gate>,
}

/// One request on its way.
struct Passage<'a> {
    line: &'a Line,
    class: &'a Class,
    handler: Handler,
    /// Whether its body was read.
    reading: Reading,
    /// Its slot, once it has one; held until the last byte of the reply.
    slot: Option<Slot>,
    /// Who sent it, once that is known.
    who: Option<PrincipalId>,
}

/// How far a call on the short way came.
struct Way {
    slot: Option<Slot>,
    who: Option<PrincipalId>,
    /// Whether its body was taken.
    body: bool,
}

/// What a call on the short way was answered.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) id: RequestId,
    /// Whether the connection ends with it, as with every refusal before the body is taken.
    pub(super) ends: bool,
    /// Whether it is refused for want of room.
    pub(super) no_room: bool,
    /// To be held until the last byte of the reply.
    pub(super) held: (InFlight, Option<Slot>),
}

/// Who answers, behind the layers.
pub(super) enum Handler {
    /// What the router found: takes the request as it is.
    Routed(Route),
    /// Takes what is known of it by then.
    Direct(Direct),
}

impl Port {
    /// Puts the layers around every route of `router`, and around its answer to paths that are no
    /// route. They are passed once the route is known.
    pub(super) fn around(self: &Arc<Self>, router: Router) -> Router {
        router.layer(Around(Arc::clone(self)))
    }

    /// Names the request, watches it, and gives its reply what every reply has.
    pub(super) async fn answer(
        &self,
        mut request: Request,
        line: Arc<Line>,
        path: Option<Pattern>,
        handler: Handler,
    ) -> Response {
        let class = self.table.class(path.as_ref(), request.method());
        let reading = Reading::of(&request);
        let trace = request_id::trace_id(request.headers());
        let info = request_id::info(trace, line.peer.address.ip());
        let seen = (request.method(), request.uri(), request.headers());
        let observed = Observed::begin(seen, path, &info, &self.metrics);
        let (id, is_grpc) = (info.id, grpc::is_grpc(request.headers()));
        request.extensions_mut().insert(info);

        let mut passage = Passage { line: &line, class, handler, reading, slot: None, who: None };
        let mut response = {
            // Pinned where it is made: it is large, and would else be moved from layer to layer.
            let work = pin!(self.admit(request, &mut passage));
            let answer = async { catch_panic::contain(work).await.unwrap_or_else(refuse) };
            observed.during(answer).await
        };
        if is_grpc {
            response = Box::pin(grpc::translate(response)).await;
        }
        security_headers::add(response.headers_mut(), line.peer.tls);
        let in_flight = observed.end(Seen::of(&response), passage.who, class, &self.metrics);
        request_id::tell(id, response.headers_mut());
        passage.reading.tell(&mut response);
        let held = (in_flight, passage.slot);
        response.map(|body| Held::wrap(body, held))
    }

    /// Lets in what is well-formed and meant for us, for as long as there is room and time.
    async fn admit(&self, mut request: Request, passage: &mut Passage<'_>) -> Result<Response> {
        let (line, class) = (passage.line, passage.class);
        self.rules.check(&mut request, line)?;
        passage.slot = self.slots.take(class, &line.peer).await?;
        let limit = self.deadlines.of(request.headers(), class.kind, class.public)?;
        let work = pin!(self.receive(request, passage));
        deadline::within(limit, work).await
    }

    /// Asks who it is from, and only then takes the body.
    async fn receive(&self, request: Request, passage: &mut Passage<'_>) -> Result<Response> {
        let (line, class) = (passage.line, passage.class);
        let (parts, body) = request.into_parts();
        let mut caller = None;
        if !class.open {
            let principal = self.door.admit(&parts, &line.last).await?;
            passage.who = Some(principal.id);
            caller = Some(principal);
        }
        if let (Handler::Direct(handler), Some(caller)) = (&passage.handler, &caller) {
            let (handler, caller) = (handler.clone(), caller.clone());
            return self.hand_over(&handler, (parts, body), caller, passage).await;
        }
        let (request, _held) = self.intake.take(parts, body, class, &mut passage.reading).await?;
        let key = idempotency::key_of(&request, class.kind)?;
        let (Some(key), Some(caller)) = (key, &caller) else {
            return Ok(self.handle(request, caller, passage).await);
        };
        let work = async |request| Ok(self.handle(request, Some(caller.clone()), passage).await);
        Box::pin(idempotency::remember(&self.db, caller, key, request, work)).await
    }

    /// Gives the handler all it needs, and the body as bytes.
    async fn hand_over(
        &self,
        handler: &Direct,
        (mut parts, body): (Parts, Body),
        caller: Arc<Principal>,
        passage: &mut Passage<'_>,
    ) -> Result<Response> {
        let (headers, reading) = (&mut parts.headers, &mut passage.reading);
        let (body, _held) = self.intake.whole(headers, body, passage.class, reading).await?;
        let info = parts.extensions.remove::<RequestInfo>();
        let info = info.ok_or_else(|| Error::internal("the request has no name"))?;
        let ctx = Ctx::new(caller, info, self.gate.clone());
        Ok(handler.answer(ctx, Arc::new(parts), body).await.into())
    }

    /// Answers a call on the short way whose head passed all that is asked of a head, and whose body has
    /// come, perhaps into room that was taken for it. Every other layer is passed in its order.
    pub(super) async fn answer_known(
        &self,
        head: &Head,
        (body, room): (Bytes, Option<Reservation>),
        line: &Line,
    ) -> Answered {
        let info = request_id::info(head.trace.clone(), line.peer.address.ip());
        let (id, parts) = (info.id, &head.parts);
        let seen = (&parts.method, &parts.uri, &parts.headers);
        let observed =
            Observed::begin(seen, Some(Pattern::Direct(head.path)), &info, &self.metrics);
        let mut way = Way { slot: None, who: None, body: body.is_empty() };
        let answer = {
            let work = pin!(self.take_in(head, (body, room), line, info, &mut way));
            let answer = async {
                let answer = catch_panic::contain(work).await;
                answer.unwrap_or_else(|error| Answer::Other(refuse(error)))
            };
            observed.during(answer).await
        };
        let seen = Seen::of_answer(&answer);
        let no_room = seen.is_for_want_of_room();
        let in_flight = observed.end(seen, way.who, &head.class, &self.metrics);
        Answered { answer, id, ends: !way.body, no_room, held: (in_flight, way.slot) }
    }

    async fn take_in(
        &self,
        head: &Head,
        (body, room): (Bytes, Option<Reservation>),
        line: &Line,
        info: RequestInfo,
        way: &mut Way,
    ) -> Result<Answer> {
        way.slot = self.slots.take(&head.class, &line.peer).await?;
        let work = pin!(async {
            let caller = self.door.recognise(&head.parts.headers, &info, &line.last).await?;
            way.who = Some(caller.id);
            self.intake.check(body.len(), &head.class)?;
            let _held = match room {
                Some(room) => room,
                None => self.intake.room(body.len())?,
            };
            way.body = true;
            let ctx = Ctx::new(caller, info, self.gate.clone());
            Ok(head.handler.answer(ctx, head.parts.clone(), body).await)
        });
        deadline::within(head.deadline, work).await
    }

    /// Gives the handler what it may ask for: its context, and the connection.
    async fn handle(
        &self,
        mut request: Request,
        caller: Option<Arc<Principal>>,
        passage: &mut Passage<'_>,
    ) -> Response {
        let extensions = request.extensions_mut();
        if let Some(principal) = caller
            && let Some(info) = extensions.get::<RequestInfo>().cloned()
        {
            extensions.insert(Ctx::new(principal, info, self.gate.clone()));
        }
        extensions.insert(passage.line.lifeline.watch());
        // Only what lasts has to know that the server is about to stop.
        if passage.class.kind == RouteKind::Stream {
            extensions.insert(passage.line.drain.clone());
            extensions.insert(passage.line.stopping.clone());
        }
        let Handler::Routed(route) = &mut passage.handler else {
            return refuse(Error::internal("a call on the short way took the long one"));
        };
        let Ok(response) = route.call(request).await;
        response
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Around(Arc<Port>);

impl Layer<Route> for Around {
    type Service = Piped;

    fn layer(&self, route: Route) -> Piped {
        Piped { port: self.0.clone(), route }
    }
}

#[derive(Clone)]
struct Piped {
    port: Arc<Port>,
    route: Route,
}

impl Service<Request> for Piped {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let (port, route) = (self.port.clone(), self.route.clone());
        let Some(line) = request.extensions_mut().remove::<Arc<Line>>() else {
            let error = Error::internal("the request has no connection");
            return Box::pin(std::future::ready(Ok(refuse(error))));
        };
        let path = request.extensions().get::<MatchedPath>().cloned().map(Pattern::Matched);
        Box::pin(async move { Ok(port.answer(request, line, path, Handler::Routed(route)).await) })
    }
}
