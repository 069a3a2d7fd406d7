//! `falaj dataset`: data versioned by content.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::object::download::download;
use super::{InProject, Sure, fields, text, texts};
use crate::client::{Call, Client};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Column;

mod diff;
mod put;

/// Keep data in versions: put, read, compare, tag and roll back
#[derive(Debug, Args)]
pub(crate) struct Dataset {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Make a version of files of Parquet or CSV
    ///
    /// The dataset is made if there is none. A file that the dataset has already is not sent again,
    /// and what is the same as the latest version makes no other.
    #[command(after_help = "Examples:\n  \
        falaj dataset put trips ./trips.parquet -m 'first export' -t acme -p vision\n  \
        falaj dataset put trips ./may.csv --append --key ride_id -t acme -p vision\n  \
        falaj dataset put zips ./zips.csv --type zip=string")]
    Put(Box<put::Put>),
    /// Fetch the rows of a version as one file of Parquet
    #[command(after_help = "Examples:\n  \
        falaj dataset get trips ./trips.parquet -t acme -p vision\n  \
        falaj dataset get trips ./old.parquet --version 3\n  \
        falaj dataset get trips - --tag gold > gold.parquet\n  \
        falaj dataset get trips ./then.parquet --at 2026-05-01T00:00:00Z")]
    Get {
        #[command(flatten)]
        which: Which,
        /// Where to write it; - for stdout. An existing file is replaced when all has arrived.
        file: PathBuf,
        #[command(flatten)]
        place: InProject,
    },
    /// List the datasets of a project
    #[command(after_help = "Example:\n  falaj dataset list -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
    },
    /// Show the history of a dataset, the newest version first
    #[command(after_help = "Example:\n  falaj dataset log trips -t acme -p vision")]
    Log {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Show a version: its columns and what their values are like
    #[command(after_help = "Examples:\n  \
        falaj dataset show trips -t acme -p vision\n  \
        falaj dataset show trips --tag gold --output json")]
    Show {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        place: InProject,
    },
    /// Compare two versions: columns, and rows by key
    ///
    /// Without a key, equal rows cancel each other out, each as often as it is there. The key is that
    /// of the dataset unless one is named.
    #[command(after_help = "Examples:\n  \
        falaj dataset diff trips -t acme -p vision\n  \
        falaj dataset diff trips --from 3 --to gold --key ride_id --samples 10")]
    Diff(diff::Diff),
    /// Give a version a name, or move a name to it
    #[command(after_help = "Examples:\n  \
        falaj dataset tag trips gold --version 3 -t acme -p vision\n  \
        falaj dataset tag trips audit-2026 --fixed\n  \
        falaj dataset tag trips gold --remove")]
    Tag {
        /// The dataset.
        name: String,
        /// The name of the version.
        tag: String,
        /// The version; the latest if absent.
        #[arg(long)]
        version: Option<i64>,
        /// The name stays with this version for ever.
        #[arg(long)]
        fixed: bool,
        /// Take the name away.
        #[arg(long, conflicts_with_all = ["version", "fixed"])]
        remove: bool,
        #[command(flatten)]
        place: InProject,
    },
    /// Make a version that is equal to an older one
    #[command(after_help = "Example:\n  \
        falaj dataset rollback trips 3 -m 'the export of May was cut short' -t acme -p vision")]
    Rollback {
        /// The dataset.
        name: String,
        /// The version to go back to: a number or a tag.
        to: String,
        /// Why, for the history.
        #[arg(long, short)]
        message: Option<String>,
        #[command(flatten)]
        place: InProject,
    },
    /// Say who answers for a dataset, what tells its rows apart, and how long versions are kept
    ///
    /// What is not given stays as it is.
    #[command(after_help = "Example:\n  \
        falaj dataset describe trips --owner ada --keep-versions 30 --keep-for 90d -t acme -p vision")]
    Describe(Box<Describe>),
    /// Delete a dataset, or remove the files of one version
    ///
    /// A deleted dataset can be restored for as long as `datasets.deleted_keep` says.
    #[command(after_help = "Examples:\n  \
        falaj dataset delete trips --yes -t acme -p vision\n  \
        falaj dataset delete trips --version 3 --yes\n  \
        falaj dataset delete trips --purge --yes")]
    Delete {
        /// The dataset.
        name: String,
        /// Only the files of this version.
        #[arg(long, value_name = "VERSION")]
        version: Option<i64>,
        /// Remove it at once: it cannot be restored.
        #[arg(long, conflicts_with = "version")]
        purge: bool,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        place: InProject,
    },
    /// Bring back the dataset of this name that was deleted last
    #[command(after_help = "Example:\n  falaj dataset restore trips -t acme -p vision")]
    Restore {
        /// The dataset.
        name: String,
        #[command(flatten)]
        place: InProject,
    },
}

