//! The root key in the transit engine of a Vault or OpenBao server.
//!
//! What is encrypted there is the data key followed by the digest of its name. That binds the two
//! on every server version and still lets the server rewrap by itself, which it cannot do for
//! ciphertexts with associated data.

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Error, Result, Secret, code};
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::{Certificate, Client, Method, StatusCode, Url, redirect};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::config::TransitConfig;
use super::manager::{KeyManager, RootVersion, Wrapped};
use crate::seal::DataKey;

/// The longest answer that is read; the longest honest one is a few hundred bytes.
const ANSWER_LIMIT: usize = 64 * 1024;
/// The pause before the first retry; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// A client of one transit key.
pub struct Transit {
    client: Client,
    base: Url,
    config: TransitConfig,
    token: RwLock<Secret>,
    permits: Semaphore,
}

#[derive(Deserialize)]
struct Answer<T> {
    data: T,
}

#[derive(Deserialize)]
struct Ciphertext {
    ciphertext: String,
}

#[derive(Deserialize)]
struct Plaintext {
    plaintext: Zeroizing<String>,
}

#[derive(Deserialize)]
struct KeyStatus {
    latest_version: u32,
}

#[derive(Serialize)]
struct Encrypt {
    plaintext: Zeroizing<String>,
}

#[derive(Serialize)]
struct Stored<'a> {
    ciphertext: &'a str,
}

impl Transit {
    /// Connects and checks that the key is there.
    pub async fn connect(config: &TransitConfig) -> Result<Self> {
        let transit = Self {
            client: client(config)?,
            base: base(config)?,
            config: config.clone(),
            token: RwLock::new(read_token(config)?),
            permits: Semaphore::new(config.max_in_flight.max(1)),
        };
        transit.current().await?;
        Ok(transit)
    }

    fn named(&self, version: u32) -> RootVersion {
        RootVersion { root: format!("transit/{}", self.config.key), version }
    }

    /// A ciphertext of the engine carries its version: `vault:v3:…`.
    fn wrapped(&self, ciphertext: String) -> Result<Wrapped> {
        let version = ciphertext.split(':').nth(1).and_then(|part| part.strip_prefix('v'));
        let version = version
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| unavailable("the key manager's answer has no key version"))?;
        Ok(Wrapped { by: self.named(version), bytes: ciphertext.into_bytes() })
    }

    /// Tries until it works, the retries are spent, or the answer says that trying is useless.
    async fn call<T: for<'de> Deserialize<'de>>(
        &self,
        method: Method,
        path: &[&str],
        body: &impl Serialize,
        retries: u32,
    ) -> Result<T> {
        let mut pause = FIRST_PAUSE;
        let mut left = retries;
        loop {
            match self.call_once(&method, path, body).await {
                Ok(answer) => {
                    let answer: Answer<T> = serde_json::from_slice(&answer).map_err(|error| {
                        unavailable("the key manager's answer is not understood").caused_by(error)
                    })?;
                    return Ok(answer.data);
                }
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(error)) if left == 0 => return Err(error),
                Err(Failure::Passing(_)) => {}
            }
            left -= 1;
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    async fn call_once(
        &self,
        method: &Method,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let _permit =
            self.permits.acquire().await.map_err(|e| Failure::Final(Error::internal(e)))?;
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut request = self.client.request(method.clone(), url);
        request = request.header("X-Vault-Token", token.expose()).header("X-Vault-Request", "true");
        if !self.config.namespace.is_empty() {
            request = request.header("X-Vault-Namespace", &self.config.namespace);
        }
        if *method != Method::GET {
            request = request.json(body);
        }
        // The error may carry the URL, which holds no secret, but never the header or the body.
        let response = request.send().await.map_err(|error| {
            Failure::Passing(unavailable("the key manager does not answer").caused_by(error))
        })?;
        let status = response.status();
        let answer = bounded(response).await?;
        if status.is_success() {
            return Ok(answer);
        }
        if status == StatusCode::FORBIDDEN {
            self.reload_token();
        }
        Err(failure(status, path, &answer))
    }

    /// An agent may have renewed the token in its file.
    fn reload_token(&self) {
        if self.config.token_file.is_empty() {
            return;
        }
        match read_token(&self.config) {
            Ok(token) => *self.token.write().unwrap_or_else(PoisonError::into_inner) = token,
            Err(error) => tracing::warn!(%error, "the key manager's token could not be read again"),
        }
    }
}

