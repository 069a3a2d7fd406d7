//! Whether to send a call again. Pure, apart from the wait.

use std::time::{Duration, SystemTime};

use reqwest::{Method, Response, StatusCode, header};

use super::Call;

/// How often one call is sent at most, the first time included.
const ATTEMPTS: u32 = 4;
/// The first wait; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A server that asks for more patience than this gets a person's decision instead.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

pub(super) enum Verdict {
    Done(Response),
    Again(Duration, String),
    Refused(Response),
    Broken(reqwest::Error),
}

pub(super) fn judge(call: &Call, attempt: u32, result: reqwest::Result<Response>) -> Verdict {
    match result {
        Ok(response) if response.status().is_success() => Verdict::Done(response),
        Ok(response) => {
            let asked = response
                .headers()
                .get(header::RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok())
                .map(Duration::from_secs);
            match wait_after(call, attempt, response.status(), asked) {
                Some(wait) => Verdict::Again(wait, response.status().to_string()),
                None => Verdict::Refused(response),
            }
        }
        Err(error) => {
            // A connection that was never made carried no request.
            let safe = error.is_connect() || repeatable(call);
            // A deadline that passed has used up the caller's patience already.
            if safe && !error.is_timeout() && !error.is_builder() && attempt < ATTEMPTS {
                Verdict::Again(backoff(attempt), "the connection failed".to_owned())
            } else {
                Verdict::Broken(error)
            }
        }
    }
}

/// The wait before sending again after this status, if it should be sent again.
fn wait_after(
    call: &Call,
    attempt: u32,
    status: StatusCode,
    asked: Option<Duration>,
) -> Option<Duration> {
    let temporary = match status {
        // The server says that it did not do it.
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
        // A gateway cannot say whether it was done.
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => repeatable(call),
        _ => false,
    };
    let wait = asked.unwrap_or_else(|| backoff(attempt));
    (temporary && attempt < ATTEMPTS && wait <= LONGEST_WAIT).then_some(wait)
}

/// Whether doing it twice is the same as doing it once. A repeated DELETE would report that there
/// is nothing to delete, so it is not among them.
fn repeatable(call: &Call) -> bool {
    call.key.is_some() || matches!(call.method, Method::GET | Method::HEAD | Method::PUT)
}

/// Doubling waits, each up to half longer by chance, so that many clients do not come back as one.
fn backoff(attempt: u32) -> Duration {
    let base = FIRST_WAIT * 2u32.saturating_pow(attempt.saturating_sub(1));
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    base + base * (nanos.subsec_nanos() % 1000) / 2000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_calls_are_sent_again() {
        let url = reqwest::Url::parse("http://127.0.0.1").unwrap();
        let call = |method: Method, key: bool| Call {
            method,
            url: url.clone(),
            body: None,
            key: key.then(|| "k".to_owned()),
            headers: header::HeaderMap::new(),
            streaming: false,
        };
        let again = |method, key, status: u16, asked: Option<u64>, attempt| {
            let status = StatusCode::from_u16(status).unwrap();
            let asked = asked.map(Duration::from_secs);
            wait_after(&call(method, key), attempt, status, asked).is_some()
        };
        for (method, key, status, asked, attempt, expected) in [
            (Method::GET, false, 503, None, 1, true),
            (Method::GET, false, 502, None, 1, true),
            (Method::POST, false, 503, None, 1, true),
            (Method::POST, false, 502, None, 1, false),
            (Method::POST, true, 502, None, 1, true),
            (Method::DELETE, false, 504, None, 1, false),
            (Method::GET, false, 429, Some(1), 1, true),
            (Method::GET, false, 429, Some(3600), 1, false),
            (Method::GET, false, 503, None, ATTEMPTS, false),
            (Method::GET, false, 500, None, 1, false),
            (Method::GET, false, 404, None, 1, false),
        ] {
            let label = format!("{method} key={key} {status} {asked:?} attempt {attempt}");
            assert_eq!(again(method, key, status, asked, attempt), expected, "{label}");
        }
    }

    #[test]
    fn waits_grow_and_stay_bounded() {
        for attempt in 1..ATTEMPTS {
            let base = FIRST_WAIT * 2u32.pow(attempt - 1);
            let wait = backoff(attempt);
            assert!(wait >= base && wait <= base * 3 / 2, "{attempt}: {wait:?}");
        }
    }
}
