//! `falaj completions`: for the shell.

use clap::Args;
use clap_complete::Shell;

use crate::context::Context;
use crate::exit::Result;
use crate::guide;

/// Print a completion script for your shell
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  falaj completions bash > ~/.local/share/bash-completion/completions/falaj\n  \
    falaj completions zsh > ~/.zfunc/_falaj"
)]
pub(crate) struct Completions {
    /// Which shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, ctx: &Context) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut guide::command(), "falaj", &mut script);
        ctx.output.text(String::from_utf8_lossy(&script).trim_end())
    }
}
