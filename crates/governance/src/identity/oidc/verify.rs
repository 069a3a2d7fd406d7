//! From the text of a provider's token to someone it vouches for.

use std::sync::Arc;

use falaj_base::{Clock, Result};
use jsonwebtoken::{Algorithm, Header, Validation};

use super::claims::{Claims, Expected, Subject, accept};
use super::fetch::Fetch;
use super::jwks::Jwks;
use crate::identity::config::{OidcConfig, OidcProviderConfig};
use crate::identity::refusal::{Denied, JwtRefusal};

/// One configured provider.
#[derive(Debug)]
pub struct Provider {
    pub config: OidcProviderConfig,
    pub(super) limits: OidcConfig,
    pub(super) jwks: Arc<Jwks>,
    pub(super) fetch: Fetch,
    pub(super) clock: Clock,
}

/// All configured providers.
#[derive(Debug)]
pub struct Providers(Vec<Provider>);

impl Providers {
    pub fn new(config: &OidcConfig, clock: &Clock) -> Result<Self> {
        // A client reads every certificate that the system trusts: not for nobody.
        if config.providers.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let fetch = Fetch::new(config)?;
        let limits = OidcConfig { providers: Vec::new(), ..config.clone() };
        let provider = |own: &OidcProviderConfig| Provider {
            jwks: Arc::new(Jwks::new(
                own.issuer.clone(),
                limits.clone(),
                fetch.clone(),
                clock.clone(),
            )),
            config: own.clone(),
            limits: limits.clone(),
            fetch: fetch.clone(),
            clock: clock.clone(),
        };
        Ok(Self(config.providers.iter().map(provider).collect()))
    }

    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Provider> {
        self.0.iter().find(|provider| provider.config.name == name)
    }

    /// The providers a person can sign in with.
    pub fn for_people(&self) -> impl Iterator<Item = &Provider> {
        self.0.iter().filter(|provider| provider.config.client_id.is_some())
    }

    /// Verifies a bearer token. The issuer it claims only chooses which provider's keys to try.
    pub async fn bearer(&self, token: &str) -> Result<(&Provider, Subject), Denied> {
        let claimed: Claims = jsonwebtoken::dangerous::insecure_decode_claims(token)
            .map_err(|_| JwtRefusal::Malformed)?;
        let provider = self
            .0
            .iter()
            .find(|provider| claimed.iss.as_ref() == Some(&provider.config.issuer))
            .filter(|provider| !provider.config.audience.is_empty())
            .ok_or(JwtRefusal::Issuer)?;
        let subject = provider.verify(token, Kind::Bearer).await?;
        Ok((provider, subject))
    }
}

/// What a token is presented as.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind<'a> {
    Bearer,
    Id { client: &'a str, nonce: &'a str },
}

impl Provider {
    pub(super) async fn verify(&self, token: &str, kind: Kind<'_>) -> Result<Subject, Denied> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| JwtRefusal::Header)?;
        self.check_header(&header, kind)?;
        let id = header.kid.as_deref().ok_or(JwtRefusal::UnknownKey)?;
        let key = self.jwks.key(id).await?.ok_or(JwtRefusal::UnknownKey)?;
        if !key.is_for(header.alg) {
            return Err(JwtRefusal::Algorithm.into());
        }
        let signed = jsonwebtoken::decode::<Claims>(token, &key.key, &signature_only(header.alg))
            .map_err(|error| match error.kind() {
            jsonwebtoken::errors::ErrorKind::Json(_) => JwtRefusal::Malformed,
            _ => JwtRefusal::Signature,
        })?;
        let (audience, nonce) = match kind {
            Kind::Bearer => (self.config.audience.as_str(), None),
            Kind::Id { client, nonce } => (client, Some(nonce)),
        };
        let expected = Expected {
            issuer: &self.config.issuer,
            audience,
            nonce,
            groups_claim: self.config.groups_claim(),
            max_groups: self.limits.max_groups,
            leeway: self.limits.leeway.get(),
            now: self.clock.now(),
        };
        Ok(accept(signed.claims, &expected)?)
    }

    fn check_header(&self, header: &Header, kind: Kind<'_>) -> Result<(), JwtRefusal> {
        let typ = header.typ.as_deref().map(str::to_ascii_lowercase);
        let typ = typ.as_deref().map(|typ| typ.strip_prefix("application/").unwrap_or(typ));
        let fits = match kind {
            Kind::Bearer => matches!(typ, Some("at+jwt" | "jwt")),
            Kind::Id { .. } => matches!(typ, None | Some("jwt")),
        };
        if !fits {
            return Err(JwtRefusal::Type);
        }
        // `crit` names extensions that must be understood, and we understand none.
        if header.crit.is_some() || header.enc.is_some() || header.zip.is_some() {
            return Err(JwtRefusal::Header);
        }
        if self.config.accepted().iter().any(|allowed| allowed.jwt() == header.alg) {
            Ok(())
        } else {
            Err(JwtRefusal::Algorithm)
        }
    }
}

/// The library checks the signature alone: it reads the system's clock and takes an issuer among
/// several, so the claims are left to [`accept`].
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}
