//! The only way a webhook leaves this machine.

use std::sync::OnceLock;
use std::time::Duration;

use falaj_base::{Error, Result};
use reqwest::{Client, header, redirect};

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
    pub(super) form: Form,
}

/// What a payload is, and in whose words the headers beside it speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An event of a model, as MLflow sends it.
    Mlflow,
    /// What somebody waits for, as a `CloudEvent`.
    Callback,
}

impl Form {
    /// The media type, and the names of the headers: delivery, time, signature.
    const fn words(self) -> (&'static str, [&'static str; 3]) {
        match self {
            Self::Mlflow => (
                "application/json",
                ["x-mlflow-delivery-id", "x-mlflow-timestamp", "x-mlflow-signature"],
            ),
            Self::Callback => (
                "application/cloudevents+json",
                ["x-falaj-delivery-id", "x-falaj-timestamp", "x-falaj-signature"],
            ),
        }
    }
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
        let (media, [delivery_header, time_header, signature_header]) = parcel.form.words();
        let mut request = client
            .post(url)
            .header(header::CONTENT_TYPE, media)
            .header(delivery_header, parcel.id)
            .header(time_header, &timestamp);
        if let Some(secret) = secret {
            let signature = signature(secret, parcel.id, &timestamp, &parcel.payload);
            request = request.header(signature_header, signature);
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
            .dns_resolver(self.config.egress().resolver())
            .user_agent(concat!("falaj/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(Error::internal)?;
        Ok(self.client.get_or_init(|| made))
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
