//! A plain HTTP client for tests: sends, and hands back whatever came, without judging it.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longer than any answer should take, also from a debug build on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Client {
    pub fn new(base: impl Into<String>, token: Option<String>) -> Result<Self> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT)
            .build()
            .context("building the HTTP client")?;
        Ok(Self { http, base: base.into(), token })
    }

    /// The same server, as somebody else; `None` sends no credential.
    #[must_use]
    pub fn acting_as(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A request with the credential already in it.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, self.url(path));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        Answer::of(self.request(Method::POST, path).json(body)).await
    }

    pub async fn put(&self, path: &str, body: impl Into<reqwest::Body>) -> Result<Answer> {
        Answer::of(self.request(Method::PUT, path).body(body)).await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer> {
        Answer::of(self.request(Method::DELETE, path)).await
    }

    /// Every item of a paged list.
    pub async fn all(&self, path: &str) -> Result<Vec<Value>> {
        let (mut items, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut page =
                format!("{path}{}page_size=1000", if path.contains('?') { '&' } else { '?' });
            if let Some(token) = token.take() {
                page = format!("{page}&page_token={}", percent(&token));
            }
            let answer = self.get(&page).await?;
            let mut page: Value = answer.expect(StatusCode::OK)?.json()?;
            match page["items"].take() {
                Value::Array(more) => items.extend(more),
                other => anyhow::bail!("{path}: `items` is {other}, not a list"),
            }
            match page["next_page_token"].as_str() {
                Some(next) => token = Some(next.to_owned()),
                None => return Ok(items),
            }
        }
    }
}

/// Encodes one part of a path or query: everything but the unreserved characters.
#[must_use]
pub fn percent(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

impl Answer {
    pub async fn of(request: reqwest::RequestBuilder) -> Result<Self> {
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(Self { status, headers, body: response.bytes().await? })
    }

    /// Fails, showing the body, unless the status is the expected one.
    pub fn expect(self, status: StatusCode) -> Result<Self> {
        ensure!(self.status == status, "expected {status}, got {}: {}", self.status, self.text());
        Ok(self)
    }

    /// The body as text, with what is not UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// The last part of the problem's `type`, if the body is a problem.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        let problem: Value = serde_json::from_slice(&self.body).ok()?;
        problem["type"].as_str()?.rsplit('/').next().map(str::to_owned)
    }
}
