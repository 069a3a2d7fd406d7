//! `falaj audit`: what happened, and the proof that nothing was changed since.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use falaj_base::Timestamp;
use reqwest::Method;
use serde_json::Value;

use crate::client::{Call, bounded};
use crate::context::Context;
use crate::exit::Result;
use crate::output::{Column, cell};

mod export;
mod verify;

/// Search, export and verify the audit log
#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Search the log, newest first
    #[command(
        after_help = "Examples:\n  falaj audit search --actor mona@example.ae --limit 20\n  \
        falaj audit search --decision deny --after 2026-11-01T00:00:00Z --output json"
    )]
    Search {
        #[command(flatten)]
        filter: Filter,
        /// How many entries at most.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Write every entry as JSON lines, to keep or to verify
    #[command(after_help = "Examples:\n  falaj audit export --out audit.jsonl\n  \
        falaj audit export --format ocsf --out - | gzip > audit.ocsf.gz")]
    Export {
        /// Where to write; - for stdout.
        #[arg(long, value_name = "FILE", default_value = "-")]
        out: PathBuf,
        /// The shape of an entry; only `json` can be verified.
        #[arg(long, value_enum, default_value = "json")]
        format: export::Shape,
        /// Only the first so many entries: the size of the checkpoint to verify against.
        #[arg(long)]
        size: Option<u64>,
        #[command(flatten)]
        filter: Filter,
    },
    /// Print the newest signed checkpoint
    #[command(after_help = "Example:\n  falaj audit checkpoint > checkpoint.txt")]
    Checkpoint,
    /// Print the public key that checkpoints are signed with
    #[command(after_help = "Example:\n  falaj audit key > audit.key")]
    Key,
    /// Verify an export against a checkpoint and a public key, without a server
    ///
    /// Recomputes the root over all entries and compares it with the signed one. Exits with 8 and
    /// names the first bad entry if the log was changed.
    #[command(after_help = "Example:\n  \
        falaj audit verify --export audit.jsonl --checkpoint checkpoint.txt --key audit.key")]
    Verify(verify::Verify),
}

/// Which entries.
#[derive(Debug, Args)]
struct Filter {
    /// Not before this RFC 3339 time.
    #[arg(long, value_name = "TIME")]
    after: Option<Timestamp>,
    /// Before this RFC 3339 time.
    #[arg(long, value_name = "TIME")]
    before: Option<Timestamp>,
    /// Who did it, by name or id.
    #[arg(long)]
    actor: Option<String>,
    /// What was done, for instance tenant:create.
    #[arg(long)]
    action: Option<String>,
    /// To what, as kind/id or a kind alone.
    #[arg(long)]
    resource: Option<String>,
    /// In which tenant.
    #[arg(long, short)]
    tenant: Option<String>,
    /// allow or deny.
    #[arg(long, value_parser = ["allow", "deny"])]
    decision: Option<String>,
}

impl Filter {
    fn apply(&self, call: Call) -> Call {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        call.query("after", time(self.after).as_deref())
            .query("before", time(self.before).as_deref())
            .query("actor", self.actor.as_deref())
            .query("action", self.action.as_deref())
            .query("resource", self.resource.as_deref())
            .query("tenant", self.tenant.as_deref())
            .query("decision", self.decision.as_deref())
    }
}

const COLUMNS: &[Column] = &[
    ("entry", "index"),
    ("time", "entry.at"),
    ("actor", "entry.actor.name"),
    ("action", "entry.action"),
    ("resource", "what"),
    ("decision", "entry.decision"),
    ("request", "entry.request"),
];
/// The largest checkpoint or key text.
const MAX_TEXT: usize = 64 << 10;
/// The largest page of a search.
const MAX_PAGE: usize = 1000;

impl Audit {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        match self.command {
            Commands::Search { filter, limit } => search(ctx, &filter, limit).await,
            Commands::Export { out, format, size, filter } => {
                export::export(ctx, &out, format, size, &filter).await
            }
            Commands::Checkpoint => print(ctx, &["v1", "audit", "checkpoint"]).await,
            Commands::Key => print(ctx, &["v1", "audit", "key"]).await,
            Commands::Verify(verify) => verify.run(ctx),
        }
    }
}

async fn search(ctx: &Context, filter: &Filter, limit: usize) -> Result<()> {
    let client = ctx.client()?;
    let mut found = Vec::new();
    let mut token: Option<String> = None;
    while found.len() < limit {
        let size = (limit - found.len()).min(MAX_PAGE).to_string();
        let call = filter
            .apply(client.call(Method::GET, &["v1", "audit"])?)
            .query("page_size", Some(&size))
            .query("page_token", token.as_deref());
        let mut page = client.json(call).await?;
        if let Value::Array(items) = page["items"].take() {
            found.extend(items);
        }
        token = page["next_page_token"].as_str().map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    found.truncate(limit);
    if !ctx.output.is_json() {
        for entry in &mut found {
            let (kind, id) = (cell(entry, "entry.resource.kind"), cell(entry, "entry.resource.id"));
            entry["what"] = format!("{kind}/{id}").into();
        }
    }
    ctx.output.list(&found, COLUMNS)
}

/// Prints a text as the server gives it, byte for byte: it is signed, or it is a key.
async fn print(ctx: &Context, path: &[&str]) -> Result<()> {
    let client = ctx.client()?;
    let response = client.send(client.call(Method::GET, path)?).await?;
    let bytes = bounded(response, MAX_TEXT).await?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if ctx.output.is_json() {
        return ctx.output.json(&serde_json::json!({ "text": text }));
    }
    ctx.output.text(text.strip_suffix('\n').unwrap_or(&text))
}
