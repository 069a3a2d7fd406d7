//! `falaj init`: a configuration file to start from.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use falaj_base::config::template;
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::{Failure, Result, file_error};

/// Write a commented falaj.toml and make the data directory
///
/// Optional: `falaj serve` works without a file. An existing file is never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  falaj init\n  \
    falaj init --data-dir /var/lib/falaj --out /etc/falaj/falaj.toml")]
pub(crate) struct Init {
    /// Where everything will be kept.
    #[arg(long, value_name = "DIR", default_value = "falaj-data")]
    data_dir: PathBuf,
    /// The address and port to listen on.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where to write the file.
    #[arg(long, value_name = "FILE", default_value = "falaj.toml")]
    out: PathBuf,
}

const HEADER: &str = "\
# Configuration of a Falaj server. Every key is listed with its default; remove the # to change it.
# `falaj config reference` explains each, `falaj config check` checks this file.
";

impl Init {
    pub(crate) fn run(self, ctx: &Context) -> Result<()> {
        if let Some(folder) = self.out.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(file_error("create", folder))?;
        }
        make_private(&self.data_dir)?;
        let folder =
            fs::canonicalize(&self.data_dir).map_err(file_error("find", &self.data_dir))?;
        let listen = self.listen.map(|address| ("server.listen", json!(address.to_string())));
        let set: Vec<(&str, Value)> =
            [("data_dir", json!(folder))].into_iter().chain(listen).collect();
        let text = format!("{HEADER}{}", template::<falaj_server::Config>(&set)?);
        // The file may come to hold secrets: private from the start.
        let mut file = fs::OpenOptions::new();
        let made = file.write(true).create_new(true).mode(0o600).open(&self.out);
        made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                Failure::usage(format!("{} exists already", self.out.display()))
                    .hint("remove it, or choose another with --out")
            } else {
                file_error("write", &self.out)(error)
            }
        })?;
        let facts = json!({"config": self.out, "data_dir": folder});
        let out = self.out.display();
        ctx.output.done(&facts, &format!("wrote {out}; start with: falaj serve --config {out}"))
    }
}

/// Makes a directory that nobody else can look into; one that exists is left as it is.
fn make_private(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path).map_err(file_error("create", path))
}
