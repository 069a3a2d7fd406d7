//! `falaj exit-codes`, which is also what `falaj help exit-codes` explains.

use clap::Args;
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::{Exit, Result};

/// List the exit codes
///
///   0  done
///   1  failed; the message says why
///   2  the command line or the configuration is wrong
///   3  not signed in, or the token is not valid
///   4  signed in, but the policy does not allow it
///   5  there is no such thing, or not for you
///   6  it exists already, is in use, or its state does not allow this
///   7  the server cannot be reached, is overloaded, or did not answer in time
///   8  a verification failed: a digest, a signature or the audit log does not hold
/// 130  interrupted
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = "Example:\n  falaj exit-codes --output json")]
pub(crate) struct ExitCodes {}

impl ExitCodes {
    #[allow(clippy::unused_self, reason = "the same signature for every command")]
    pub(crate) fn run(self, ctx: &Context) -> Result<()> {
        let rows: Vec<Value> =
            Exit::ALL.iter().map(|(code, about)| json!({"code": code, "meaning": about})).collect();
        ctx.output.list(&rows, &[("code", "code"), ("meaning", "meaning")])
    }
}

#[cfg(test)]
mod tests {
    use crate::exit::Exit;
    use crate::guide;

    #[test]
    fn the_help_and_the_list_agree() {
        let mut command = guide::command();
        let command = command.find_subcommand_mut("exit-codes").unwrap();
        let help = command.render_long_help().to_string();
        for (code, about) in Exit::ALL {
            assert!(help.contains(&format!("{code:>3}  {about}\n")), "{code} is not in\n{help}");
        }
    }
}
