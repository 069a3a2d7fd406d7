//! The whole log as JSON lines, streamed.

use std::path::Path;

use reqwest::Method;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::Filter;
use crate::client::broken_stream;
use crate::context::Context;
use crate::exit::{Result, file_error};
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
    let mut response = client.send(call).await?;
    let mut sink: Box<dyn AsyncWrite + Unpin> = if out.as_os_str() == "-" {
        Box::new(stdio::stdout()?)
    } else {
        Box::new(tokio::fs::File::create(out).await.map_err(file_error("write", out))?)
    };
    let mut progress = Progress::new(ctx.output, "export", response.content_length());
    while let Some(piece) = response.chunk().await.map_err(|error| broken_stream(&error))? {
        sink.write_all(&piece).await?;
        progress.add(piece.len() as u64);
    }
    sink.flush().await?;
    progress.finish();
    Ok(())
}
