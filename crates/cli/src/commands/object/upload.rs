//! Sending a file or stdin, in pieces, with the digest computed on the way.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;
use falaj_base::hex;
use reqwest::header::{CONTENT_TYPE, HeaderValue};

use crate::client::{Call, Client, send_file};
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};

/// The largest answer to an upload.
const MAX_REPLY: usize = 1 << 20;

pub(super) async fn upload(
    ctx: &Context,
    client: &Client,
    call: Call,
    file: &Path,
    content_type: &str,
) -> Result<()> {
    let kind = HeaderValue::from_str(content_type)
        .map_err(|_| Failure::usage(format!("`{content_type}` is not a content type")))?;
    let call = call.header(CONTENT_TYPE, kind);
    let sum = Arc::new(Mutex::new(Some(digest::Context::new(&digest::SHA256))));
    let seen = sum.clone();
    let object = send_file(ctx, client, call, file, MAX_REPLY, move |piece| {
        if let Some(sum) = seen.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            sum.update(piece);
        }
    })
    .await?;
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
