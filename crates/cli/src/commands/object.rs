//! `falaj object`: encrypted objects of a project, streamed both ways.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;

use super::{InProject, Sure};
use crate::client::{Call, Client};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::Column;

pub(super) mod download;
mod upload;

/// Store, fetch and list objects
#[derive(Debug, Args)]
pub(crate) struct Object {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Store a file, or stdin
    #[command(after_help = "Examples:\n  \
        falaj object put models/resnet.onnx ./resnet.onnx -t acme -p vision\n  \
        falaj object put notes.txt - --content-type text/plain < notes.txt")]
    Put {
        /// Its name; slashes are part of it.
        name: String,
        /// The file to store; - for stdin.
        file: PathBuf,
        #[command(flatten)]
        place: InProject,
        /// What kind of content it is.
        #[arg(long, default_value = "application/octet-stream")]
        content_type: String,
    },
    /// Fetch an object into a file, or to stdout; its digest is checked
    #[command(after_help = "Examples:\n  \
        falaj object get models/resnet.onnx ./resnet.onnx -t acme -p vision\n  \
        falaj object get notes.txt - | less\n  \
        falaj object get big.bin head.bin --range 0-1023")]
    Get {
        /// Its name.
        name: String,
        /// Where to write it; - for stdout. An existing file is replaced when all has arrived.
        file: PathBuf,
        #[command(flatten)]
        place: InProject,
        /// Only these bytes, as first-last, first- or -count.
        #[arg(long, value_name = "BYTES", value_parser = range)]
        range: Option<String>,
    },
    /// List the objects of a project
    #[command(after_help = "Example:\n  falaj object list --prefix models/ -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
        /// Only names that begin with this.
        #[arg(long)]
        prefix: Option<String>,
    },
    /// Show what is known about an object
    #[command(after_help = "Example:\n  falaj object stat models/resnet.onnx -t acme -p vision")]
    Stat {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Remove an object
    #[command(
        after_help = "Example:\n  falaj object rm models/resnet.onnx -t acme -p vision --yes"
    )]
    Rm {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InProject,
        #[command(flatten)]
        sure: Sure,
    },
}

const COLUMNS: &[Column] = &[
    ("name", "name"),
    ("size", "size"),
    ("content type", "content_type"),
    ("zone", "zone"),
    ("created", "created_at"),
];
pub(super) const FIELDS: &[Column] = &[
    ("name", "name"),
    ("id", "id"),
    ("size", "size"),
    ("sha256", "sha256"),
    ("content type", "content_type"),
    ("zone", "zone"),
    ("created", "created_at"),
];

impl Object {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::Put { name, file, place, content_type } => {
                let call = call(&client, Method::PUT, &place, &name)?;
                upload::upload(ctx, &client, call, &file, &content_type).await
            }
            Commands::Get { name, file, place, range } => {
                let call = call(&client, Method::GET, &place, &name)?.streaming();
                download::download(ctx, &client, call, &file, range.as_deref()).await
            }
            Commands::List { place, prefix } => {
                let call =
                    client.call(Method::GET, &folder(&place))?.query("prefix", prefix.as_deref());
                ctx.output.list(&client.list(call).await?, COLUMNS)
            }
            Commands::Stat { name, place } => {
                let call = call(&client, Method::HEAD, &place, &name)?;
                let response = client.send(call).await?;
                ctx.output.record(&download::facts(&name, response.headers()), FIELDS)
            }
            Commands::Rm { name, place, sure } => {
                confirm(sure.yes, &format!("Removing object {name}"), &name).await?;
                let gone = client.json(call(&client, Method::DELETE, &place, &name)?).await?;
                ctx.output.done(&gone, &format!("removed {name}"))
            }
        }
    }
}

fn folder(place: &InProject) -> [&str; 6] {
    ["v1", "tenants", &place.place.tenant, "projects", &place.project, "objects"]
}

/// A call to one object. The slashes of its name are slashes of the path.
fn call(client: &Client, method: Method, place: &InProject, name: &str) -> Result<Call> {
    let mut path = folder(place).to_vec();
    path.extend(name.split('/'));
    client.call(method, &path).map_err(|_| {
        Failure::usage(format!("`{name}` is not an object name"))
            .hint("the parts between slashes must not be empty, `.` or `..`")
    })
}

/// Checks `first-last`, `first-` or `-count`.
fn range(text: &str) -> Result<String, String> {
    let number = |text: &str| text.is_empty() || text.parse::<u64>().is_ok();
    match text.split_once('-') {
        Some((first, last)) if number(first) && number(last) && first.len() + last.len() > 0 => {
            Ok(text.to_owned())
        }
        _ => Err("write it as first-last, first- or -count".to_owned()),
    }
}
