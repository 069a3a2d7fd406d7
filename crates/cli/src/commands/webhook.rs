//! `falaj webhook`: who is told of what happens to models and prompts.

use clap::{Args, Subcommand};
use falaj_base::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use super::model::api::Api;
use super::{InProject, Sure, fields, some_change, text};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::output::Column;

/// Tell other systems what happens to models and prompts
#[derive(Debug, Args)]
pub(crate) struct Webhook {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Create a webhook
    ///
    /// Its host must be in the server's `registry.webhooks.allowed_hosts`. The secret, which signs
    /// what is sent, is read from `FALAJ_WEBHOOK_SECRET`.
    #[command(after_help = "Example:\n  \
        falaj webhook create ci https://hooks.example.com/models --event model_version.created \
        --event model_version_alias.created -t acme -p vision")]
    Create {
        /// Its name.
        name: String,
        /// Where it goes.
        url: String,
        #[command(flatten)]
        place: InProject,
        /// What it tells of, such as `model_version.created`.
        #[arg(long = "event", required = true, value_parser = event)]
        events: Vec<Value>,
        /// What it is for.
        #[arg(long)]
        description: Option<String>,
        /// The secret that signs what is sent.
        #[arg(long, env = "FALAJ_WEBHOOK_SECRET", hide_env_values = true, value_parser = secret)]
        secret: Option<Secret>,
    },
    /// List webhooks
    #[command(after_help = "Example:\n  falaj webhook list -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
    },
    /// Show a webhook
    #[command(after_help = "Example:\n  \
        falaj webhook show 01999d2c-0000-7000-8000-00000000000a -t acme -p vision")]
    Show {
        /// Its id.
        id: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Change a webhook
    #[command(after_help = "Example:\n  \
        falaj webhook update 01999d2c-0000-7000-8000-00000000000a --status DISABLED")]
    Update {
        /// Its id.
        id: String,
        #[command(flatten)]
        place: InProject,
        /// Another name.
        #[arg(long)]
        name: Option<String>,
        /// Another address; `--url` is the server's.
        #[arg(long = "to", value_name = "URL")]
        address: Option<String>,
        /// What it tells of from now on.
        #[arg(long = "event", value_parser = event)]
        events: Vec<Value>,
        /// What it is for.
        #[arg(long)]
        description: Option<String>,
        /// ACTIVE or DISABLED.
        #[arg(long)]
        status: Option<String>,
        /// Another secret.
        #[arg(long, env = "FALAJ_WEBHOOK_SECRET", hide_env_values = true, value_parser = secret)]
        secret: Option<Secret>,
    },
    /// Send an example to a webhook
    ///
    /// Exits with 0 if the receiver took it and 1 if not.
    #[command(after_help = "Example:\n  \
        falaj webhook test 01999d2c-0000-7000-8000-00000000000a --event model_version.created")]
    Test {
        /// Its id.
        id: String,
        #[command(flatten)]
        place: InProject,
        /// What the example tells of.
        #[arg(long, value_parser = event)]
        event: Option<Value>,
    },
    /// Delete a webhook
    #[command(after_help = "Example:\n  \
        falaj webhook delete 01999d2c-0000-7000-8000-00000000000a --yes")]
    Delete {
        /// Its id.
        id: String,
        #[command(flatten)]
        place: InProject,
        #[command(flatten)]
        sure: Sure,
    },
}

const WEBHOOKS: &[Column] = &[
    ("id", "webhook_id"),
    ("name", "name"),
    ("url", "url"),
    ("events", "shown_events"),
    ("status", "status"),
];
const RESULT: &[Column] = &[
    ("taken", "success"),
    ("status", "response_status"),
    ("answer", "response_body"),
    ("error", "error_message"),
];

impl Webhook {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        let out = ctx.output;
        match self.command {
            Commands::Create { name, url, place, events, description, secret } => {
                let body = json!({
                    "name": name, "url": url, "events": events, "description": description,
                    "secret": secret.as_ref().map(Secret::expose),
                });
                let made = Api::new(&client, &place).post("webhooks", body).await?;
                out.record(&shown(made["webhook"].clone()), WEBHOOKS)
            }
            Commands::List { place } => {
                let found = Api::new(&client, &place).pages("webhooks", "webhooks", &[]).await?;
                out.list(&found.into_iter().map(shown).collect::<Vec<_>>(), WEBHOOKS)
            }
            Commands::Show { id, place } => {
                let call =
                    Api::new(&client, &place).call(Method::GET, &format!("webhooks/{id}"))?;
                out.record(&shown(client.json(call).await?["webhook"].take()), WEBHOOKS)
            }
            Commands::Update { id, place, name, address, events, description, status, secret } => {
                let body = some_change(fields([
                    ("name", text(name.as_ref())),
                    ("url", text(address.as_ref())),
                    ("events", (!events.is_empty()).then(|| Value::from(events))),
                    ("description", text(description.as_ref())),
                    ("status", text(status.as_ref())),
                    ("secret", secret.as_ref().map(|secret| secret.expose().into())),
                ]))?;
                let api = Api::new(&client, &place);
                let path = format!("webhooks/{id}");
                let mut changed = api.send(Method::PATCH, &path, body).await?;
                out.record(&shown(changed["webhook"].take()), WEBHOOKS)
            }
            Commands::Test { id, place, event } => {
                let api = Api::new(&client, &place);
                let body = json!({ "event": event });
                let said = api.post(&format!("webhooks/{id}/test"), body).await?;
                out.record(&said["result"], RESULT)?;
                if said["result"]["success"] == true {
                    return Ok(());
                }
                Err(Failure::new(Exit::Failed, "the receiver did not take it"))
            }
            Commands::Delete { id, place, sure } => {
                confirm(sure.yes, &format!("Deleting webhook {id}"), &id).await?;
                let api = Api::new(&client, &place);
                let gone = api.send(Method::DELETE, &format!("webhooks/{id}"), json!({})).await?;
                out.done(&gone, &format!("deleted webhook {id}"))
            }
        }
    }
}

/// Adds the events as texts.
fn shown(mut webhook: Value) -> Value {
    let event = |one: &Value| {
        let word = |field: &str| one[field].as_str().map(str::to_lowercase);
        Some(format!("{}.{}", word("entity")?, word("action")?))
    };
    let events = webhook["events"].as_array().into_iter().flatten();
    let events: Vec<String> = events.filter_map(event).collect();
    webhook["shown_events"] = json!(events);
    webhook
}

/// Reads `entity.action`.
fn event(text: &str) -> Result<Value, String> {
    match text.split_once('.') {
        Some((entity, action)) if !entity.is_empty() && !action.is_empty() => {
            Ok(json!({"entity": entity.to_uppercase(), "action": action.to_uppercase()}))
        }
        _ => Err("write it as entity.action, such as model_version.created".to_owned()),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the shape of a parser")]
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}
