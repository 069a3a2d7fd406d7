//! `falaj feature`: what features there are, and what became of them.

mod csv;
mod erase;
mod get;
mod known;
mod materialize;
mod push;
mod rows;

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::Value;

use super::InProject;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// See entities, sources, feature views and services
#[derive(Debug, Args)]
pub(crate) struct Feature {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// List the definitions of a kind
    #[command(after_help = "Examples:\n  falaj feature list -t acme -p vision\n  \
        falaj feature list services -t acme -p vision")]
    List {
        /// Which kind.
        #[arg(value_enum, default_value_t = Kind::Views)]
        kind: Kind,
        #[command(flatten)]
        place: InProject,
    },
    /// Show a definition
    #[command(after_help = "Example:\n  \
        falaj feature show driver_stats --version 2 -t acme -p vision --output json")]
    Show {
        #[command(flatten)]
        which: Named,
        /// The version; the latest if absent.
        #[arg(long)]
        version: Option<i64>,
    },
    /// Show how fresh a view is
    #[command(after_help = "Example:\n  falaj feature freshness driver_stats -t acme -p vision")]
    Freshness(known::OfView),
    /// Count what the values of a view are like
    #[command(after_help = "Examples:\n  falaj feature profile driver_stats -t acme -p vision\n  \
        falaj feature profile driver_stats --last")]
    Profile(known::Profile),
    /// Show what a view is made of, and what is made of it
    #[command(after_help = "Example:\n  \
        falaj feature lineage driver_stats -t acme -p vision --output json")]
    Lineage(known::OfView),
    /// Compare the latest values of a view with what its history says of now
    ///
    /// Ends with code 1 if more values differ than may.
    #[command(after_help = "Example:\n  \
        falaj feature check driver_stats --entities 500 --threshold 0.01 -t acme -p vision")]
    Check(known::Check),
    /// Show what changed between two versions, and what depends on the older
    #[command(after_help = "Example:\n  \
        falaj feature diff driver_stats --from 1 --to 3 -t acme -p vision")]
    Diff {
        #[command(flatten)]
        which: Named,
        /// The older version; the one before the newer if absent.
        #[arg(long)]
        from: Option<i64>,
        /// The newer version; the latest if absent.
        #[arg(long)]
        to: Option<i64>,
    },
    /// Push rows of a file to a feature view
    #[command(after_help = "Examples:\n  \
        falaj feature push driver_stats rows.csv -t acme -p vision\n  \
        echo '{\"driver_id\": 1, \"trips\": 7, \"rate\": 0.5, \
        \"event_timestamp\": \"2026-05-01T11:00:00Z\"}' | falaj feature push driver_stats -")]
    Push(push::Push),
    /// Read the latest values of features
    #[command(after_help = "Examples:\n  \
        falaj feature get driver_stats:trips driver_stats:rate --entity driver_id=1,2\n  \
        falaj feature get --service ranking --entity driver_id=1 -t acme -p vision")]
    Get(get::Get),
    /// Bring rows of sources into the online store, and watch it
    #[command(after_help = "Examples:\n  \
        falaj feature materialize driver_stats -t acme -p vision\n  \
        falaj feature materialize --from 2026-05-01T00:00:00Z --to 2026-05-02T00:00:00Z")]
    Materialize(materialize::Materialize),
    /// List materialisations, see how far one is, or call it off
    #[command(after_help = "Examples:\n  falaj feature jobs -t acme -p vision\n  \
        falaj feature jobs fmat_0190b4c2a5f07c3e9d3f6f1b2a4c5d6e --cancel")]
    Jobs(materialize::Jobs),
    /// Erase the rows of one entity: online, from the log and from files of pushes
    #[command(after_help = "Example:\n  \
        falaj feature erase driver --key driver_id=7 -t acme -p vision --yes")]
    Erase(erase::Erase),
    /// Show how far streams were read: state, lag and offset of each partition
    #[command(after_help = "Example:\n  falaj feature streams -t acme -p vision")]
    Streams {
        #[command(flatten)]
        place: InProject,
    },
    /// List records of streams that are no rows, the oldest first, with the reason
    #[command(after_help = "Examples:\n  falaj feature quarantine -t acme -p vision\n  \
        falaj feature quarantine rides -t acme -p vision --output json")]
    Quarantine {
        /// The source; all if absent.
        source: Option<String>,
        #[command(flatten)]
        place: InProject,
    },
}

/// Kinds of definitions.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Entities,
    Sources,
    Views,
    Services,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Entities => "entities",
            Self::Sources => "sources",
            Self::Views => "views",
            Self::Services => "services",
        }
    }
}

