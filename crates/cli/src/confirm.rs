//! Asking before something that cannot be undone.

use std::io::{self, IsTerminal, Write};

use crate::exit::{Failure, Result};

/// Goes on if `yes` was given, or if a person types the name of what would be lost. A script that
/// did not say `--yes` is refused rather than left hanging.
pub(crate) async fn confirm(yes: bool, what: &str, name: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{what} cannot be undone")).hint("add --yes to go on"));
    }
    write!(io::stderr().lock(), "{what} cannot be undone. Type `{name}` to go on: ")?;
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let line = line.await.map_err(|error| Failure::failed(error.to_string()))??;
    if line.trim() == name {
        Ok(())
    } else {
        Err(Failure::failed("not confirmed; nothing was done"))
    }
}
