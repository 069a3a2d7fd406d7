//! Who may do what, where, and the proof of what was done.
//!
//! | module | holds |
//! |---|---|
//! | `tenancy` | tenants and projects: the tree everything else hangs on |
//! | `residency` | zones, transfer rules, and the check that runs before a byte moves |
//! | `identity` | users, service accounts, API tokens, sessions, OIDC |
//! | `authz` | roles, Cedar policies, the gate behind `Ctx::authorize` |
//! | `audit` | the Merkle-tree log over the audit entries, checkpoints, offline verification |
//! | `keyring` | the front door to encryption keys: rotation and crypto-shredding |
//! | `epoch` | the number that moves when identity, roles or policies change |

pub mod audit;
pub mod authz;
pub mod epoch;
pub mod identity;
pub mod keyring;
mod listing;
pub mod residency;
pub mod tenancy;
mod text;
