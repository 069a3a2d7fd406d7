//! `falaj feature erase`: the rows of one entity, gone.

use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::get::value;
use super::path;
use crate::client::Client;
use crate::commands::{InProject, Sure};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::Column;

#[derive(Debug, Args)]
pub(super) struct Erase {
    /// The kind of entity, as it was declared.
    entity: String,
    /// The value of a join key; once for each join key of the entity.
    #[arg(long = "key", value_name = "KEY=VALUE", required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    sure: Sure,
    #[command(flatten)]
    place: InProject,
}

const FIELDS: &[Column] = &[
    ("id", "id"),
    ("state", "state"),
    ("views", "views"),
    ("rows online", "online"),
    ("rows of the log", "log"),
    ("rows of files", "files"),
    ("sources that may have more", "sources"),
    ("records put aside", "quarantined"),
    ("statistics", "statistics"),
    ("training sets that had it", "training_sets"),
    ("training sets in their place", "successors"),
    ("datasets without it now", "datasets"),
];

impl Erase {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let mut keys = Map::new();
        for one in &self.keys {
            let Some((key, text)) = one.split_once('=') else {
                let hint = "for instance --key driver_id=1";
                return Err(Failure::usage(format!("`{one}` is no KEY=VALUE")).hint(hint));
            };
            keys.insert(key.to_owned(), value(text));
        }
        let what = format!("erasing the rows of {} {}", self.entity, self.keys.join(", "));
        confirm(self.sure.yes, &what, &self.entity).await?;
        let path = path(&self.place, &["entities", &self.entity, "rows"]);
        let body = json!({ "keys": Value::Object(keys) });
        let call = client.call(Method::DELETE, &path)?.body(body);
        ctx.output.record(&client.json(call).await?, FIELDS)
    }
}
