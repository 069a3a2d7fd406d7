//! The HTTP client behind every command that talks to a server.
//!
//! Must hold:
//! - A call is sent again only if sending it twice does no harm: it reads, it replaces, or it
//!   carries an Idempotency-Key, which stays the same.
//! - The token goes to the configured server alone: no redirects, and no plain HTTP beyond this
//!   machine unless that was asked for.
//!
//! Not here: what any route means; a command knows its own path and fields.

use std::time::{Duration, Instant};

use falaj_base::Secret;
use reqwest::{Method, Response, Url, header, redirect};
use serde_json::Value;

mod connect;
mod problem;
mod retry;
mod send;

#[cfg(test)]
mod tests;

use crate::exit::{Failure, Result};
use crate::output::Output;
use retry::Verdict;
pub(crate) use send::send_file;

/// Where the server is when nothing says otherwise.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:7470";

/// The most items a list command collects before it stops asking for pages.
const MAX_ITEMS: usize = 100_000;
/// The largest JSON answer that is read.
const MAX_JSON: usize = 64 << 20;

/// How to reach the server.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) token: Option<Secret>,
    /// A PEM file with the certificate authorities to trust, and no others.
    pub(crate) cacert: Option<std::path::PathBuf>,
    /// How long one JSON call may take, and how long a stream may be silent.
    pub(crate) timeout: Duration,
    /// Whether a token may travel unencrypted to another machine.
    pub(crate) allow_http: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<Secret>,
    timeout: Duration,
    output: Output,
}

/// One request that may be sent more than once.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    url: Url,
    body: Option<Value>,
    /// The Idempotency-Key, the same each time it is sent.
    key: Option<String>,
    headers: header::HeaderMap,
    /// A stream is not cut off while it flows.
    streaming: bool,
}

impl Call {
    pub(crate) fn query(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.url.query_pairs_mut().append_pair(name, value);
        }
        self
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Makes a creating call safe to repeat: the server does it once, however often it arrives.
    pub(crate) fn once(mut self) -> Self {
        self.key = Some(uuid::Uuid::now_v7().to_string());
        self
    }

    pub(crate) fn header(mut self, name: header::HeaderName, value: header::HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(crate) fn streaming(mut self) -> Self {
        self.streaming = true;
        self
    }
}

/// How long a stream may be silent: a backup gathers its rows before it sends the next piece.
const SILENCE: Duration = Duration::from_mins(5);

impl Client {
    pub(crate) fn new(target: &Target, output: Output) -> Result<Self> {
        let base = connect::parse_url(&target.url)?;
        if target.token.is_some() && !target.allow_http {
            connect::refuse_open_wire(&base)?;
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("falaj/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .connect_timeout(target.timeout.min(Duration::from_secs(10)))
            .read_timeout(target.timeout.max(SILENCE));
        builder = connect::trust(builder, &base, target.cacert.as_deref())?;
        let http = builder
            .build()
            .map_err(|error| Failure::failed(format!("cannot set up TLS: {}", cause(&error))))?;
        Ok(Self { http, base, token: target.token.clone(), timeout: target.timeout, output })
    }

    pub(crate) fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Refuses a server that a secret would reach unencrypted.
    pub(crate) fn refuse_open_wire(&self) -> Result<()> {
        connect::refuse_open_wire(&self.base)
    }

    /// A call to a path given as segments, each escaped on its own.
    pub(crate) fn call(&self, method: Method, path: &[&str]) -> Result<Call> {
        // A URL treats these two as steps, not names, whatever the escaping.
        if let Some(step) = path.iter().find(|part| matches!(**part, "." | ".." | "")) {
            return Err(Failure::usage(format!("`{step}` cannot be part of a name")));
        }
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let headers = header::HeaderMap::new();
        Ok(Call { method, url, body: None, key: None, headers, streaming: false })
    }

    pub(crate) async fn get(&self, path: &[&str]) -> Result<Value> {
        self.json(self.call(Method::GET, path)?).await
    }

    pub(crate) async fn create(&self, path: &[&str], body: Value) -> Result<Value> {
        self.json(self.call(Method::POST, path)?.body(body).once()).await
    }

    pub(crate) async fn put(&self, path: &[&str], body: Value) -> Result<Value> {
        self.json(self.call(Method::PUT, path)?.body(body)).await
    }

    pub(crate) async fn patch(&self, path: &[&str], body: Value) -> Result<Value> {
        self.json(self.call(Method::PATCH, path)?.body(body)).await
    }

    pub(crate) async fn delete(&self, path: &[&str]) -> Result<Value> {
        self.json(self.call(Method::DELETE, path)?).await
    }

    /// Every item of a list, page by page.
    pub(crate) async fn list(&self, call: Call) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut page = self.json(call.clone().query("page_token", token.as_deref())).await?;
            match page.get_mut("items").map(Value::take).unwrap_or(page.clone()) {
                Value::Array(new) => items.extend(new),
                other => return Ok(vec![other]),
            }
            token = page["next_page_token"].as_str().map(str::to_owned);
            if token.is_none() {
                return Ok(items);
            }
            if items.len() >= MAX_ITEMS {
                self.output.say(&format!("only the first {} are shown", items.len()));
                return Ok(items);
            }
        }
    }