enum Failure {
    /// Trying again may help.
    Passing(Error),
    Final(Error),
}

fn failure(status: StatusCode, path: &[&str], answer: &[u8]) -> Failure {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<String>,
    }
    let said = serde_json::from_slice::<Errors>(answer).map(|said| said.errors.join("; "));
    let said = format!("the key manager answered {status}: {}", said.unwrap_or_default());
    let opening = path.iter().any(|part| matches!(*part, "decrypt" | "rewrap"));
    match status {
        // Asked to open something, the engine calls a damaged ciphertext a bad request.
        StatusCode::BAD_REQUEST if opening => Failure::Final(
            Error::new(&code::INTEGRITY, "a wrapped key does not open").caused_by(said),
        ),
        StatusCode::NOT_FOUND => {
            let text = "the key manager has no such key; create the transit key first";
            Failure::Final(unavailable(text).caused_by(said))
        }
        StatusCode::FORBIDDEN => {
            Failure::Passing(unavailable("the key manager refuses the token").caused_by(said))
        }
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Failure::Passing(unavailable("the key manager cannot answer now").caused_by(said))
        }
        _ => Failure::Final(unavailable("the key manager refuses the request").caused_by(said)),
    }
}

impl KeyManager for Transit {
    fn wrap<'a>(&'a self, name: &'a str, key: &'a DataKey) -> BoxFuture<'a, Result<Wrapped>> {
        async move {
            let mut plain = Zeroizing::new([0; 64]);
            plain[..32].copy_from_slice(key.expose());
            plain[32..].copy_from_slice(digest(&SHA256, name.as_bytes()).as_ref());
            let body = Encrypt { plaintext: Zeroizing::new(STANDARD.encode(plain.as_ref())) };
            let path = ["encrypt", self.config.key.as_str()];
            let answer: Ciphertext =
                self.call(Method::POST, &path, &body, self.config.retries).await?;
            self.wrapped(answer.ciphertext)
        }
        .boxed()
    }

    fn unwrap<'a>(&'a self, name: &'a str, wrapped: &'a Wrapped) -> BoxFuture<'a, Result<DataKey>> {
        async move {
            let body = Stored { ciphertext: self.ciphertext(wrapped)? };
            let path = ["decrypt", self.config.key.as_str()];
            let answer: Plaintext =
                self.call(Method::POST, &path, &body, self.config.retries).await?;
            let wrong = || Error::new(&code::INTEGRITY, "a wrapped key is not the one named");
            let plain = STANDARD.decode(answer.plaintext.as_bytes()).map(Zeroizing::new);
            let plain = plain.map_err(|_| wrong())?;
            let (key, bound) = plain.split_at_checked(32).ok_or_else(wrong)?;
            if bound != digest(&SHA256, name.as_bytes()).as_ref() {
                return Err(wrong());
            }
            let key = key.try_into().map(Zeroizing::new).map_err(|_| wrong())?;
            Ok(DataKey::from_bytes(key))
        }
        .boxed()
    }

    fn rewrap<'a>(
        &'a self,
        _name: &'a str,
        wrapped: &'a Wrapped,
    ) -> BoxFuture<'a, Result<Wrapped>> {
        async move {
            let body = Stored { ciphertext: self.ciphertext(wrapped)? };
            let path = ["rewrap", self.config.key.as_str()];
            let answer: Ciphertext =
                self.call(Method::POST, &path, &body, self.config.retries).await?;
            self.wrapped(answer.ciphertext)
        }
        .boxed()
    }

    fn rotate(&self) -> BoxFuture<'_, Result<RootVersion>> {
        async move {
            let path = ["keys", self.config.key.as_str(), "rotate"];
            // Not retried: an answer that was lost may stand for a rotation that was done. Servers
            // answer with the key or with nothing at all, so the version is asked for.
            match self.call_once(&Method::POST, &path, &serde_json::json!({})).await {
                Ok(_) => self.current().await,
                Err(Failure::Final(error) | Failure::Passing(error)) => Err(error),
            }
        }
        .boxed()
    }

    fn current(&self) -> BoxFuture<'_, Result<RootVersion>> {
        async move {
            let path = ["keys", self.config.key.as_str()];
            let status: KeyStatus = self.call(Method::GET, &path, &(), self.config.retries).await?;
            Ok(self.named(status.latest_version))
        }
        .boxed()
    }
}

