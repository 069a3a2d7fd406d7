//! Sending a file or stdin, in pieces.

use std::path::Path;

use futures::{StreamExt, TryStreamExt};
use reqwest::header::{CONTENT_LENGTH, HeaderValue};
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use super::{Call, Client, bounded};
use crate::context::Context;
use crate::exit::{Failure, Result, file_error};
use crate::output::progress::Progress;
use crate::stdio;

/// How much is read at once.
const PIECE: usize = 256 << 10;

/// Sends a file, or stdin if it is `-`, and gives the answer, which is at most so long. `seen` is shown
/// every piece that was read.
pub(crate) async fn send_file(
    ctx: &Context,
    client: &Client,
    call: Call,
    file: &Path,
    max_reply: usize,
    mut seen: impl FnMut(&[u8]) + Send + 'static,
) -> Result<Value> {
    let (source, size): (Box<dyn AsyncRead + Send + Unpin>, _) = if file.as_os_str() == "-" {
        (Box::new(stdio::stdin()?), None)
    } else {
        let opened = tokio::fs::File::open(file).await.map_err(file_error("read", file))?;
        let facts = opened.metadata().await.map_err(file_error("read", file))?;
        if !facts.is_file() {
            return Err(Failure::usage(format!("{} is not a plain file", file.display())));
        }
        (Box::new(opened), Some(facts.len()))
    };
    let mut call = call.streaming();
    if let Some(size) = size {
        call = call.header(CONTENT_LENGTH, HeaderValue::from(size));
    }
    let mut progress = Progress::new(ctx.output, format!("put {}", file.display()), size);
    let pieces = ReaderStream::with_capacity(source, PIECE).inspect_ok(move |piece| {
        seen(piece);
        progress.add(piece.len() as u64);
    });
    let response = client.upload(call, reqwest::Body::wrap_stream(pieces.boxed())).await?;
    let reply = bounded(response, max_reply).await?;
    serde_json::from_slice(&reply).map_err(|error| Failure::failed(error.to_string()))
}
