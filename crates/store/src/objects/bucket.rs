//! A bucket of an S3 server, by its configuration.

use std::time::Duration;

use falaj_base::{Error, Result, Secret, code};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ClientOptions, RetryConfig};
use reqwest::Url;

/// Which bucket, and how it is reached.
#[derive(Clone, Debug)]
pub struct BucketConfig {
    /// `s3://bucket/prefix`.
    pub url: String,
    /// The address of the server; empty means AWS.
    pub endpoint: String,
    pub region: String,
    /// Empty means the credentials of the environment.
    pub access_key: String,
    pub secret_key: Secret,
    pub session_token: Secret,
    pub allow_http: bool,
    /// How long one request may take.
    pub timeout: Duration,
    /// How often a failed request is tried again, and for how long, if not for as long as the library
    /// thinks fit.
    pub retries: usize,
    pub retry_for: Option<Duration>,
    /// The setting that `url` is.
    pub setting: &'static str,
}

impl BucketConfig {
    /// The bucket, and where in it. No byte is sent yet.
    pub fn open(&self) -> Result<(AmazonS3, Path)> {
        let refuse = || {
            let text = format!("`url` is {:?}; allowed: s3://bucket/prefix", self.url);
            Error::new(&code::INVALID_CONFIG, text).at(self.setting)
        };
        let url = Url::parse(&self.url).map_err(|_| refuse())?;
        let bucket = url.host_str().filter(|_| url.scheme() == "s3").ok_or_else(refuse)?;
        let prefix = Path::parse(url.path().trim_matches('/')).map_err(|_| refuse())?;
        let mut retry = RetryConfig { max_retries: self.retries, ..RetryConfig::default() };
        if let Some(time) = self.retry_for {
            retry.retry_timeout = time;
        }
        let mut builder = AmazonS3Builder::new()
            .with_client_options(ClientOptions::new().with_timeout(self.timeout))
            .with_retry(retry)
            .with_bucket_name(bucket)
            .with_region(&self.region)
            .with_allow_http(self.allow_http);
        if !self.endpoint.is_empty() {
            builder = builder.with_endpoint(&self.endpoint);
        }
        if !self.access_key.is_empty() {
            builder = builder
                .with_access_key_id(&self.access_key)
                .with_secret_access_key(self.secret_key.expose());
        }
        if !self.session_token.is_empty() {
            builder = builder.with_token(self.session_token.expose());
        }
        Ok((builder.build().map_err(|error| refuse().caused_by(error))?, prefix))
    }
}