/// A dataset and one of its versions.
#[derive(Debug, Args)]
struct Which {
    /// The dataset.
    name: String,
    /// The number of the version; the latest if absent.
    #[arg(long)]
    version: Option<i64>,
    /// A tag, in place of a number.
    #[arg(long, conflicts_with = "version")]
    tag: Option<String>,
    /// The version that was the latest at this time.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["version", "tag"])]
    at: Option<String>,
}

impl Which {
    fn query(&self, call: Call) -> Call {
        let version = self.version.map(|number| number.to_string());
        call.query("version", version.as_deref())
            .query("tag", self.tag.as_deref())
            .query("at", self.at.as_deref())
    }
}

/// What people say of a dataset.
#[derive(Debug, Default, Args)]
struct About {
    /// A column that tells one row from another. May be given several times.
    #[arg(long, value_name = "COLUMN")]
    key: Vec<String>,
    /// Who answers for it.
    #[arg(long)]
    owner: Option<String>,
    /// What it is.
    #[arg(long)]
    description: Option<String>,
    /// How sensitive it is, for policies.
    #[arg(long)]
    classification: Option<String>,
    /// Keep so many of the newest versions, beside those with a tag.
    #[arg(long, value_name = "COUNT")]
    keep_versions: Option<u32>,
    /// Keep versions for so long, such as 90d.
    #[arg(long, value_name = "TIME")]
    keep_for: Option<String>,
}

impl About {
    fn is_empty(&self) -> bool {
        self.fields().as_object().is_none_or(serde_json::Map::is_empty)
    }

    fn fields(&self) -> Value {
        let keep = fields([
            ("versions", self.keep_versions.map(Value::from)),
            ("age", text(self.keep_for.as_ref())),
        ]);
        let keeps = self.keep_versions.is_some() || self.keep_for.is_some();
        fields([
            ("key", texts(&self.key)),
            ("owner", text(self.owner.as_ref())),
            ("description", text(self.description.as_ref())),
            ("classification", text(self.classification.as_ref())),
            ("keep", keeps.then_some(keep)),
        ])
    }
}

#[derive(Debug, Args)]
struct Describe {
    /// The dataset.
    name: String,
    #[command(flatten)]
    about: About,
    #[command(flatten)]
    place: InProject,
}

const COLUMNS: &[Column] = &[
    ("name", "name"),
    ("latest", "latest"),
    ("owner", "owner"),
    ("description", "description"),
    ("changed", "updated_at"),
];
const DATASET: &[Column] = &[
    ("name", "name"),
    ("latest", "latest"),
    ("key", "key"),
    ("owner", "owner"),
    ("description", "description"),
    ("classification", "classification"),
    ("keep", "keep"),
    ("tags", "tags"),
    ("created by", "created_by"),
    ("created", "created_at"),
];
const HISTORY: &[Column] = &[
    ("version", "version"),
    ("tags", "tags"),
    ("made by", "made_by"),
    ("rows", "rows"),
    ("files", "files"),
    ("size", "size"),
    ("digest", "digest"),
    ("message", "message"),
    ("by", "created_by"),
    ("at", "created_at"),
];
const VERSION: &[Column] = &[
    ("version", "version"),
    ("tags", "tags"),
    ("made by", "made_by"),
    ("parent", "parent"),
    ("origin", "origin"),
    ("rows", "rows"),
    ("files", "files"),
    ("size", "size"),
    ("digest", "digest"),
    ("message", "message"),
    ("by", "created_by"),
    ("at", "created_at"),
];
/// What the values of columns are like, of a dataset or of a view.
pub(super) const VALUES: &[Column] = &[
    ("column", "name"),
    ("type", "type"),
    ("nulls", "nulls"),
    ("distinct", "distinct"),
    ("min", "min"),
    ("max", "max"),
    ("mean", "mean"),
    ("stddev", "stddev"),
    ("median", "quantiles.p50"),
];

