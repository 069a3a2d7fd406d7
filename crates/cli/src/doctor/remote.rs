//! What can be seen through the server: whether it answers, whether its clock agrees, and who we
//! are to it.

use std::time::Duration;

use chrono::DateTime;
use falaj_base::{Clock, Timestamp};
use reqwest::header::DATE;
use reqwest::{Method, Response};
use serde_json::Value;

use super::Finding;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::cell;

/// A difference that tokens and certificates forgive.
const CLOCK_LEEWAY: Duration = Duration::from_mins(1);

pub(super) async fn examine(ctx: &Context) -> Vec<Finding> {
    let client = match ctx.client() {
        Ok(client) => client,
        Err(failure) => {
            return vec![Finding::fail("server", failure.message(), "correct --url or FALAJ_URL")];
        }
    };
    let answer = match client.call(Method::GET, &["health", "ready"]) {
        Ok(call) => client.send(call).await,
        Err(failure) => Err(failure),
    };
    let response = match answer {
        Ok(response) => response,
        Err(failure) => {
            let fix = "start it with `falaj serve`, or point --url at another";
            return vec![Finding::fail("server", failure.message(), fix)];
        }
    };
    let mut findings = vec![Finding::ok("server", format!("{} is ready", client.url()))];
    findings.extend(server_clock(&response));
    let (finding, signed_in) = token(&client).await;
    findings.push(finding);
    if signed_in {
        findings.push(zones(&client).await);
    }
    findings
}

fn server_clock(response: &Response) -> Option<Finding> {
    let date = DateTime::parse_from_rfc2822(response.headers().get(DATE)?.to_str().ok()?).ok()?;
    let theirs = Timestamp::from_micros(date.timestamp_micros());
    Some(compare_clocks(Clock::System.now(), theirs))
}

fn compare_clocks(ours: Timestamp, theirs: Timestamp) -> Finding {
    let apart = ours.since(theirs).max(theirs.since(ours));
    if apart <= CLOCK_LEEWAY {
        return Finding::ok("server clock", format!("agrees with ours within {CLOCK_LEEWAY:?}"));
    }
    let text = format!("differs from ours by {} s", apart.as_secs());
    Finding::warn("server clock", text, "set both clocks by NTP")
}

/// Whether we are somebody to the server.
async fn token(client: &Client) -> (Finding, bool) {
    if !client.has_token() {
        let fix = "sign in with `falaj login`, or set FALAJ_TOKEN";
        return (Finding::warn("token", "none", fix), false);
    }
    match client.get(&["v1", "whoami"]).await {
        Ok(who) => {
            let text = format!("valid: {} ({})", cell(&who, "name"), cell(&who, "kind"));
            (Finding::ok("token", text), true)
        }
        Err(failure) if failure.exit() == Exit::Unauthenticated => {
            let fix = "sign in again with `falaj login`";
            (Finding::fail("token", "it is not valid here", fix), false)
        }
        Err(failure) => (Finding::fail("token", failure.message(), "see the server's log"), false),
    }
}

async fn zones(client: &Client) -> Finding {
    let listed = match client.call(Method::GET, &["v1", "zones"]) {
        Ok(call) => client.list(call).await,
        Err(failure) => Err(failure),
    };
    match listed {
        Ok(zones) if zones.is_empty() => {
            Finding::warn("zones", "none that you may see", "`falaj zone create` defines one")
        }
        Ok(zones) => {
            let names: Vec<String> = zones.iter().map(|zone: &Value| cell(zone, "name")).collect();
            Finding::ok("zones", names.join(", "))
        }
        Err(failure) => Finding::warn("zones", failure.message(), "ask for the viewer role"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn clocks_may_differ_a_little() {
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        for (seconds, expected) in [(0, Status::Ok), (59, Status::Ok), (61, Status::Warn)] {
            let other = now + Duration::from_secs(seconds);
            assert_eq!(compare_clocks(now, other).status, expected, "{seconds}");
            assert_eq!(compare_clocks(other, now).status, expected, "-{seconds}");
        }
    }
}
