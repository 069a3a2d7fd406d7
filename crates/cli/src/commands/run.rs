//! `falaj run`: what was tried, what came of it, and how to do it again.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::{InProject, Sure, experiment, fields};
use crate::client::Client;
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;
use crate::output::{Column, cell};

mod capture;
mod console;
mod diff;
mod exec;
mod follow;
mod mlflow;
mod replay;

/// List, search, follow, compare, repeat and purge runs
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// List the runs of an experiment, the newest first
    #[command(after_help = "Example:\n  falaj run list vision/resnet -t acme -p vision")]
    List {
        /// The experiment, by id or name; all you may see if absent.
        experiment: Option<String>,
        #[command(flatten)]
        place: InProject,
        /// Those that are there, those that were deleted, or all.
        #[arg(long, default_value = "active", value_parser = ["active", "deleted", "all"])]
        view: String,
        /// How many at most.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Search runs with a filter and an ordering
    #[command(after_help = "Example:\n  falaj run search \
        'metrics.loss < 0.1 and (params.lr = \"0.1\" or not tags.team = \"a\")' \
        --order-by 'metrics.loss ASC' --columns metrics.loss,params.lr -t acme -p vision")]
    Search {
        /// What to look for; everything if absent.
        filter: Option<String>,
        #[command(flatten)]
        place: InProject,
        /// An experiment, by id or name; may be given several times.
        #[arg(long)]
        experiment: Vec<String>,
        /// An ordering; may be given several times.
        #[arg(long)]
        order_by: Vec<String>,
        /// What to show, with commas between: metrics.loss, params.lr, tags.x.
        #[arg(long, value_delimiter = ',')]
        columns: Vec<String>,
        /// Those that are there, those that were deleted, or all.
        #[arg(long, default_value = "active", value_parser = ["active", "deleted", "all"])]
        view: String,
        /// How many at most.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show one run
    #[command(
        after_help = "Example:\n  falaj run show 0192f0c1a2b37e6f8d9a0b1c2d3e4f50 -t acme -p vision"
    )]
    Show {
        /// Its id.
        run: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Show the latest metrics of a run, or one metric's history
    #[command(after_help = "Example:\n  \
        falaj run metrics 0192f0c1a2b37e6f8d9a0b1c2d3e4f50 --key loss --max-points 20")]
    Metrics {
        /// Its id.
        run: String,
        #[command(flatten)]
        place: InProject,
        /// The metric whose history to show.
        #[arg(long)]
        key: Option<String>,
        /// How many points at most; a longer history is sampled, and no spike is lost.
        #[arg(long, default_value_t = 100)]
        max_points: u32,
    },
    /// List the images and other media of a run, by key and step
    #[command(after_help = "Example:\n  falaj run media 0192f0c1a2b37e6f8d9a0b1c2d3e4f50")]
    Media {
        /// Its id.
        run: String,
        #[command(flatten)]
        place: InProject,
        /// Only this key.
        #[arg(long)]
        key: Option<String>,
    },
    /// Print the console output of a run, and with --follow what is to come
    #[command(
        after_help = "Examples:\n  falaj run log 0192f0c1a2b37e6f8d9a0b1c2d3e4f50 --follow\n  \
        falaj run log 0192f0c1a2b37e6f8d9a0b1c2d3e4f50 --tail 4096 --raw > console.log"
    )]
    Log(console::Log),
    /// Follow the status and metrics of a run until it ends
    #[command(after_help = "Example:\n  falaj run follow 0192f0c1a2b37e6f8d9a0b1c2d3e4f50")]
    Follow(follow::Follow),
    /// Show what differs between two runs
    #[command(after_help = "Example:\n  falaj run diff 0192f0c1a2b37e6f8d9a0b1c2d3e4f50 \
        0192f0c1a2b37e6f8d9a0b1c2d3e4f51 -t acme -p vision")]
    Diff(diff::Diff),
    /// Run a command as a run: what it takes to do it again is on record
    #[command(after_help = "Example:\n  \
        falaj run exec --experiment vision/resnet --seed 7 -t acme -p vision -- python train.py")]
    Exec(exec::Exec),
    /// Print how to do a run again, or do it
    #[command(after_help = "Examples:\n  falaj run replay 0192f0c1a2b37e6f8d9a0b1c2d3e4f50\n  \
        falaj run replay 0192f0c1a2b37e6f8d9a0b1c2d3e4f50 --start --into /tmp/again")]
    Replay(replay::Replay),
    /// Delete a run; `restore` brings it back
    #[command(after_help = "Example:\n  falaj run delete 0192f0c1a2b37e6f8d9a0b1c2d3e4f50")]
    Delete {
        /// Its id.
        run: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Bring a deleted run back
    #[command(after_help = "Example:\n  falaj run restore 0192f0c1a2b37e6f8d9a0b1c2d3e4f50")]
    Restore {
        /// Its id.
        run: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Delete a deleted run for good: metrics, parameters, files and all
    #[command(after_help = "Example:\n  falaj run purge 0192f0c1a2b37e6f8d9a0b1c2d3e4f50 --yes")]
    Purge {
        /// Its id.
        run: String,
        #[command(flatten)]
        place: InProject,
        /// Also if it is not deleted.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        sure: Sure,
    },
}

const COLUMNS: &[Column] = &[
    ("id", "run_id"),
    ("name", "run_name"),
    ("experiment", "experiment_id"),
    ("status", "status"),
    ("user", "user_id"),
    ("started", "started_at"),
];
const FIELDS: &[Column] = &[
    ("id", "run_id"),
    ("name", "run_name"),
    ("experiment", "experiment_id"),
    ("status", "status"),
    ("stage", "lifecycle_stage"),
    ("user", "user_id"),
    ("started", "started_at"),
    ("ended", "ended_at"),
    ("artifacts", "artifact_uri"),
];
const METRICS: &[Column] =
    &[("metric", "key"), ("step", "step"), ("value", "value"), ("timestamp", "timestamp")];
const MEDIA: &[Column] = &[("key", "key"), ("step", "step"), ("size", "size"), ("path", "path")];

impl Run {
    /// `exec` and what it starts again end in order when they are interrupted.
    pub(crate) fn minds_signals(&self) -> bool {
        match &self.command {
            Commands::Exec(_) => true,
            Commands::Replay(replay) => replay.starts(),
            _ => false,
        }
    }

    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::List { experiment, place, view, limit } => {
                let search = Search { view, limit, ..Search::default() };
                let experiments = experiment.into_iter().collect();
                ctx.output.list(&search.found(&client, &place, experiments).await?, COLUMNS)
            }
            Commands::Search { filter, place, experiment, order_by, columns, view, limit } => {
                let shown = columns.clone();
                let search = Search { filter, order_by, columns, view, limit };
                let items = search.found(&client, &place, experiment).await?;
                table(ctx, &items, &shown)
            }
            Commands::Show { run, place } => {
                show(ctx, &client.get(&place.path(&["runs", &run])).await?)
            }
            Commands::Metrics { run, place, key, max_points } => {
                let most = max_points.to_string();
                let call = client
                    .call(Method::GET, &place.path(&["runs", &run, "metrics"]))?
                    .query("key", key.as_deref())
                    .query("max_points", key.as_ref().map(|_| most.as_str()));
                ctx.output.list(&client.list(call).await?, METRICS)
            }
            Commands::Media { run, place, key } => {
                let call = client
                    .call(Method::GET, &place.path(&["runs", &run, "media"]))?
                    .query("key", key.as_deref());
                ctx.output.list(&client.list(call).await?, MEDIA)
            }
            Commands::Log(log) => log.run(ctx, &client).await,
            Commands::Follow(follow) => follow.run(ctx, &client).await,
            Commands::Diff(diff) => diff.run(ctx, &client).await,
            Commands::Exec(exec) => exec.run(ctx, &client).await,
            Commands::Replay(replay) => replay.run(ctx, &client).await,
            Commands::Delete { run, place } => {
                let gone = client.delete(&place.path(&["runs", &run])).await?;
                ctx.output.done(&gone, &format!("deleted run {run}; `restore` undoes it"))
            }
            Commands::Restore { run, place } => {
                let path = place.path(&["runs", &run, "restore"]);
                let back = client.json(client.call(Method::POST, &path)?).await?;
                ctx.output.done(&back, &format!("restored run {run}"))
            }
            Commands::Purge { run, place, force, sure } => {
                confirm(sure.yes, &format!("Purging run {run}"), &run).await?;
                let path = place.path(&["runs", &run, "purge"]);
                let body = fields([("force", force.then_some(true.into()))]);
                let gone = client.json(client.call(Method::POST, &path)?.body(body)).await?;
                ctx.output.record(&gone, experiment::GONE)
            }
        }
    }
}

