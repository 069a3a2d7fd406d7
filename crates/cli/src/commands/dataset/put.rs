//! Sending files, and making a version of them.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use super::{About, InProject, VERSION, describe, fields, path, text};
use crate::client::{Client, send_file};
use crate::context::Context;
use crate::exit::{Exit, Result};

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
        call = call.header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        if self.format_of(file) == Format::Csv {
            let tabs = file.extension().is_some_and(|end| end.eq_ignore_ascii_case("tsv"));
            let delimiter = self.delimiter.as_deref().or(tabs.then_some("\\t"));
            let types = (!self.types.is_empty()).then(|| self.types.join(","));
            call = call
                .query("format", Some("csv"))
                .query("delimiter", delimiter)
                .query("types", types.as_deref());
        }
        send_file(ctx, client, call, file, MAX_REPLY, |_| {}).await
    }
}
