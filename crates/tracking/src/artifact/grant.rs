//! Signed URLs: leave to do one thing, for a while, without a credential.
//!
//! The stock client sends parts and fetches ranges without its token. The URL it is given carries
//! what may be done, until when, and who asked for it, under our signature. Whoever holds the URL
//! may do that one thing; the audit log names the one who asked for it.
//!
//! Must hold: nothing of the body is read before the signature was found right.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use falaj_base::{
    Action, AuthMethod, Ctx, Error, Gate, Principal, PrincipalId, PrincipalKind, ProjectId,
    RequestInfo, Resource, Result, Role, TenantId, Timestamp, TokenId, TokenLimit, code,
};
use futures::future::BoxFuture;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};

/// What is signed, so that no other signature by the same key could be taken for one of these.
const PURPOSE: &[u8] = b"falaj artifact url 1\n";
/// The longest grant that is looked at.
const LONGEST: usize = 4096;

/// What a signed URL allows, until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) what: What,
    until: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum What {
    /// To send one part of one upload. There may be thousands of these in one reply, which the
    /// client repeats on completion: who asked is written in the upload's row instead.
    Part(String, u32),
    /// To read one file as it is now.
    File(File),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct File {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) tenant: TenantId,
    pub(super) project: ProjectId,
    pub(super) by: Issuer,
}

impl Grant {
    pub(super) fn new(what: What, until: Timestamp) -> Self {
        Self { what, until: until.micros() }
    }
}

/// Who asked for a signed URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Issuer {
    id: PrincipalId,
    kind: PrincipalKind,
    name: String,
    method: AuthMethod,
    mfa: bool,
    token: Option<TokenId>,
}

impl Issuer {
    pub(super) fn of(ctx: &Ctx) -> Self {
        let principal = &ctx.principal;
        Self {
            id: principal.id,
            kind: principal.kind,
            name: principal.name.clone(),
            method: principal.method,
            mfa: principal.mfa,
            token: principal.token.as_ref().map(|token| token.id),
        }
    }

    /// The context of a request by a signed URL: as the issuer, who may do this and no more.
    pub(super) fn context(
        &self,
        request: RequestInfo,
        action: &'static Action,
        resource: &Resource,
    ) -> Ctx {
        let Self { id, kind, name, method, mfa, token } = self.clone();
        let principal = Principal {
            id,
            kind,
            name,
            home: None,
            grants: Arc::new([]),
            groups: Arc::new([]),
            token: token.map(|id| TokenLimit {
                id,
                scope: resource.scope,
                role: Role::Viewer,
                of_job: false,
            }),
            method,
            mfa,
        };
        let only = Only { action, resource: resource.id.clone() };
        Ctx::new(Arc::new(principal), request, Arc::new(only))
    }
}

/// The gate of a signed URL.
struct Only {
    action: &'static Action,
    resource: String,
}

impl Gate for Only {
    fn authorize<'a>(
        &'a self,
        ctx: &'a Ctx,
        action: &'static Action,
        resource: &'a Resource,
    ) -> BoxFuture<'a, Result<()>> {
        let allowed = self.allows(ctx, action, resource);
        Box::pin(async move { if allowed { Ok(()) } else { Err(not_valid()) } })
    }

    fn allows(&self, _: &Ctx, action: &'static Action, resource: &Resource) -> bool {
        action.name == self.action.name && resource.id == self.resource
    }
}

/// Makes signed URLs and reads them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SignedUrls {
    key: hmac::Key,
    origin: Option<Arc<str>>,
    secure: bool,
}

impl SignedUrls {
    /// `secret` is the platform's secret for this purpose. `origin` is the address that clients
    /// use, `https://falaj.example.ae`, where it is known; else it is taken from each request,
    /// whose connection is encrypted or not as `secure` says.
    #[must_use]
    pub fn new(secret: &[u8; 32], origin: Option<String>, secure: bool) -> Self {
        let origin = origin.map(|origin| origin.trim_end_matches('/').into());
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret), origin, secure }
    }

    /// The URL of one of our paths with a grant in it.
    pub(super) fn url(&self, asked: &Parts, path: &str, grant: &Grant) -> Result<String> {
        Ok(format!("{}{path}?grant={}", self.base(asked)?, self.seal(grant)?))
    }

    fn base(&self, asked: &Parts) -> Result<String> {
        if let Some(origin) = &self.origin {
            return Ok(origin.to_string());
        }
        let host = asked.extensions.get::<Authority>().or_else(|| asked.uri.authority());
        let text = |name| asked.headers.get(name).and_then(|value| value.to_str().ok());
        let named = host.map(Authority::as_str).or_else(|| text(header::HOST));
        let named = named.ok_or_else(|| Error::invalid("host", "missing", "the server's name"))?;
        // A proxy in front says so. A caller that pretends to be one spoils its own URL.
        let proxied = text(header::HeaderName::from_static("x-forwarded-proto")) == Some("https");
        let scheme = if self.secure || proxied { "https" } else { "http" };
        Ok(format!("{scheme}://{named}"))
    }

    fn seal(&self, grant: &Grant) -> Result<String> {
        let payload = BASE64.encode(serde_json::to_vec(grant).map_err(Error::internal)?);
        let mark = hmac::sign(&self.key, &[PURPOSE, payload.as_bytes()].concat());
        Ok(format!("{payload}.{}", BASE64.encode(mark)))
    }

    /// The grant in a query, if we signed it and its time has not passed.
    pub(super) fn open(&self, query: Option<&str>, now: Timestamp) -> Result<Grant> {
        let grant =
            query.and_then(|query| query.split('&').find_map(|field| field.strip_prefix("grant=")));
        let opened = grant.filter(|text| text.len() <= LONGEST).and_then(|text| {
            let (payload, mark) = text.split_once('.')?;
            let mark = BASE64.decode(mark).ok()?;
            hmac::verify(&self.key, &[PURPOSE, payload.as_bytes()].concat(), &mark).ok()?;
            serde_json::from_slice::<Grant>(&BASE64.decode(payload).ok()?).ok()
        });
        opened.filter(|grant| grant.until > now.micros()).ok_or_else(not_valid)
    }
}

