//! A reply of the short way as bytes, the same headers as on any other way.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::time::SystemTime;

use axum::response::Response;
use falaj_base::{RequestId, Timestamp};
use falaj_web::{Answer, Plain};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http_body_util::BodyExt;

use crate::http::middleware::{request_id, security_headers};
use crate::http::words::Words;

/// What every success says first: the headers that all replies have, with and without TLS.
static SUCCESS: LazyLock<[String; 2]> = LazyLock::new(|| {
    [false, true].map(|tls| format!("HTTP/1.1 200 OK\r\n{}", security_headers::written(tls)))
});

/// A reply, and what is to be said beside it.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    pub(super) id: RequestId,
    pub(super) words: Words,
    pub(super) tls: bool,
    /// Whether the connection ends with it.
    pub(super) last: bool,
}

impl Reply {
    /// Writes all of it.
    pub(super) async fn write(self, into: &mut Vec<u8>) {
        match self.answer {
            Answer::Plain(plain) => {
                into.extend_from_slice(SUCCESS[usize::from(self.tls)].as_bytes());
                line(into, request_id::X_REQUEST_ID.as_str(), &request_id::text(self.id));
                success(into, &plain, self.last);
            }
            Answer::Other(mut response) => {
                security_headers::add(response.headers_mut(), self.tls);
                request_id::tell(self.id, response.headers_mut());
                other(into, self.words.answer(response), self.last).await;
            }
        }
    }
}

fn success(into: &mut Vec<u8>, plain: &Plain, last: bool) {
    if let Some((name, value)) = &plain.beside {
        line(into, name.as_str(), value.as_bytes());
    }
    line(into, "content-type", plain.media.as_bytes());
    end(into, &plain.body, last);
}

async fn other(into: &mut Vec<u8>, response: Response, last: bool) {
    let (mut parts, body) = response.into_parts();
    // It is in memory, all of it: nothing that is said here breaks off.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let reason = parts.status.canonical_reason().unwrap_or("<none>");
    into.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", parts.status.as_u16()).as_bytes());
    for said_here in [CONTENT_LENGTH, CONNECTION, DATE] {
        parts.headers.remove(said_here);
    }
    for (name, value) in &parts.headers {
        line(into, name.as_str(), value.as_bytes());
    }
    end(into, &body, last);
}

fn end(into: &mut Vec<u8>, body: &[u8], last: bool) {
    if last {
        line(into, "connection", b"close");
    }
    into.extend_from_slice(b"content-length: ");
    number(into, body.len());
    into.extend_from_slice(b"\r\n");
    date(into);
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(body);
}

fn line(into: &mut Vec<u8>, name: &str, value: &[u8]) {
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b": ");
    into.extend_from_slice(value);
    into.extend_from_slice(b"\r\n");
}

fn number(into: &mut Vec<u8>, mut number: usize) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len() - 1;
    loop {
        // Less than ten.
        digits[first] += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            break;
        }
        first -= 1;
    }
    into.extend_from_slice(&digits[first..]);
}

thread_local! {
    /// The second in which the line was written, and the line.
    static TODAY: RefCell<(u64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
}

/// The time changes once in a second, and replies go out by the ten thousand.
fn date(into: &mut Vec<u8>) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    TODAY.with_borrow_mut(|(second, written)| {
        if *second != since.as_secs() || written.is_empty() {
            let micros = i64::try_from(since.as_micros()).unwrap_or_default();
            let text = Timestamp::from_micros(micros).http_date();
            written.clear();
            line(written, "date", text.as_bytes());
            *second = since.as_secs();
        }
        into.extend_from_slice(written);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_their_digits() {
        for value in [0, 7, 10, 99, 100, 65_536, usize::MAX] {
            let mut text = Vec::new();
            number(&mut text, value);
            assert_eq!(text, value.to_string().as_bytes());
        }
    }
}
