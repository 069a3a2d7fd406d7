//! What an operator may set about the listener and its limits.
//!
//! Must hold: every limit that a request can run into is a field here, so that the error which
//! names it also names the knob.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use falaj_base::quantity::{ByteSize, HumanDuration};
use falaj_base::{Error, Result, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The listener: where it listens, whom it answers, how long it waits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address and port to listen on. Anything but a loopback address needs TLS.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Host names this server answers to, besides the loopback names and its own addresses.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may send changes, besides the server's own, such as the outer address
    /// of a proxy: `https://falaj.example.ae`.
    pub allowed_origins: Vec<String>,
    /// Open connections at most; further ones wait in the kernel's queue.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: usize,
    /// Open connections at most from one address.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections_per_source: usize,
    /// How long a client may take to send the head of a request.
    pub header_timeout: HumanDuration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: HumanDuration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: HumanDuration,
    /// How long a client may refuse to take bytes of a response.
    pub write_timeout: HumanDuration,
    /// How long a server that was told to stop still takes requests, while `/health/ready`
    /// already answers 503, so that whoever shares out requests notices in time. Only a server
    /// whose readiness somebody asked for within the last minute waits; `0s` never does.
    pub drain_grace: HumanDuration,
    /// How long running requests may take to finish when the server stops.
    pub drain_timeout: HumanDuration,
    /// Parallel requests at most on one HTTP/2 connection.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_http2_streams: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7470)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_connections: 8192,
            max_connections_per_source: 4096,
            header_timeout: HumanDuration::from_secs(15),
            handshake_timeout: HumanDuration::from_secs(10),
            idle_timeout: HumanDuration::from_secs(25),
            write_timeout: HumanDuration::from_secs(30),
            drain_grace: HumanDuration::from_secs(5),
            drain_timeout: HumanDuration::from_secs(20),
            max_http2_streams: 128,
        }
    }
}

/// Whether, and with which certificate, connections are encrypted. TLS 1.3 is the only version.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// `auto` encrypts when a certificate is set or the address is not loopback; `off` refuses to
    /// listen on anything but loopback.
    pub mode: TlsMode,
    /// Certificate chain, PEM. Made on first start if absent and TLS is on.
    pub cert_file: Option<PathBuf>,
    /// Private key of the certificate, PEM.
    pub key_file: Option<PathBuf>,
    /// More names and addresses to put into a certificate made on first start.
    pub names: Vec<String>,
}

/// When to encrypt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    #[default]
    Auto,
    On,
    Off,
}

/// What one request, one caller and all of them together may use.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Bytes of a request's headers at most.
    pub max_header_size: ByteSize,
    /// Headers of a request at most.
    #[schemars(range(min = 16, max = 1000))]
    pub max_headers: usize,
    /// Bytes of a request's path and query at most.
    pub max_uri_size: ByteSize,
    /// Bytes of a request body at most, as they travel. Object uploads have their own limit.
    pub max_body_size: ByteSize,
    /// Bytes of a request body at most, once decompressed.
    pub max_decompressed_size: ByteSize,
    /// Bytes of the body of a call that carries tensors at most, both as they travel and once
    /// decompressed.
    pub max_large_body_size: ByteSize,
    /// Bytes of request bodies held in memory at most, all requests together.
    pub max_buffered_size: ByteSize,
    /// Bytes of a request body at most on a route that asks for no credential (sign-in), both as
    /// they travel and once decompressed.
    pub max_public_body_size: ByteSize,
    /// How long the server waits for a slow body before the rate below is demanded.
    pub body_grace: HumanDuration,
    /// Bytes a second that a body must bring on average while the server waits for it.
    pub min_body_rate: ByteSize,
    /// Requests worked on at once at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_in_flight: usize,
    /// Requests worked on at once at most on routes that ask for no credential (sign-in). They
    /// never use the slots of other requests.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_public_in_flight: usize,
    /// Of those, the requests that one source (an IPv4 address, or an IPv6 network of 64 bits)
    /// may have at once. Behind a proxy all callers share its address: raise this to the number
    /// above, and let the proxy share it out.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_public_per_source: usize,
    /// Requests that may wait for their turn.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_queued: usize,
    /// How long a request may wait for its turn.
    pub max_queue_wait: HumanDuration,
    /// Long-running transfers (uploads, downloads, event streams) at once at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_streams: usize,
    /// Deadline of a request that names none.
    pub default_deadline: HumanDuration,
    /// The latest deadline a request may ask for; a later one is cut to this.
    pub max_deadline: HumanDuration,
    /// Deadline of a request to a route that asks for no credential; it may only ask for less.
    pub public_deadline: HumanDuration,
    /// Requests a second, on average, from one principal. A training job shares one token among
    /// all its workers, so the default only stops what no honest client sends.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub requests_per_second: u32,
    /// Requests one principal may send at once after a pause.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub request_burst: u32,
    /// Principals whose rate is remembered at most.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_tracked_principals: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            max_header_size: ByteSize::kib(64),
            max_headers: 100,
            max_uri_size: ByteSize::kib(32),
            max_body_size: ByteSize::mib(4),
            max_decompressed_size: ByteSize::mib(16),
            max_large_body_size: ByteSize::mib(64),
            max_buffered_size: ByteSize::mib(256),
            max_public_body_size: ByteSize::kib(16),
            body_grace: HumanDuration::from_secs(15),
            min_body_rate: ByteSize::from_bytes(500),
            max_in_flight: 512,
            max_public_in_flight: 64,
            max_public_per_source: 16,
            max_queued: 1024,
            max_queue_wait: HumanDuration::from_millis(40),
            max_streams: 512,
            default_deadline: HumanDuration::from_secs(30),
            max_deadline: HumanDuration::from_mins(10),
            public_deadline: HumanDuration::from_secs(15),
            requests_per_second: 20_000,
            request_burst: 40_000,
            max_tracked_principals: 16_384,
        }
    }
}

impl LimitsConfig {
    /// Refuses sizes with which no request could be read; plain numbers carry their own range.
    pub fn check(&self) -> Result<()> {
        // The HTTP/1 reader needs room for one head of this size.
        at_least("limits.max_header_size", self.max_header_size, ByteSize::kib(8))?;
        at_least("limits.max_uri_size", self.max_uri_size, ByteSize::from_bytes(256))?;
        // A name, a password and the form around them.
        at_least("limits.max_public_body_size", self.max_public_body_size, ByteSize::kib(1))?;
        at_least("limits.max_buffered_size", self.max_buffered_size, self.max_public_body_size)?;
        at_least("limits.max_buffered_size", self.max_buffered_size, self.max_decompressed_size)?;
        at_least("limits.min_body_rate", self.min_body_rate, ByteSize::from_bytes(1))
    }
}

fn at_least(field: &str, value: ByteSize, least: ByteSize) -> Result<()> {
    if value >= least {
        return Ok(());
    }
    let message = format!("`{field}` is {value}; allowed: {least} or more");
    Err(Error::new(&code::INVALID_CONFIG, message).at(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 workers of one training job, each logging some hundred metrics a second, share a token.
    #[test]
    fn the_default_rate_leaves_room_for_a_training_job() {
        let limits = LimitsConfig::default();
        assert!(limits.requests_per_second >= 64 * 300);
        assert!(limits.request_burst >= limits.requests_per_second);
        assert!(limits.max_public_per_source * 4 <= limits.max_public_in_flight);
    }
}
