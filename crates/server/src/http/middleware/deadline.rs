//! When the caller stops caring.
//!
//! A request may name its deadline (`x-deadline-ms`, or `grpc-timeout` from a gRPC client). When
//! it passes, the work is dropped, which cancels it, and the caller reads 504. What had already
//! committed stays committed: an idempotency key tells the caller which.
//!
//! Must hold: a caller without a credential cannot ask for more time than `public_deadline`.

use std::time::Duration;

use falaj_base::{Error, Result, code};
use http::HeaderMap;

use crate::http::config::LimitsConfig;
use crate::http::route::RouteKind;

/// How long a request may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    default: Duration,
    max: Duration,
    public: Duration,
}

impl Deadlines {
    pub(crate) fn new(limits: &LimitsConfig) -> Self {
        Self {
            default: limits.default_deadline.get(),
            max: limits.max_deadline.get(),
            public: limits.public_deadline.get(),
        }
    }

    /// What the request asks for, cut to what it may; a transfer that asks for nothing takes as
    /// long as it moves (the body's own timeouts watch over it).
    pub(crate) fn of(
        &self,
        headers: &HeaderMap,
        kind: RouteKind,
        public: bool,
    ) -> Result<Option<Duration>> {
        match (requested(headers)?, kind) {
            (wish, _) if public => Ok(Some(wish.map_or(self.public, |wish| wish.min(self.public)))),
            (Some(wish), _) => Ok(Some(wish.min(self.max))),
            (None, RouteKind::Stream | RouteKind::Grpc) => Ok(None),
            (None, _) => Ok(Some(self.default)),
        }
    }
}

/// Ends the work at its deadline.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(limit) = limit else { return work.await };
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let message = format!("no answer within {} ms", limit.as_millis());
        Err(Error::new(&code::DEADLINE_EXCEEDED, message))
    })
}

fn requested(headers: &HeaderMap) -> Result<Option<Duration>> {
    let text = |name: &'static str| headers.get(name).map(|v| v.to_str().unwrap_or("(not text)"));
    match (text("x-deadline-ms"), text("grpc-timeout")) {
        (Some(wish), _) => milliseconds(wish).map(Some),
        (None, Some(wish)) => grpc_timeout(wish).map(Some),
        (None, None) => Ok(None),
    }
}

fn milliseconds(text: &str) -> Result<Duration> {
    match digits(text) {
        Some(millis @ 1..) => Ok(Duration::from_millis(millis)),
        _ => Err(Error::invalid("x-deadline-ms", text, "milliseconds, 1 to 99999999")),
    }
}

/// At most eight digits and a unit, as the gRPC protocol has it.
fn grpc_timeout(text: &str) -> Result<Duration> {
    let parse = || {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let count = digits(number)?;
        Some(match unit {
            "H" => Duration::from_secs(count * 3600),
            "M" => Duration::from_secs(count * 60),
            "S" => Duration::from_secs(count),
            "m" => Duration::from_millis(count),
            "u" => Duration::from_micros(count),
            "n" => Duration::from_nanos(count),
            _ => return None,
        })
    };
    parse().ok_or_else(|| {
        Error::invalid("grpc-timeout", text, "1 to 8 digits and a unit of H, M, S, m, u or n")
    })
}

/// One to eight plain digits: no sign, no blank, nothing that could overflow.
fn digits(text: &str) -> Option<u64> {
    let plain = (1..=8).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts() {
        for (text, expected) in [
            ("1H", Some(Duration::from_hours(1))),
            ("2M", Some(Duration::from_mins(2))),
            ("3S", Some(Duration::from_secs(3))),
            ("250m", Some(Duration::from_millis(250))),
            ("7u", Some(Duration::from_micros(7))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("99999999H", Some(Duration::from_hours(99_999_999))),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
            ("+5S", None),
            ("1.5S", None),
            ("5 S", None),
            ("123456789S", None),
            ("5é", None),
        ] {
            assert_eq!(grpc_timeout(text).ok(), expected, "{text:?}");
        }
    }

    fn deadlines() -> Deadlines {
        Deadlines {
            default: Duration::from_secs(30),
            max: Duration::from_mins(1),
            public: Duration::from_secs(15),
        }
    }

    #[test]
    fn a_caller_without_a_credential_may_only_ask_for_less() {
        for (wish, seconds) in [(None, 15), (Some("5000"), 5), (Some("600000"), 15)] {
            let mut headers = HeaderMap::new();
            if let Some(wish) = wish {
                headers.insert("x-deadline-ms", wish.parse().unwrap());
            }
            for kind in [RouteKind::Call, RouteKind::Stream] {
                let deadline = deadlines().of(&headers, kind, true).unwrap();
                assert_eq!(deadline, Some(Duration::from_secs(seconds)), "{wish:?} {kind:?}");
            }
        }
    }

    #[test]
    fn a_wish_is_cut_and_a_transfer_is_not_hurried() {
        let deadlines = deadlines();
        let mut headers = HeaderMap::new();
        let of = |headers: &HeaderMap, kind| deadlines.of(headers, kind, false).unwrap();
        assert_eq!(of(&headers, RouteKind::Call), Some(Duration::from_secs(30)));
        assert_eq!(of(&headers, RouteKind::Stream), None);
        headers.insert("x-deadline-ms", "90000".parse().unwrap());
        assert_eq!(of(&headers, RouteKind::Stream), Some(Duration::from_mins(1)));
        for bad in ["0", "-1", "1e3", "", "999999999"] {
            headers.insert("x-deadline-ms", bad.parse().unwrap());
            assert!(deadlines.of(&headers, RouteKind::Call, false).is_err(), "{bad:?}");
        }
    }
}
