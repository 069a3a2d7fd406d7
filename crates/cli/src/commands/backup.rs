//! `falaj backup`: one encrypted file with everything, taken while the server runs.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use tokio::io::AsyncWriteExt;

use crate::client::broken_stream;
use crate::context::Context;
use crate::draft::{self, Draft};
use crate::exit::{Failure, Result, file_error};
use crate::output::progress::Progress;

/// Write a consistent, encrypted backup of a running server
///
/// The file is encrypted with a key that the server's root key wraps: to restore it you need the
/// keyring (or key manager) as well. Keep the two apart.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  falaj backup --out falaj-2026-11-15.backup")]
pub(crate) struct Backup {
    /// Where to write; an existing file is never overwritten.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Backup {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        if self.out.exists() {
            return Err(Failure::usage(format!("{} exists already", self.out.display())));
        }
        let client = ctx.client()?;
        let call = client.call(Method::POST, &["v1", "backup"])?.streaming();
        let mut response = client.send(call).await?;
        // Half a backup is worse than none.
        let (draft, mut file) = Draft::create(&self.out, draft::PRIVATE)?;
        let mut progress = Progress::new(ctx.output, "backup", response.content_length());
        let mut size = 0;
        while let Some(piece) = response.chunk().await.map_err(|error| broken_stream(&error))? {
            file.write_all(&piece).await.map_err(file_error("write", &self.out))?;
            size += piece.len() as u64;
            progress.add(piece.len() as u64);
        }
        file.flush().await.map_err(file_error("write", &self.out))?;
        progress.finish();
        draft.keep(file).await?;
        let made = serde_json::json!({"file": self.out, "size": size});
        ctx.output.done(&made, &format!("wrote {}", self.out.display()))
    }
}
