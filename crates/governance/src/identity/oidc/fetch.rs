//! The only way this server talks to a provider: no redirects, a deadline, a bounded answer, and
//! only over TLS (or within the machine).

use falaj_base::{Error, Result, Secret, code};
use reqwest::{Client, RequestBuilder, StatusCode, Url, redirect};
use serde::de::DeserializeOwned;

use crate::identity::config::{OidcConfig, refuse};

/// What a provider said to a request that reached it.
#[derive(Debug)]
pub enum Answer<T> {
    Given(T),
    /// It did not like the request: a used or made-up code, for instance.
    Refused(StatusCode),
}

/// The HTTP client for providers.
#[derive(Clone, Debug)]
pub struct Fetch {
    client: Client,
    max_response: usize,
}

impl Fetch {
    pub fn new(config: &OidcConfig) -> Result<Self> {
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(config.timeout.get())
            .connect_timeout(config.timeout.get())
            .user_agent(concat!("falaj/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(Error::internal)?;
        Ok(Self { client, max_response: config.max_response.as_usize() })
    }

    pub async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T> {
        match self.send(self.client.get(url)).await? {
            Answer::Given(value) => Ok(value),
            Answer::Refused(status) => Err(unavailable(format!("it answered {status}"))),
        }
    }

    /// Posts a form, with the client's id and secret as Basic if it has a secret.
    pub async fn post_form<T: DeserializeOwned>(
        &self,
        url: &str,
        form: String,
        client: Option<(&str, &Secret)>,
    ) -> Result<Answer<T>> {
        let mut request = self
            .client
            .post(url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        if let Some((id, secret)) = client {
            // The standard wants both halves form-encoded before they become Basic.
            let encode = |text: &str| -> String {
                form_urlencoded::byte_serialize(text.as_bytes()).collect()
            };
            request = request.basic_auth(encode(id), Some(encode(secret.expose())));
        }
        self.send(request).await
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Answer<T>> {
        let mut response =
            request.header("accept", "application/json").send().await.map_err(unavailable)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unavailable)? {
            if body.len() + chunk.len() > self.max_response {
                return Err(unavailable("its answer is over the size limit"));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_client_error() {
            return Ok(Answer::Refused(status));
        }
        if !status.is_success() {
            return Err(unavailable(format!("it answered {status}")));
        }
        serde_json::from_slice(&body).map(Answer::Given).map_err(unavailable)
    }
}

fn unavailable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(&code::UNAVAILABLE, "the identity provider does not answer as it should")
        .retry_after(std::time::Duration::from_secs(5))
        .caused_by(source)
}

/// Accepts the address of an issuer: HTTPS, or plain HTTP to this machine itself.
pub fn check_issuer(field: &str, text: &str) -> Result<()> {
    let allowed = "an https:// address without user, query or fragment";
    match safe_url(text) {
        Some(url) if url.query().is_none() => Ok(()),
        _ => Err(refuse(field, text, allowed)),
    }
}

/// An address that may be talked to; an endpoint, unlike an issuer, may carry a query.
pub(super) fn safe_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str()?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host == "localhost"
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let scheme = url.scheme() == "https" || url.scheme() == "http" && loopback;
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    (scheme && plain).then_some(url)
}
