//! `falaj`: one binary. `falaj serve` runs the platform; every other command is a client of it or
//! a local tool.
//!
//! Must hold: data goes to stdout and talk to stderr; every command has `--output json`, help with
//! an example, and an exit code from the documented list.
//!
//! Not here: any decision about data. A command names a route and its fields; the server decides.

mod cli;
mod client;
mod commands;
mod confirm;
mod context;
mod credentials;
mod doctor;
mod draft;
mod exit;
mod guide;
mod inside;
mod memory;
mod moving;
mod output;
mod password;
mod stdio;

use std::pin::Pin;
use std::process::ExitCode;

use clap::FromArgMatches;

use cli::{Cli, Command};
use context::Context;
use exit::{Exit, Failure, Result};

fn main() -> ExitCode {
    if let Some(code) = commands::shim::asked() {
        return code;
    }
    let parsed = guide::command().try_get_matches().and_then(|m| Cli::from_arg_matches(&m));
    let cli = match parsed {
        Ok(cli) => cli,
        // Help and version arrive here too; clap prints them and knows which code they have.
        Err(error) => error.exit(),
    };
    let output = cli.global.output();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_silent() => ExitCode::from(failure.own_code().unwrap_or(0)),
        Err(failure) => {
            output.fail(&failure);
            ExitCode::from(failure.exit().code())
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let context = Context::new(&cli.global);
    match cli.command {
        Command::Serve(serve) => serve.run(&context),
        Command::ServeEdge(serve) => serve.run(&context),
        command => client(command, &context),
    }
}

/// Runs a command that is a client of a server, or works on files.
fn client(command: Command, context: &Context) -> Result<()> {
    // A client waits for one thing at a time; a second thread would only cost start-up time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let minds_signals = command.minds_signals();
    // Boxed and of one type: whoever runs a future holds a copy of its code, here of all commands.
    let command: Pin<Box<dyn Future<Output = Result<()>> + '_>> =
        Box::pin(commands::run(command, context));
    if minds_signals {
        let result = runtime.block_on(command);
        runtime.shutdown_background();
        return result;
    }
    let result = runtime.block_on(async {
        tokio::select! {
            result = command => result,
            // Dropping the command lets it remove half-written files and restore the terminal.
            _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Interrupted, "interrupted")),
        }
    });
    // A thread that waits for a key press must not keep the process alive.
    runtime.shutdown_background();
    result
}
