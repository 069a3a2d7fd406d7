//! The only way a webhook leaves this machine.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use falaj_base::{Error, Result};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, header, redirect};

use super::address::is_public;
use super::config::WebhooksConfig;
use super::delivery::signature;
use super::url::check_url;

/// What a receiver said.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) status: u16,
    /// The beginning of the answer.
    pub(super) body: String,
    pub(super) retry_after: Option<Duration>,
}

/// Something to send.
#[derive(Clone, Debug)]
pub(super) struct Parcel<'a> {
    pub(super) url: &'a str,
    pub(super) id: &'a str,
    pub(super) payload: String,
    /// In seconds since 1970.
    pub(super) now: i64,
}

/// Sends to the hosts that the configuration allows.
pub(crate) struct Sender {
    config: WebhooksConfig,
    client: OnceLock<Client>,
}

impl Sender {
    pub(crate) fn new(config: WebhooksConfig) -> Self {
        Self { config, client: OnceLock::new() }
    }

    /// Sends, once. An error is a sentence for whoever owns the webhook.
    pub(super) async fn send(
        &self,
        parcel: Parcel<'_>,
        secret: Option<&[u8]>,
    ) -> Result<Said, String> {
        // The list may have become shorter since the webhook was made.
        let url = check_url(&self.config, parcel.url).map_err(|e| e.message().to_owned())?;
        let client = self.client().map_err(|error| error.message().to_owned())?;
        let timestamp = parcel.now.to_string();
        let mut request = client
            .post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header("X-MLflow-Delivery-Id", parcel.id)
            .header("X-MLflow-Timestamp", &timestamp);
        if let Some(secret) = secret {
            let signature = signature(secret, parcel.id, &timestamp, &parcel.payload);
            request = request.header("X-MLflow-Signature", signature);
        }
        let mut response = request.body(parcel.payload).send().await.map_err(why)?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let most = self.config.max_answer.as_usize();
        let mut body = Vec::new();
        while body.len() < most {
            match response.chunk().await.map_err(why)? {
                Some(piece) => body.extend_from_slice(&piece),
                None => break,
            }
        }
        body.truncate(most);
        let body = String::from_utf8_lossy(&body).replace('\0', "\u{fffd}");
        Ok(Said { status, body, retry_after: retry_after.map(Duration::from_secs) })
    }

    /// Made when first needed: a server without webhooks needs no certificates.
    fn client(&self) -> Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let timeout = self.config.timeout.get();
        let made = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(timeout)
            .connect_timeout(timeout)
            .pool_max_idle_per_host(1)
            .dns_resolver(Guarded { private: self.config.allow_private_addresses })
            .user_agent(concat!("falaj/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(Error::internal)?;
        Ok(self.client.get_or_init(|| made))
    }
}

/// Looks names up and gives out only addresses that may be connected to: what is checked is what is
/// used, so a name cannot change its mind in between.
#[derive(Clone, Copy, Debug)]
struct Guarded {
    private: bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let private = self.private;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found
                .filter(|address: &SocketAddr| private || is_public(address.ip().to_canonical()))
                .collect();
            if found.is_empty() {
                let text = format!("{} has no public address", name.as_str());
                return Err(text.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The innermost cause: the outer ones repeat the URL, which may be a secret.
#[allow(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn why(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "the receiver did not answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string().chars().take(300).collect()
}
