//! Ray's Job API: HTTP with JSON, asked from any thread, each time for a bounded time.

use std::fmt;
use std::time::Duration;

use falaj_base::Secret;
use reqwest::{Client, Method, StatusCode, redirect};
use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::ExecutorError;

const LONGEST: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// The most of an answer that is read.
const LARGEST: usize = 4 << 20;
/// The most of an answer that is repeated in an error.
const SHOWN: usize = 300;

pub(super) struct Api {
    /// A thread of its own: callers may wait in threads that belong to another runtime.
    runtime: Option<Runtime>,
    client: Client,
    url: String,
    token: Option<Secret>,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A job as Ray shows it.
#[derive(Debug, Deserialize)]
pub(super) struct Job {
    pub(super) status: String,
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) driver_exit_code: Option<i64>,
}

impl Api {
    pub(super) fn new(url: &str, token: Option<Secret>) -> Result<Self, ExecutorError> {
        let away = |error: &dyn fmt::Display| ExecutorError::Away(format!("Ray: {error}"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ray")
            .enable_all()
            .build()
            .map_err(|error| away(&error))?;
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT)
            .timeout(LONGEST)
            .build()
            .map_err(|error| away(&error))?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { runtime: Some(runtime), client, url, token })
    }

    /// Submits a job; one of that name that is there already will do.
    pub(super) fn submit(&self, job: &Value) -> Result<(), ExecutorError> {
        let (status, text) = self.ask(Method::POST, "/api/jobs/", Some(job))?;
        match status {
            status if status.is_success() => Ok(()),
            _ if text.contains("already exists") => Ok(()),
            StatusCode::BAD_REQUEST => {
                Err(ExecutorError::Refused(format!("Ray refuses it: {}", last_line(&text))))
            }
            status => Err(said(status, &text)),
        }
    }

    /// `None` if there is no such job.
    pub(super) fn job(&self, name: &str) -> Result<Option<Job>, ExecutorError> {
        let (status, text) = self.ask(Method::GET, &format!("/api/jobs/{name}"), None)?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => serde_json::from_str(&text)
                .map(Some)
                .map_err(|error| ExecutorError::Away(format!("Ray: an answer is no job: {error}"))),
            status => Err(said(status, &text)),
        }
    }

    pub(super) fn stop(&self, name: &str) -> Result<(), ExecutorError> {
        let (status, text) = self.ask(Method::POST, &format!("/api/jobs/{name}/stop"), None)?;
        if status.is_success() || status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        Err(said(status, &text))
    }

    /// Removes what Ray keeps of a job that has ended.
    pub(super) fn delete(&self, name: &str) -> Result<(), ExecutorError> {
        let (status, text) = self.ask(Method::DELETE, &format!("/api/jobs/{name}"), None)?;
        if status.is_success() || status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        Err(said(status, &text))
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, String), ExecutorError> {
        let away = |error: &reqwest::Error| {
            ExecutorError::Away(format!("{}{path}: {}", self.url, innermost(error)))
        };
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = async {
            let mut answer = request.send().await?;
            let status = answer.status();
            let mut bytes = Vec::new();
            while let Some(part) = answer.chunk().await? {
                bytes.extend_from_slice(&part);
                if bytes.len() > LARGEST {
                    break;
                }
            }
            Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
        };
        let Some(runtime) = &self.runtime else {
            return Err(ExecutorError::Away("Ray: closed".to_owned()));
        };
        runtime.block_on(answer).map_err(|error: reqwest::Error| away(&error))
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        // Waiting for it is not allowed everywhere, and nothing of it matters any more.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn innermost(error: &reqwest::Error) -> String {
    let mut source: &dyn std::error::Error = error;
    while let Some(next) = source.source() {
        source = next;
    }
    source.to_string()
}

/// Errors of Ray are tracebacks: what happened is in their last line.
fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.chars().take(SHOWN).collect()
}

fn said(status: StatusCode, text: &str) -> ExecutorError {
    ExecutorError::Away(format!("Ray answers {status}: {}", last_line(text)))
}
