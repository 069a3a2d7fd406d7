//! `falaj events tail`.

use std::time::Duration;

use clap::Args;
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use serde_json::Value;

use super::{line, sse::Parser};
use crate::client::{Call, Client};
use crate::context::Context;
use crate::exit::{Exit, Result};

/// How long to wait before asking again for a stream that ended, and how often in a row.
const RECONNECT: Duration = Duration::from_secs(1);
const MAX_RECONNECTS: u32 = 30;

#[derive(Debug, Args)]
pub(super) struct Tail {
    /// Stay, and print events as they happen.
    #[arg(long, short)]
    follow: bool,
    /// Only types that begin with this, for instance falaj.tenant.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only events of this tenant.
    #[arg(long, short)]
    tenant: Option<String>,
    /// Begin after this cursor instead of with the last events.
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// How many events at most; with --follow, how many of those that happened already.
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

impl Tail {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        match &self.after {
            Some(_) if self.follow => self.follow(ctx, client, self.after.clone()).await,
            after => {
                let next = self.page(ctx, client, after.as_deref()).await?;
                if self.follow { self.follow(ctx, client, next).await } else { Ok(()) }
            }
        }
    }

    /// Prints events that happened already; gives the cursor to go on from.
    async fn page(
        &self,
        ctx: &Context,
        client: &Client,
        after: Option<&str>,
    ) -> Result<Option<String>> {
        // `tail -n 0 -f` shows only what comes; the server has no page of none.
        let limit = self.limit.max(1).to_string();
        let call = self
            .filter(client.call(Method::GET, &["v1", "events"])?)
            .query("after", after)
            .query("last", after.is_none().then_some("true"))
            .query("limit", Some(&limit));
        let page = client.json(call).await?;
        let events = page["items"].as_array().into_iter().flatten();
        for event in events.take(self.limit as usize) {
            ctx.output.entry(event, line)?;
        }
        Ok(page["next"].as_str().map(str::to_owned))
    }

    fn filter(&self, call: Call) -> Call {
        call.query("type", self.kind.as_deref()).query("tenant", self.tenant.as_deref())
    }

    /// Reads the stream, and takes it up again where it ended when the connection is lost.
    async fn follow(&self, ctx: &Context, client: &Client, mut last: Option<String>) -> Result<()> {
        let mut retries = 0;
        loop {
            let before = last.clone();
            match self.stream(ctx, client, &mut last).await {
                Err(failure) if failure.exit() != Exit::Unavailable || failure.is_silent() => {
                    return Err(failure);
                }
                Err(failure) if retries >= MAX_RECONNECTS => return Err(failure),
                Err(_) | Ok(()) => {
                    retries = if last == before { retries + 1 } else { 0 };
                    ctx.output.say("the stream ended; taking it up again");
                    tokio::time::sleep(RECONNECT).await;
                }
            }
        }
    }

    async fn stream(
        &self,
        ctx: &Context,
        client: &Client,
        last: &mut Option<String>,
    ) -> Result<()> {
        let mut call = self
            .filter(client.call(Method::GET, &["v1", "events", "stream"])?)
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"))
            .streaming();
        if let Some(id) = last.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
            call = call.header(HeaderName::from_static("last-event-id"), id);
        }
        let mut response = client.send(call).await?;
        let mut parser = Parser::default();
        loop {
            // A piece that does not come in time is a lost connection: the server sends a
            // comment now and then even when nothing happens.
            let Ok(Some(piece)) = response.chunk().await else { return Ok(()) };
            for message in parser.feed(&piece)? {
                let event = serde_json::from_str::<Value>(&message.data)
                    .unwrap_or(Value::String(message.data));
                ctx.output.entry(&event, line)?;
                if message.id.is_some() {
                    *last = message.id;
                }
            }
        }
    }
}