impl Transit {
    fn ciphertext<'a>(&self, wrapped: &'a Wrapped) -> Result<&'a str> {
        if wrapped.by.root != self.named(0).root {
            return Err(Error::new(
                &code::INVALID_CONFIG,
                format!("a key is wrapped by `{}`, which is not this zone's manager", wrapped.by),
            ));
        }
        std::str::from_utf8(&wrapped.bytes)
            .map_err(|_| Error::new(&code::INTEGRITY, "a wrapped key is not text"))
    }
}

impl fmt::Debug for Transit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transit").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

fn client(config: &TransitConfig) -> Result<Client> {
    let timeout = config.timeout.get();
    let mut builder = Client::builder()
        .timeout(timeout)
        .connect_timeout(timeout)
        .no_proxy()
        // A redirect would carry the token to a server nobody configured.
        .redirect(redirect::Policy::none());
    if !config.ca_file.is_empty() {
        let invalid = |error| refused("ca_file", &config.ca_file, "a readable PEM file", error);
        let pem = std::fs::read(&config.ca_file).map_err(|error| invalid(error.to_string()))?;
        let bundle =
            Certificate::from_pem_bundle(&pem).map_err(|error| invalid(error.to_string()))?;
        builder = builder.tls_certs_only(bundle);
    }
    builder.build().map_err(Error::internal)
}

fn base(config: &TransitConfig) -> Result<Url> {
    let allowed = "an https URL, or http on a loopback address";
    let refuse = |why: String| refused("address", &config.address, allowed, why);
    let mut url = Url::parse(&config.address).map_err(|error| refuse(error.to_string()))?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let loopback = host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if !(url.scheme() == "https" || (url.scheme() == "http" && loopback)) {
        return Err(refuse("the token would travel in the clear".to_owned()));
    }
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push("v1").extend(config.mount.split('/'));
    }
    Ok(url)
}

fn read_token(config: &TransitConfig) -> Result<Secret> {
    if config.token_file.is_empty() {
        return Ok(config.token.clone());
    }
    let text = std::fs::read_to_string(&config.token_file).map(Zeroizing::new);
    let text = text.map_err(|error| {
        refused("token_file", &config.token_file, "a readable file", error.to_string())
    })?;
    Ok(Secret::new(text.trim()))
}

fn refused(field: &str, value: &str, allowed: &str, why: String) -> Error {
    let text = format!("`keys.transit.{field}` is {value:?}; allowed: {allowed}");
    Error::new(&code::INVALID_CONFIG, text).at(format!("keys.transit.{field}")).caused_by(why)
}

fn unavailable(text: &str) -> Error {
    Error::new(&code::UNAVAILABLE, text).retry_after(Duration::from_secs(5))
}

/// Reads an answer up to the limit, whatever length it claims.
async fn bounded(mut response: reqwest::Response) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut answer = Zeroizing::new(Vec::new());
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if answer.len() + chunk.len() <= ANSWER_LIMIT => {
                answer.extend_from_slice(&chunk);
            }
            Ok(Some(_)) => {
                return Err(Failure::Final(unavailable("the key manager's answer is too long")));
            }
            Ok(None) => return Ok(answer),
            Err(error) => {
                let text = "the key manager's answer broke off";
                return Err(Failure::Passing(unavailable(text).caused_by(error)));
            }
        }
    }
}
