//! Reads the body of a small call into memory, decompressed, under three limits: as it travels,
//! once unpacked, and for all requests together.
//!
//! Must hold: a bomb is noticed while it unpacks, never after; a body in an encoding we do not
//! know is refused, not passed on unread; a caller without a credential is read only as far as a
//! sign-in needs. Transfers pass through untouched and bring their own
//! limits.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{BoxError, Router};
use falaj_base::quantity::ByteSize;
use falaj_base::{Error, Result, code};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::budget::{Budget, Reservation};
use super::framed::{Framed, Latest};
use super::slow_body::{Paced, Patience};
use super::unpack::{Encoding, unpacked};
use super::unread::Reading;
use crate::grpc::is_grpc;
use crate::http::config::LimitsConfig;
use crate::http::reply::refuse;
use crate::http::route::{Class, RouteKind};

/// How much is asked of a decoder at once.
const CHUNK: usize = 16 * 1024;
/// How much room is made for a body of which nothing has come yet.
const BEFOREHAND: usize = 4 * 1024;

/// The limits on bodies of calls.
#[derive(Debug)]
pub(crate) struct Intake {
    known: Bounds,
    large: Bounds,
    public: Bounds,
    budget: Budget,
    patience: Patience,
}

/// What a body holds of the memory for all bodies, to be kept as long as its bytes are used.
#[derive(Debug)]
pub(crate) enum Held {
    Nothing,
    #[allow(dead_code, reason = "it is given back when it is dropped")]
    Whole(Reservation),
    #[allow(dead_code, reason = "the same")]
    Latest(Latest),
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
            patience: Patience::new(limits),
        }
    }

    /// Gives the handler a body that keeps coming and, for a call, is complete, plain and within
    /// its limits. The reservation is to last as long as the bytes are used.
    pub(crate) async fn take(
        &self,
        mut parts: Parts,
        body: Body,
        class: &Class,
        reading: &mut Reading,
    ) -> Result<(Request, Held)> {
        let bounds = self.bounds(class);
        // What extractors hold a body to that they read themselves.
        let limit = DefaultBodyLimit::max(bounds.unpacked.max);
        if class.kind == RouteKind::Call {
            let (bytes, held) = self.whole(&mut parts.headers, body, class, reading).await?;
            let mut request = Request::from_parts(parts, Body::from(bytes));
            limit.apply(&mut request);
            return Ok((request, Held::Whole(held)));
        }
        if class.kind == RouteKind::Stream
            && let Some(encoding) = Encoding::of(&parts.headers)?
        {
            return Err(encoding.not_here());
        }
        let rests = body.is_end_stream();
        let body = reading.give(body);
        // A gRPC stream may rest between messages; pings tell whether its client still lives.
        let (body, held) = if class.kind == RouteKind::Grpc {
            let framed = Framed::new(body, self.budget.clone());
            let latest = framed.latest();
            (Body::new(framed), Held::Latest(latest))
        } else if rests {
            (body, Held::Nothing)
        } else {
            (Body::new(Paced::new(body, self.patience)), Held::Nothing)
        };
        let mut request = Request::from_parts(parts, body);
        limit.apply(&mut request);
        Ok((request, held))
    }

    /// The body of a call: complete, plain and within its limits.
    pub(crate) async fn whole(
        &self,
        headers: &mut HeaderMap,
        body: Body,
        class: &Class,
        reading: &mut Reading,
    ) -> Result<(Bytes, Reservation)> {
        let mut body = Paced::new(body, self.patience);
        let read = self.read(headers, &mut body, self.bounds(class)).await;
        if body.has_ended() {
            reading.end();
        }
        read
    }

    /// Refuses a plain body of this length if that is over its limit.
    pub(crate) fn check(&self, length: usize, class: &Class) -> Result<()> {
        let bound = self.bounds(class).travelling;
        if length > bound.max { Err(bound.exceeded("")) } else { Ok(()) }
    }

    /// Room for bytes that came, in the memory for all bodies.
    pub(crate) fn room(&self, bytes: usize) -> Result<Reservation> {
        let mut held = self.budget.reserve();
        held.grow(bytes)?;
        Ok(held)
    }

    fn bounds(&self, class: &Class) -> Bounds {
        match (class.public, class.large) {
            (true, _) => self.public,
            (false, true) => self.large,
            (false, false) => self.known,
        }
    }

    async fn read<B>(
        &self,
        headers: &mut HeaderMap,
        body: B,
        bounds: Bounds,
    ) -> Result<(Bytes, Reservation)>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let declared = declared_length(headers);
        if declared.is_some_and(|length| length > bounds.travelling.max as u64) {
            return Err(bounds.travelling.exceeded(""));
        }
        match Encoding::of(headers)? {
            None => self.read_plain(body, bounds.travelling).await,
            Some(encoding) => {
                headers.remove(CONTENT_ENCODING);
                headers.remove(CONTENT_LENGTH);
                // Apart, so that a plain body carries no room for it.
                Box::pin(async {
                    let packed = self.read_plain(body, bounds.travelling).await?.0;
                    self.read_unpacked(unpacked(encoding, packed), encoding, bounds.unpacked).await
                })
                .await
            }
        }
    }

    async fn read_plain<B>(&self, mut body: B, bound: Bound) -> Result<(Bytes, Reservation)>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let mut held = self.budget.reserve();
        // As much as is announced, within what need not be counted before it comes.
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(BEFOREHAND);
        let mut bytes = Vec::with_capacity(announced.min(BEFOREHAND));
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
fn broken(error: impl Into<BoxError>) -> Error {
    let cause = match error.into().downcast::<axum::Error>() {
        Ok(error) => error.into_inner(),
        Err(error) => error,
    };
    match cause.downcast::<Error>() {
        Ok(error) => *error,
        Err(cause) => Error::new(&code::MALFORMED_BODY, "the body broke off").caused_by(cause),
    }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Puts whole bodies before the calls of a router that stands alone; gRPC frames its own.
pub(crate) fn with_whole_bodies(calls: Router, limits: &LimitsConfig) -> Router {
    let intake = Arc::new(Intake::new(limits));
    calls.layer(from_fn(move |request, next| whole(intake.clone(), request, next)))
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
