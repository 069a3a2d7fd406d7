//! What differs between two versions, for people.

use std::time::Duration;

use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value};

use super::{InProject, path};
use crate::client::Client;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// How long to wait before asking again for a comparison that is being made.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// The dataset.
    name: String,
    /// The older version, a number or a tag; the one before the newer if absent.
    #[arg(long)]
    from: Option<String>,
    /// The newer version, a number or a tag; the latest if absent.
    #[arg(long)]
    to: Option<String>,
    /// A column that tells one row from another. May be given several times.
    #[arg(long, value_name = "COLUMN")]
    key: Vec<String>,
    /// Compare rows as they are, although the dataset has a key.
    #[arg(long, conflicts_with = "key")]
    no_key: bool,
    /// How many rows of each kind to show, 0 to 100.
    #[arg(long, default_value_t = 5)]
    samples: u32,
    #[command(flatten)]
    place: InProject,
}

const COUNTS: &[Column] = &[
    ("from", "from"),
    ("to", "to"),
    ("key", "key"),
    ("columns added", "columns.added"),
    ("columns removed", "columns.removed"),
    ("columns changed", "columns.changed"),
    ("rows before", "rows_before"),
    ("rows after", "rows_after"),
    ("added", "rows.added"),
    ("removed", "rows.removed"),
    ("changed", "rows.changed"),
    ("unchanged", "rows.unchanged"),
    ("duplicate keys", "duplicate_keys"),
];

impl Diff {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let out = ctx.output;
        let key = match (self.no_key, self.key.as_slice()) {
            (true, _) => Some(String::new()),
            (false, []) => None,
            (false, key) => Some(key.join(",")),
        };
        let samples = self.samples.to_string();
        let found = loop {
            let call = client
                .call(Method::GET, &path(&self.place, &[&self.name, "diff"]))?
                .query("from", self.from.as_deref())
                .query("to", self.to.as_deref())
                .query("key", key.as_deref())
                .query("samples", Some(&samples));
            let mut answer = client.json(call).await?;
            if answer["state"] == "ready" {
                break answer["diff"].take();
            }
            out.detail(|| "the comparison is being made".to_owned());
            tokio::time::sleep(PAUSE).await;
        };
        if out.is_json() {
            return out.json(&found);
        }
        out.record(&found, COUNTS)?;
        let mut shown = Vec::new();
        for (sign, field) in [("+", "added"), ("-", "removed")] {
            shown.extend(rows(&found["samples"][field]).iter().map(|row| marked(sign, row)));
        }
        for row in rows(&found["samples"]["changed"]) {
            shown.push(marked("<", &row["before"]));
            shown.push(marked(">", &row["after"]));
        }
        if shown.is_empty() {
            return Ok(());
        }
        let columns = rows(&found["compared"]);
        let columns = columns.iter().filter_map(Value::as_str).map(ToOwned::to_owned);
        let names: Vec<String> = std::iter::once(" ".to_owned()).chain(columns).collect();
        out.table(&shown, &names)
    }
}

fn rows(of: &Value) -> &[Value] {
    of.as_array().map_or(&[], Vec::as_slice)
}

/// A row with a sign before it.
fn marked(sign: &str, row: &Value) -> Value {
    let mut marked = Map::new();
    marked.insert(" ".to_owned(), sign.into());
    marked.extend(row.as_object().cloned().unwrap_or_default());
    Value::Object(marked)
}
