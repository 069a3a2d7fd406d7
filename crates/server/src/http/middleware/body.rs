//! Reads the body of a small call into memory, decompressed, under three limits: as it travels,
//! once unpacked, and for all requests together.
//!
//! Must hold: a bomb is noticed while it unpacks, never after; a body in an encoding we do not
//! know is refused, not passed on unread; a caller without a credential is read only as far as a
//! sign-in needs. Transfers pass through untouched and bring their own
//! limits.

use std::sync::Arc;

use super::pipeline::{Next, Pipeline};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::response::Response;
use falaj_base::quantity::ByteSize;
use falaj_base::{Error, Result, code};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::budget::{Budget, Reservation};
use super::unpack::{Encoding, unpacked};
use crate::grpc::is_grpc;
use crate::http::config::LimitsConfig;
use crate::http::reply::refuse;
use crate::http::route::{RouteKind, is_large, is_public};

/// How much is asked of a decoder at once.
const CHUNK: usize = 16 * 1024;

/// The limits on bodies of calls.
#[derive(Debug)]
pub(crate) struct Intake {
    known: Bounds,
    large: Bounds,
    public: Bounds,
    budget: Budget,
}

/// How large one body may be.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    travelling: Bound,
    unpacked: Bound,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    max: usize,
    /// The field that sets it.
    field: &'static str,
}

impl Intake {
    pub(crate) fn new(limits: &LimitsConfig) -> Self {
        let bound = |size: ByteSize, field| Bound { max: size.as_usize(), field };
        let public = bound(limits.max_public_body_size, "max_public_body_size");
        let large = bound(limits.max_large_body_size, "max_large_body_size");
        Self {
            known: Bounds {
                travelling: bound(limits.max_body_size, "max_body_size"),
                unpacked: bound(limits.max_decompressed_size, "max_decompressed_size"),
            },
            large: Bounds { travelling: large, unpacked: large },
            public: Bounds { travelling: public, unpacked: public },
            budget: Budget::new(limits.max_buffered_size.as_usize()),
        }
    }

    async fn read(
        &self,
        headers: &mut HeaderMap,
        body: Body,
        bounds: Bounds,
    ) -> Result<(Bytes, Reservation)> {
        if declared_length(headers).is_some_and(|length| length > bounds.travelling.max as u64) {
            return Err(bounds.travelling.exceeded(""));
        }
        match Encoding::of(headers)? {
            None => self.read_plain(body, bounds.travelling).await,
            Some(encoding) => {
                headers.remove(CONTENT_ENCODING);
                headers.remove(CONTENT_LENGTH);
                let packed = self.read_plain(body, bounds.travelling).await?.0;
                self.read_unpacked(unpacked(encoding, packed), encoding, bounds.unpacked).await
            }
        }
    }

    async fn read_plain(&self, mut body: Body, bound: Bound) -> Result<(Bytes, Reservation)> {
        let mut held = self.budget.reserve();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            if bytes.len() + data.len() > bound.max {
                return Err(bound.exceeded(""));
            }
            held.grow(data.len())?;
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.into(), held))
    }

    async fn read_unpacked(
        &self,
        mut reader: impl AsyncRead + Unpin,
        encoding: Encoding,
        bound: Bound,
    ) -> Result<(Bytes, Reservation)> {
        let mut held = self.budget.reserve();
        let (mut bytes, mut chunk) = (Vec::new(), vec![0; CHUNK]);
        loop {
            let count = reader.read(&mut chunk).await.map_err(|cause| {
                let message = format!("the body is not valid {encoding}");
                Error::new(&code::MALFORMED_BODY, message).caused_by(cause)
            })?;
            if count == 0 {
                return Ok((bytes.into(), held));
            }
            if bytes.len() + count > bound.max {
                return Err(bound.exceeded("decompressed "));
            }
            held.grow(count)?;
            bytes.extend_from_slice(&chunk[..count]);
        }
    }
}

impl Bound {
    fn exceeded(self, what: &str) -> Error {
        let Self { max, field } = self;
        let message =
            format!("the {what}body is too large; allowed: {max} bytes (`limits.{field}`)");
        Error::new(&code::TOO_LARGE, message).at("body")
    }
}

