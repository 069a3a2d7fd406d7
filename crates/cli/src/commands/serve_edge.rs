//! `falaj serve-edge`: models of a folder, without a database.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use falaj_base::{Name, Secret, hex};
use falaj_server::edge::EdgeServer;
use falaj_server::http::{ServerConfig, TlsConfig};
use falaj_server::serving::{EdgeConfig, Runs, ServingConfig};
use serde_json::json;

use crate::context::Context;
use crate::exit::{Failure, Result};

/// Let the ONNX models of a folder answer, without a database
///
/// The folder holds `model.onnx`, `NAME/model.onnx` or `NAME/VERSION/model.onnx`. They answer the
/// Open Inference Protocol over REST and gRPC to whoever has the token, which is made if its file is
/// not there. Anything but loopback is served with TLS.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    falaj serve-edge ./models --token-file ./edge.token --listen 127.0.0.1:8000")]
pub(crate) struct ServeEdge {
    /// The folder.
    models: PathBuf,
    /// The file with the token that callers must send; made, readable by you alone, if absent.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// The address and port to listen on.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// What the only model is called; like its folder if absent.
    #[arg(long)]
    name: Option<Name>,
    /// How many requests of a model are computed at a time; one for each processor if absent.
    #[arg(long)]
    instances: Option<usize>,
    /// The most rows that are computed together; 1 turns batching off.
    #[arg(long, value_name = "ROWS")]
    max_batch: Option<usize>,
    /// The library of ONNX Runtime.
    #[arg(long, value_name = "FILE", env = "FALAJ_SERVING_ONNXRUNTIME")]
    onnxruntime: Option<PathBuf>,
    /// A certificate chain in PEM; one is made if it is needed and absent.
    #[arg(long, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,
    /// The certificate's private key in PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    private_key: Option<PathBuf>,
}

impl ServeEdge {
    pub(crate) fn run(self, ctx: &Context) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(self.serve(ctx))
    }

    async fn serve(self, ctx: &Context) -> Result<()> {
        let token = token(&self.token_file)?;
        let mut runs = Runs::default();
        runs.instances = self.instances.unwrap_or(runs.instances);
        runs.batch.max_rows = self.max_batch.unwrap_or(runs.batch.max_rows);
        runs.settings().check()?;
        let config = EdgeConfig {
            models: self.models,
            name: self.name,
            token,
            serving: ServingConfig { onnxruntime: self.onnxruntime, ..ServingConfig::default() },
            runs,
        };
        let server = ServerConfig { listen: self.listen, ..ServerConfig::default() };
        let tls = TlsConfig {
            cert_file: self.certificate,
            key_file: self.private_key,
            ..TlsConfig::default()
        };
        let folder = self.token_file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let shutdown = falaj_server::stop_signal();
        let edge =
            EdgeServer::start(config, &server, &tls, folder.unwrap_or(Path::new("."))).await?;
        let url = format!("{}://{}", edge.scheme(), edge.address()?);
        let models: Vec<_> = edge
            .models()
            .iter()
            .map(|model| json!({ "name": model.name, "version": model.version.to_string() }))
            .collect();
        let text = if ctx.output.is_json() {
            json!({ "url": url, "models": models }).to_string()
        } else {
            let names =
                edge.models().iter().map(|model| format!("\n  {}/{}", model.name, model.version));
            let (names, token) = (names.collect::<String>(), self.token_file.display());
            format!(
                "Answering at {url}, to whoever sends the token in {token}:{names}\nStop it with Ctrl-C."
            )
        };
        // A server whose stdout is closed must go on serving.
        let _ = ctx.output.text(&text);
        edge.run(shutdown).await;
        Ok(())
    }
}

/// The token of a file; made if there is no such file.
fn token(file: &Path) -> Result<Secret> {
    let shown = file.display();
    match std::fs::read_to_string(file) {
        Ok(text) if text.trim().len() >= 16 => Ok(Secret::new(text.trim())),
        Ok(_) => Err(Failure::usage(format!("the token in {shown} has less than 16 characters"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut random = [0; 32];
            aws_lc_rs::rand::fill(&mut random)
                .map_err(|_| Failure::failed("the system gives no random numbers"))?;
            let token = hex(&random);
            let mut new =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
            writeln!(new, "{token}")?;
            Ok(Secret::new(&token))
        }
        Err(error) => Err(Failure::usage(format!("cannot read {shown}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("edge.token");
        let made = token(&file).unwrap();
        assert_eq!(made.expose().len(), 64);
        assert_eq!(token(&file).unwrap().expose(), made.expose());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "short").unwrap();
        assert!(token(&file).is_err());
    }
}
