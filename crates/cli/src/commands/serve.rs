//! `falaj serve`: the platform itself.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::exit::Result;

/// Run the platform in the foreground
///
/// Values come from the defaults, then the file given with --config (or ./falaj.toml), then the
/// environment (FALAJ_…), then these flags. On first start the data directory, the keyring and one
/// administrator token (in admin.token) are made; there is no default password. Logs go to stderr.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  falaj serve --data-dir ./data\n  \
    falaj serve --data-dir /var/lib/falaj --listen 0.0.0.0:7470 --config /etc/falaj/falaj.toml\n  \
    falaj serve --data-dir ./data --database-url postgres://falaj@localhost/falaj")]
pub(crate) struct Serve {
    /// Where everything is kept: database, keyring, objects.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The address and port to listen on; anything but loopback is served with TLS.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// A PostgreSQL URL; SQLite in the data directory if absent. FALAJ_DATABASE_URL does the same
    /// and keeps the password out of the process list.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
}

impl Serve {
    pub(crate) fn run(self, ctx: &Context) -> Result<()> {
        let loaded = ctx.load_config(self.flags())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(falaj_server::serve(loaded.value))?;
        Ok(())
    }

    fn flags(&self) -> Vec<(String, String)> {
        let flag = |key: &str, value: Option<String>| value.map(|value| (key.to_owned(), value));
        [
            flag("data_dir", self.data_dir.as_ref().map(|path| path.display().to_string())),
            flag("server.listen", self.listen.map(|address| address.to_string())),
            flag("database.url", self.database_url.clone()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
