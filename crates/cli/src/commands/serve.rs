//! `falaj serve`: the platform itself.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use falaj_server::Started;
use serde_json::json;

use crate::context::Context;
use crate::exit::Result;
use crate::output::Output;

/// How long a thread waits for more to do. What it freed is kept for it until it ends.
const KEEP_THREADS: Duration = Duration::from_secs(2);

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
    /// A PostgreSQL URL; SQLite in the data directory if absent. The variable of the same name
    /// does the same and keeps the password out of the process list.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
}

impl Serve {
    pub(crate) fn run(self, ctx: &Context) -> Result<()> {
        let config = ctx.load_config(self.flags())?.value;
        crate::memory::give_back()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_keep_alive(KEEP_THREADS)
            .build()?;
        let announce = |started: &Started| announce(ctx.output, started);
        let shutdown = falaj_server::stop_signal();
        runtime.block_on(falaj_server::serve(&config, shutdown, announce))?;
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

/// Tells whoever started it where it is and how to get in.
fn announce(output: Output, started: &Started) {
    let text = if output.is_json() {
        let token = started.admin_token.as_ref().map(falaj_base::Secret::expose);
        json!({
            "url": started.url,
            "data_dir": started.data_dir,
            "admin_token_file": started.admin_token_file,
            "admin_token": token,
            "certificate": started.certificate,
        })
        .to_string()
    } else {
        welcome(started, started.admin_token_file.exists())
    };
    // A server whose stdout is closed must go on serving.
    let _ = output.text(&text);
}

fn welcome(started: &Started, token_is_there: bool) -> String {
    let url = &started.url;
    let token_file = started.admin_token_file.display();
    let mut text = format!("Falaj is at {url}\n");
    // Writing into a String cannot fail.
    if let Some(token) = &started.admin_token {
        let _ = write!(
            text,
            "\nThe administrator's token, shown only now and kept in {token_file}:\n  {}\n",
            token.expose()
        );
    }
    // After a restore, or once the file was deleted as it should be, there is another way in.
    if !token_is_there {
        text.push_str("\nSign in with: falaj login. Locked out? Stop the server and run:\n  ");
        let _ = writeln!(text, "falaj token recover --data-dir {}", started.data_dir.display());
        text.push_str("\nStop it with Ctrl-C.");
        return text;
    }
    let data_dir = started.data_dir.display();
    let trust = started.certificate.as_ref().map(|path| path.display());
    let cacert = trust.as_ref().map_or_else(String::new, |path| format!(" --cacert {path}"));
    let _ = write!(
        text,
        "\nThis command line:\n  falaj login --url {url} --token-file {token_file}{cacert}\n  \
         FALAJ_DATA_DIR={data_dir} falaj doctor{cacert}\n\
         \nAn MLflow client:\n  export MLFLOW_TRACKING_URI={url}\n  \
         export MLFLOW_TRACKING_TOKEN=\"$(cat {token_file})\"\n"
    );
    if let Some(path) = trust {
        let _ = writeln!(text, "  export MLFLOW_TRACKING_SERVER_CERT_PATH={path}");
    }
    text.push_str("\nStop it with Ctrl-C.");
    text
}

#[cfg(test)]
mod tests {
    use falaj_base::Secret;

    use super::*;

    #[test]
    fn the_welcome_leads_a_newcomer_in() {
        let mut started = Started {
            address: "127.0.0.1:7470".parse().unwrap(),
            url: "http://127.0.0.1:7470".into(),
            data_dir: "/data".into(),
            admin_token_file: "/data/admin.token".into(),
            admin_token: Some(Secret::new("flj_secret")),
            certificate: None,
        };
        let text = welcome(&started, true);
        for part in [
            "flj_secret",
            "falaj login --url http://127.0.0.1:7470 --token-file /data/admin.token\n",
            "MLFLOW_TRACKING_URI=http://127.0.0.1:7470\n",
            "MLFLOW_TRACKING_TOKEN=\"$(cat /data/admin.token)\"",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("cacert"));
        started.admin_token = None;
        started.certificate = Some("/data/ca.pem".into());
        let text = welcome(&started, true);
        assert!(text.contains("--cacert /data/ca.pem") && !text.contains("shown only now"));
        let text = welcome(&started, false);
        assert!(
            text.contains("falaj token recover --data-dir /data") && !text.contains("admin.token")
        );
    }
}
