//! `falaj token recover`: back in, for whoever holds the data directory.

use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::exit::Result;

#[derive(Debug, Args)]
pub(super) struct Recover {
    /// The data directory of the server.
    #[arg(long, value_name = "DIR", env = "FALAJ_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The PostgreSQL URL, if the server uses one.
    #[arg(long, value_name = "URL", env = "FALAJ_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
}

impl Recover {
    pub(super) async fn run(self, ctx: &Context) -> Result<()> {
        let mut flags = Vec::new();
        if let Some(path) = &self.data_dir {
            flags.push(("data_dir".to_owned(), path.display().to_string()));
        }
        if let Some(url) = &self.database_url {
            flags.push(("database.url".to_owned(), url.clone()));
        }
        let config = ctx.load_config(flags)?.value;
        let token = falaj_server::recover_admin_token(&config).await?;
        if ctx.output.is_json() {
            return ctx.output.json(&serde_json::json!({ "secret": token.expose() }));
        }
        ctx.output.say("a new token for the service account admin, shown only this once:");
        ctx.output.text(token.expose())
    }
}
