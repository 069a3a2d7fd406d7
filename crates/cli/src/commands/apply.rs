//! `falaj apply`: declares features.

use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::InProject;
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::Column;

/// Declare entities, sources, feature views and feature services
///
/// All of a file is applied, or nothing. What decides the values of features makes a new version,
/// also of what depends on it; owner, description and tags change in place. Nothing is deleted by
/// being left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    falaj apply features.toml --plan -t acme -p vision\n  \
    falaj apply features.toml -t acme -p vision")]
pub(crate) struct Apply {
    /// The definitions, as TOML or, by its name's end, as JSON.
    file: PathBuf,
    /// Only show what would change.
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    place: InProject,
}

const COLUMNS: &[Column] = &[
    ("kind", "kind"),
    ("name", "name"),
    ("outcome", "outcome"),
    ("version", "version"),
    ("asked for", "asked"),
];

impl Apply {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let body = read(&self.file)?;
        let client = ctx.client()?;
        let dry = self.plan.then_some("true");
        let path = super::feature::path(&self.place, &["apply"]);
        let call = client.call(Method::POST, &path)?.body(body).query("dry_run", dry).once();
        let mut report = client.json(call).await?;
        if ctx.output.is_json() {
            return ctx.output.json(&report);
        }
        let all = report["definitions"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let changed = all.iter().filter(|it| it["outcome"] != "unchanged").count();
        let would = if self.plan { "would change" } else { "changed" };
        ctx.output.say(&format!("{changed} of {} definitions {would}", all.len()));
        for view in all.iter().filter(|it| it["keeps_rows"] == false) {
            let name = view["name"].as_str().unwrap_or_default();
            ctx.output.say(&format!(
                "the new version of {name} begins without rows, since its keys, schema, times or \
                 source changed: push or materialise them again"
            ));
        }
        ctx.output.list(&all, COLUMNS)
    }
}

fn read(file: &Path) -> Result<Value> {
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
    if file.extension().is_some_and(|end| end == "json") {
        return serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("{shown} is not JSON: {error}")));
    }
    toml::from_str(&text).map_err(|error| Failure::usage(format!("{shown} is not TOML: {error}")))
}
