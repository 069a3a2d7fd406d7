//! Webhooks over the MLflow protocol.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::error::{refused, required, required_text};
use falaj_mlflow::{Api, Call, Places, wire as read};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

use super::event::Event;
use super::service::Given;
use super::webhook::{Webhook, read_status};
use crate::wire::Nothing;
use crate::{Registry, WEBHOOK_READ, WEBHOOK_WRITE};

const ALL: &str = "/api/2.0/mlflow/webhooks";
const ONE: &str = "/api/2.0/mlflow/webhooks/{webhook_id}";
const TEST: &str = "/api/2.0/mlflow/webhooks/{webhook_id}/test";

/// How many webhooks a page has unless asked otherwise, and the most.
const USUAL: i64 = 100;
const MOST: i64 = 1000;

/// The most events of one webhook: more than there are.
const MAX_EVENTS: usize = 100;

pub(crate) fn routes(registry: Arc<Registry>, places: Places) -> Vec<Endpoint> {
    Api::new(registry, places)
        .post(ALL, &WEBHOOK_WRITE, "Create a webhook", create)
        .get(ALL, &WEBHOOK_READ, "List webhooks", list)
        .at(Method::GET, ONE, &WEBHOOK_READ, "See a webhook", get)
        .at(Method::PATCH, ONE, &WEBHOOK_WRITE, "Change a webhook", update)
        .at(Method::DELETE, ONE, &WEBHOOK_WRITE, "Delete a webhook", delete)
        .at(Method::POST, TEST, &WEBHOOK_WRITE, "Send an example to a webhook", test)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct EventBody {
    /// Such as `MODEL_VERSION`.
    entity: Option<Value>,
    /// Such as `CREATED`.
    action: Option<Value>,
}

impl EventBody {
    fn read(&self) -> Result<Event> {
        Event::read(self.entity.as_ref(), self.action.as_ref())
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Body {
    name: Option<String>,
    description: Option<String>,
    url: Option<String>,
    events: Vec<EventBody>,
    /// Signs what is sent; never shown again.
    secret: Option<String>,
    /// `ACTIVE` or `DISABLED`.
    status: Option<Value>,
}

impl Body {
    /// An empty text is an absent one, as in MLflow.
    fn given(self) -> Result<Given> {
        if self.events.len() > MAX_EVENTS {
            let text = format!("A webhook has at most {MAX_EVENTS} events");
            return Err(refused(text).at("events"));
        }
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let mut events = Vec::new();
        for event in &self.events {
            let event = event.read()?;
            if !events.contains(&event) {
                events.push(event);
            }
        }
        Ok(Given {
            name: text(self.name),
            description: text(self.description),
            url: text(self.url),
            events,
            secret: text(self.secret).map(Zeroizing::new),
            active: self.status.as_ref().map(read_status).transpose()?,
        })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct EventShape {
    entity: String,
    action: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WebhookShape {
    webhook_id: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    url: String,
    events: Vec<EventShape>,
    status: &'static str,
    creation_timestamp: i64,
    last_updated_timestamp: i64,
}

impl From<Webhook> for WebhookShape {
    fn from(webhook: Webhook) -> Self {
        let event = |event: &Event| {
            let (entity, action) = event.parts();
            EventShape { entity: entity.to_uppercase(), action: action.to_uppercase() }
        };
        Self {
            status: webhook.status(),
            events: webhook.events.iter().map(event).collect(),
            webhook_id: webhook.id,
            name: webhook.name,
            description: webhook.description,
            url: webhook.url,
            creation_timestamp: webhook.created_at,
            last_updated_timestamp: webhook.updated_at,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    webhook: WebhookShape,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Path {
    webhook_id: String,
}

async fn create(r: Arc<Registry>, call: Call, body: Body) -> Result<Shown> {
    required_text("name", body.name.clone())?;
    required_text("url", body.url.clone())?;
    required("events", (!body.events.is_empty()).then_some(()))?;
    let webhook = r.create_webhook(&call.ctx, &call.place, body.given()?).await?;
    Ok(Shown { webhook: webhook.into() })
}

async fn get(r: Arc<Registry>, call: Call, path: Path, _: Nobody) -> Result<Shown> {
    let (webhook, _) = r.webhook(&call.ctx, &call.place, &path.webhook_id, &WEBHOOK_READ).await?;
    Ok(Shown { webhook: webhook.into() })
}

/// No fields.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Nobody {}

async fn update(r: Arc<Registry>, call: Call, path: Path, body: Body) -> Result<Shown> {
    let given = body.given()?;
    let webhook = r.update_webhook(&call.ctx, &call.place, &path.webhook_id, given).await?;
    Ok(Shown { webhook: webhook.into() })
}

async fn delete(r: Arc<Registry>, call: Call, path: Path, _: Nobody) -> Result<Nothing> {
    r.delete_webhook(&call.ctx, &call.place, &path.webhook_id).await.map(|()| Nothing {})
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct List {
    #[serde(alias = "maxResults", deserialize_with = "read::int")]
    max_results: Option<i64>,
    #[serde(alias = "pageToken")]
    page_token: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    webhooks: Vec<WebhookShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

async fn list(r: Arc<Registry>, call: Call, query: List) -> Result<Listed> {
    let asked = query.max_results.filter(|asked| *asked != 0).unwrap_or(USUAL);
    let limit = usize::try_from(asked).ok().filter(|_| (1..=MOST).contains(&asked));
    let limit = limit
        .ok_or_else(|| refused("max_results must be between 1 and 1000.").at("max_results"))?;
    let token = query.page_token.as_deref().filter(|token| !token.is_empty());
    let (found, next_page_token) = r.webhooks(&call.ctx, &call.place, (limit, token)).await?;
    Ok(Listed { webhooks: found.into_iter().map(WebhookShape::from).collect(), next_page_token })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Test {
    event: Option<EventBody>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Outcome {
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Tested {
    result: Outcome,
}

async fn test(r: Arc<Registry>, call: Call, path: Path, body: Test) -> Result<Tested> {
    let event = body.event.as_ref().map(EventBody::read).transpose()?;
    let said = r.test_webhook(&call.ctx, &call.place, &path.webhook_id, event).await?;
    let result = match said {
        Ok(said) => Outcome {
            // No redirect is followed: one that was answered did not arrive.
            success: said.status < 300,
            response_status: Some(said.status),
            response_body: Some(said.body),
            error_message: None,
        },
        Err(why) => Outcome {
            success: false,
            response_status: None,
            response_body: None,
            error_message: Some(format!("Failed to test webhook: {why}")),
        },
    };
    Ok(Tested { result })
}
