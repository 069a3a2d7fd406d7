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
    let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&buffer[..end])?;
    let status = head.get(9..12).context("no status")?.parse()?;
    let (mut length, mut says_when) = (None, false);
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse::<usize>()?);
        } else if name.eq_ignore_ascii_case("retry-after") {
            says_when = true;
        }
    }
    ensure!(length.is_some() || status == 204, "a reply without its length: {head}");
    let body = (end + 4, end + 4 + length.unwrap_or(0));
    Ok((buffer.len() >= body.1).then_some(Reply { status, body, says_when }))
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