    /// Sends a call and reads its JSON answer; an empty answer is `null`.
    pub(crate) async fn json(&self, call: Call) -> Result<Value> {
        let response = self.send(call).await?;
        let bytes = bounded(response, MAX_JSON).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            Failure::failed(format!("the server's answer is not the JSON expected: {error}"))
                .hint("is the URL that of a Falaj server? `falaj doctor` checks it")
        })
    }

    /// Sends a call, again if that is safe and likely to help, and gives its successful answer.
    pub(crate) async fn send(&self, call: Call) -> Result<Response> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let verdict = retry::judge(&call, attempt, self.attempt(&call).await);
            match verdict {
                Verdict::Done(response) => return Ok(response),
                Verdict::Again(wait, reason) => {
                    self.output.detail(|| format!("{reason}; trying again in {wait:.1?}"));
                    tokio::time::sleep(wait).await;
                }
                Verdict::Refused(response) => return Err(problem::read(response).await),
                Verdict::Broken(error) => return Err(problem::unreachable(self.url(), &error)),
            }
        }
    }

    /// Sends a body that can be read only once, and so is never sent again.
    pub(crate) async fn upload(&self, call: Call, body: reqwest::Body) -> Result<Response> {
        let result = self.observed(&call, self.prepare(&call).body(body)).await;
        match result {
            Ok(response) if response.status().is_success() => Ok(response),
            Ok(response) => Err(problem::read(response).await),
            Err(error) => Err(problem::unreachable(self.url(), &error)),
        }
    }

    async fn attempt(&self, call: &Call) -> reqwest::Result<Response> {
        let mut request = self.prepare(call);
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        self.observed(call, request).await
    }

    fn prepare(&self, call: &Call) -> reqwest::RequestBuilder {
        let mut request =
            self.http.request(call.method.clone(), call.url.clone()).headers(call.headers.clone());
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key);
        }
        if !call.streaming {
            request = request.timeout(self.timeout);
        }
        request
    }

    async fn observed(
        &self,
        call: &Call,
        request: reqwest::RequestBuilder,
    ) -> reqwest::Result<Response> {
        let started = Instant::now();
        let result = request.send().await;
        self.output.detail(|| {
            let outcome = match &result {
                Ok(response) => response.status().to_string(),
                Err(error) => cause(error),
            };
            let path = call.url.path();
            format!("{} {path}: {outcome} in {:.0?}", call.method, started.elapsed())
        });
        result
    }
}

/// Reads a body of at most `limit` bytes.
pub(crate) async fn bounded(mut response: Response, limit: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken_stream(&error))? {
        if bytes.len() + chunk.len() > limit {
            return Err(Failure::failed(format!("the answer is larger than {limit} bytes")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// A connection that died after the answer had begun.
pub(crate) fn broken_stream(error: &reqwest::Error) -> Failure {
    Failure::new(
        crate::exit::Exit::Unavailable,
        format!("the connection broke before the end: {}", cause(error)),
    )
    .hint("run the command again")
}

/// The innermost cause, which is the one that says something: the outer ones repeat the URL and
/// name the client's own layers.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
