//! `falaj model policy`: what it takes to promote a version.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use super::api::below;
use crate::client::Client;
use crate::commands::{InProject, fields, some_change, texts};
use crate::context::Context;
use crate::exit::{Failure, Result, file_error};
use crate::output::Column;

/// See and set what protected aliases and stages ask for
#[derive(Debug, Args)]
pub(crate) struct Policy {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Show the rules of a project
    #[command(after_help = "Example:\n  falaj model policy show -t acme -p vision")]
    Show {
        #[command(flatten)]
        place: InProject,
    },
    /// Set the rules of a project; what is not given is off
    #[command(after_help = "Example:\n  \
        falaj model policy set --protect production --protect-stage Production --require owner \
        --require limitations --four-eyes --require-signature --refuse unsafe-format")]
    Set {
        #[command(flatten)]
        place: InProject,
        /// An alias to protect.
        #[arg(long, value_name = "ALIAS")]
        protect: Vec<String>,
        /// A stage to protect: Staging or Production.
        #[arg(long, value_name = "STAGE")]
        protect_stage: Vec<String>,
        /// A field that the card must have.
        #[arg(long, value_name = "FIELD")]
        require: Vec<String>,
        /// Somebody else must have approved.
        #[arg(long)]
        four_eyes: bool,
        /// The files must be kept and signed by the server.
        #[arg(long)]
        require_signature: bool,
        /// A finding of the scan that is not accepted: unsafe-format, contains-code, unrecognised.
        #[arg(long, value_name = "VERDICT")]
        refuse: Vec<String>,
        /// A file with the rules as JSON, instead of the options above.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["protect", "protect_stage", "require",
              "four_eyes", "require_signature", "refuse"])]
        from: Option<PathBuf>,
    },
}

const RULES: &[Column] = &[
    ("protected aliases", "protected_aliases"),
    ("protected stages", "protected_stages"),
    ("required fields", "required_fields"),
    ("four eyes", "four_eyes"),
    ("signature", "require_signature"),
    ("refused findings", "refused_verdicts"),
];

impl Policy {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        match self.command {
            Commands::Show { place } => {
                let rules = client.get(&below(&place, &["model-policy"])).await?;
                ctx.output.record(&rules, RULES)
            }
            Commands::Set {
                place,
                protect,
                protect_stage,
                require,
                four_eyes,
                require_signature,
                refuse,
                from,
            } => {
                let body = match from {
                    Some(file) => read(&file)?,
                    None => some_change(fields([
                        ("protected_aliases", texts(&protect)),
                        ("protected_stages", texts(&protect_stage)),
                        ("required_fields", texts(&require)),
                        ("four_eyes", four_eyes.then_some(Value::Bool(true))),
                        ("require_signature", require_signature.then_some(Value::Bool(true))),
                        ("refused_verdicts", texts(&refuse)),
                    ]))?,
                };
                let call = client.call(Method::PUT, &below(&place, &["model-policy"]))?.body(body);
                ctx.output.record(&client.json(call).await?, RULES)
            }
        }
    }
}

fn read(file: &std::path::Path) -> Result<Value> {
    let text = std::fs::read_to_string(file).map_err(file_error("read", file))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{}: not JSON: {error}", file.display())))
}
