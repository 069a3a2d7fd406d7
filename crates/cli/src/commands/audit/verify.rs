//! `falaj audit verify`: the offline check.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Args;
use falaj_governance::audit::{Problem, verify};

use crate::context::Context;
use crate::exit::{Exit, Failure, Result, file_error};
use crate::output::Column;

/// A checkpoint or a key is a few lines.
const MAX_TEXT: u64 = 64 << 10;

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// The export, as written by `falaj audit export`; - for stdin.
    #[arg(long, value_name = "FILE")]
    export: PathBuf,
    /// The signed checkpoint, as written by `falaj audit checkpoint`.
    #[arg(long, value_name = "FILE")]
    checkpoint: PathBuf,
    /// The public key, as written by `falaj audit key`, from a place you trust.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

const PROVEN: &[Column] = &[
    ("log", "origin"),
    ("entries signed for", "size"),
    ("root", "root"),
    ("entries shown", "entries"),
    ("entries left out", "omitted"),
    ("entries beyond", "beyond"),
    ("first", "first_at"),
    ("last", "last_at"),
];

impl Verify {
    pub(super) fn run(self, ctx: &Context) -> Result<()> {
        let (checkpoint, key) = (small(&self.checkpoint)?, small(&self.key)?);
        let result = if self.export.as_os_str() == "-" {
            verify(std::io::stdin().lock(), &checkpoint, &key)
        } else {
            let file = File::open(&self.export).map_err(file_error("read", &self.export))?;
            verify(BufReader::new(file), &checkpoint, &key)
        };
        match result {
            Ok(proven) => {
                let proven = serde_json::to_value(&proven)
                    .map_err(|error| Failure::failed(error.to_string()))?;
                ctx.output.say(
                    "what the checkpoint signs is whole: nothing was changed, removed or inserted",
                );
                ctx.output.record(&proven, PROVEN)
            }
            Err(fault) => {
                if ctx.output.is_json() {
                    let fault = serde_json::to_value(&fault)
                        .map_err(|error| Failure::failed(error.to_string()))?;
                    ctx.output.json(&fault)?;
                }
                let failure = Failure::new(Exit::Verification, fault.to_string());
                Err(match fault.problem {
                    Problem::Unreadable => failure.with_exit(Exit::Failed),
                    Problem::BadKey | Problem::Malformed => {
                        failure.hint("are these the files that export, checkpoint and key wrote?")
                    }
                    _ => failure.hint("keep these files as evidence; do not export over them"),
                })
            }
        }
    }
}

fn small(path: &Path) -> Result<String> {
    let size = std::fs::metadata(path).map_err(file_error("read", path))?.len();
    if size > MAX_TEXT {
        return Err(Failure::usage(format!("{} is too large to be that", path.display())));
    }
    std::fs::read_to_string(path).map_err(file_error("read", path))
}
