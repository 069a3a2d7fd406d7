//! `falaj doctor`: what is configured, reachable and missing.

use clap::Args;

use crate::context::Context;
use crate::doctor;
use crate::exit::{Failure, Result};

/// Check what is configured, reachable and missing
///
/// Each line is ok, warn or fail, and says what to do. Exits with 1 if anything fails.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  falaj doctor\n  falaj doctor --config /etc/falaj/falaj.toml --output json"
)]
pub(crate) struct Doctor {
    /// Check only the client's side: the server and the token.
    #[arg(long)]
    client_only: bool,
}

impl Doctor {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let findings = doctor::examine(ctx, self.client_only).await;
        doctor::print(ctx.output, &findings)?;
        let failed = findings.iter().filter(|finding| finding.is_failure()).count();
        match failed {
            0 => Ok(()),
            1 => Err(Failure::failed("1 check failed")),
            _ => Err(Failure::failed(format!("{failed} checks failed"))),
        }
    }
}
