//! `falaj events`: every state change as it happens.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::{fields, text};
use crate::context::Context;
use crate::exit::Result;
use crate::output::{Column, cell};

pub(crate) mod sse;
mod tail;

/// Follow the event log, and read it with a named subscription
#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Print the last events, and with --follow those to come
    #[command(after_help = "Examples:\n  falaj events tail --follow\n  \
        falaj events tail --type falaj.tenant.created --limit 10 --output json")]
    Tail(tail::Tail),
    /// Create or change a named subscription, which remembers how far it has read
    #[command(
        after_help = "Example:\n  falaj events subscribe billing --type falaj.object.created"
    )]
    Subscribe {
        /// Its name.
        name: String,
        /// Only types that begin with this.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Begin with the oldest event that is kept, not with the next one.
        #[arg(long)]
        from_start: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Show a subscription and how far it has read
    #[command(after_help = "Example:\n  falaj events subscription billing")]
    Subscription {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Read the next events of a subscription; they come again until acknowledged
    #[command(after_help = "Example:\n  falaj events pull billing --ack")]
    Pull {
        /// Its name.
        name: String,
        /// Acknowledge them after they are printed.
        #[arg(long)]
        ack: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Acknowledge everything up to a cursor
    #[command(after_help = "Example:\n  falaj events ack billing 0-4711")]
    Ack {
        /// The name of the subscription.
        name: String,
        /// The cursor of the last event that was handled.
        cursor: String,
        #[command(flatten)]
        place: Place,
    },
    /// Remove a subscription
    #[command(after_help = "Example:\n  falaj events unsubscribe billing")]
    Unsubscribe {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: Place,
    },
}

/// In whose name space a subscription is.
#[derive(Debug, Args)]
struct Place {
    /// The tenant it belongs to; the platform if absent.
    #[arg(long, short)]
    tenant: Option<String>,
}

const SUBSCRIPTION: &[Column] = &[
    ("type", "type"),
    ("has read up to", "cursor"),
    ("created", "created_at"),
    ("moved", "moved_at"),
];

impl Events {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        let call = |method: Method, name: &str, more: &[&str], place: &Place| {
            let path: Vec<&str> =
                ["v1", "subscriptions", name].into_iter().chain(more.iter().copied()).collect();
            client.call(method, &path).map(|call| call.query("tenant", place.tenant.as_deref()))
        };
        match self.command {
            Commands::Tail(tail) => tail.run(ctx, &client).await,
            Commands::Subscribe { name, kind, from_start, place } => {
                let body = fields([
                    ("type", text(kind.as_ref())),
                    ("from_start", from_start.then_some(true.into())),
                ]);
                let made = client.json(call(Method::PUT, &name, &[], &place)?.body(body)).await?;
                ctx.output.record(&made, SUBSCRIPTION)
            }
            Commands::Subscription { name, place } => {
                let found = client.json(call(Method::GET, &name, &[], &place)?).await?;
                ctx.output.record(&found, SUBSCRIPTION)
            }
            Commands::Pull { name, ack, place } => {
                let page = client.json(call(Method::GET, &name, &["events"], &place)?).await?;
                let events = page["items"].as_array().map(Vec::as_slice).unwrap_or_default();
                for event in events {
                    ctx.output.entry(event, line)?;
                }
                let next = page["next"].as_str().unwrap_or_default();
                match (events.is_empty(), ack) {
                    (true, _) => ctx.output.say("nothing is pending"),
                    (false, false) => {
                        ctx.output
                            .say(&format!("acknowledge with: falaj events ack {name} {next}"));
                    }
                    // Acknowledged only now: what could not be printed comes again.
                    (false, true) => {
                        let call = call(Method::POST, &name, &["ack"], &place)?;
                        client.json(call.body(json!({ "cursor": next }))).await?;
                    }
                }
                Ok(())
            }
            Commands::Ack { name, cursor, place } => {
                let call = call(Method::POST, &name, &["ack"], &place)?;
                let done = client.json(call.body(json!({ "cursor": cursor }))).await?;
                ctx.output.done(&done, &format!("{name} has read up to {cursor}"))
            }
            Commands::Unsubscribe { name, place } => {
                let gone = client.json(call(Method::DELETE, &name, &[], &place)?).await?;
                ctx.output.done(&gone, &format!("removed subscription {name}"))
            }
        }
    }
}

/// An event on one line.
fn line(event: &Value) -> String {
    let part = |path| cell(event, path);
    format!("{}  {}  {}  {}", part("time"), part("type"), part("subject"), part("data"))
}
