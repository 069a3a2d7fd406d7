//! `falaj engine`: what computes models on this machine.

mod install;
mod wheel;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use falaj_inference::Engines;
use falaj_inference::runtime::Search;
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// See and fetch what computes models on this machine
#[derive(Debug, Args)]
pub(crate) struct Engine {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Show the engines that a server here has, and where it looks for libraries
    #[command(after_help = "Example:\n  falaj engine status --data-dir ./data")]
    Status(Place),
    Install(install::Install),
}

/// The server whose engines are meant.
#[derive(Debug, Args)]
struct Place {
    /// The server's data directory; the configured one if absent.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Place {
    /// The data directory, and where a server that keeps its data there looks for the library.
    fn search(&self, ctx: &Context) -> Result<(PathBuf, Search)> {
        let given = self.data_dir.as_ref();
        let given = given.map(|path| ("data_dir".to_owned(), path.display().to_string()));
        let config = ctx.load_config(given.into_iter().collect())?.value;
        let search = Search::here(config.serving.onnxruntime, Some(config.data_dir.clone()));
        Ok((config.data_dir, search))
    }
}

impl Engine {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        match self.command {
            Commands::Status(place) => status(&place, ctx),
            Commands::Install(install) => install.run(ctx).await,
        }
    }
}

const ENGINES: &[Column] = &[
    ("engine", "name"),
    ("there", "there"),
    ("version", "version"),
    ("computes", "computes"),
    ("library", "library"),
];

fn status(place: &Place, ctx: &Context) -> Result<()> {
    let (_, search) = place.search(ctx)?;
    let engines = Engines::find(&search)?;
    let rows: Vec<Value> = engines
        .list()
        .into_iter()
        .map(|engine| {
            json!({
                "name": engine.name,
                "there": engine.there,
                "version": engine.version,
                "computes": engine.computes,
                "library": engine.library,
            })
        })
        .collect();
    let places: Vec<String> =
        search.places().iter().map(|place| place.display().to_string()).collect();
    if ctx.output.is_json() {
        return ctx.output.json(&json!({"engines": rows, "looked_in": places}));
    }
    ctx.output.list(&rows, ENGINES)?;
    if engines.runtime().is_none() {
        ctx.output.say("ONNX Runtime was not found; `falaj engine install` fetches it. Looked in:");
    } else {
        ctx.output.say("looked in:");
    }
    for place in &places {
        ctx.output.say(&format!("  {place}"));
    }
    Ok(())
}
