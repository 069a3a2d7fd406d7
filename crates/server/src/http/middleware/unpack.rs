//! The content encodings we understand, and their decoders.

use std::fmt;
use std::io::Cursor;

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use axum::body::Bytes;
use falaj_base::{Error, Result, code};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use tokio::io::AsyncRead;

/// The largest zstd window, as a power of two: 8 MiB, the most that RFC 9659 lets HTTP use. A
/// frame may ask for far more, and the decoder would allocate it.
const ZSTD_WINDOW_LOG: u32 = 23;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Encoding {
    /// The one encoding of the body. Several on top of each other are refused: nobody needs them
    /// but those who nest bombs.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(unsupported("several"));
        }
        match value.as_bytes().trim_ascii() {
            b"identity" => Ok(None),
            b"gzip" => Ok(Some(Self::Gzip)),
            b"deflate" => Ok(Some(Self::Deflate)),
            b"br" => Ok(Some(Self::Brotli)),
            b"zstd" => Ok(Some(Self::Zstd)),
            other => Err(unsupported(&String::from_utf8_lossy(other))),
        }
    }

    /// The refusal of a route that takes bytes as they are.
    pub(super) fn not_here(self) -> Error {
        let message = format!("this route takes bytes as they are, not `{self}`");
        Error::new(&code::UNSUPPORTED_MEDIA, message).at("content-encoding")
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        })
    }
}

fn unsupported(value: &str) -> Error {
    let shown: String = value.chars().take(40).collect();
    let message = format!("content-encoding {shown:?}; allowed: one of gzip, deflate, br, zstd");
    Error::new(&code::UNSUPPORTED_MEDIA, message).at("content-encoding")
}

/// A reader over the plain bytes.
pub(super) fn unpacked(encoding: Encoding, packed: Bytes) -> Box<dyn AsyncRead + Send + Unpin> {
    let packed = Cursor::new(packed);
    match encoding {
        Encoding::Gzip => Box::new(GzipDecoder::new(packed)),
        Encoding::Deflate => Box::new(ZlibDecoder::new(packed)),
        Encoding::Brotli => Box::new(BrotliDecoder::new(packed)),
        Encoding::Zstd => {
            let window = DParameter::window_log_max(ZSTD_WINDOW_LOG);
            Box::new(ZstdDecoder::with_params(packed, &[window]))
        }
    }
}
