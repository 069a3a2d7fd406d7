//! Fetching an object: into a draft beside the target, which replaces it when all has arrived and
//! the digest holds.

use std::path::Path;

use aws_lc_rs::digest;
use falaj_base::hex;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::client::{Call, Client, broken_stream};
use crate::context::Context;
use crate::draft::{self, Draft};
use crate::exit::{Exit, Failure, Result};
use crate::output::progress::Progress;
use crate::stdio;

pub(in crate::commands) async fn download(
    ctx: &Context,
    client: &Client,
    mut call: Call,
    file: &Path,
    range: Option<&str>,
) -> Result<()> {
    if let Some(range) = range {
        let value = HeaderValue::from_str(&format!("bytes={range}"))
            .map_err(|_| Failure::usage(format!("`{range}` is not a range")))?;
        call = call.header(RANGE, value);
    }
    let response = client.send(call).await?;
    let expected = match response.status() {
        // A part has no digest of its own; the server verified what it read.
        StatusCode::PARTIAL_CONTENT => None,
        _ => sha256_of(response.headers()),
    };
    let size = response.content_length();
    let progress = Progress::new(ctx.output, format!("get {}", file.display()), size);
    if file.as_os_str() == "-" {
        let mut out = stdio::stdout()?;
        copy(response, &mut out, progress, expected.as_deref()).await?;
        return out.flush().await.map_err(Failure::from);
    }
    let (draft, mut out) = Draft::create(file, draft::SHARED)?;
    copy(response, &mut out, progress, expected.as_deref()).await?;
    draft.keep(out).await
}

/// Copies the body and compares its digest with what the server said.
async fn copy(
    mut response: Response,
    out: &mut (impl AsyncWrite + Unpin),
    mut progress: Progress,
    expected: Option<&str>,
) -> Result<()> {
    let mut sum = digest::Context::new(&digest::SHA256);
    while let Some(piece) = response.chunk().await.map_err(|error| broken_stream(&error))? {
        sum.update(&piece);
        out.write_all(&piece).await?;
        progress.add(piece.len() as u64);
    }
    out.flush().await?;
    let got = hex(sum.finish().as_ref());
    match expected {
        Some(expected) if expected != got => Err(Failure::new(
            Exit::Verification,
            format!("what arrived is damaged: its digest is {got}, not {expected}"),
        )
        .hint("run the command again")),
        _ => {
            progress.finish();
            Ok(())
        }
    }
}

/// What the headers of an object say about it.
pub(super) fn facts(name: &str, headers: &HeaderMap) -> Value {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let size = text(CONTENT_LENGTH.as_str()).and_then(|size| size.parse::<u64>().ok());
    json!({
        "name": name,
        "id": text("x-falaj-object-id"),
        "size": size,
        "sha256": sha256_of(headers),
        "content_type": text(CONTENT_TYPE.as_str()),
        "zone": text("x-falaj-zone"),
        "created_at": text("last-modified"),
    })
}

/// The digest of the whole object, in hex.
fn sha256_of(headers: &HeaderMap) -> Option<String> {
    headers.get("x-falaj-sha256")?.to_str().ok().map(str::to_owned)
}
