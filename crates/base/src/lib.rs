//! The vocabulary every other crate speaks: typed ids and names, one error type, roles and
//! actions, the request context, secrets, time and configuration loading.
//!
//! Must hold:
//! - No I/O beyond reading the configuration file; nothing here knows SQL, HTTP or crypto.
//! - A [`Secret`] never reaches a `Debug` print or a serialised value.
//! - A success is only ever given for an action that was authorised: [`Ctx`] keeps the ledger
//!   that `store` (on commit) and `web` (on reply) check.
//!
//! Not here: how a decision is made (`governance`), how a change is kept (`store`).

pub mod action;
pub mod clock;
pub mod config;
pub mod ctx;
pub mod digest;
pub mod error;
mod hex;
pub mod id;
pub mod name;
pub mod page;
mod percent;
pub mod quantity;
pub mod resource;
pub mod secret;

pub use action::{Access, Action, Role};
pub use clock::{Clock, Timestamp};
pub use ctx::{AuthMethod, Ctx, Gate, Grant, Principal, PrincipalKind, RequestInfo, TokenLimit};
pub use digest::SetDigest;
pub use error::{Code, Error, ErrorKind, Result, code};
pub use hex::hex;
pub use id::{
    BindingId, BlobId, EndpointId, EventId, KeyId, ObjectId, PolicyId, PrincipalId, ProjectId,
    RequestId, SessionId, TenantId, TokenId,
};
pub use name::{Name, UserName};
pub use page::{Page, PageQuery};
pub use percent::percent_decoded;
pub use quantity::{ByteSize, HumanDuration};
pub use resource::{Attributes, Destination, Resource, Scope};
pub use secret::Secret;
