//! `falaj feature push`: rows of a file into a view.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::path;
use super::rows;
use crate::client::Client;
use crate::commands::InProject;
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::progress::Ticker;

#[derive(Debug, Args)]
pub(super) struct Push {
    /// The feature view.
    view: String,
    /// The rows: .json, .csv or .parquet; - for stdin.
    file: PathBuf,
    /// What the file is; by its name if absent, JSON on stdin.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Rows of one request.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    rows_at_once: u32,
    #[command(flatten)]
    place: InProject,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Columns as lists, a list of rows, or a row on each line
    Json,
    /// Names on the first line
    Csv,
    Parquet,
}

impl Push {
    fn format(&self) -> Result<Format> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        if self.file.as_os_str() == "-" {
            return Ok(Format::Json);
        }
        match self.file.extension().and_then(|it| it.to_str()) {
            Some("json" | "jsonl" | "ndjson") => Ok(Format::Json),
            Some("csv") => Ok(Format::Csv),
            Some("parquet") => Ok(Format::Parquet),
            _ => {
                let text = format!("what {} is cannot be told by its name", self.file.display());
                Err(Failure::usage(text).hint("say it with --format json, csv or parquet"))
            }
        }
    }

    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let format = self.format()?;
        let at_once = usize::try_from(self.rows_at_once).unwrap_or(usize::MAX);
        let kinds = match format {
            // Text says nothing of types: the view does.
            Format::Csv => kinds(&client.get(&path(&self.place, &["views", &self.view])).await?),
            Format::Json | Format::Parquet => Map::new(),
        };
        let rows = rows::open(&self.file, format, &kinds, at_once)?;
        let total = rows.total();
        let (mut ticker, mut sent, mut placed) = (Ticker::new(ctx.output), 0_u64, 0_u64);
        let (mut version, target) = (Value::Null, path(&self.place, &["push"]));
        for columns in rows {
            let body = json!({ "view": self.view, "columns": columns? });
            let call = client.call(Method::POST, &target)?.body(body);
            let kept = client.json(call).await.map_err(|failure| match sent {
                0 => failure,
                sent => failure.hint(format!(
                    "the first {sent} rows were kept; pushed again, they count again in windows"
                )),
            })?;
            sent += kept["rows"].as_u64().unwrap_or(0);
            placed += kept["placed"].as_u64().unwrap_or(0);
            version = kept["version"].clone();
            ticker.tick(|| format!("{sent} of {total} rows"));
        }
        ticker.clear();
        let done = json!({ "view": self.view, "version": version, "rows": sent, "placed": placed });
        let said = format!("pushed {sent} rows to {}; {placed} are the latest", self.view);
        ctx.output.done(&done, &said)
    }
}

/// The type of each column of a view, by name.
fn kinds(definition: &Value) -> Map<String, Value> {
    let view = &definition["definition"]["view"];
    let keys = view["entities"].as_array().into_iter().flatten();
    let keys = keys.flat_map(|it| it["join_keys"].as_array().into_iter().flatten());
    // Rows of a view that computes its features have the columns that it computes them from.
    let columns = view["transform"]["columns"].as_array();
    let fields = columns.or(view["fields"].as_array()).into_iter().flatten();
    let mut kinds = Map::new();
    for column in keys.chain(fields) {
        if let Some(name) = column["name"].as_str() {
            kinds.insert(name.to_owned(), column["type"].clone());
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_tells_the_types_of_its_columns() {
        let definition = json!({ "definition": { "view": {
            "entities": [{ "join_keys": [{ "name": "id", "type": "int64" }] }],
            "fields": [{ "name": "rate", "type": "float32" }] } } });
        assert_eq!(Value::Object(kinds(&definition)), json!({ "id": "int64", "rate": "float32" }));
        let definition = json!({ "definition": { "view": {
            "entities": [], "fields": [{ "name": "rides_1d", "type": "int64" }],
            "transform": { "columns": [{ "name": "km", "type": "float64" }] } } } });
        assert_eq!(Value::Object(kinds(&definition)), json!({ "km": "float64" }));
    }
}