/// A path of the API of datasets in a project.
fn path<'a>(place: &'a InProject, rest: &[&'a str]) -> Vec<&'a str> {
    let mut path = vec!["t", &place.place.tenant, &place.project, "api", "datasets"];
    path.extend(rest);
    path
}

impl Dataset {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        match self.command {
            Commands::Put(put) => put.run(ctx, &client).await,
            Commands::Get { which, file, place } => {
                let call = client.call(Method::GET, &path(&place, &[&which.name, "data"]))?;
                download(ctx, &client, which.query(call).streaming(), &file, None).await
            }
            Commands::List { place } => {
                let call = client.call(Method::GET, &path(&place, &[]))?;
                out.list(&client.list(call).await?, COLUMNS)
            }
            Commands::Log { name, place } => {
                let call = client.call(Method::GET, &path(&place, &[&name, "versions"]))?;
                out.list(&client.list(call).await?, HISTORY)
            }
            Commands::Show { which, place } => show(ctx, &client, &which, &place).await,
            Commands::Diff(diff) => diff.run(ctx, &client).await,
            Commands::Tag { name, tag, version, fixed, remove, place } => {
                let path = path(&place, &[&name, "tags", &tag]);
                if remove {
                    let gone = client.delete(&path).await?;
                    return out.done(&gone, &format!("{tag} is no name of {name} any more"));
                }
                let body = fields([
                    ("version", version.map(Value::from)),
                    ("fixed", fixed.then_some(Value::Bool(true))),
                ]);
                let tagged = client.put(&path, body).await?;
                out.done(&tagged, &format!("{tag} is version {} of {name}", tagged["version"]))
            }
            Commands::Rollback { name, to, message, place } => {
                let body = fields([("to", Some(json!(to))), ("message", text(message.as_ref()))]);
                let made = client.create(&path(&place, &[&name, "rollback"]), body).await?;
                out.record(&made, VERSION)
            }
            Commands::Describe(asked) => {
                let Describe { name, about, place } = *asked;
                describe(&client, &place, &name, &about)
                    .await
                    .and_then(|it| out.record(&it, DATASET))
            }
            Commands::Delete { name, version, purge, sure, place } => {
                if let Some(version) = version {
                    let what = format!("Removing the files of version {version} of {name}");
                    confirm(sure.yes, &what, &name).await?;
                    let number = version.to_string();
                    let gone = client.delete(&path(&place, &[&name, "versions", &number])).await?;
                    return out.done(&gone, &format!("removed the files of version {version}"));
                }
                let what = if purge { "Purging" } else { "Deleting" };
                confirm(sure.yes, &format!("{what} dataset {name}"), &name).await?;
                let call = client.call(Method::DELETE, &path(&place, &[&name]))?;
                let gone = client.json(call.body(json!({ "purge": purge }))).await?;
                let how =
                    if purge { "for good" } else { "; `falaj dataset restore` brings it back" };
                out.done(&gone, &format!("deleted {name} {how}"))
            }
            Commands::Restore { name, place } => {
                let back = client.create(&path(&place, &[&name, "restore"]), json!({})).await?;
                out.done(&back, &format!("restored {name}"))
            }
        }
    }
}

async fn show(ctx: &Context, client: &Client, which: &Which, place: &InProject) -> Result<()> {
    let out = ctx.output;
    let call = client.call(Method::GET, &path(place, &[&which.name, "statistics"]))?;
    let found = client.json(which.query(call)).await;
    let statistics = match found {
        Ok(found) => found,
        // A dataset without versions can be shown all the same.
        Err(failure) if failure.exit() == Exit::Failed && which.version.is_none() => {
            let dataset = client.get(&path(place, &[&which.name])).await?;
            if dataset["latest"].is_null() {
                return out.record(&dataset, DATASET);
            }
            return Err(failure);
        }
        Err(failure) => return Err(failure),
    };
    let number = statistics["version"].to_string();
    let mut version = client.get(&path(place, &[&which.name, "versions", &number])).await?;
    if out.is_json() {
        version["statistics"] = statistics;
        return out.json(&version);
    }
    out.record(&version, VERSION)?;
    let columns = statistics["columns"].as_array().cloned().unwrap_or_default();
    out.list(&columns, VALUES)
}

/// Says what is given, and what was said before of the rest.
async fn describe(client: &Client, place: &InProject, name: &str, about: &About) -> Result<Value> {
    let path = path(place, &[name]);
    let known = client.get(&path).await?;
    let mut said = json!({});
    for field in ["key", "owner", "description", "labels", "classification", "keep"] {
        let given = about.fields()[field].clone();
        let value = if given.is_null() { known[field].clone() } else { given };
        if !value.is_null() {
            said[field] = value;
        }
    }
    client.put(&path, said).await
}
