//! The same creating call, sent twice, happens once.
//!
//! The reply is remembered by the store, in the transaction of the change. Here the key is bound
//! to the request it came with, and a repeat is answered from memory. A call that races its own
//! twin loses with a conflict; by then the twin's reply is stored, and is given instead.

use aws_lc_rs::digest::{Context, SHA256};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Principal, PrincipalId, RequestInfo, Result, code};
use falaj_store::db::Db;
use falaj_store::record::idempotency::{StoredReply, lookup};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;

use crate::http::route::RouteKind;

const KEY_HEADER: &str = "idempotency-key";
/// Tells the caller that this reply was given before.
const REPLAYED_HEADER: &str = "idempotency-replayed";
const MAX_KEY: usize = 255;

/// The key of a request that may be repeated.
pub(crate) fn key_of(request: &Request, kind: RouteKind) -> Result<Option<String>> {
    let applies = request.method() == Method::POST && kind == RouteKind::Call;
    if applies { key(request.headers()) } else { Ok(None) }
}

/// Whether a request brings a key, be it a good one or not.
pub(crate) fn is_asked_for(headers: &HeaderMap) -> bool {
    headers.contains_key(KEY_HEADER)
}

/// Answers a repeat, and prepares a first time, which `work` then answers.
pub(crate) async fn remember(
    db: &Db,
    caller: &Principal,
    key: String,
    request: Request,
    work: impl AsyncFnOnce(Request) -> Result<Response>,
) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.map_err(Error::internal)?.to_bytes();
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let print = fingerprint(&parts.method, target, &body, &rights(caller));
    let principal = caller.id;
    if let Some(stored) = replay(db, principal, &key, &print).await? {
        return Ok(stored);
    }
    if let Some(info) = parts.extensions.get_mut::<RequestInfo>() {
        info.idempotency_key = Some(key.clone());
        info.fingerprint = Some(print);
    }
    let response = work(Request::from_parts(parts, Body::from(body))).await?;
    if response.status() == StatusCode::CONFLICT
        && let Some(stored) = replay(db, principal, &key, &print).await?
    {
        return Ok(stored);
    }
    Ok(response)
}

async fn replay(
    db: &Db,
    principal: PrincipalId,
    key: &str,
    print: &[u8; 32],
) -> Result<Option<Response>> {
    lookup(db, principal, key).await?.map(|stored| rebuilt(stored, print)).transpose()
}

/// The stored reply, if it answers this very request.
fn rebuilt(stored: StoredReply, print: &[u8; 32]) -> Result<Response> {
    if stored.fingerprint != print {
        let message = "this Idempotency-Key came with another request before";
        return Err(Error::new(&code::IDEMPOTENCY_MISMATCH, message).at(KEY_HEADER));
    }
    let mut response = Response::new(Body::from(stored.body));
    *response.status_mut() = StatusCode::from_u16(stored.status).map_err(Error::internal)?;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    Ok(response)
}

fn key(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(KEY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or("(not text)");
    let plain = (1..=MAX_KEY).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if plain && values.next().is_none() {
        return Ok(Some(text.to_owned()));
    }
    Err(Error::invalid(KEY_HEADER, text, "one value of 1 to 255 printable ASCII characters"))
}

/// What the caller could do when it asked. A remembered reply can hold a secret and is given
/// without asking the policy again, so it is only for the same token with the same roles; after a
/// change of rights the key is refused, and nothing is done twice.
fn rights(caller: &Principal) -> Vec<u8> {
    let token = caller.token.as_ref().map(|token| token.id.to_string()).unwrap_or_default();
    let mut grants: Vec<String> =
        caller.grants.iter().map(|grant| format!("{} {}", grant.role, grant.scope)).collect();
    grants.sort_unstable();
    format!("{token}\n{}", grants.join("\n")).into_bytes()
}

/// Each part is preceded by its length, so that no two requests share a text.
fn fingerprint(method: &Method, target: &str, body: &Bytes, rights: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in [method.as_str().as_bytes(), target.as_bytes(), body, rights] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut print = [0; 32];
    print.copy_from_slice(context.finish().as_ref());
    print
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_plain_word() {
        let with = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(KEY_HEADER, value.parse().unwrap());
            }
            key(&headers)
        };
        assert_eq!(with(&[]).unwrap(), None);
        assert_eq!(with(&["a-1"]).unwrap().as_deref(), Some("a-1"));
        for bad in [&[""][..], &["a b"], &["é"], &["a", "b"], &["a", "a"], &[&"x".repeat(256)]] {
            assert!(with(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_fingerprint_binds_every_part() {
        let print = |method: Method, target: &str, body: &'static [u8]| {
            fingerprint(&method, target, &Bytes::from_static(body), b"")
        };
        let one = print(Method::POST, "/v1/tenants", b"{}");
        assert_eq!(one, print(Method::POST, "/v1/tenants", b"{}"));
        assert_ne!(one, print(Method::PUT, "/v1/tenants", b"{}"));
        assert_ne!(one, print(Method::POST, "/v1/tenants{", b"}"));
        assert_ne!(one, print(Method::POST, "/v1/tenants", b"{ }"));
        let other_token = fingerprint(&Method::POST, "/v1/tenants", &Bytes::from("{}"), b"tok");
        assert_ne!(one, other_token);
    }
}