pub(super) fn not_valid() -> Error {
    Error::new(&code::FORBIDDEN, "The URL is not valid, or its time has passed")
}

/// How a signed reply must not be kept.
pub(super) fn unkept(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use falaj_base::Scope;

    use super::*;

    fn grant(until: i64) -> Grant {
        Grant::new(What::Part("u".to_owned(), 7), Timestamp::from_micros(until))
    }

    fn parts(host: &str, proxied: bool) -> Parts {
        let mut request = http::Request::builder().uri("/x").header(header::HOST, host);
        if proxied {
            request = request.header("x-forwarded-proto", "https");
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_what_we_signed_and_only_in_time() {
        let urls = SignedUrls::new(&[1; 32], None, false);
        let grant = grant(100);
        let sealed = urls.seal(&grant).unwrap();
        let open = |urls: &SignedUrls, text: &str, now| {
            urls.open(Some(&format!("grant={text}")), Timestamp::from_micros(now))
        };
        assert_eq!(open(&urls, &sealed, 99).unwrap(), grant);
        assert!(open(&urls, &sealed, 100).is_err(), "too late");
        assert!(open(&SignedUrls::new(&[2; 32], None, false), &sealed, 0).is_err(), "other key");
        let (payload, mark) = sealed.split_once('.').unwrap();
        let other = Grant { until: 1000, ..grant };
        let forged = BASE64.encode(serde_json::to_vec(&other).unwrap());
        for bad in [
            format!("{forged}.{mark}"),
            format!("{payload}."),
            payload.to_owned(),
            format!("{payload}.{}", &mark[1..]),
            String::new(),
            "x".repeat(5000),
        ] {
            assert_eq!(open(&urls, &bad, 0).unwrap_err().code(), &code::FORBIDDEN, "{bad}");
        }
        for at in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert!(open(&urls, &String::from_utf8(bytes).unwrap(), 0).is_err(), "byte {at}");
        }
        assert!(urls.open(None, Timestamp::from_micros(0)).is_err());
    }

    #[test]
    fn the_url_leads_back_to_where_the_caller_came_from() {
        let grant = grant(1);
        let begins = |urls: SignedUrls, parts: Parts| {
            let url = urls.url(&parts, "/p", &grant).unwrap();
            url.split_once("?grant=").unwrap().0.to_owned()
        };
        let plain = SignedUrls::new(&[0; 32], None, false);
        assert_eq!(begins(plain.clone(), parts("h:5000", false)), "http://h:5000/p");
        assert_eq!(begins(plain, parts("h", true)), "https://h/p");
        let secure = SignedUrls::new(&[0; 32], None, true);
        assert_eq!(begins(secure, parts("h", false)), "https://h/p");
        let known = SignedUrls::new(&[0; 32], Some("https://falaj.example/".to_owned()), false);
        assert_eq!(begins(known, parts("h", false)), "https://falaj.example/p");
    }

    #[tokio::test]
    async fn a_grant_allows_one_thing() {
        let resource = Resource::new("experiment", "p/1", Scope::Platform);
        let other = Resource::new("experiment", "p/2", Scope::Platform);
        let issuer = Issuer::of(&Ctx::system("test"));
        let ctx = issuer.context(RequestInfo::internal(), &crate::RUN_READ, &resource);
        assert!(ctx.authorize(&crate::RUN_READ, &resource).await.is_ok());
        assert!(ctx.authorize(&crate::RUN_READ, &other).await.is_err());
        assert!(ctx.authorize(&crate::RUN_WRITE, &resource).await.is_err());
        assert_eq!(ctx.principal.name, "test");
    }
}
