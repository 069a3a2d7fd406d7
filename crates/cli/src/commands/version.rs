//! `falaj version`.

use clap::Args;
use serde_json::json;

use crate::context::Context;
use crate::exit::Result;

/// Print the version of this command, and with --server that of the server
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  falaj version --server")]
pub(crate) struct Version {
    /// Ask the server too.
    #[arg(long)]
    server: bool,
}

impl Version {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let mut version = json!({"client": env!("CARGO_PKG_VERSION")});
        let mut columns = vec![("client", "client")];
        if self.server {
            let document = ctx.client()?.get(&["openapi.json"]).await?;
            version["server"] = document["info"]["version"].clone();
            columns.push(("server", "server"));
        }
        ctx.output.record(&version, &columns)
    }
}
