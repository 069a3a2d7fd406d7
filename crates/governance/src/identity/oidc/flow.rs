//! Signing a person in: the authorisation code flow with PKCE.
//!
//! What must be remembered while the person is at the provider travels in a sealed cookie, so a
//! sign-in that nobody finishes leaves nothing behind here, and any server can take it up.
//!
//! Must hold: a code is only exchanged for the browser that began (cookie and `state`), with the
//! verifier only we know (PKCE), at the provider it was meant for (`iss`), and the token that
//! comes back answers our question (`nonce`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use falaj_base::{Error, Result, Timestamp, code};
use serde::{Deserialize, Serialize};

use super::claims::Subject;
use super::fetch::{Answer, safe_url};
use super::verify::{Kind, Provider, Providers};
use crate::identity::pepper::{Pepper, random_text, same, sha256};
use crate::identity::refusal::{Denied, Refusal};

const PURPOSE: &str = "oidc login v1";
/// The longest page address kept to return to.
const MAX_RETURN: usize = 1024;

/// A sign-in under way.
#[derive(Debug, Serialize, Deserialize)]
struct Login {
    provider: String,
    state: String,
    nonce: String,
    verifier: String,
    return_to: String,
    until: i64,
}

/// Where to send the browser, and what it must bring back.
#[derive(Debug)]
pub struct Started {
    pub location: String,
    pub cookie: String,
}

/// The query of the provider's answer.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Callback {
    pub code: Option<String>,
    pub state: Option<String>,
    pub iss: Option<String>,
}

/// Someone who has signed in.
#[derive(Debug)]
pub struct Finished<'a> {
    pub provider: &'a Provider,
    pub subject: Subject,
    pub return_to: String,
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
}

/// The page to return to after sign-in: a path on this server, never an address elsewhere.
#[must_use]
pub fn local_path(text: Option<&str>) -> String {
    let text = text.unwrap_or("/");
    let elsewhere = text.starts_with("//") || text.starts_with("/\\");
    let plain = text.bytes().all(|b| b.is_ascii_graphic());
    if text.starts_with('/') && !elsewhere && plain && text.len() <= MAX_RETURN {
        text.to_owned()
    } else {
        "/".to_owned()
    }
}

impl Provider {
    /// Begins a sign-in.
    pub async fn start(
        &self,
        pepper: &Pepper,
        redirect_uri: &str,
        return_to: Option<&str>,
    ) -> Result<Started> {
        let client = self.config.client_id.as_deref().ok_or_else(|| not_for_people(self))?;
        let endpoint = self.jwks.discovery().await?.authorization_endpoint;
        let mut url = endpoint.as_deref().and_then(safe_url).ok_or_else(|| incomplete(self))?;
        let until = self.clock.now() + self.limits.login_life.get();
        let login = Login {
            provider: self.config.name.clone(),
            state: random_text()?.to_string(),
            nonce: random_text()?.to_string(),
            verifier: random_text()?.to_string(),
            return_to: local_path(return_to),
            until: until.micros(),
        };
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", client)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", &self.config.scope_text())
            .append_pair("state", &login.state)
            .append_pair("nonce", &login.nonce)
            .append_pair(
                "code_challenge",
                &URL_SAFE_NO_PAD.encode(sha256(login.verifier.as_bytes())),
            )
            .append_pair("code_challenge_method", "S256");
        let sealed = serde_json::to_vec(&login).map_err(Error::internal)?;
        Ok(Started { location: url.into(), cookie: pepper.seal(PURPOSE, &sealed)? })
    }

    async fn exchange(
        &self,
        login: &Login,
        code: &str,
        redirect_uri: &str,
    ) -> Result<Subject, Denied> {
        let client = self.config.client_id.as_deref().ok_or_else(|| not_for_people(self))?;
        let endpoint = self.jwks.discovery().await?.token_endpoint;
        let endpoint = endpoint.ok_or_else(|| incomplete(self))?;
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("client_id", client)
            .append_pair("code_verifier", &login.verifier)
            .finish();
        let secret = &self.config.client_secret;
        let basic = (!secret.is_empty()).then_some((client, secret));
        let answer = self.fetch.post_form::<TokenAnswer>(&endpoint, form, basic).await?;
        let Answer::Given(tokens) = answer else { return Err(Refusal::LoginAborted.into()) };
        self.verify(&tokens.id_token, Kind::Id { client, nonce: &login.nonce }).await
    }
}

impl Providers {
    /// Ends a sign-in: from the provider's answer to the person.
    pub async fn finish(
        &self,
        pepper: &Pepper,
        now: Timestamp,
        redirect_uri: &str,
        cookie: Option<&str>,
        callback: &Callback,
    ) -> Result<Finished<'_>, Denied> {
        let login: Login = cookie
            .and_then(|cookie| pepper.open(PURPOSE, cookie))
            .and_then(|plain| serde_json::from_slice(&plain).ok())
            .ok_or(Refusal::UnknownLogin)?;
        let state = callback.state.as_deref().unwrap_or("");
        if !same(state, &login.state) || Timestamp::from_micros(login.until) <= now {
            return Err(Refusal::UnknownLogin.into());
        }
        let provider = self.named(&login.provider).ok_or(Refusal::UnknownLogin)?;
        let must_name_itself =
            provider.jwks.discovery().await?.authorization_response_iss_parameter_supported;
        let named_wrongly = match &callback.iss {
            Some(iss) => *iss != provider.config.issuer,
            None => must_name_itself,
        };
        if named_wrongly {
            return Err(Refusal::UnknownLogin.into());
        }
        let code = callback.code.as_deref().ok_or(Refusal::LoginAborted)?;
        let subject = provider.exchange(&login, code, redirect_uri).await?;
        Ok(Finished { provider, subject, return_to: login.return_to })
    }
}

fn not_for_people(provider: &Provider) -> Error {
    Error::not_found("sign-in provider", &provider.config.name)
}

fn incomplete(provider: &Provider) -> Error {
    let why = format!("{} publishes no endpoint for signing in", provider.config.issuer);
    Error::new(&code::UNAVAILABLE, "the identity provider does not answer as it should")
        .caused_by(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_sign_in_the_browser_stays_on_this_server() {
        for (given, expected) in [
            (None, "/"),
            (Some("/ui/runs?x=1#top"), "/ui/runs?x=1#top"),
            (Some("//evil.example"), "/"),
            (Some("/\\evil.example"), "/"),
            (Some("https://evil.example"), "/"),
            (Some("/a\r\nset-cookie: x"), "/"),
            (Some("javascript:alert(1)"), "/"),
            (Some(""), "/"),
        ] {
            assert_eq!(local_path(given), expected, "{given:?}");
        }
        assert_eq!(local_path(Some(&format!("/{}", "a".repeat(2000)))), "/");
    }
}
