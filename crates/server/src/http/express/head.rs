//! The head of a call on the short way, read once for as long as a connection repeats it.
//!
//! Clients send the same head again and again, but for the length of the body. All that follows from a
//! head alone (whom it is for, that its host and its path are as they should be, how long it may take) is
//! found out when it comes first.
//!
//! Must hold: whatever is not plainly such a head, or would be refused for it, is not one: the ordinary
//! way reads it, and refuses it in its own words. So this may be narrower than the protocol, and must
//! never be wider.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::body::Body;
use axum::extract::Request;
use falaj_web::Direct;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Uri, Version};
use zeroize::Zeroizing;

use super::Express;
use crate::grpc::is_grpc;
use crate::http::connection::Line;
use crate::http::middleware::request_id;
use crate::http::route::{Class, Pattern};
use crate::http::words::Words;

const END: &[u8] = b"\r\n\r\n";
/// More is not written in so many digits.
const MAX_DIGITS: usize = 8;

/// A head that was found to be one.
pub(in crate::http) struct Head {
    /// How it was written, before and after the digits of the length.
    before: Zeroizing<Vec<u8>>,
    after: Zeroizing<Vec<u8>>,
    /// All that was said, but for the length: that is the body's.
    pub(in crate::http) parts: Arc<Parts>,
    pub(in crate::http) handler: Direct,
    pub(in crate::http) path: &'static str,
    pub(in crate::http) class: Arc<Class>,
    pub(in crate::http) deadline: Option<Duration>,
    pub(in crate::http) trace: Option<String>,
    pub(super) words: Words,
}

/// How long the two parts of a request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) head: usize,
    pub(super) body: usize,
}

impl Lengths {
    pub(super) fn all(self) -> usize {
        self.head + self.body
    }
}

