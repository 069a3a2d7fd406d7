//! What can be set about a stream's servers.

use std::path::PathBuf;

use falaj_base::{ByteSize, Error, HumanDuration, Name, Result, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Servers of one kind that the sources of a tenant may read streams of.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// What sources call it: `stream = "events"`.
    pub name: Name,
    /// Which protocol is spoken.
    pub kind: StreamKind,
    /// Where its servers are, as `host:port`; one that answers is enough to begin with.
    pub servers: Vec<String>,
    /// Hosts that Kafka's brokers may name for themselves beside those of `servers`: a name, or
    /// `.example.ae` for all names below it. Nothing else is connected to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The tenant whose sources may read.
    pub tenant: Name,
    /// Its only project that may; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Name>,
    /// The residency zone that the servers lie in; that of the project if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    /// Whether connections are TLS.
    #[serde(default)]
    pub tls: bool,
    /// The certificates (PEM) that TLS is checked against, if not those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ca: Option<PathBuf>,
    /// The name that is logged in with; nobody logs in if it is empty.
    #[serde(default)]
    pub user: String,
    #[serde(default)]
    pub password: Secret,
    /// How Kafka is told the password.
    #[serde(default)]
    pub mechanism: Mechanism,
    /// NATS: a token in place of a user.
    #[serde(default)]
    pub token: Secret,
    /// NATS: a file of credentials (`.creds`) in place of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub credentials: Option<PathBuf>,
    /// Bytes that are read at a time, about.
    #[serde(default = "batch_size")]
    pub batch_size: ByteSize,
    /// Records that are read at a time at most.
    #[serde(default = "batch_records")]
    #[schemars(range(min = 1, max = 100_000))]
    pub batch_records: usize,
    /// Bytes of one record at most, and of a batch of them as Kafka keeps it.
    #[serde(default = "max_record")]
    pub max_record: ByteSize,
    /// How long a server may take to answer.
    #[serde(default = "timeout")]
    pub timeout: HumanDuration,
    /// Partitions of one topic at most.
    #[serde(default = "max_partitions")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_partitions: usize,
}

/// Kinds of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    Kafka,
    Nats,
}

/// How Kafka is told a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// In the clear: over TLS only.
    Plain,
    ScramSha256,
    #[default]
    ScramSha512,
}

fn batch_size() -> ByteSize {
    ByteSize::mib(1)
}

fn batch_records() -> usize {
    10_000
}

fn max_record() -> ByteSize {
    ByteSize::mib(8)
}

fn timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

fn max_partitions() -> usize {
    256
}

/// The most that may be asked for at a time: answers are held in memory.
const MOST: ByteSize = ByteSize::mib(64);

impl StreamConfig {
    /// Plain settings for servers, for tests.
    #[must_use]
    pub fn plain(name: Name, kind: StreamKind, servers: Vec<String>, tenant: Name) -> Self {
        Self {
            name,
            kind,
            servers,
            hosts: Vec::new(),
            tenant,
            project: None,
            zone: None,
            tls: false,
            ca: None,
            user: String::new(),
            password: Secret::default(),
            mechanism: Mechanism::default(),
            token: Secret::default(),
            credentials: None,
            batch_size: batch_size(),
            batch_records: batch_records(),
            max_record: max_record(),
            timeout: timeout(),
            max_partitions: max_partitions(),
        }
    }

    /// Refuses settings that contradict each other.
    pub fn check(&self) -> Result<()> {
        if self.servers.is_empty() {
            return Err(Error::invalid("servers", "nothing", "at least one `host:port`"));
        }
        for (place, server) in self.servers.iter().enumerate() {
            if address(server).is_none() {
                let field = format!("servers[{place}]");
                return Err(Error::invalid(field, server, "`host:port`"));
            }
        }
        for (field, size) in [("batch_size", self.batch_size), ("max_record", self.max_record)] {
            if size.bytes() == 0 || size > MOST {
                return Err(Error::invalid(field, size, format!("1B to {MOST}")));
            }
        }
        if self.timeout.get().is_zero() {
            return Err(Error::invalid("timeout", self.timeout, "more than nothing"));
        }
        let plain = self.kind == StreamKind::Kafka && self.mechanism == Mechanism::Plain;
        if plain && !self.user.is_empty() && !self.tls {
            let allowed = "`plain` with `tls = true` only: the password is sent as it is";
            return Err(Error::invalid("mechanism", "plain", allowed));
        }
        let wrong = match self.kind {
            StreamKind::Kafka if !self.token.is_empty() => Some("token"),
            StreamKind::Kafka if self.credentials.is_some() => Some("credentials"),
            StreamKind::Nats if !self.hosts.is_empty() => Some("hosts"),
            _ => None,
        };
        match wrong {
            Some(field) => {
                Err(Error::invalid(field, "set", "nothing for a stream of the other kind"))
            }
            None => Ok(()),
        }
    }
}

/// A server's host and port. Addresses of version 6 stand in brackets.
pub(crate) fn address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let plain = inner.unwrap_or(host);
    let fits = !plain.is_empty()
        && (inner.is_some() || !plain.contains(':'))
        && !plain.contains(|c: char| c.is_whitespace() || c == '/' || c == '@');
    fits.then_some((plain, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(kind: StreamKind) -> StreamConfig {
        let name = |text: &str| Name::new(text).unwrap();
        StreamConfig::plain(name("events"), kind, vec!["kafka:9092".to_owned()], name("acme"))
    }

    #[test]
    fn addresses_are_a_host_and_a_port() {
        for (text, expected) in [
            ("kafka:9092", Some(("kafka", 9092))),
            ("10.0.0.1:1", Some(("10.0.0.1", 1))),
            ("[::1]:9092", Some(("::1", 9092))),
            ("::1:9092", None),
            ("kafka", None),
            ("kafka:", None),
            (":9092", None),
            ("kafka:99999", None),
            ("nats://a:4222", None),
            ("user@a:4222", None),
        ] {
            assert_eq!(address(text), expected, "{text}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        type Change = fn(&mut StreamConfig);
        let table: [(&str, Change); 6] = [
            ("servers", |it| it.servers.clear()),
            ("servers[0]", |it| it.servers = vec!["kafka".to_owned()]),
            ("batch_size", |it| it.batch_size = ByteSize::gib(1)),
            ("timeout", |it| it.timeout = HumanDuration::from_secs(0)),
            ("token", |it| it.token = Secret::new("t")),
            ("mechanism", |it| {
                it.user = "ada".to_owned();
                it.mechanism = Mechanism::Plain;
            }),
        ];
        plain(StreamKind::Kafka).check().unwrap();
        for (field, change) in table {
            let mut config = plain(StreamKind::Kafka);
            change(&mut config);
            assert_eq!(config.check().unwrap_err().field(), Some(field));
        }
    }
}
