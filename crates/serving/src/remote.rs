//! Models that another server computes: what a variant says of one, and where such servers may be.
//!
//! Must hold: a connection goes only where the operator of this platform allows it; a token goes
//! only to the host that it is for, for the tenants that may use it, and is in no specification and
//! no reply.
//!
//! Not here: asking them (`runtime::remote`).

use std::path::{Path, PathBuf};

use falaj_base::{ByteSize, Error, HumanDuration, Name, Result, Secret, code};
use falaj_registry::egress::{Egress, Refusal};
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::runtime::RemoteConfig;

/// A model on another server of the Open Inference Protocol: Triton, `KServe`, or this platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// Where the server is, up to what comes before `/v2`.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// What it calls the model.
    #[schemars(length(min = 1, max = 256))]
    pub model: String,
    /// The version; without it the server decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub version: Option<String>,
    /// The name of the token that is sent, one of `serving.remote.tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Name>,
}

/// What its answers say where it names no version.
const SOME_VERSION: &str = "latest";

impl Remote {
    /// Refuses what cannot work: the field, the value, and what is allowed.
    pub(crate) fn check(&self) -> std::result::Result<(), (&'static str, String, &'static str)> {
        let refuse = |allowed| Err(("remote.url", self.url.chars().take(200).collect(), allowed));
        if self.url.len() > 2048 {
            return refuse("at most 2048 bytes");
        }
        let Ok(url) = Url::parse(&self.url) else { return refuse("an http or https URL") };
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return refuse("an http or https URL");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("a URL without a user name or password");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refuse("a URL without `?` and `#`");
        }
        let is_name = |name: &str, most: usize| {
            (1..=most).contains(&name.len())
                && !name.chars().any(char::is_control)
                && !matches!(name, "." | "..")
        };
        if !is_name(&self.model, 256) {
            return Err(("remote.model", self.model.clone(), "a name of 1 to 256 bytes"));
        }
        match &self.version {
            // It is told in a header.
            Some(version)
                if !is_name(version, 64)
                    || !version.bytes().all(|byte| byte.is_ascii_graphic()) =>
            {
                Err(("remote.version", version.clone(), "1 to 64 visible ASCII characters"))
            }
            _ => Ok(()),
        }
    }

    /// The version that its answers name.
    pub(crate) fn version(&self) -> String {
        self.version.clone().unwrap_or_else(|| SOME_VERSION.to_owned())
    }
}

/// Servers elsewhere whose models endpoints may serve.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RemotesConfig {
    /// The hosts that may be asked: `triton.example.com`, `*.example.com` for everything below it,
    /// `*` for any. Only HTTPS, unless the entry says `http://host`. Without entries there are no
    /// models on other servers.
    pub allowed_hosts: Vec<String>,
    /// Whether these hosts may have private, loopback or link-local addresses.
    pub allow_private_addresses: bool,
    /// A PEM file of certificate authorities that are trusted beside the machine's.
    pub authorities: Option<PathBuf>,
    /// How long a connection may take to be made.
    pub connect_timeout: HumanDuration,
    /// The largest answer that is read.
    pub max_answer: ByteSize,
    /// Tokens for these servers, by names that endpoints use.
    pub tokens: Vec<RemoteToken>,
}

impl Default for RemotesConfig {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allow_private_addresses: false,
            authorities: None,
            connect_timeout: HumanDuration::from_secs(5),
            max_answer: ByteSize::mib(64),
            tokens: Vec::new(),
        }
    }
}

/// A token for one server elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoteToken {
    pub name: Name,
    /// The host that it is for; it is sent to no other.
    pub host: String,
    /// The file that holds it.
    pub file: PathBuf,
    /// The tenants whose endpoints may use it; all if empty.
    #[serde(default)]
    pub tenants: Vec<Name>,
}

/// The largest file that holds a token.
const MAX_TOKEN: u64 = 16 << 10;
/// The largest file of authorities.
const MAX_AUTHORITIES: u64 = 4 << 20;

impl RemotesConfig {
    fn egress(&self) -> Egress {
        Egress { hosts: self.allowed_hosts.clone(), private: self.allow_private_addresses }
    }

    /// Everything that it takes to ask a model, for an endpoint of a tenant.
    pub(crate) async fn place(&self, remote: &Remote, tenant: &Name) -> Result<RemoteConfig> {
        let url = Url::parse(&remote.url)
            .map_err(|_| Error::invalid("remote.url", &remote.url, "an http or https URL"))?;
        let egress = self.egress();
        egress.check(&url).map_err(|refusal| {
            let allowed = match refusal {
                Refusal::Scheme => "an http or https URL",
                Refusal::Credentials => "a URL without a user name or password",
                Refusal::Host => "a host that `serving.remote.allowed_hosts` lists, by its scheme",
                Refusal::Private => {
                    "a public address, unless `serving.remote.allow_private_addresses` is set"
                }
            };
            Error::invalid("remote.url", &remote.url, allowed)
        })?;
        let token = match &remote.token {
            Some(name) => Some(self.token(name, &url, tenant).await?),
            None => None,
        };
        let authorities = match &self.authorities {
            Some(file) => Some(read(file, MAX_AUTHORITIES, "the certificate authorities").await?),
            None => None,
        };
        Ok(RemoteConfig {
            url: remote.url.clone(),
            model: remote.model.clone(),
            version: remote.version.clone(),
            token,
            authorities,
            connect_timeout: self.connect_timeout.get(),
            max_answer: self.max_answer.as_usize(),
            resolver: Some(egress.resolver()),
        })
    }

