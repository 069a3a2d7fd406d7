//! What an operator can set about identity: one struct per part, with its limits.

use falaj_base::{ByteSize, Error, HumanDuration, Result, Secret, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::oidc::algorithm::SigningAlgorithm;
use super::origin::Origin;

/// Who can sign in, and how.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IdentityConfig {
    /// The address people open in a browser, for example `https://falaj.example.ae`. Sign-in
    /// through an OIDC provider needs it; without it, the address a request was sent to counts.
    pub public_url: Option<String>,
    /// Rules for the passwords of local users.
    pub password: PasswordConfig,
    /// Limits on API tokens.
    pub token: TokenConfig,
    /// How long a browser stays signed in.
    pub session: SessionConfig,
    /// What happens to a source that keeps failing to sign in.
    pub failures: FailureConfig,
    /// How much is remembered about credentials that were found good.
    pub cache: CacheConfig,
    /// OIDC providers, for people and machines that have their identity elsewhere.
    pub oidc: OidcConfig,
}

/// Rules for the passwords of local users, and the work one of them may cause.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PasswordConfig {
    /// The shortest password accepted, in characters.
    pub min_length: usize,
    /// Memory one hash takes.
    pub memory: ByteSize,
    /// Passes over that memory.
    pub passes: u32,
    /// How many hashes run at the same time; each takes a core.
    pub concurrent: usize,
    /// How many sign-ins may wait for a free slot; one more is turned away at once.
    pub waiting: usize,
    /// How long a sign-in waits for a free slot before it is turned away.
    pub max_wait: HumanDuration,
}

impl Default for PasswordConfig {
    fn default() -> Self {
        Self {
            min_length: 12,
            memory: ByteSize::mib(19),
            passes: 2,
            concurrent: 2,
            waiting: 64,
            max_wait: HumanDuration::from_secs(3),
        }
    }
}

/// Limits on API tokens.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenConfig {
    /// How long a token lives if its maker does not say.
    pub default_life: HumanDuration,
    /// The longest life a token may be given.
    pub max_life: HumanDuration,
    /// How long the token from `POST /v1/login` lives.
    pub login_life: HumanDuration,
    /// How many tokens that still work one principal may hold.
    pub max_per_owner: usize,
    /// How many "last used" times are kept in memory until they are written; beyond that the
    /// newest are forgotten.
    pub pending_uses: usize,
    /// How long a dead token stays listed before it is removed.
    pub keep_dead: HumanDuration,
}

impl Default for TokenConfig {
    fn default() -> Self {
        Self {
            default_life: HumanDuration::from_days(90),
            max_life: HumanDuration::from_days(366),
            login_life: HumanDuration::from_hours(12),
            max_per_owner: 200,
            pending_uses: 10_000,
            keep_dead: HumanDuration::from_days(30),
        }
    }
}

/// How long a browser stays signed in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionConfig {
    /// A session that is not used for this long ends.
    pub idle: HumanDuration,
    /// A session ends after this long, however much it is used.
    pub absolute: HumanDuration,
    /// How many sessions one principal may have; the oldest make room.
    pub max_per_principal: usize,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            idle: HumanDuration::from_mins(30),
            absolute: HumanDuration::from_hours(12),
            max_per_principal: 20,
        }
    }
}

/// What happens to a source that keeps failing to sign in. A source is one IPv4 address or one
/// IPv6 /64 network.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FailureConfig {
    /// How many failures in a row are taken before the source must wait.
    pub burst: u32,
    /// How many more failures a source is granted every minute.
    pub per_minute: u32,
    /// How many sources are watched; beyond that, those that failed longest ago are forgotten.
    pub max_sources: usize,
}

impl Default for FailureConfig {
    fn default() -> Self {
        Self { burst: 30, per_minute: 30, max_sources: 10_000 }
    }
}

/// How much is remembered about credentials that were found good.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// How many credentials are remembered.
    pub entries: usize,
    /// How long one is remembered at most; a change to users, tokens or roles forgets them all.
    pub life: HumanDuration,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { entries: 10_000, life: HumanDuration::from_mins(1) }
    }
}

