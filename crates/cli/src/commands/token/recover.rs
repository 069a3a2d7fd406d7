//! `falaj token recover`: back in, for whoever holds the data directory.

use std::path::PathBuf;

use clap::Args;
use falaj_governance::identity::recover_admin_token;
use falaj_server::data_dir::DataDir;
use falaj_server::services::{Services, token_pepper};
use falaj_store::db::Location;

use crate::context::Context;
use crate::exit::{Failure, Result};

#[derive(Debug, Args)]
pub(super) struct Recover {
    /// The data directory of the server, which must not be running on it.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The PostgreSQL URL, if the server uses one.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
}

impl Recover {
    pub(super) async fn run(self, ctx: &Context) -> Result<()> {
        let path = self.data_dir.map(|path| ("data_dir".to_owned(), path.display().to_string()));
        let url = self.database_url.map(|url| ("database.url".to_owned(), url));
        let config = ctx.load_config(path.into_iter().chain(url).collect())?.value;
        // Opening would make an empty installation, with a keyring that fits nothing.
        let missing = match config.database.location(&config.data_dir) {
            Location::Sqlite(file) => !file.exists(),
            Location::Postgres(_) => !config.data_dir.is_dir(),
        };
        if missing {
            let message = format!("there is no server in {}", config.data_dir.display());
            return Err(Failure::usage(message).hint("name its directory with --data-dir"));
        }
        let data_dir = DataDir::open(&config.data_dir)?;
        let services = Services::open(&config, data_dir.path()).await?;
        let token = recover_admin_token(&services.db, &token_pepper(&services.keys)?).await?;
        services.flush().await;
        if ctx.output.is_json() {
            return ctx.output.json(&serde_json::json!({ "secret": token.expose() }));
        }
        ctx.output.say("a new token for the service account admin, shown only this once:");
        ctx.output.text(token.expose())
    }
}
