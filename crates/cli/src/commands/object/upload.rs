//! Sending a file or stdin, in pieces, with the digest computed on the way.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;
use falaj_base::hex;
use futures::{StreamExt, TryStreamExt};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use crate::client::{Call, Client, bounded};
use crate::context::Context;
use crate::exit::{Exit, Failure, Result, file_error};
use crate::output::progress::Progress;
use crate::stdio;

/// How much is read at once.
const PIECE: usize = 256 << 10;
/// The largest answer to an upload.
const MAX_REPLY: usize = 1 << 20;

pub(super) async fn upload(
    ctx: &Context,
    client: &Client,
    mut call: Call,
    file: &Path,
    content_type: &str,
) -> Result<()> {
    let kind = HeaderValue::from_str(content_type)
        .map_err(|_| Failure::usage(format!("`{content_type}` is not a content type")))?;
    call = call.streaming().header(CONTENT_TYPE, kind);
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
    if let Some(size) = size {
        call = call.header(CONTENT_LENGTH, HeaderValue::from(size));
    }
    let sum = Arc::new(Mutex::new(Some(digest::Context::new(&digest::SHA256))));
    let mut progress = Progress::new(ctx.output, format!("put {}", file.display()), size);
    let seen = sum.clone();
    let pieces = ReaderStream::with_capacity(source, PIECE).inspect_ok(move |piece| {
        if let Some(sum) = seen.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            sum.update(piece);
        }
        progress.add(piece.len() as u64);
    });
    let response = client.upload(call, reqwest::Body::wrap_stream(pieces.boxed())).await?;
    let reply = bounded(response, MAX_REPLY).await?;
    let object: serde_json::Value =
        serde_json::from_slice(&reply).map_err(|error| Failure::failed(error.to_string()))?;
    let ours = sum
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .map(|sum| hex(sum.finish().as_ref()));
    match (object["sha256"].as_str(), ours) {
        (Some(theirs), Some(ours)) if theirs != ours => Err(Failure::new(
            Exit::Verification,
            format!("the server stored something else: its digest is {theirs}, ours is {ours}"),
        )
        .hint("remove the object and store it again")),
        _ => ctx.output.record(&object, super::FIELDS),
    }
}
