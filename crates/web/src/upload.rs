//! Bytes on their way in.

use axum::body::Body;
use bytes::Bytes;
use falaj_base::{Error, Result, code};
use futures::{Stream, StreamExt};
use http::{HeaderMap, header};

/// The body as the store takes it. A body that breaks off is the caller's fault, or the fault
/// that a guard before us has already named.
pub fn pieces(body: Body) -> impl Stream<Item = Result<Bytes>> + Send {
    body.into_data_stream().map(|piece| {
        piece.map_err(|error| match error.into_inner().downcast::<Error>() {
            Ok(error) => *error,
            Err(cause) => Error::new(&code::MALFORMED_BODY, "the body broke off").caused_by(cause),
        })
    })
}

/// How many bytes the caller says it sends.
#[must_use]
pub fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
