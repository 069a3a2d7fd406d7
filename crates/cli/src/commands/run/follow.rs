//! `falaj run follow`, and the stream behind it.

use std::time::Duration;

use clap::Args;
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use serde_json::Value;

use crate::client::Client;
use crate::commands::InProject;
use crate::commands::events::sse::Parser;
use crate::context::Context;
use crate::exit::{Exit, Result};

/// How long to wait before asking again for a stream that ended, and how often in a row.
const RECONNECT: Duration = Duration::from_secs(1);
const MAX_RECONNECTS: u32 = 30;

#[derive(Debug, Args)]
pub(super) struct Follow {
    /// Its id.
    run: String,
    #[command(flatten)]
    place: InProject,
}

impl Follow {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let stream = Stream { place: &self.place, run: &self.run, what: "status,metrics", from: 0 };
        stream
            .read(ctx, client, |kind, data| {
                let mut item = data.clone();
                if let Value::Object(fields) = &mut item {
                    fields.insert("event".to_owned(), kind.into());
                }
                ctx.output.entry(&item, |_| super::line(kind, data))
            })
            .await
    }
}

/// What to follow.
pub(super) struct Stream<'a> {
    pub(super) place: &'a InProject,
    pub(super) run: &'a str,
    pub(super) what: &'static str,
    /// Where in the log to begin.
    pub(super) from: u64,
}

impl Stream<'_> {
    /// Hands over every event until the run has ended, and takes the stream up again where it
    /// ended when the connection is lost.
    pub(super) async fn read(
        &self,
        ctx: &Context,
        client: &Client,
        mut each: impl FnMut(&str, &Value) -> Result<()>,
    ) -> Result<()> {
        let (mut last, mut retries) = (None, 0);
        loop {
            let before = last.clone();
            match self.once(client, &mut last, &mut each).await {
                Ok(true) => return Ok(()),
                Err(failure) if failure.exit() != Exit::Unavailable || failure.is_silent() => {
                    return Err(failure);
                }
                Err(failure) if retries >= MAX_RECONNECTS => return Err(failure),
                Err(_) => {
                    retries = if last == before { retries + 1 } else { 0 };
                    ctx.output.say("the stream broke; taking it up again");
                    tokio::time::sleep(RECONNECT).await;
                }
                // The server ends each stream after a while, to look at the credential again.
                Ok(false) => retries = 0,
            }
        }
    }

    /// One connection; whether the run has ended.
    async fn once(
        &self,
        client: &Client,
        last: &mut Option<String>,
        each: &mut impl FnMut(&str, &Value) -> Result<()>,
    ) -> Result<bool> {
        let from = self.from.to_string();
        let mut call = client
            .call(Method::GET, &self.place.path(&["runs", self.run, "follow"]))?
            .query("what", Some(self.what))
            .query("offset", Some(&from))
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"))
            .streaming();
        if let Some(id) = last.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
            call = call.header(HeaderName::from_static("last-event-id"), id);
        }
        let mut response = client.send(call).await?;
        let mut parser = Parser::default();
        loop {
            let piece = response.chunk().await;
            let piece = piece.map_err(|error| crate::client::broken_stream(&error))?;
            let Some(piece) = piece else { return Ok(false) };
            for message in parser.feed(&piece)? {
                let data = serde_json::from_str::<Value>(&message.data)
                    .unwrap_or(Value::String(message.data));
                let kind = message.kind.as_deref().unwrap_or_default();
                each(kind, &data)?;
                if message.id.is_some() {
                    *last = message.id;
                }
                if matches!(kind, "end" | "gone") {
                    return Ok(true);
                }
            }
        }
    }
}
