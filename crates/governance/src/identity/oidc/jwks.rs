//! A provider's discovery document and signing keys, kept in memory.
//!
//! Must hold:
//! - Keys come from the configured issuer's own documents and from nowhere else; what a token's
//!   header says about keys beyond their id is ignored.
//! - However many tokens arrive with unknown key ids, the provider is asked at most once per
//!   `min_refresh`, by one task at a time. That task is not the caller's: a caller that goes away
//!   does not take the answer with it.
//! - While the provider is down its keys serve on up to `max_stale`, and then no longer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use falaj_base::{Clock, Error, Result, Timestamp, code};
use jsonwebtoken::jwk::{Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use super::fetch::{Fetch, safe_url};
use crate::identity::config::OidcConfig;

/// What the provider publishes about itself, as far as we use it.
#[derive(Clone, Debug, Deserialize)]
pub struct Discovery {
    pub issuer: String,
    pub jwks_uri: String,
    pub authorization_endpoint: Option<String>,
    pub token_endpoint: Option<String>,
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// One key, with the algorithm its publisher ties it to.
#[derive(Clone, Debug)]
pub struct SigningKey {
    pub key: DecodingKey,
    algorithm: Option<KeyAlgorithm>,
}

impl SigningKey {
    /// Whether the key may be used with the algorithm that a token names.
    #[must_use]
    pub fn is_for(&self, algorithm: Algorithm) -> bool {
        self.key.family() == algorithm.family()
            && self.algorithm.is_none_or(|own| own == KeyAlgorithm::from(algorithm))
    }
}

#[derive(Debug)]
struct Known {
    discovery: Discovery,
    keys: HashMap<String, SigningKey>,
    at: Timestamp,
}

/// The cached documents of one provider.
#[derive(Debug)]
pub struct Jwks {
    issuer: String,
    config: OidcConfig,
    fetch: Fetch,
    clock: Clock,
    known: Mutex<Option<Arc<Known>>>,
    /// When the provider was last asked; held while asking, so that one task asks for all.
    asked: Arc<tokio::sync::Mutex<Option<Timestamp>>>,
}

impl Jwks {
    #[must_use]
    pub fn new(issuer: String, config: OidcConfig, fetch: Fetch, clock: Clock) -> Self {
        Self { issuer, config, fetch, clock, known: Mutex::default(), asked: Arc::default() }
    }

    /// The key with this id; none if the provider does not publish one.
    pub async fn key(self: &Arc<Self>, id: &str) -> Result<Option<SigningKey>> {
        let known = self.current().await?;
        if let Some(key) = known.keys.get(id) {
            return Ok(Some(key.clone()));
        }
        // Perhaps the provider has just begun to use a new key.
        match self.refresh(known.at).await {
            Ok(known) => Ok(known.keys.get(id).cloned()),
            // A token with a made-up key id must not turn an outage into an error of ours.
            Err(error) => {
                tracing::warn!(issuer = self.issuer, error = error.chain(), "keys not refreshed");
                Ok(None)
            }
        }
    }

    pub async fn discovery(self: &Arc<Self>) -> Result<Discovery> {
        Ok(self.current().await?.discovery.clone())
    }

    /// What is known and young enough to be believed.
    async fn current(self: &Arc<Self>) -> Result<Arc<Known>> {
        let now = self.clock.now();
        let known = self.known();
        if let Some(known) = &known
            && now.since(known.at) < self.config.refresh.get()
        {
            return Ok(known.clone());
        }
        let since = known.as_ref().map_or(Timestamp::from_micros(i64::MIN), |known| known.at);
        match (self.refresh(since).await, known) {
            (Ok(fresh), _) => Ok(fresh),
            (Err(error), Some(stale)) if now.since(stale.at) < self.config.max_stale.get() => {
                tracing::warn!(issuer = self.issuer, error = error.chain(), "serving stale keys");
                Ok(stale)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Asks the provider, unless someone did since `seen` or too short a time ago.
    async fn refresh(self: &Arc<Self>, seen: Timestamp) -> Result<Arc<Known>> {
        let mut asked = self.asked.clone().lock_owned().await;
        if let Some(known) = self.known()
            && known.at > seen
        {
            return Ok(known);
        }
        let now = self.clock.now();
        if let Some(last) = *asked {
            let wait = self.config.min_refresh.get().saturating_sub(now.since(last));
            if !wait.is_zero() {
                return Err(Error::new(&code::UNAVAILABLE, "the identity provider was just asked")
                    .retry_after(wait));
            }
        }
        *asked = Some(now);
        let own = self.clone();
        let ask = async move {
            let _held = asked;
            let known = Arc::new(own.ask(now).await?);
            *own.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known.clone());
            Ok(known)
        };
        tokio::spawn(ask).await.map_err(Error::internal)?
    }

    async fn ask(&self, now: Timestamp) -> Result<Known> {
        let base = self.issuer.trim_end_matches('/');
        let url = format!("{base}/.well-known/openid-configuration");
        let discovery: Discovery = self.fetch.get(&url).await?;
        let broken = |why: String| {
            Error::new(&code::UNAVAILABLE, "the identity provider does not answer as it should")
                .caused_by(why)
        };
        if discovery.issuer != self.issuer {
            return Err(broken(format!("it calls itself {:?}", discovery.issuer)));
        }
        let endpoints = [&discovery.authorization_endpoint, &discovery.token_endpoint];
        let urls = endpoints.into_iter().flatten().chain([&discovery.jwks_uri]);
        for url in urls {
            safe_url(url).ok_or_else(|| broken(format!("it names the endpoint {url:?}")))?;
        }
        let set: KeySet = self.fetch.get(&discovery.jwks_uri).await?;
        if set.keys.len() > self.config.max_keys {
            return Err(broken(format!("it publishes {} keys", set.keys.len())));
        }
        let keys = set.keys.into_iter().filter_map(usable).collect();
        Ok(Known { discovery, keys, at: now })
    }

    fn known(&self) -> Option<Arc<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Read key by key: one that we do not understand must not hide the others.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// A key we can verify with: it has an id, is meant for signatures, and is not a shared secret.
fn usable(value: Value) -> Option<(String, SigningKey)> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let id = jwk.common.key_id.clone()?;
    let for_signing = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature))
        && id.len() <= 256;
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    let asymmetric = key.family() != jsonwebtoken::AlgorithmFamily::Hmac;
    let algorithm = jwk.common.key_algorithm;
    (for_signing && asymmetric).then_some((id, SigningKey { key, algorithm }))
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::json;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_caller_that_goes_away_does_not_take_the_answer_with_it() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")});
        let (at_provider, answer) = (arrived.clone(), go.clone());
        let discovery = move || async move {
            at_provider.notify_one();
            answer.notified().await;
            Json(document)
        };
        let key = json!({"kty": "RSA", "kid": "a", "n": "0vx7", "e": "AQAB"});
        let keys = move || async move { Json(json!({"keys": [key]})) };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys));
        let provider = tokio::spawn(async move { axum::serve(listener, router).await });

        let config = OidcConfig::default();
        let fetch = Fetch::new(&config).unwrap();
        let clock = Clock::manual(Timestamp::from_micros(1_000_000));
        let jwks = Arc::new(Jwks::new(issuer, config, fetch, clock));
        let asking = jwks.clone();
        let caller = tokio::spawn(async move { asking.key("a").await });
        arrived.notified().await;
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        go.notify_one();
        assert!(jwks.key("a").await.unwrap().is_some());
        provider.abort();
    }

    #[test]
    fn only_public_signing_keys_with_an_id_are_kept() {
        let rsa = json!({"kty": "RSA", "kid": "a", "use": "sig", "alg": "RS256", "n": "0vx7", "e": "AQAB"});
        let with = |key: &str, value: Value| {
            let mut jwk = rsa.clone();
            jwk[key] = value;
            jwk
        };
        let (id, key) = usable(rsa.clone()).unwrap();
        assert_eq!(id, "a");
        assert!(key.is_for(Algorithm::RS256));
        assert!(!key.is_for(Algorithm::RS512) && !key.is_for(Algorithm::ES256));
        assert!(!key.is_for(Algorithm::HS256));
        for bad in [
            with("kid", Value::Null),
            with("use", json!("enc")),
            with("n", json!("not base64!")),
            json!({"kty": "oct", "kid": "a", "k": "c2VjcmV0"}),
            json!({"kty": "new", "kid": "a"}),
            json!("text"),
        ] {
            assert!(usable(bad.clone()).is_none(), "{bad}");
        }
    }
}
