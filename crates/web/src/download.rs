//! Bytes that an owner stored, on their way out: whole or a range, with conditions, and never as a
//! part of this site.
//!
//! Must hold: whatever the content says it is, it is sent as an attachment, in a sandbox, with
//! sniffing off.
//!
//! Not here: where the bytes come from (`falaj_store::objects`), and who may have them.

pub mod range;

use std::fmt::Write as _;
use std::ops::Range;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use falaj_base::{Error, Result, Timestamp};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::problem::problem_response;
use range::Wanted;

/// What is known about the content before a byte of it is read.
#[derive(Clone, Debug)]
pub struct Download<'a> {
    pub size: u64,
    /// Differs whenever the content does; sent as the entity tag.
    pub tag: &'a str,
    pub content_type: &'a str,
    /// What the file is called, without folders.
    pub file_name: &'a str,
    pub modified: Timestamp,
    /// Headers of the caller's own.
    pub extra: &'a [(&'static str, String)],
}

impl Download<'_> {
    /// Answers a request with these headers. `open` is asked for the body of the part that is
    /// wanted; a HEAD gives an empty one.
    pub fn answer(
        &self,
        asked: &HeaderMap,
        open: impl FnOnce(Range<u64>) -> Result<Body>,
    ) -> Result<Response> {
        let tag = format!("\"{}\"", self.tag);
        let text = |name: HeaderName| asked.get(name).and_then(|value| value.to_str().ok());
        if text(header::IF_NONE_MATCH).is_some_and(|tags| matches(tags, &tag)) {
            return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
        }
        // A range of something that has changed meanwhile would be glued to the wrong half.
        let same = text(header::IF_RANGE).is_none_or(|if_range| if_range == tag);
        let wanted = range::parse(text(header::RANGE).filter(|_| same), self.size);
        let (status, part) = match wanted {
            Wanted::Whole => (StatusCode::OK, 0..self.size),
            Wanted::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
            Wanted::Outside => return outside(self.size),
        };
        let mut response = Response::new(open(part.clone())?);
        *response.status_mut() = status;
        self.describe(response.headers_mut(), &tag, &part, status).map_err(Error::internal)?;
        Ok(response)
    }

    fn describe(
        &self,
        headers: &mut HeaderMap,
        tag: &str,
        part: &Range<u64>,
        status: StatusCode,
    ) -> Result<(), header::InvalidHeaderValue> {
        let mut set = |name: HeaderName, value: &str| {
            HeaderValue::from_str(value).map(|value| headers.insert(name, value)).map(drop)
        };
        set(header::CONTENT_TYPE, self.content_type)?;
        set(header::CONTENT_LENGTH, &(part.end - part.start).to_string())?;
        set(header::CONTENT_DISPOSITION, &attachment(self.file_name))?;
        set(header::ETAG, tag)?;
        set(header::LAST_MODIFIED, &self.modified.http_date())?;
        set(header::ACCEPT_RANGES, "bytes")?;
        set(header::CACHE_CONTROL, "private, no-cache")?;
        set(header::X_CONTENT_TYPE_OPTIONS, "nosniff")?;
        set(header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'")?;
        for (name, value) in self.extra {
            set(HeaderName::from_static(name), value)?;
        }
        if status == StatusCode::PARTIAL_CONTENT {
            let range = format!("bytes {}-{}/{}", part.start, part.end - 1, self.size);
            set(header::CONTENT_RANGE, &range)?;
        }
        Ok(())
    }
}

fn outside(size: u64) -> Result<Response> {
    let error = Error::invalid("range", "outside", format!("within the {size} bytes there are"));
    let mut response = problem_response(&error);
    *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    let range = HeaderValue::from_str(&format!("bytes */{size}")).map_err(Error::internal)?;
    response.headers_mut().insert(header::CONTENT_RANGE, range);
    Ok(response)
}

fn matches(tags: &str, tag: &str) -> bool {
    tags.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

/// Names the download. A name of plain characters stands as it is, and one of other ASCII between
/// quotes, which every client reads; anything else is percent-encoded (RFC 6266, RFC 8187).
fn attachment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if !name.is_empty() && name.bytes().all(|byte| plain(byte) || byte == b'+') {
        return format!("attachment; filename={name}");
    }
    let quotable =
        |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && !b"\"\\%".contains(&byte);
    if !name.is_empty() && name.bytes().all(quotable) {
        return format!("attachment; filename=\"{name}\"");
    }
    let mut encoded = String::new();
    for byte in name.bytes() {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    format!("attachment; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_the_header_it_stands_in() {
        for (name, header) in [
            ("model.pkl", "attachment; filename=model.pkl"),
            ("dog+step+20.png", "attachment; filename=dog+step+20.png"),
            ("my net.onnx", "attachment; filename=\"my net.onnx\""),
            ("a; x=b", "attachment; filename=\"a; x=b\""),
            ("a%22b", "attachment; filename*=UTF-8''a%2522b"),
            ("a\"; x=\"b", "attachment; filename*=UTF-8''a%22%3B%20x%3D%22b"),
            ("م", "attachment; filename*=UTF-8''%D9%85"),
        ] {
            assert_eq!(attachment(name), header);
        }
    }
}
