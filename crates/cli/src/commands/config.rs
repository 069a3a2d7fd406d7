//! `falaj config`: what a server here would run with.

use clap::{Args, Subcommand};
use falaj_base::config;

use crate::context::Context;
use crate::exit::{Failure, Result};

/// Show, check and explain the server's configuration
#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Print the effective values and where each came from; secrets are hidden
    #[command(after_help = "Example:\n  falaj config show --config /etc/falaj/falaj.toml")]
    Show,
    /// Print the reference of every key, as Markdown
    #[command(after_help = "Example:\n  falaj config reference > configuration.md")]
    Reference,
    /// Check the file and the environment without starting anything
    #[command(after_help = "Example:\n  falaj config check --config ./falaj.toml")]
    Check,
}

impl Config {
    pub(crate) fn run(self, ctx: &Context) -> Result<()> {
        match self.command {
            Commands::Show => {
                let loaded = ctx.load_config(Vec::new())?;
                if ctx.output.is_json() {
                    let value = serde_json::to_value(&loaded.value)
                        .map_err(|error| Failure::failed(error.to_string()))?;
                    return ctx.output.json(&value);
                }
                ctx.output.text(config::show(&loaded)?.trim_end())
            }
            Commands::Reference => {
                let page = config::reference::<falaj_server::Config>()?;
                if ctx.output.is_json() {
                    return ctx.output.json(&serde_json::json!({ "markdown": page }));
                }
                ctx.output.text(page.trim_end())
            }
            Commands::Check => {
                let loaded = ctx.load_config(Vec::new())?;
                loaded.value.check()?;
                let file = loaded.file.as_ref().map(|path| path.display().to_string());
                let sentence = file.as_ref().map_or_else(
                    || "no file; the defaults and the environment are valid".to_owned(),
                    |file| format!("{file} is valid"),
                );
                ctx.output.done(&serde_json::json!({"valid": true, "file": file}), &sentence)
            }
        }
    }
}