/// OIDC providers, and the limits on talking to them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OidcConfig {
    /// The providers whose word is taken.
    pub providers: Vec<OidcProviderConfig>,
    /// How long one request to a provider may take.
    pub timeout: HumanDuration,
    /// The largest answer read from a provider.
    pub max_response: ByteSize,
    /// The largest number of keys a provider may publish.
    pub max_keys: usize,
    /// Keys are fetched again when they are this old.
    pub refresh: HumanDuration,
    /// The shortest time between two fetches of the same provider's keys, whatever tokens arrive.
    pub min_refresh: HumanDuration,
    /// While a provider does not answer, its keys are trusted up to this age.
    pub max_stale: HumanDuration,
    /// The difference between its clock and ours that is forgiven.
    pub leeway: HumanDuration,
    /// How long a person may take on the provider's sign-in page.
    pub login_life: HumanDuration,
    /// A token that names more groups than this is refused.
    pub max_groups: usize,
}

impl Default for OidcConfig {
    fn default() -> Self {
        Self {
            providers: Vec::new(),
            timeout: HumanDuration::from_secs(5),
            max_response: ByteSize::kib(256),
            max_keys: 64,
            refresh: HumanDuration::from_mins(10),
            min_refresh: HumanDuration::from_secs(30),
            max_stale: HumanDuration::from_hours(24),
            leeway: HumanDuration::from_mins(1),
            login_life: HumanDuration::from_mins(10),
            max_groups: 500,
        }
    }
}

/// One OIDC provider.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OidcProviderConfig {
    /// A short name for the sign-in page and the address `/auth/oidc/start?provider=NAME`.
    pub name: String,
    /// The issuer, exactly as its tokens spell it.
    pub issuer: String,
    /// The client this server is registered as; without it the provider serves machines only.
    pub client_id: Option<String>,
    /// The secret of that client; leave empty for a public client.
    pub client_secret: Secret,
    /// What the `aud` of a bearer token must contain; empty: bearer tokens are not accepted.
    pub audience: String,
    /// The signature algorithms accepted from this provider; RS256 and ES256 if left empty.
    pub algorithms: Vec<SigningAlgorithm>,
    /// The claim that lists a person's groups; `groups` if left empty.
    pub groups_claim: String,
    /// The scopes asked for at sign-in; `openid` and `profile` if left empty.
    pub scopes: Vec<String>,
    /// The name of the tenant its principals belong to; absent: the platform's own staff.
    pub tenant: Option<String>,
}

impl IdentityConfig {
    /// Refuses what could not work or would not be safe, naming the field.
    pub fn check(&self) -> Result<()> {
        let origin = self.public_origin()?;
        let least = |field: &str, value: usize, least: usize| {
            if value < least {
                Err(refuse(field, value, format!("{least} or more")))
            } else {
                Ok(())
            }
        };
        least("identity.password.min_length", self.password.min_length, 8)?;
        least("identity.password.concurrent", self.password.concurrent, 1)?;
        least("identity.password.passes", self.password.passes as usize, 1)?;
        let memory = self.password.memory;
        if !(ByteSize::mib(8)..=ByteSize::gib(1)).contains(&memory) {
            return Err(refuse("identity.password.memory", memory, "8MiB to 1GiB"));
        }
        least("identity.failures.burst", self.failures.burst as usize, 1)?;
        least("identity.failures.per_minute", self.failures.per_minute as usize, 1)?;
        least("identity.failures.max_sources", self.failures.max_sources, 1)?;
        least("identity.session.max_per_principal", self.session.max_per_principal, 1)?;
        if self.oidc.min_refresh < HumanDuration::from_secs(1) {
            let value = self.oidc.min_refresh;
            return Err(refuse("identity.oidc.min_refresh", value, "1s or more"));
        }
        for (index, provider) in self.oidc.providers.iter().enumerate() {
            let before = &self.oidc.providers[..index];
            if before.iter().any(|p| p.name == provider.name || p.issuer == provider.issuer) {
                let name = &provider.name;
                return Err(refuse("identity.oidc.providers", name, "each name and issuer once"));
            }
            provider.check(origin.is_some())?;
        }
        Ok(())
    }

    /// The configured public address, reduced to scheme, host and port.
    pub fn public_origin(&self) -> Result<Option<Origin>> {
        let parse = |url: &String| {
            Origin::parse(url.trim_end_matches('/')).ok_or_else(|| {
                let allowed = "an address like https://falaj.example.ae, without a path";
                refuse("identity.public_url", url, allowed)
            })
        };
        self.public_url.as_ref().map(parse).transpose()
    }
}

