//! One file for each noun. A command here parses its arguments, makes a call and prints the
//! answer.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod budget;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cost;
pub(crate) mod dataset;
pub(crate) mod deploy;
pub(crate) mod doctor;
pub(crate) mod endpoint;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod exit_codes;
pub(crate) mod experiment;
pub(crate) mod export;
pub(crate) mod feature;
pub(crate) mod gc;
pub(crate) mod hold;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod login;
pub(crate) mod model;
pub(crate) mod object;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod predict;
pub(crate) mod project;
pub(crate) mod queue;
pub(crate) mod restore;
pub(crate) mod retention;
pub(crate) mod role;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod serve_edge;
pub(crate) mod service_account;
pub(crate) mod shim;
pub(crate) mod simulate;
pub(crate) mod sync;
mod telemetry;
pub(crate) mod tenant;
pub(crate) mod token;
pub(crate) mod train;
pub(crate) mod training_set;
pub(crate) mod user;
pub(crate) mod version;
pub(crate) mod webhook;
pub(crate) mod zone;

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Map, Value};

use crate::cli::Command;
use crate::context::Context;
use crate::exit::{Failure, Result};

/// Runs any command but `serve`, which brings its own runtime.
pub(crate) async fn run(command: Command, ctx: &Context) -> Result<()> {
    match command {
        Command::Init(command) => command.run(ctx),
        Command::Serve(command) => command.run(ctx),
        Command::ServeEdge(command) => command.run(ctx),
        Command::Doctor(command) => command.run(ctx).await,
        Command::Login(command) => command.run(ctx).await,
        Command::Whoami(command) => command.run(ctx).await,
        Command::Token(command) => command.run(ctx).await,
        Command::User(command) => command.run(ctx).await,
        Command::ServiceAccount(command) => command.run(ctx).await,
        Command::Tenant(command) => command.run(ctx).await,
        Command::Project(command) => command.run(ctx).await,
        Command::Role(command) => command.run(ctx).await,
        Command::Policy(command) => command.run(ctx).await,
        Command::Zone(command) => command.run(ctx).await,
        Command::Key(command) => command.run(ctx).await,
        Command::Audit(command) => command.run(ctx).await,
        Command::Events(command) => command.run(ctx).await,
        Command::Object(command) => command.run(ctx).await,
        Command::Experiment(command) => command.run(ctx).await,
        Command::Run(command) => command.run(ctx).await,
        Command::Gc(command) => command.run(ctx).await,
        Command::Retention(command) => command.run(ctx).await,
        Command::Hold(command) => command.run(ctx).await,
        Command::Model(command) => command.run(ctx).await,
        Command::Webhook(command) => command.run(ctx).await,
        Command::Dataset(command) => command.run(ctx).await,
        Command::Apply(command) => command.run(ctx).await,
        Command::Feature(command) => command.run(ctx).await,
        Command::TrainingSet(command) => command.run(ctx).await,
        Command::Deploy(command) => command.run(ctx).await,
        Command::Endpoint(command) => command.run(ctx).await,
        Command::Engine(command) => command.run(ctx).await,
        Command::Predict(command) => command.run(ctx).await,
        Command::Train(command) => command.run(ctx).await,
        Command::Job(command) => command.run(ctx).await,
        Command::Queue(command) => command.run(ctx).await,
        Command::Budget(command) => command.run(ctx).await,
        Command::Pool(command) => command.run(ctx).await,
        Command::Cost(command) => command.run(ctx).await,
        Command::Simulate(command) => command.run(ctx),
        Command::Import(command) => command.run(ctx).await,
        Command::Sync(command) => command.run(ctx).await,
        Command::Export(command) => command.run(ctx).await,
        Command::Backup(command) => command.run(ctx).await,
        Command::Restore(command) => command.run(ctx).await,
        Command::Config(command) => command.run(ctx),
        Command::Completions(command) => command.run(ctx),
        Command::Version(command) => command.run(ctx).await,
        Command::ExitCodes(command) => command.run(ctx),
    }
}

/// The tenant a command works in. A new server has one called `default`.
#[derive(Debug, Args)]
pub(crate) struct InTenant {
    /// The tenant.
    #[arg(long, short, default_value = "default")]
    pub(crate) tenant: String,
}

/// The project a command works in. A new server has one called `default`.
#[derive(Debug, Args)]
pub(crate) struct InProject {
    #[command(flatten)]
    pub(crate) place: InTenant,
    /// The project.
    #[arg(long, short, default_value = "default")]
    pub(crate) project: String,
}

impl InProject {
    /// A path below the project.
    pub(crate) fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut path = vec!["v1", "tenants", &self.place.tenant, "projects", &self.project];
        path.extend(rest);
        path
    }
}

/// The confirmation switch of what cannot be undone.
#[derive(Debug, Args)]
pub(crate) struct Sure {
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// A JSON object of the fields that were given.
pub(crate) fn fields<const N: usize>(given: [(&str, Option<Value>); N]) -> Value {
    let set = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(set.collect::<Map<_, _>>())
}

/// An optional text as JSON.
pub(crate) fn text(value: Option<&String>) -> Option<Value> {
    value.map(|text| Value::from(text.as_str()))
}

/// A list as JSON; an empty one was not given.
pub(crate) fn texts(values: &[String]) -> Option<Value> {
    (!values.is_empty()).then(|| Value::from(values.to_vec()))
}

/// The items of which one of the fields is `wanted`; all of them if nothing is.
pub(crate) fn only(items: Vec<Value>, fields: &[&str], wanted: Option<&str>) -> Vec<Value> {
    let Some(wanted) = wanted else { return items };
    let fits = |item: &Value| fields.iter().any(|field| item[*field] == wanted);
    items.into_iter().filter(fits).collect()
}

/// Reads `name=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as name=value".to_owned()),
    }
}

/// Pairs as a JSON object; none were not given.
pub(crate) fn pairs(values: &[(String, String)]) -> Option<Value> {
    let map: BTreeMap<_, _> = values.iter().cloned().collect();
    (!map.is_empty()).then(|| serde_json::json!(map))
}

/// A patch that changes nothing is a slip.
pub(crate) fn some_change(body: Value) -> Result<Value> {
    if body.as_object().is_some_and(Map::is_empty) {
        return Err(
            Failure::usage("nothing to change was given").hint("see --help for the options")
        );
    }
    Ok(body)
}
