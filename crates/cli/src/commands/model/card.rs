//! `falaj model card`: what people should know about a version.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::Which;
use super::api::Api;
use crate::client::Client;
use crate::commands::pair;
use crate::context::Context;
use crate::exit::{Failure, Result, file_error};
use crate::output::{Column, printable};

/// See and write model cards
#[derive(Debug, Args)]
pub(crate) struct Card {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Show the card of a version
    #[command(after_help = "Example:\n  falaj model card show diabetes 3")]
    Show {
        #[command(flatten)]
        which: Which,
    },
    /// Change fields of a card, or its text
    #[command(after_help = "Example:\n  \
        falaj model card edit diabetes 3 --set owner=health-team --set licence=MIT \
        --markdown card.md")]
    Edit {
        #[command(flatten)]
        which: Which,
        /// A field to write, as name=value.
        #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
        set: Vec<(String, String)>,
        /// A field to remove.
        #[arg(long, value_name = "NAME")]
        unset: Vec<String>,
        /// A file with the card's text.
        #[arg(long, value_name = "FILE")]
        markdown: Option<PathBuf>,
    },
}

const CARD: &[Column] = &[
    ("fields", "fields"),
    ("revision", "revision"),
    ("written by", "updated_by"),
    ("written", "updated_at"),
];

impl Card {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        match self.command {
            Commands::Show { which } => {
                let call = Api::new(client, &which.place).of(Method::GET, &which, "card")?;
                show(ctx, &client.json(call).await?)
            }
            Commands::Edit { which, set, unset, markdown } => {
                if set.is_empty() && unset.is_empty() && markdown.is_none() {
                    return Err(Failure::usage("nothing to change was given")
                        .hint("use --set, --unset or --markdown"));
                }
                let api = Api::new(client, &which.place);
                let mut card = client.json(api.of(Method::GET, &which, "card")?).await?;
                let fields = &mut card["fields"];
                for (name, value) in set {
                    fields[name] = Value::from(value);
                }
                if let Some(fields) = fields.as_object_mut() {
                    for name in &unset {
                        fields.remove(name);
                    }
                }
                if let Some(file) = markdown {
                    let text = std::fs::read_to_string(&file).map_err(file_error("read", &file))?;
                    card["markdown"] = Value::from(text);
                }
                // With the revision it was made from: nobody's words are lost unseen.
                let body = json!({
                    "fields": card["fields"], "markdown": card["markdown"],
                    "revision": card["revision"],
                });
                let call = api.of(Method::PUT, &which, "card")?.body(body);
                show(ctx, &client.json(call).await?)
            }
        }
    }
}

fn show(ctx: &Context, card: &Value) -> Result<()> {
    ctx.output.record(card, CARD)?;
    match card["markdown"].as_str().filter(|text| !text.is_empty()) {
        Some(text) if !ctx.output.is_json() => {
            ctx.output.text(&format!("\n{}", printable(text, true)))
        }
        _ => Ok(()),
    }
}