/// The client broke off, or was too slow and was told so.
fn broken(error: axum::Error) -> Error {
    match error.into_inner().downcast::<Error>() {
        Ok(error) => *error,
        Err(cause) => Error::new(&code::MALFORMED_BODY, "the body broke off").caused_by(cause),
    }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Gives the handler a body that is complete, plain and within its limits.
pub(crate) async fn buffer(intake: Arc<Intake>, mut request: Request, next: Next) -> Response {
    // What extractors hold a body to that they read themselves.
    let bounds = match (is_public(&request), is_large(&request)) {
        (true, _) => intake.public,
        (false, true) => intake.large,
        (false, false) => intake.known,
    };
    DefaultBodyLimit::max(bounds.unpacked.max).apply(&mut request);
    let (mut parts, body) = match RouteKind::of(&request) {
        RouteKind::Call => request.into_parts(),
        RouteKind::Grpc | RouteKind::Health => return next.run(request).await,
        RouteKind::Stream => {
            return match Encoding::of(request.headers()) {
                Ok(None) => next.run(request).await,
                Ok(Some(encoding)) => refuse(encoding.not_here()),
                Err(error) => refuse(error),
            };
        }
    };
    match intake.read(&mut parts.headers, body, bounds).await {
        // The reservation lasts as long as the handler that uses the bytes.
        Ok((bytes, _held)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(error) => refuse(error),
    }
}

/// Puts the same around the calls of a router that stands alone; gRPC frames its own bodies.
pub(crate) fn with_whole_bodies(calls: Router, limits: &LimitsConfig) -> Router {
    Pipeline::default().then_with(Intake::new(limits), whole).around(calls)
}

async fn whole(intake: Arc<Intake>, request: Request, next: Next) -> Response {
    if is_grpc(request.headers()) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    match intake.read(&mut parts.headers, body, intake.known).await {
        Ok((bytes, _held)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(error) => refuse(error),
    }
}

#[cfg(test)]
mod tests {
    use async_compression::Level;
    use async_compression::tokio::bufread::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};

    use super::*;

    fn intake() -> Intake {
        Intake::new(&LimitsConfig {
            max_body_size: ByteSize::kib(64),
            max_decompressed_size: ByteSize::kib(256),
            max_buffered_size: ByteSize::mib(1),
            ..LimitsConfig::default()
        })
    }

    async fn packed(encoding: &str, plain: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let quick = Level::Fastest;
        match encoding {
            "gzip" => GzipEncoder::with_quality(plain, quick).read_to_end(&mut bytes).await,
            "deflate" => ZlibEncoder::with_quality(plain, quick).read_to_end(&mut bytes).await,
            "br" => BrotliEncoder::with_quality(plain, quick).read_to_end(&mut bytes).await,
            _ => ZstdEncoder::with_quality(plain, quick).read_to_end(&mut bytes).await,
        }
        .unwrap();
        bytes
    }

    async fn read(encoding: &str, body: Vec<u8>) -> Result<Bytes> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
        intake().read(&mut headers, Body::from(body), intake().known).await.map(|(bytes, _)| bytes)
    }

    #[tokio::test]
    async fn every_encoding_is_read_and_every_bomb_refused() {
        for encoding in ["gzip", "deflate", "br", "zstd"] {
            let hello = packed(encoding, b"hello").await;
            assert_eq!(read(encoding, hello).await.unwrap(), "hello", "{encoding}");

            let bomb = packed(encoding, &vec![0; 4 << 20]).await;
            assert!(bomb.len() < 64 * 1024, "{encoding} packs zeros well");
            let error = read(encoding, bomb).await.unwrap_err();
            assert_eq!(error.code(), &code::TOO_LARGE, "{encoding}");

            let error = read(encoding, b"not packed at all".to_vec()).await.unwrap_err();
            assert_eq!(error.code(), &code::MALFORMED_BODY, "{encoding}");
        }
        for unknown in ["compress", "gzip, gzip", "x-gzip", ""] {
            let error = read(unknown, b"x".to_vec()).await.unwrap_err();
            assert_eq!(error.code(), &code::UNSUPPORTED_MEDIA, "{unknown}");
        }
        assert_eq!(read("identity", b"x".to_vec()).await.unwrap(), "x");
    }

    #[tokio::test]
    async fn a_large_body_is_refused_before_and_while_it_is_read() {
        let mut headers = HeaderMap::new();
        let large = || Body::from(vec![0; 65 * 1024]);
        let error = intake().read(&mut headers, large(), intake().known).await.unwrap_err();
        assert!(error.message().contains("limits.max_body_size"));
        headers.insert(CONTENT_LENGTH, "65537".parse().unwrap());
        let error = intake().read(&mut headers, Body::empty(), intake().known).await.unwrap_err();
        assert_eq!(error.code(), &code::TOO_LARGE);
    }

    #[tokio::test]
    async fn a_caller_without_a_credential_is_read_no_further_than_a_sign_in_needs() {
        for (size, allowed) in [(16 * 1024, true), (16 * 1024 + 1, false)] {
            let plain = vec![0; size];
            let body = Body::from(plain.clone());
            let travelled = intake().read(&mut HeaderMap::new(), body, intake().public).await;
            assert_eq!(travelled.is_ok(), allowed, "{size}");

            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
            let body = Body::from(packed("gzip", &plain).await);
            let unpacked = intake().read(&mut headers, body, intake().public).await;
            assert_eq!(unpacked.is_ok(), allowed, "{size}");
            for error in [travelled.err(), unpacked.err()].into_iter().flatten() {
                assert!(error.message().contains("limits.max_public_body_size"), "{error}");
            }
        }
    }
}
