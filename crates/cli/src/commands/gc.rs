//! `falaj gc`: deletes for good what was deleted long enough ago.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::{InProject, Sure};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// Purge what was deleted longer ago than the project's retention
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  falaj gc --dry-run -t acme -p vision\n  \
    falaj gc --older-than-days 30 -t acme -p vision --yes")]
pub(crate) struct Gc {
    #[command(flatten)]
    place: InProject,
    /// Days since deletion; the project's retention if absent, and never less than it.
    #[arg(long, value_name = "DAYS")]
    older_than_days: Option<u32>,
    /// Only say what would be purged.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    sure: Sure,
}

const TOTAL: &[Column] = &[
    ("deleted before", "before"),
    ("experiments", "experiments"),
    ("runs", "runs"),
    ("logged models", "logged_models"),
    ("files", "files"),
    ("bytes", "bytes"),
    ("kept", "kept_count"),
    ("still clearing away", "pending"),
];
const KEPT: &[Column] = &[("kind", "kind"), ("id", "id"), ("why it stays", "why")];

impl Gc {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        let path = self.place.path(&["gc"]);
        let days = self.older_than_days.map(|days| days.to_string());
        let look = client.call(Method::GET, &path)?.query("older_than_days", days.as_deref());
        if self.dry_run {
            return show(ctx, &client.json(look).await?);
        }
        let what = format!("Collecting the garbage of {}", self.place.project);
        confirm(self.sure.yes, &what, &self.place.project).await?;
        let body = json!({ "older_than_days": self.older_than_days });
        let mut total: Option<Value> = None;
        loop {
            let call = client.call(Method::POST, &path)?.body(body.clone());
            let part = client.json(call).await?;
            let more = part["more"] == true;
            let sum = add(total.take(), part);
            if more {
                ctx.output.say(&format!(
                    "purged {} experiments, {} runs, {} logged models so far",
                    sum["experiments"], sum["runs"], sum["logged_models"]
                ));
                total = Some(sum);
                continue;
            }
            return show(ctx, &sum);
        }
    }
}

/// The sum of two reports; of what stays and of the state, the later one tells.
fn add(before: Option<Value>, mut part: Value) -> Value {
    if let Some(before) = before {
        for field in ["experiments", "runs", "logged_models", "files", "bytes"] {
            let sum = before[field].as_u64().unwrap_or(0) + part[field].as_u64().unwrap_or(0);
            part[field] = sum.into();
        }
    }
    part
}

fn show(ctx: &Context, report: &Value) -> Result<()> {
    ctx.output.record(report, TOTAL)?;
    let kept = report["kept"].as_array().map_or(&[][..], Vec::as_slice);
    if !ctx.output.is_json() && !kept.is_empty() {
        ctx.output.text("")?;
        ctx.output.list(kept, KEPT)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_summed() {
        let part = |runs: u64, more: bool| json!({ "runs": runs, "files": 2, "more": more });
        let sum = add(Some(add(None, part(3, true))), part(4, false));
        assert_eq!(
            (&sum["runs"], &sum["files"], &sum["more"]),
            (&json!(7), &json!(4), &json!(false))
        );
    }
}