/// A search, page by page.
#[derive(Debug, Default)]
struct Search {
    filter: Option<String>,
    order_by: Vec<String>,
    columns: Vec<String>,
    view: String,
    limit: usize,
}

impl Search {
    async fn found(
        &self,
        client: &Client,
        place: &InProject,
        experiments: Vec<String>,
    ) -> Result<Vec<Value>> {
        let mut ids = Vec::with_capacity(experiments.len());
        for which in experiments {
            ids.push(experiment::id(client, place, &which).await?);
        }
        let (mut items, mut token) = (Vec::new(), Value::Null);
        while items.len() < self.limit {
            let body = json!({
                "experiment_ids": ids, "filter": self.filter, "order_by": self.order_by,
                "columns": self.columns, "view": self.view, "page_token": token,
                "page_size": (self.limit - items.len()).min(1000),
            });
            let path = place.path(&["runs", "search"]);
            let mut page = client.json(client.call(Method::POST, &path)?.body(body)).await?;
            if let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) {
                items.extend(more);
            }
            token = page["next_page_token"].take();
            if token.is_null() {
                break;
            }
        }
        Ok(items)
    }
}

/// Runs with the columns that were asked for beside them.
fn table(ctx: &Context, items: &[Value], columns: &[String]) -> Result<()> {
    if ctx.output.is_json() || columns.is_empty() {
        return ctx.output.list(items, COLUMNS);
    }
    let row = |item: &Value| {
        let asked = columns.iter().map(|column| {
            let (part, key) = column.split_once('.').unwrap_or((column, ""));
            let key = key.trim_matches(['`', '"', '\'']);
            let found = if key.is_empty() { &item[part] } else { &item[part][key] };
            let found = if part == "metrics" && !key.is_empty() { &found["value"] } else { found };
            (column.clone(), found.clone())
        });
        let mut row: serde_json::Map<_, _> = asked.collect();
        row.insert("id".to_owned(), item["run_id"].clone());
        row.insert("name".to_owned(), item["run_name"].clone());
        Value::Object(row)
    };
    let rows: Vec<Value> = items.iter().map(row).collect();
    let mut names = vec!["id".to_owned(), "name".to_owned()];
    names.extend(columns.iter().cloned());
    ctx.output.table(&rows, &names)
}

