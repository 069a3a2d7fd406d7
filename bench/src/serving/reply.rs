//! Enough of HTTP/1.1 to know where a reply ends.

use anyhow::{Context, Result, ensure};

/// A whole reply at the beginning of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Where the body begins, and where it ends.
    pub(super) body: (usize, usize),
    /// Whether it says when to come again.
    pub(super) says_when: bool,
}

/// None if more has to be read.
pub(super) fn parse(buffer: &[u8]) -> Result<Option<Reply>> {
    let (mut length, mut says_when, mut at) = (None, false, 0);
    // Line by line: a head is gone through once, and most lines are told by their names' lengths.
    while let Some(end) = buffer[at..].iter().position(|&byte| byte == b'\n') {
        let line = buffer[at..at + end].trim_ascii_end();
        at += end + 1;
        if line.is_empty() {
            let status = std::str::from_utf8(buffer.get(9..12).context("no status")?)?.parse()?;
            ensure!(length.is_some() || status == 204, "a reply without its length");
            let body = (at, at + length.unwrap_or(0));
            return Ok((buffer.len() >= body.1).then_some(Reply { status, body, says_when }));
        }
        if let Some(value) = value_of(b"content-length", line) {
            length = Some(std::str::from_utf8(value)?.trim().parse()?);
        } else if value_of(b"retry-after", line).is_some() {
            says_when = true;
        }
    }
    Ok(None)
}

/// The value of a header, if the line is of that header.
fn value_of<'a>(name: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    let (own, value) = line.split_at_checked(name.len())?;
    value.strip_prefix(b":").filter(|_| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_or_not_yet() {
        let whole = b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\ncontent-length: 2\r\n\r\n{}";
        let reply = parse(whole).unwrap().unwrap();
        assert_eq!((reply.status, reply.says_when), (503, true));
        assert_eq!(&whole[reply.body.0..reply.body.1], b"{}");
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]).unwrap(), None);
        }
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
