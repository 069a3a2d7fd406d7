//! Sending files, and making a version of them.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use futures::{StreamExt, TryStreamExt};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use super::{About, InProject, VERSION, describe, fields, path, text};
use crate::client::{Client, bounded};
use crate::context::Context;
use crate::exit::{Exit, Failure, Result, file_error};
use crate::output::progress::Progress;
use crate::stdio;

/// How much is read at once.
const PIECE: usize = 256 << 10;
/// The largest answer to a file.
const MAX_REPLY: usize = 4 << 20;

#[derive(Debug, Args)]
pub(super) struct Put {
    /// The dataset.
    name: String,
    /// The files, in the order of their rows; - for stdin.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Add them after the files of the latest version, rather than in their place.
    #[arg(long)]
    append: bool,
    /// What the files are; by the ends of their names if absent.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// What separates the fields of CSV; a comma if absent.
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<String>,
    /// The type of a column of CSV that is not what it looks like: bool, int64, float64, date,
    /// timestamp or string. May be given several times.
    #[arg(long = "type", value_name = "COLUMN=TYPE")]
    types: Vec<String>,
    /// The version that this one must follow; refused if there is a newer one.
    #[arg(long, value_name = "VERSION")]
    parent: Option<i64>,
    /// Why, for the history.
    #[arg(long, short)]
    message: Option<String>,
    #[command(flatten)]
    about: About,
    #[command(flatten)]
    place: InProject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Parquet,
    Csv,
}

impl Put {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        self.ensure(client).await?;
        let mut sent = Vec::new();
        for file in &self.files {
            let reply = self.send(ctx, client, file).await?;
            sent.push(reply["sha256"].clone());
        }
        let body = fields([
            ("files", Some(Value::Array(sent))),
            ("append", self.append.then_some(Value::Bool(true))),
            ("parent", self.parent.map(Value::from)),
            ("message", text(self.message.as_ref())),
        ]);
        let made = client.create(&path(&self.place, &[&self.name, "versions"]), body).await?;
        ctx.output.record(&made, VERSION)
    }

    /// Makes the dataset if there is none.
    async fn ensure(&self, client: &Client) -> Result<()> {
        match client.get(&path(&self.place, &[&self.name])).await {
            Ok(_) if self.about.is_empty() => Ok(()),
            Ok(_) => describe(client, &self.place, &self.name, &self.about).await.map(drop),
            Err(failure) if failure.exit() == Exit::NotFound => {
                let mut new = self.about.fields();
                new["name"] = json!(self.name);
                client.create(&path(&self.place, &[]), new).await.map(drop)
            }
            Err(failure) => Err(failure),
        }
    }

    fn format_of(&self, file: &Path) -> Format {
        let csv = file
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("csv") || end.eq_ignore_ascii_case("tsv"));
        self.format.unwrap_or(if csv { Format::Csv } else { Format::Parquet })
    }

    async fn send(&self, ctx: &Context, client: &Client, file: &Path) -> Result<Value> {
        let mut call = client.call(Method::POST, &path(&self.place, &[&self.name, "files"]))?;
        call = call
            .streaming()
            .header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        if self.format_of(file) == Format::Csv {
            let tabs = file.extension().is_some_and(|end| end.eq_ignore_ascii_case("tsv"));
            let delimiter = self.delimiter.as_deref().or(tabs.then_some("\\t"));
            let types = (!self.types.is_empty()).then(|| self.types.join(","));
            call = call
                .query("format", Some("csv"))
                .query("delimiter", delimiter)
                .query("types", types.as_deref());
        }
        let (source, size): (Box<dyn AsyncRead + Send + Unpin>, _) = if file.as_os_str() == "-" {
            (Box::new(stdio::stdin()?), None)
        } else {
            let opened = tokio::fs::File::open(file).await.map_err(file_error("read", file))?;
            let facts = opened.metadata().await.map_err(file_error("read", file))?;
            if !facts.is_file() {
                return Err(Failure::usage(format!("{} is not a plain file", file.display())));
            }
            (Box::new(opened), Some(facts.len()))
        };
        if let Some(size) = size {
            call = call.header(CONTENT_LENGTH, HeaderValue::from(size));
        }
        let mut progress = Progress::new(ctx.output, format!("put {}", file.display()), size);
        let pieces = ReaderStream::with_capacity(source, PIECE)
            .inspect_ok(move |piece| progress.add(piece.len() as u64));
        let response = client.upload(call, reqwest::Body::wrap_stream(pieces.boxed())).await?;
        let reply = bounded(response, MAX_REPLY).await?;
        serde_json::from_slice(&reply).map_err(|error| Failure::failed(error.to_string()))
    }
}
