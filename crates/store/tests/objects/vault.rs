//! A server that speaks the documented transit API with real encryption, and can be told to fail.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use falaj_base::Secret;
use falaj_store::keys::TransitConfig;
use falaj_store::seal::{DataKey, open_small, seal_small};
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "hvs.a-token-for-the-tests";

/// The running server; it ends when dropped.
pub(crate) struct Vault {
    address: SocketAddr,
    state: Arc<Transit>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Transit {
    versions: Mutex<Vec<DataKey>>,
    sealed: AtomicBool,
    /// So many calls fail before the next one works.
    failures: AtomicU64,
    calls: AtomicU64,
}

impl Vault {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Transit::default());
        state.versions.lock().unwrap().push(DataKey::generate().unwrap());
        let router = axum::Router::new()
            .route("/v1/transit/keys/{key}", get(read))
            .route("/v1/transit/keys/{key}/rotate", post(rotate))
            .route("/v1/transit/{verb}/{key}", post(transform))
            .with_state(state.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, state, task }
    }

    pub(crate) fn config(&self) -> TransitConfig {
        TransitConfig {
            address: format!("http://{}", self.address),
            token: Secret::new(TOKEN),
            ..TransitConfig::default()
        }
    }

    /// Answers every call with 503, as a sealed server does.
    pub(crate) fn set_sealed(&self, sealed: bool) {
        self.state.sealed.store(sealed, Ordering::SeqCst);
    }

    pub(crate) fn fail_next(&self, calls: u64) {
        self.state.failures.store(calls, Ordering::SeqCst);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.state.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An error as the API answers it.
struct Refusal(StatusCode, &'static str);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"errors": [self.1]}))).into_response()
    }
}

fn refuse(status: StatusCode, text: &'static str) -> Refusal {
    Refusal(status, text)
}

impl Transit {
    fn admit(&self, headers: &HeaderMap, key: &str) -> Result<(), Refusal> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let failing = self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if self.sealed.load(Ordering::SeqCst) || failing.is_ok() {
            return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "Vault is sealed"));
        }
        if headers.get("x-vault-token").is_none_or(|token| token != TOKEN) {
            return Err(refuse(StatusCode::FORBIDDEN, "permission denied"));
        }
        if key != "falaj" {
            return Err(refuse(StatusCode::NOT_FOUND, ""));
        }
        Ok(())
    }

    fn encrypt(&self, plaintext: &[u8]) -> String {
        let versions = self.versions.lock().unwrap();
        let sealed = seal_small(versions.last().unwrap(), b"", plaintext).unwrap();
        format!("vault:v{}:{}", versions.len(), STANDARD.encode(sealed))
    }

    fn decrypt(&self, ciphertext: &str) -> Option<Vec<u8>> {
        let (version, body) = ciphertext.strip_prefix("vault:v")?.split_once(':')?;
        let version: usize = version.parse().ok()?;
        let versions = self.versions.lock().unwrap();
        open_small(versions.get(version.checked_sub(1)?)?, b"", &STANDARD.decode(body).ok()?).ok()
    }

    fn latest(&self) -> usize {
        self.versions.lock().unwrap().len()
    }
}

async fn read(
    State(transit): State<Arc<Transit>>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    transit.admit(&headers, &key)?;
    let latest = transit.latest();
    let keys: HashMap<_, _> =
        (1..=latest).map(|version| (version.to_string(), 1_700_000_000)).collect();
    Ok(Json(json!({"data": {
        "type": "aes256-gcm96", "name": key, "keys": keys, "latest_version": latest,
        "min_decryption_version": 1, "min_encryption_version": 0, "deletion_allowed": false,
        "derived": false, "exportable": false, "supports_encryption": true,
    }})))
}

async fn rotate(
    State(transit): State<Arc<Transit>>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    transit.admit(&headers, &key)?;
    transit.versions.lock().unwrap().push(DataKey::generate().unwrap());
    Ok(StatusCode::NO_CONTENT)
}

async fn transform(
    State(transit): State<Arc<Transit>>,
    Path((verb, key)): Path<(String, String)>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Result<Json<Value>, Refusal> {
    transit.admit(&headers, &key)?;
    let field = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let bad = || refuse(StatusCode::BAD_REQUEST, "cipher: message authentication failed");
    let data = match verb.as_str() {
        "encrypt" => {
            let plaintext = STANDARD.decode(field("plaintext")).map_err(|_| bad())?;
            json!({"ciphertext": transit.encrypt(&plaintext), "key_version": transit.latest()})
        }
        "decrypt" => {
            let plaintext = transit.decrypt(&field("ciphertext")).ok_or_else(bad)?;
            json!({"plaintext": STANDARD.encode(plaintext)})
        }
        "rewrap" => {
            let plaintext = transit.decrypt(&field("ciphertext")).ok_or_else(bad)?;
            json!({"ciphertext": transit.encrypt(&plaintext), "key_version": transit.latest()})
        }
        _ => return Err(refuse(StatusCode::NOT_FOUND, "unsupported path")),
    };
    Ok(Json(json!({"request_id": "1", "lease_duration": 0, "renewable": false, "data": data})))
}
