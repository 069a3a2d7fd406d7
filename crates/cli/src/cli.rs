//! The command line: global options and the list of commands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use falaj_base::{HumanDuration, Secret};

use crate::commands;
use crate::output::{Format, Output, Talk};

/// An AI platform that starts closed, stores durably and records everything.
#[derive(Debug, Parser)]
#[command(name = "falaj", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Global {
    /// The server, for instance `https://falaj.example.ae`.
    #[arg(long, global = true, env = "FALAJ_URL", value_name = "URL")]
    pub(crate) url: Option<String>,

    /// The API token to use instead of the one kept by `falaj login`.
    #[arg(long, global = true, env = "FALAJ_TOKEN", hide_env_values = true, value_name = "TOKEN",
          value_parser = secret)]
    pub(crate) token: Option<Secret>,

    /// PEM file with the certificate authorities to trust for the server, and no others.
    #[arg(long, global = true, env = "FALAJ_CACERT", value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,

    /// How long to wait for an answer.
    #[arg(long, global = true, default_value = "60s", value_name = "TIME")]
    pub(crate) timeout: HumanDuration,

    /// Allow a token to travel over plain HTTP to another machine.
    #[arg(long, global = true)]
    pub(crate) allow_http: bool,

    /// How to print the result: a table for people, or JSON for programs.
    #[arg(long, short, global = true, env = "FALAJ_OUTPUT", value_enum, default_value = "table")]
    pub(crate) output: Format,

    /// The configuration file of the server, for the commands that read it.
    #[arg(long, global = true, env = "FALAJ_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Say nothing but errors.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Say what is sent and how long it took.
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[allow(clippy::unnecessary_wraps, reason = "the signature of a value parser")]
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

impl Global {
    pub(crate) fn output(&self) -> Output {
        let talk = match (self.quiet, self.verbose) {
            (true, _) => Talk::Quiet,
            (_, true) => Talk::Verbose,
            _ => Talk::Normal,
        };
        Output { format: self.output, talk }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(commands::init::Init),
    Serve(commands::serve::Serve),
    Doctor(commands::doctor::Doctor),
    Login(commands::login::Login),
    Whoami(commands::login::Whoami),
    Token(commands::token::Token),
    User(commands::user::User),
    ServiceAccount(commands::service_account::ServiceAccount),
    Tenant(commands::tenant::Tenant),
    Project(commands::project::Project),
    Role(commands::role::Role),
    Policy(commands::policy::Policy),
    Zone(commands::zone::Zone),
    Key(commands::key::Key),
    Audit(commands::audit::Audit),
    Events(commands::events::Events),
    Object(commands::object::Object),
    Experiment(commands::experiment::Experiment),
    Run(commands::run::Run),
    Gc(commands::gc::Gc),
    Retention(commands::retention::Retention),
    Hold(commands::hold::Hold),
    Model(commands::model::Model),
    Webhook(commands::webhook::Webhook),
    Dataset(commands::dataset::Dataset),
    Apply(commands::apply::Apply),
    Feature(commands::feature::Feature),
    TrainingSet(commands::training_set::TrainingSet),
    Deploy(commands::deploy::Deploy),
    Endpoint(commands::endpoint::Endpoint),
    Engine(commands::engine::Engine),
    Predict(commands::predict::Predict),
    ServeEdge(commands::serve_edge::ServeEdge),
    Train(Box<commands::train::Train>),
    Job(commands::job::Job),
    Queue(commands::queue::Queue),
    Budget(commands::budget::Budget),
    Pool(commands::pool::Pool),
    Cost(commands::cost::Cost),
    Simulate(commands::simulate::Simulate),
    Import(commands::import::Import),
    Sync(commands::sync::Sync),
    Export(commands::export::Export),
    Backup(commands::backup::Backup),
    Restore(commands::restore::Restore),
    Config(commands::config::Config),
    Completions(commands::completions::Completions),
    Version(commands::version::Version),
    ExitCodes(commands::exit_codes::ExitCodes),
}

impl Command {
    /// Whether the command sees to Ctrl-C itself, because it has something to end in order.
    pub(crate) fn minds_signals(&self) -> bool {
        match self {
            Self::Run(run) => run.minds_signals(),
            Self::Sync(sync) => sync.minds_signals(),
            _ => false,
        }
    }
}
