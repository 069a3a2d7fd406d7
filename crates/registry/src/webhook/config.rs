//! What can be set about webhooks.

use falaj_base::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::egress::Egress;

/// Where webhooks may go, and how hard they try.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhooksConfig {
    /// The hosts that webhooks and callbacks may talk to: `hooks.example.com`, `*.example.com` for everything
    /// below it, `*` for any. Only HTTPS, unless the entry says `http://host`. Without entries
    /// there are no webhooks.
    pub allowed_hosts: Vec<String>,
    /// Whether these hosts may have private, loopback or link-local addresses.
    pub allow_private_addresses: bool,
    /// The most webhooks of one project.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_per_project: usize,
    /// How long one attempt may take.
    pub timeout: HumanDuration,
    /// How often a delivery is tried before it is given up.
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: u32,
    /// The longest pause between two attempts; the first is a second, and each is twice the last.
    pub longest_pause: HumanDuration,
    /// How many webhooks are served at the same time, at most half of them for one tenant.
    #[schemars(range(min = 1, max = 1000))]
    pub concurrency: usize,
    /// The most deliveries that wait for one webhook; what happens beyond is not told to it.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_waiting: usize,
    /// How much of payloads waits for one webhook at most, likewise.
    pub max_waiting_bytes: ByteSize,
    /// How much of an answer is read and shown when a webhook is tested.
    pub max_answer: ByteSize,
}

/// How much may wait for one webhook: deliveries, and bytes of their payloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    deliveries: usize,
    bytes: u64,
}

impl WebhooksConfig {
    /// Where webhooks may go.
    pub(super) fn egress(&self) -> Egress {
        Egress { hosts: self.allowed_hosts.clone(), private: self.allow_private_addresses }
    }

    pub(crate) fn room(&self) -> Room {
        Room { deliveries: self.max_waiting, bytes: self.max_waiting_bytes.bytes() }
    }
}

impl Room {
    /// Whether one more fits beside what waits already.
    pub(super) fn holds(self, (deliveries, bytes): (usize, u64), one_more: &str) -> bool {
        deliveries < self.deliveries && bytes + one_more.len() as u64 <= self.bytes
    }
}

impl Default for WebhooksConfig {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allow_private_addresses: false,
            max_per_project: 100,
            timeout: HumanDuration::from_secs(30),
            max_attempts: 4,
            longest_pause: HumanDuration::from_mins(1),
            concurrency: 16,
            max_waiting: 10_000,
            max_waiting_bytes: ByteSize::mib(64),
            max_answer: ByteSize::kib(64),
        }
    }
}
