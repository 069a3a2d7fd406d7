//! A refusal as a person reads it: what happened, which field, what to do next, which request.

use reqwest::{Response, header};
use serde::Deserialize;

use super::{bounded, cause};
use crate::exit::{Exit, Failure};

/// The largest error answer worth reading.
const MAX_PROBLEM: usize = 64 << 10;

/// The parts of an RFC 9457 problem that we use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    title: String,
    detail: String,
    code: String,
    field: Option<String>,
    /// How MLflow's protocol says the same.
    message: String,
    error_code: String,
    /// How the Open Inference Protocol says the same.
    error: String,
}

/// Reads an answer that is not a success.
pub(super) async fn read(response: Response) -> Failure {
    let status = response.status();
    let text = |name: &str| {
        response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let request = text("x-request-id");
    let wait = text(header::RETRY_AFTER.as_str());
    let body = bounded(response, MAX_PROBLEM).await.unwrap_or_default();
    let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
    let said = [&problem.detail, &problem.title, &problem.message, &problem.error];
    let message = said.into_iter().find(|text| !text.is_empty());
    let message = message.cloned().unwrap_or_else(|| format!("the server answered {status}"));
    let mut failure = Failure::new(Exit::of_status(status.as_u16()), message)
        .field(problem.field.clone())
        .request(request);
    let code = [problem.code, problem.error_code].into_iter().find(|code| !code.is_empty());
    let code = code.unwrap_or_default();
    if let Some(hint) = hint(status.as_u16(), &code, wait.as_deref()) {
        failure = failure.hint(hint);
    }
    let failure = failure.passing(wait.is_some() || code == "changed");
    failure.code((!code.is_empty()).then_some(code))
}

/// What usually helps.
fn hint(status: u16, code: &str, wait: Option<&str>) -> Option<String> {
    let text = match (status, code) {
        (401, _) => "sign in with `falaj login`, or set FALAJ_TOKEN to a valid token",
        (403, _) => "`falaj whoami` shows your roles; `falaj policy test` says why it is refused",
        (404, "") => "is the URL that of a Falaj server? `falaj doctor` checks it",
        (404, _) => "check the spelling; what you may not read looks the same as what is not there",
        (_, "already-exists") => "choose another name, or use the one that exists",
        (_, "in-use") => "remove what depends on it first",
        (_, "residency") => "`falaj zone show` lists where data of this zone may go",
        (_, "invalid-policy") => {
            "correct the policy text; docs/errors/invalid-policy.md has examples"
        }
        (_, "storage-full") => "free disk space on the server; reads go on meanwhile",
        (429 | 503, _) => {
            let when = wait.map_or_else(|| "a little".to_owned(), |wait| format!("{wait} s"));
            return Some(format!("wait {when} and run the command again"));
        }
        (500, _) => "the server's log holds the reason under this request id",
        _ => return None,
    };
    Some(text.to_owned())
}

/// A request that got no answer.
pub(super) fn unreachable(url: &str, error: &reqwest::Error) -> Failure {
    if error.is_timeout() {
        return Failure::new(Exit::Unavailable, format!("{url} did not answer in time"))
            .hint("run the command again, or allow more time with --timeout");
    }
    let reason = cause(error);
    let failure = Failure::new(Exit::Unavailable, format!("cannot reach {url}: {reason}"));
    if reason.contains("certificate") {
        failure.hint("if the server made its own certificate, pass its ca.pem with --cacert")
    } else {
        failure.hint("is the server running? `falaj doctor` checks what is missing")
    }
}