impl OidcProviderConfig {
    fn check(&self, has_public_url: bool) -> Result<()> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 63 || !self.name.chars().all(plain) {
            let allowed = "1 to 63 of a-z, 0-9 and -";
            return Err(refuse("identity.oidc.providers.name", &self.name, allowed));
        }
        super::oidc::fetch::check_issuer("identity.oidc.providers.issuer", &self.issuer)?;
        match &self.client_id {
            Some(_) if !has_public_url => {
                let allowed = "the address people open, since sign-in must return to it";
                Err(refuse("identity.public_url", "", allowed))
            }
            // An ID token is addressed to the client: if bearer tokens were too, a page that the
            // person merely signed in to could act as that person here.
            Some(id) if *id == self.audience => {
                let allowed = "an audience other than the client id";
                Err(refuse("identity.oidc.providers.audience", id, allowed))
            }
            None if self.audience.is_empty() => {
                let allowed = "a client id (for people), an audience (for machines), or both";
                Err(refuse("identity.oidc.providers.client_id", "", allowed))
            }
            _ => Ok(()),
        }
    }

    /// The algorithms accepted, with the default filled in.
    #[must_use]
    pub fn accepted(&self) -> &[SigningAlgorithm] {
        const DEFAULT: [SigningAlgorithm; 2] = [SigningAlgorithm::RS256, SigningAlgorithm::ES256];
        if self.algorithms.is_empty() { &DEFAULT } else { &self.algorithms }
    }

    #[must_use]
    pub fn groups_claim(&self) -> &str {
        if self.groups_claim.is_empty() { "groups" } else { &self.groups_claim }
    }

    /// The scopes as the provider wants to read them; `openid` is what makes it a sign-in.
    #[must_use]
    pub fn scope_text(&self) -> String {
        if self.scopes.is_empty() {
            return "openid profile".to_owned();
        }
        let rest = self.scopes.iter().map(String::as_str).filter(|scope| *scope != "openid");
        std::iter::once("openid").chain(rest).collect::<Vec<_>>().join(" ")
    }
}

/// A configuration value that cannot be used.
pub(super) fn refuse(
    field: &str,
    value: impl std::fmt::Display,
    allowed: impl std::fmt::Display,
) -> Error {
    let inner = Error::invalid(field, value, allowed);
    Error::new(&code::INVALID_CONFIG, inner.message()).at(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_provider(change: impl Fn(&mut OidcProviderConfig)) -> Result<()> {
        let mut provider = OidcProviderConfig {
            name: "corp".into(),
            issuer: "https://id.example.ae".into(),
            client_id: Some("falaj-web".into()),
            audience: "falaj".into(),
            ..OidcProviderConfig::default()
        };
        change(&mut provider);
        let oidc = OidcConfig { providers: vec![provider], ..OidcConfig::default() };
        let public_url = Some("https://falaj.example.ae/".to_owned());
        IdentityConfig { public_url, oidc, ..IdentityConfig::default() }.check()
    }

    #[test]
    fn the_defaults_are_valid() {
        IdentityConfig::default().check().unwrap();
        with_provider(|_| ()).unwrap();
    }

    #[test]
    fn what_is_unsafe_is_refused_and_named() {
        type Change = fn(&mut OidcProviderConfig);
        let table: [(Change, &str); 6] = [
            (|p| p.name = "Corp".into(), "identity.oidc.providers.name"),
            (|p| p.issuer = "http://id.example.ae".into(), "identity.oidc.providers.issuer"),
            (|p| p.issuer = "https://u:p@id.example.ae".into(), "identity.oidc.providers.issuer"),
            (|p| p.issuer = "https://id.example.ae/?x".into(), "identity.oidc.providers.issuer"),
            (|p| p.audience = "falaj-web".into(), "identity.oidc.providers.audience"),
            (
                |p| {
                    p.client_id = None;
                    p.audience.clear();
                },
                "identity.oidc.providers.client_id",
            ),
        ];
        for (change, field) in table {
            let error = with_provider(change).unwrap_err();
            assert_eq!(error.field(), Some(field), "{error:?}");
            assert_eq!(error.code(), &code::INVALID_CONFIG);
        }
    }

    #[test]
    fn an_unknown_key_and_a_symmetric_algorithm_are_refused() {
        let parse = |text: &str| serde_json::from_str::<OidcProviderConfig>(text);
        assert!(parse(r#"{"algorithms": ["RS256", "EdDSA"]}"#).is_ok());
        for bad in
            [r#"{"algorithms": ["HS256"]}"#, r#"{"algorithms": ["none"]}"#, r#"{"secret": ""}"#]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
