//! `/v1/events` and `/v1/subscriptions`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing;
use falaj_base::{Ctx, Error, Name, Result, Timestamp};
use falaj_store::events::{Cursor, Event, MAX_BATCH, Subscription};
use falaj_web::{Doc, Input, NoContent, Ok200, Routes, problem_response, query};
use http::{HeaderMap, Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::service::Events;
use super::{EVENT_READ, SUBSCRIPTION_READ, SUBSCRIPTION_WRITE, stream};
use crate::http::Drain;

const SUBSCRIPTION: &str = "/v1/subscriptions/{name}";

#[must_use]
pub fn routes(service: Arc<Events>) -> Routes<Events> {
    let streaming = service.clone();
    let follow = routing::get(move |Extension(ctx), Extension(drain), headers, RawQuery(query)| {
        follow(streaming.clone(), ctx, drain, headers, query)
    });
    Routes::new(service)
        .get("/v1/events", &EVENT_READ, "Read events in commit order", read)
        .raw(Method::GET, "/v1/events/stream", &EVENT_READ, STREAM, follow)
        .put(SUBSCRIPTION, &SUBSCRIPTION_WRITE, "Make a subscription, or find it", subscribe)
        .get(SUBSCRIPTION, &SUBSCRIPTION_READ, "Show a subscription", show)
        .delete(SUBSCRIPTION, &SUBSCRIPTION_WRITE, "Remove a subscription", remove)
        .get("/v1/subscriptions/{name}/events", &EVENT_READ, "Read what is pending", pending)
        .post("/v1/subscriptions/{name}/ack", &SUBSCRIPTION_WRITE, "Acknowledge", acknowledge)
}

const STREAM: Doc = Doc {
    summary: "Follow events live (server-sent events)",
    takes: None,
    gives: Some("text/event-stream"),
    status: 200,
    query: &[
        ("after", "Continue after this cursor; the Last-Event-ID header does the same"),
        ("type", "Only types that begin with this"),
        ("tenant", "Only this tenant's"),
    ],
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadQuery {
    /// Continue after this cursor; from the first event if absent.
    after: Option<Cursor>,
    /// How many at most, 1 to 1000; 100 if absent.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// Only types that begin with this, such as `falaj.tenant.`.
    #[serde(rename = "type", default)]
    #[schemars(length(max = 128))]
    kind: String,
    /// Only this tenant's.
    tenant: Option<Name>,
    /// The last events instead of the first; not together with `after`.
    #[serde(default)]
    last: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct NamePath {
    name: Name,
}

/// Whose name space the subscription is in; the platform's own if absent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TenantQuery {
    tenant: Option<Name>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewSubscription {
    /// Only types that begin with this.
    #[serde(rename = "type", default)]
    #[schemars(length(max = 128))]
    kind: String,
    /// Begin with the oldest event that is kept, rather than with the next one to come.
    #[serde(default)]
    from_start: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Acknowledgement {
    cursor: Cursor,
}

/// Events in the CloudEvents 1.0 shape.
#[derive(Debug, Serialize, JsonSchema)]
struct EventPage {
    items: Vec<serde_json::Value>,
    /// Pass as `after` to read on.
    next: Cursor,
}

impl From<(Vec<Event>, Cursor)> for EventPage {
    fn from((events, next): (Vec<Event>, Cursor)) -> Self {
        Self { items: events.iter().map(Event::cloud_event).collect(), next }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct SubscriptionView {
    #[serde(rename = "type")]
    kind: String,
    cursor: Cursor,
    created_at: Timestamp,
    moved_at: Timestamp,
}

impl From<Subscription> for SubscriptionView {
    fn from(subscription: Subscription) -> Self {
        Self {
            kind: subscription.kind,
            cursor: subscription.cursor,
            created_at: subscription.created_at,
            moved_at: subscription.moved_at,
        }
    }
}

fn limit(asked: Option<u32>) -> Result<usize> {
    match asked.map(|limit| limit as usize) {
        None => Ok(100),
        Some(limit @ 1..=MAX_BATCH) => Ok(limit),
        Some(limit) => Err(Error::invalid("limit", limit, format!("1 to {MAX_BATCH}"))),
    }
}

async fn read(s: Arc<Events>, ctx: Ctx, input: Input<(), ReadQuery>) -> Result<Ok200<EventPage>> {
    let ReadQuery { after, limit: asked, kind, tenant, last } = input.query;
    let (filter, limit) = (s.filter(&ctx, tenant.as_ref(), kind).await?, limit(asked)?);
    let page = match (last, after) {
        (true, None) => s.last(&ctx, filter, limit).await?,
        (true, Some(_)) => {
            return Err(Error::invalid("last", "true", "absent where `after` is set"));
        }
        (false, after) => s.read(&ctx, after.unwrap_or(Cursor::START), filter, limit).await?,
    };
    Ok(Ok200(page.into()))
}

async fn follow(
    s: Arc<Events>,
    ctx: Ctx,
    drain: Drain,
    headers: HeaderMap,
    text: Option<String>,
) -> Response {
    let answer = async {
        let asked: ReadQuery = query(text.as_deref().unwrap_or(""))?;
        let last_seen = headers.get("last-event-id").and_then(|value| value.to_str().ok());
        let after = match last_seen.map(str::parse).transpose()?.or(asked.after) {
            Some(cursor) => cursor,
            None => s.end().await?,
        };
        let filter = s.filter(&ctx, asked.tenant.as_ref(), asked.kind).await?;
        ctx.filtered(&EVENT_READ);
        stream::follow(s, ctx, filter, after, drain)
    };
    answer.await.unwrap_or_else(|error| problem_response(&error))
}

async fn subscribe(
    s: Arc<Events>,
    ctx: Ctx,
    input: Input<NamePath, TenantQuery, NewSubscription>,
) -> Result<Ok200<SubscriptionView>> {
    let NewSubscription { kind, from_start } = input.body;
    let tenant = input.query.tenant.as_ref();
    let made = s.subscribe(&ctx, &input.path.name, tenant, kind, from_start).await?;
    Ok(Ok200(made.into()))
}

async fn show(
    s: Arc<Events>,
    ctx: Ctx,
    input: Input<NamePath, TenantQuery>,
) -> Result<Ok200<SubscriptionView>> {
    let found = s.subscription(&ctx, &input.path.name, input.query.tenant.as_ref()).await?;
    Ok(Ok200(found.into()))
}

async fn remove(
    s: Arc<Events>,
    ctx: Ctx,
    input: Input<NamePath, TenantQuery>,
) -> Result<NoContent> {
    s.unsubscribe(&ctx, &input.path.name, input.query.tenant.as_ref()).await.map(|()| NoContent)
}

async fn pending(
    s: Arc<Events>,
    ctx: Ctx,
    input: Input<NamePath, TenantQuery>,
) -> Result<Ok200<EventPage>> {
    let tenant = input.query.tenant.as_ref();
    let page = s.pending(&ctx, &input.path.name, tenant, MAX_BATCH).await?;
    Ok(Ok200(page.into()))
}

async fn acknowledge(
    s: Arc<Events>,
    ctx: Ctx,
    input: Input<NamePath, TenantQuery, Acknowledgement>,
) -> Result<NoContent> {
    let tenant = input.query.tenant.as_ref();
    s.acknowledge(&ctx, &input.path.name, tenant, input.body.cursor).await.map(|()| NoContent)
}