    async fn token(&self, name: &Name, url: &Url, tenant: &Name) -> Result<Secret> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let fits = |token: &&RemoteToken| {
            token.name == *name
                && token.host.trim_matches(['[', ']']).eq_ignore_ascii_case(host)
                && (token.tenants.is_empty() || token.tenants.contains(tenant))
        };
        // One sentence for all reasons: what other tenants have is nobody's business.
        let found = self.tokens.iter().find(fits).ok_or_else(|| {
            let allowed = "a token of `serving.remote.tokens` that is for this host and tenant";
            Error::invalid("remote.token", name, allowed)
        })?;
        let text = read(&found.file, MAX_TOKEN, "the token").await?;
        Ok(Secret::new(text.trim()))
    }
}

/// Reads a file of the operator's. That it cannot be read is nothing that a caller can mend.
async fn read(file: &Path, most: u64, what: &'static str) -> Result<String> {
    let file = file.to_owned();
    let read = move || -> std::io::Result<String> {
        use std::io::Read;
        let mut text = String::new();
        std::fs::File::open(file)?.take(most).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = tokio::task::spawn_blocking(read).await.map_err(Error::internal)?;
    text.map_err(|error| {
        let text = format!("{what} for the server that the model is on cannot be read");
        Error::new(&code::UNAVAILABLE, text).caused_by(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(url: &str) -> Remote {
        Remote { url: url.to_owned(), model: "m".to_owned(), version: None, token: None }
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn mistakes_are_named() {
        remote("https://h/path/").check().unwrap();
        for url in ["", "h", "ftp://h", "https://u@h/", "https://h/?a=b", "https://h/#x"] {
            assert_eq!(remote(url).check().unwrap_err().0, "remote.url", "{url}");
        }
        for model in ["", "..", "a\nb"] {
            let wrong = Remote { model: model.to_owned(), ..remote("https://h") };
            assert_eq!(wrong.check().unwrap_err().0, "remote.model");
        }
        let wrong = Remote { version: Some(String::new()), ..remote("https://h") };
        assert_eq!(wrong.check().unwrap_err().0, "remote.version");
        assert_eq!(remote("https://h").version(), "latest");
    }

    #[tokio::test]
    async fn only_listed_hosts_and_tokens_that_are_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "secret\n").unwrap();
        let token = |called: &str, host: &str, tenants: &[&str]| RemoteToken {
            name: name(called),
            host: host.to_owned(),
            file: file.clone(),
            tenants: tenants.iter().map(|tenant| name(tenant)).collect(),
        };
        let config = RemotesConfig {
            allowed_hosts: vec!["a.example".into(), "b.example".into(), "http://127.0.0.1".into()],
            tokens: vec![
                token("anyone", "a.example", &[]),
                token("ours", "a.example", &["acme"]),
                RemoteToken { file: "/nowhere".into(), ..token("lost", "a.example", &[]) },
            ],
            ..RemotesConfig::default()
        };
        let asked = async |url: &str, called: Option<&str>, tenant: &str| {
            let remote = Remote { token: called.map(name), ..remote(url) };
            config.place(&remote, &name(tenant)).await
        };
        let found = asked("https://a.example/x", Some("anyone"), "acme").await.unwrap();
        assert_eq!(found.token.unwrap().expose(), "secret");
        assert!(asked("https://b.example", None, "acme").await.unwrap().token.is_none());
        assert!(asked("https://a.example", Some("ours"), "acme").await.is_ok());
        for (url, called, tenant, field) in [
            ("https://c.example", None, "acme", "remote.url"),
            ("http://a.example", None, "acme", "remote.url"),
            ("http://127.0.0.1:1", None, "acme", "remote.url"),
            ("https://b.example", Some("anyone"), "acme", "remote.token"),
            ("https://a.example", Some("ours"), "other", "remote.token"),
            ("https://a.example", Some("none"), "acme", "remote.token"),
        ] {
            let error = asked(url, called, tenant).await.unwrap_err();
            assert_eq!(error.field(), Some(field), "{url} {called:?} {tenant}");
        }
        let lost = asked("https://a.example", Some("lost"), "acme").await.unwrap_err();
        assert_eq!(*lost.code(), code::UNAVAILABLE);
        assert!(!lost.message().contains("nowhere"));
    }
}