/// A run for people: its fields, then what was logged.
fn show(ctx: &Context, run: &Value) -> Result<()> {
    ctx.output.record(run, FIELDS)?;
    if ctx.output.is_json() {
        return Ok(());
    }
    for part in ["params", "metrics", "tags"] {
        let Some(all) = run[part].as_object().filter(|all| !all.is_empty()) else { continue };
        let rows: Vec<Value> = all
            .iter()
            .map(|(key, value)| {
                let value = value.get("value").unwrap_or(value);
                json!({ "key": key, "value": value })
            })
            .collect();
        ctx.output.text(&format!("\n{part}:"))?;
        ctx.output.list(&rows, &[("key", "key"), ("value", "value")])?;
    }
    Ok(())
}

/// A time and what it says, for lines of a stream.
fn line(kind: &str, data: &Value) -> String {
    match kind {
        "metrics" => {
            let all = data["metrics"].as_array().into_iter().flatten();
            let shown = all.map(|metric| {
                format!("{} = {} (step {})", cell(metric, "key"), metric["value"], metric["step"])
            });
            shown.collect::<Vec<_>>().join("\n")
        }
        "status" | "end" => format!("{} is {}", cell(data, "run_name"), cell(data, "status")),
        "gone" => "the run was purged".to_owned(),
        _ => String::new(),
    }
}
