//! How far a follower has come: the version of the run it saw, and how much of the log.

use std::fmt;
use std::str::FromStr;

use falaj_base::Error;

/// Written as `1-<version>-<log offset>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) version: i64,
    pub(super) log: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1-{}-{}", self.version, self.log)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts: Vec<&str> = text.split('-').collect();
        let read = match parts[..] {
            ["1", version, log] => version.parse().ok().zip(log.parse().ok()),
            _ => None,
        };
        let read = read.filter(|(version, _): &(i64, u64)| *version >= 0);
        read.map(|(version, log)| Self { version, log }).ok_or_else(|| {
            Error::invalid("last-event-id", text, "the id of an event of this stream")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_and_others_are_refused() {
        let cursor = Cursor { version: 77, log: 1 << 40 };
        assert_eq!(cursor.to_string(), "1-77-1099511627776");
        assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        for bad in ["", "1", "1-2", "2-1-1", "1--1-1", "1-x-1", "1-1-1-1", "1-1--1"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}