impl Head {
    /// Whether what came begins with the same head, but for the length of the body.
    pub(super) fn comes_again(&self, came: &[u8]) -> Option<Lengths> {
        let rest = came.get(self.before.len()..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (length, rest) = rest.split_at(digits);
        let after = rest.get(..self.after.len())?;
        // A proxy may send requests of several callers over one connection: how much of the last
        // caller's credential was the same is not to be told by the time this takes.
        verify_slices_are_equal(&self.before, &came[..self.before.len()]).ok()?;
        verify_slices_are_equal(&self.after, after).ok()?;
        let head = self.before.len() + digits + self.after.len();
        Some(Lengths { head, body: number(length)? })
    }

    /// Reads a head that came whole. None if it is for the ordinary way.
    pub(super) fn read(
        came: &[u8],
        express: &Arc<Express>,
        line: &Line,
    ) -> Option<(Self, Lengths)> {
        let draft = Draft::of(came, express.max_headers)?;
        let port = &express.port;
        let mut request = draft.request;
        let words = Words::hear(&mut request);
        if is_grpc(request.headers()) {
            return None;
        }
        let (_, found) = express.find(&request)?;
        let (path, handler) = (found.path, found.handler.clone());
        let class = port.table.class(Some(&Pattern::Direct(path)), request.method()).clone();
        if class.open {
            return None;
        }
        port.rules.check(&mut request, line).ok()?;
        let deadline = port.deadlines.of(request.headers(), class.kind, class.public).ok()?;
        let (parts, _) = request.into_parts();
        port.door.check(&parts).ok()?;
        let trace = request_id::trace_id(&parts.headers);
        let (start, end) = draft.digits;
        let kept = |bytes: &[u8]| Zeroizing::new(bytes.to_vec());
        let (before, after) = (kept(&came[..start]), kept(&came[end..draft.lengths.head]));
        let parts = Arc::new(parts);
        let head = Self { before, after, parts, handler, path, class, deadline, trace, words };
        Some((head, draft.lengths))
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Where a head ends, if all of it came.
fn end_of(came: &[u8]) -> Option<usize> {
    came.windows(END.len()).position(|bytes| bytes == END).map(|place| place + END.len())
}

/// Whether all of a head came, given how much of it was looked at before; that is moved on.
pub(super) fn has_end(came: &[u8], scanned: &mut usize) -> bool {
    let ends = came.get(*scanned..).is_some_and(|rest| end_of(rest).is_some());
    if !ends {
        // What ends it may have come in part.
        *scanned = came.len().saturating_sub(END.len() - 1);
    }
    ends
}

/// Whether what came may be the beginning of a call on the short way: all of them are sent like this.
pub(super) fn may_begin(came: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"POST /";
    came.iter().zip(BEGINNING).all(|(one, other)| one == other)
}

/// A head as it was written.
#[derive(Debug)]
struct Draft {
    request: Request,
    lengths: Lengths,
    /// Where the digits of the length are.
    digits: (usize, usize),
}

impl Draft {
    fn of(came: &[u8], max_headers: usize) -> Option<Self> {
        let end = end_of(came)?;
        let head = &came[..end - END.len()];
        // One text of printable characters: nothing that two readers could read in two ways.
        let printable = |byte: &u8| matches!(byte, b' '..=b'~');
        let mut at = 0;
        let mut lines = Vec::new();
        for line in head.split(|&byte| byte == b'\n') {
            // The last has lost what ends it.
            let is_last = at + line.len() == head.len();
            let written = if is_last { line } else { line.strip_suffix(b"\r")? };
            if !written.iter().all(printable) {
                return None;
            }
            lines.push((at, std::str::from_utf8(written).ok()?));
            at += line.len() + 1;
        }
        let (&(_, first), fields) = lines.split_first()?;
        if fields.len() > max_headers {
            return None;
        }
        let target = first.strip_prefix("POST ")?.strip_suffix(" HTTP/1.1")?;
        if !target.starts_with('/') || target.contains([' ', '#']) {
            return None;
        }
        let mut request = Request::new(Body::empty());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = target.parse::<Uri>().ok()?;
        let (mut digits, mut body) = (None, None);
        for &(at, line) in fields {
            let (name, value) = line.split_once(':')?;
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let value = value.trim_matches(' ');
            if name == CONTENT_LENGTH {
                // Two lengths are an attempt to be two requests.
                if digits.is_some() {
                    return None;
                }
                body = Some(number(value.as_bytes())?);
                let start = at + line.trim_end_matches(' ').len() - value.len();
                digits = Some((start, start + value.len()));
                continue;
            }
            if !is_plain(&name, value) {
                return None;
            }
            request.headers_mut().append(name, HeaderValue::from_str(value).ok()?);
        }
        Some(Self { request, lengths: Lengths { head: end, body: body? }, digits: digits? })
    }
}

/// Whether a header leaves the connection and the body as they are.
fn is_plain(name: &HeaderName, value: &str) -> bool {
    const OTHERS: [HeaderName; 6] =
        [TRANSFER_ENCODING, CONTENT_ENCODING, EXPECT, UPGRADE, TE, TRAILER];
    if *name == CONNECTION {
        return value.eq_ignore_ascii_case("keep-alive");
    }
    !OTHERS.contains(name)
}

fn number(digits: &[u8]) -> Option<usize> {
    let plain = (1..=MAX_DIGITS).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    if plain { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "POST /v2/models/a/infer HTTP/1.1\r\nHost: localhost\r\n\
                         Content-Length:  12 \r\nx-one: 1\r\nX-One: 2\r\n\r\n";

    #[test]
    fn a_plain_head_is_read_as_it_is_written() {
        let draft = Draft::of(PLAIN.as_bytes(), 100).unwrap();
        assert_eq!(draft.lengths, Lengths { head: PLAIN.len(), body: 12 });
        assert_eq!(&PLAIN[draft.digits.0..draft.digits.1], "12");
        assert_eq!(draft.request.uri(), "/v2/models/a/infer");
        assert_eq!(draft.request.headers()["host"], "localhost");
        assert_eq!(draft.request.headers().get_all("x-one").iter().count(), 2);
        for length in 0..PLAIN.len() {
            assert!(Draft::of(&PLAIN.as_bytes()[..length], 100).is_none(), "{length}");
            assert!(may_begin(&PLAIN.as_bytes()[..length]), "{length}");
        }
        assert!(Draft::of(PLAIN.as_bytes(), 3).is_none(), "too many headers");
    }

    #[test]
    fn the_end_is_found_however_it_comes() {
        for first in 0..PLAIN.len() {
            let mut scanned = 0;
            assert!(!has_end(&PLAIN.as_bytes()[..first], &mut scanned));
            assert!(has_end(PLAIN.as_bytes(), &mut scanned), "{first}");
        }
    }

    /// The ordinary way decides what becomes of these.
    #[test]
    fn what_is_not_plain_is_left_to_others() {
        let instead = |from: &str, to: &str| PLAIN.replacen(from, to, 1);
        for head in [
            instead("POST ", "GET "),
            instead("POST ", "post "),
            instead("POST ", "POST  "),
            instead(" HTTP/1.1", " HTTP/1.0"),
            instead(" HTTP/1.1", "  HTTP/1.1"),
            instead("POST /v2", "POST http://localhost/v2"),
            instead("/infer", "/infer#there"),
            instead("/infer", "/in\tfer"),
            instead("Host: ", "Host : "),
            instead("Host: ", " Host: "),
            instead("Host: localhost", "Host: local\u{e9}"),
            instead("Host: localhost", "Host: local\0"),
            instead("Host: localhost", "Host: local\rhost"),
            instead("Host: localhost", "Host: local\nhost"),
            instead("X-One: 2", "X-One: 2\r"),
            instead("Host: localhost", "Host localhost"),
            instead("Host: localhost\r\n", "Host: localhost\r\n more\r\n"),
            instead("Host: localhost\r\n", "Host: localhost\n"),
            instead("Content-Length:  12 ", "x: y"),
            instead("12 ", "+12"),
            instead("12 ", "-1"),
            instead("12 ", "0x12"),
            instead("12 ", ""),
            instead("12 ", "1 2"),
            instead("12 ", "12,12"),
            instead("12 ", "123456789"),
            instead("x-one: 1", "content-length: 12"),
            instead("x-one: 1", "Transfer-Encoding: chunked"),
            instead("x-one: 1", "Transfer-Encoding: identity"),
            instead("x-one: 1", "Content-Encoding: gzip"),
            instead("x-one: 1", "Expect: 100-continue"),
            instead("x-one: 1", "Upgrade: h2c"),
            instead("x-one: 1", "Connection: close"),
            instead("x-one: 1", "Connection: keep-alive, te"),
            instead("x-one: 1", ": 1"),
        ] {
            assert!(Draft::of(head.as_bytes(), 100).is_none(), "{head:?}");
        }
        let kept = instead("x-one: 1", "Connection: Keep-Alive");
        assert!(Draft::of(kept.as_bytes(), 100).is_some());
        for other in ["GET /", "PRI * HTTP/2.0", "\r\nPOST /", "POST h"] {
            assert!(!may_begin(other.as_bytes()), "{other:?}");
        }
    }
}
