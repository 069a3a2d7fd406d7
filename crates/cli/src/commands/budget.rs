//! `falaj budget`: what a tenant and its projects may spend.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::{InProject, fields};
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// See and set what the jobs of a project or a tenant may cost
#[derive(Debug, Args)]
pub(crate) struct Budget {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// List the budgets of a project and its tenant, with what is spent
    #[command(after_help = "Example:\n  falaj budget list -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
    },
    /// Set a budget
    ///
    /// A budget of a project is set by operators of its tenant, one of a tenant by admins of the
    /// platform. Amounts are in the currency of the prices.
    #[command(after_help = "Examples:\n  \
        falaj budget set 5000 --period month -t acme -p vision\n  \
        falaj budget set 200 --period total --action stop --warn-at 50 --warn-at 90 -t acme -p vision\n  \
        falaj budget set 100000 --of tenant --period quarter --action warn -t acme")]
    Set {
        /// What may be spent.
        amount: f64,
        #[command(flatten)]
        which: Which,
        /// What happens when it is spent: tell, start nothing more, let what runs wait, or end it.
        #[arg(long, default_value = "hold", value_parser = ["warn", "hold", "preempt", "stop"])]
        action: String,
        /// A percentage that is told as an event; several times for several. 50, 80 and 100 if absent.
        #[arg(long, value_name = "PERCENT")]
        warn_at: Vec<u16>,
        #[command(flatten)]
        place: InProject,
    },
    /// Remove a budget
    #[command(after_help = "Example:\n  falaj budget remove --period month -t acme -p vision")]
    Remove {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        place: InProject,
    },
}

#[derive(Debug, Args)]
struct Which {
    /// Whose budget it is.
    #[arg(long, default_value = "project", value_parser = ["tenant", "project"])]
    of: String,
    /// For how long it is.
    #[arg(long, default_value = "month", value_parser = ["month", "quarter", "total"])]
    period: String,
}

const BUDGETS: &[Column] = &[
    ("of", "whose"),
    ("project", "project"),
    ("period", "period"),
    ("now", "now"),
    ("amount", "amount"),
    ("spent", "spent"),
    ("when spent", "action"),
    ("tells at %", "warn_at"),
];

fn path<'a>(place: &'a InProject, rest: &[&'a str]) -> Vec<&'a str> {
    let mut path = vec!["t", &place.place.tenant, &place.project, "api", "budgets"];
    path.extend(rest);
    path
}

impl Budget {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        match self.command {
            Commands::List { place } => {
                let call = client.call(Method::GET, &path(&place, &[]))?;
                let mut found = client.list(call).await?;
                if out.is_json() {
                    return out.json(&Value::Array(found));
                }
                for budget in &mut found {
                    let spent = budget["spent"].as_f64().unwrap_or(0.0);
                    budget["spent"] = json!(format!("{spent:.2}"));
                }
                out.list(&found, BUDGETS)
            }
            Commands::Set { amount, which, action, warn_at, place } => {
                let body = fields([
                    ("amount", Some(json!(amount))),
                    ("action", Some(json!(action))),
                    ("warn_at", (!warn_at.is_empty()).then(|| json!(warn_at))),
                ]);
                let path = path(&place, &[&which.of, &which.period]);
                let made = client.put(&path, body).await?;
                out.done(&made, &format!("the {} of the {} has its budget", which.period, which.of))
            }
            Commands::Remove { which, place } => {
                let path = path(&place, &[&which.of, &which.period]);
                let call = client.call(Method::DELETE, &path)?;
                let gone = client.json(call.body(json!({}))).await?;
                let text =
                    format!("the budget of the {} for each {} is gone", which.of, which.period);
                out.done(&gone, &text)
            }
        }
    }
}
