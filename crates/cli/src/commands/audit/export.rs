//! The whole log as JSON lines, streamed.

use std::path::Path;

use reqwest::{Method, Response};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::Filter;
use crate::client::broken_stream;
use crate::context::Context;
use crate::draft::{self, Draft};
use crate::exit::Result;
use crate::output::progress::Progress;
use crate::stdio;

/// The shape of an exported entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Shape {
    /// As it is on the log.
    Json,
    /// As OCSF events, for a security information system.
    Ocsf,
}

pub(super) async fn export(
    ctx: &Context,
    out: &Path,
    shape: Shape,
    size: Option<u64>,
    filter: &Filter,
) -> Result<()> {
    let client = ctx.client()?;
    let format = match shape {
        Shape::Json => "json",
        Shape::Ocsf => "ocsf",
    };
    let size = size.map(|size| size.to_string());
    let call = filter
        .apply(client.call(Method::GET, &["v1", "audit", "export"])?)
        .query("format", Some(format))
        .query("size", size.as_deref())
        .streaming();
    let response = client.send(call).await?;
    let progress = Progress::new(ctx.output, "export", response.content_length());
    if out.as_os_str() == "-" {
        return copy(response, &mut stdio::stdout()?, progress).await;
    }
    // Half an export does not verify; what was there before did.
    let (draft, mut file) = Draft::create(out, draft::SHARED)?;
    copy(response, &mut file, progress).await?;
    draft.keep(file).await
}

async fn copy(
    mut response: Response,
    sink: &mut (impl AsyncWrite + Unpin),
    mut progress: Progress,
) -> Result<()> {
    while let Some(piece) = response.chunk().await.map_err(|error| broken_stream(&error))? {
        sink.write_all(&piece).await?;
        progress.add(piece.len() as u64);
    }
    sink.flush().await?;
    progress.finish();
    Ok(())
}
