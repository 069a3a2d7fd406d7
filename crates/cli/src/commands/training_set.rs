//! `falaj training-set`: features joined to moments.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::feature::path;
use super::object::download::download;
use super::{InProject, fields};
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::Column;

/// Join features to moments, as they were known then, and keep the result
#[derive(Debug, Args)]
pub(crate) struct TrainingSet {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Make a training set
    ///
    /// The moments are a Parquet file among the objects of the project, with the join keys of the
    /// features, a time for each row, and any other columns, which come with the result. Every row
    /// stays, in its order.
    #[command(after_help = "Examples:\n  \
        falaj training-set create --moments rides.parquet --service ranking -t acme -p vision\n  \
        falaj training-set create --moments rides.parquet --feature driver_stats:trips \
        --as-of 2026-05-01T00:00:00Z")]
    Create(Box<Create>),
    /// List the training sets of a project, the newest first
    #[command(after_help = "Example:\n  falaj training-set list -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
    },
    /// Show a training set, and what it was made of
    #[command(after_help = "Example:\n  \
        falaj training-set show tset_0190b4c2a5f07c3e9d3f6f1b2a4c5d6e -t acme -p vision")]
    Show {
        #[command(flatten)]
        which: Named,
    },
    /// Download a training set as a Parquet file
    #[command(after_help = "Example:\n  \
        falaj training-set download tset_0190b4c2a5f07c3e9d3f6f1b2a4c5d6e train.parquet -t acme")]
    Download {
        #[command(flatten)]
        which: Named,
        /// Where to write it; - for stdout. An existing file is replaced when all has arrived.
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Named {
    /// Its id.
    id: String,
    #[command(flatten)]
    place: InProject,
}

#[derive(Debug, Args)]
struct Create {
    /// The object with the moments.
    #[arg(long, value_name = "OBJECT")]
    moments: String,
    /// A feature: `view`, `view:feature` or `view@VERSION:feature`. May be given several times.
    #[arg(long = "feature", value_name = "FEATURE", required_unless_present = "service")]
    features: Vec<String>,
    /// A feature service, in place of features.
    #[arg(long, conflicts_with = "features")]
    service: Option<String>,
    /// The version of the service; the latest if absent.
    #[arg(long, value_name = "VERSION", requires = "service")]
    service_version: Option<i64>,
    /// The column that tells the time of each moment.
    #[arg(long, value_name = "COLUMN")]
    event_time: Option<String>,
    /// Only what was known at this time, beside what was known at each moment.
    #[arg(long, value_name = "TIME")]
    as_of: Option<String>,
    /// Let answer what became known after a moment, as other feature stores do.
    #[arg(long)]
    hindsight: bool,
    /// Call columns `view__feature`.
    #[arg(long)]
    full_feature_names: bool,
    /// What people call it.
    #[arg(long)]
    name: Option<String>,
    /// Make the result a version of this dataset as well.
    #[arg(long, value_name = "DATASET")]
    register: Option<String>,
    #[command(flatten)]
    place: InProject,
}

const COLUMNS: &[Column] = &[
    ("id", "id"),
    ("name", "name"),
    ("state", "state"),
    ("rows", "rows"),
    ("size", "size"),
    ("asked for by", "created_by"),
    ("asked for", "created_at"),
];
/// What whoever made one wants to know: its digest tells it from others.
const MADE: &[Column] = &[
    ("id", "id"),
    ("name", "name"),
    ("state", "state"),
    ("rows", "rows"),
    ("size", "size"),
    ("digest", "digest"),
];
const FIELDS: &[Column] = &[
    ("id", "id"),
    ("name", "name"),
    ("state", "state"),
    ("error", "error"),
    ("rows", "rows"),
    ("size", "size"),
    ("digest", "digest"),
    ("features", "features"),
    ("manifest", "manifest"),
    ("asked for by", "created_by"),
    ("asked for", "created_at"),
    ("finished", "finished_at"),
];

/// Where the routes of training sets are.
const SETS: &str = "training-sets";

impl Create {
    fn body(&self) -> Value {
        let text = |it: &Option<String>| it.as_deref().map(Value::from);
        fields([
            ("name", text(&self.name)),
            ("moments_object", Some(Value::from(self.moments.as_str()))),
            ("features", (!self.features.is_empty()).then(|| json!(self.features))),
            ("service", text(&self.service)),
            ("service_version", self.service_version.map(Value::from)),
            ("event_time", text(&self.event_time)),
            ("as_of", text(&self.as_of)),
            ("hindsight", self.hindsight.then_some(Value::Bool(true))),
            ("full_feature_names", self.full_feature_names.then_some(Value::Bool(true))),
            ("register", text(&self.register)),
        ])
    }
}

impl TrainingSet {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        match self.command {
            Commands::Create(create) => {
                let path = path(&create.place, &[SETS]);
                let made = client.create(&path, create.body()).await?;
                if made["state"] == "failed" {
                    let why = made["error"].as_str().unwrap_or("it could not be made");
                    return Err(Failure::failed(why.to_owned()));
                }
                if made["state"] == "waiting" {
                    out.say("it is being made; `falaj training-set show` tells when it is there");
                }
                out.record(&made, MADE)
            }
            Commands::List { place } => {
                let call = client.call(Method::GET, &path(&place, &[SETS]))?;
                out.list(&client.list(call).await?, COLUMNS)
            }
            Commands::Show { which } => {
                out.record(&client.get(&path(&which.place, &[SETS, &which.id])).await?, FIELDS)
            }
            Commands::Download { which, file } => {
                let path = path(&which.place, &[SETS, &which.id, "data"]);
                let call = client.call(Method::GET, &path)?.streaming();
                download(ctx, &client, call, &file, None).await
            }
        }
    }
}
