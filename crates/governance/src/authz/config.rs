//! The limits of authorisation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Roles, policies and the cache of decisions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthzConfig {
    /// How many decisions are remembered; 0 switches the memory off. A change of roles or policies
    /// makes every remembered decision void, whatever this number is.
    pub decision_cache: usize,
    /// How many tenants' policies are kept ready to evaluate; the others are parsed when needed.
    pub policy_cache: usize,
    /// The longest policy text, in bytes.
    pub policy_bytes: usize,
    /// How many policy statements one tenant may have. Every decision about its resources
    /// evaluates all of them, at about two microseconds each.
    pub policies_per_tenant: usize,
    /// How many bytes of policy text all tenants together may have; all of it is held in memory.
    pub policy_bytes_in_all: usize,
    /// How many roles may be bound on one tenant, its projects included, or on the platform.
    pub bindings_per_tenant: usize,
}

impl Default for AuthzConfig {
    fn default() -> Self {
        Self {
            decision_cache: 65_536,
            policy_cache: 256,
            policy_bytes: 16 * 1024,
            policies_per_tenant: 32,
            policy_bytes_in_all: 16 * 1024 * 1024,
            bindings_per_tenant: 10_000,
        }
    }
}