#[derive(Debug, Args)]
struct Named {
    /// Its name.
    name: String,
    /// Which kind it is.
    #[arg(long, value_enum, default_value_t = Kind::Views)]
    kind: Kind,
    #[command(flatten)]
    place: InProject,
}

const COLUMNS: &[Column] = &[
    ("name", "name"),
    ("version", "version"),
    ("owner", "owner"),
    ("description", "description"),
    ("declared by", "created_by"),
    ("declared", "created_at"),
];
const FIELDS: &[Column] = &[
    ("kind", "kind"),
    ("name", "name"),
    ("version", "version"),
    ("latest", "latest"),
    ("hash", "hash"),
    ("owner", "owner"),
    ("description", "description"),
    ("tags", "tags"),
    ("definition", "definition"),
    ("declared by", "created_by"),
    ("declared", "created_at"),
    ("newest event", "freshness.newest_event"),
    ("newest known", "freshness.newest_known"),
    ("age in seconds", "freshness.age_seconds"),
    ("stale since", "freshness.stale_since"),
];
const STREAMS: &[Column] = &[
    ("source", "source"),
    ("topic", "topic"),
    ("partition", "partition"),
    ("state", "state"),
    ("next", "next_offset"),
    ("lag", "lag"),
    ("rows", "rows"),
    ("bad", "bad"),
    ("skipped", "skipped"),
    ("reason", "reason"),
];
const QUARANTINED: &[Column] = &[
    ("source", "source"),
    ("partition", "partition"),
    ("offset", "offset"),
    ("since", "at"),
    ("reason", "reason"),
    ("record", "record"),
];
const DIFFERENCES: &[Column] = &[("field", "field"), ("before", "before"), ("after", "after")];

/// A path of the feature store's API in a project.
pub(super) fn path<'a>(place: &'a InProject, rest: &[&'a str]) -> Vec<&'a str> {
    let mut path = vec!["t", &place.place.tenant, &place.project, "api", "features"];
    path.extend(rest);
    path
}

impl Feature {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        match self.command {
            Commands::List { kind, place } => {
                let call = client.call(Method::GET, &path(&place, &[kind.as_str()]))?;
                out.list(&client.list(call).await?, COLUMNS)
            }
            Commands::Freshness(of) => known::freshness(of, ctx, &client).await,
            Commands::Profile(profile) => profile.run(ctx, &client).await,
            Commands::Lineage(of) => known::lineage(of, ctx, &client).await,
            Commands::Check(check) => check.run(ctx, &client).await,
            Commands::Push(push) => push.run(ctx, &client).await,
            Commands::Get(get) => get.run(ctx, &client).await,
            Commands::Materialize(job) => job.run(ctx, &client).await,
            Commands::Erase(erase) => erase.run(ctx, &client).await,
            Commands::Jobs(jobs) => jobs.run(ctx, &client).await,
            Commands::Streams { place } => {
                let call = client.call(Method::GET, &path(&place, &["streams"]))?;
                out.list(&client.list(call).await?, STREAMS)
            }
            Commands::Quarantine { source, place } => {
                let call = client.call(Method::GET, &path(&place, &["quarantine"]))?;
                let call = call.query("source", source.as_deref());
                out.list(&client.list(call).await?, QUARANTINED)
            }
            Commands::Show { which, version } => {
                let rest = [which.kind.as_str(), &which.name];
                let call = client.call(Method::GET, &path(&which.place, &rest))?;
                let call = call.query("version", number(version).as_deref());
                let mut found = client.json(call).await?;
                if matches!(which.kind, Kind::Views) && found["version"] == found["latest"] {
                    let rest = ["views", which.name.as_str(), "freshness"];
                    // Rows that cannot be read now make a definition no less worth showing.
                    let fresh = client.get(&path(&which.place, &rest)).await;
                    found["freshness"] = fresh.unwrap_or_default();
                }
                out.record(&found, FIELDS)
            }
            Commands::Diff { which, from, to } => {
                let rest = [which.kind.as_str(), &which.name, "diff"];
                let call = client.call(Method::GET, &path(&which.place, &rest))?;
                let call = call.query("from", number(from).as_deref());
                let found = client.json(call.query("to", number(to).as_deref())).await?;
                if out.is_json() {
                    return out.json(&found);
                }
                for (what, field) in [
                    ("views", "views"),
                    ("services", "services"),
                    ("training sets", "training_sets"),
                ] {
                    let users = found["used_by"][field].as_array();
                    let users: Vec<_> =
                        users.into_iter().flatten().filter_map(Value::as_str).collect();
                    if !users.is_empty() {
                        let version = &found["from"];
                        out.say(&format!("{what} made of version {version}: {}", users.join(", ")));
                    }
                }
                let empty = Vec::new();
                out.list(found["differences"].as_array().unwrap_or(&empty), DIFFERENCES)
            }
        }
    }
}
