//! What a request passes on its way to a handler, outermost first; [`super::port`] is the way itself.
//!
//! | layer | does |
//! |---|---|
//! | `unread` | closes an HTTP/1 connection whose body was refused, and says so |
//! | `request_id` | names the request |
//! | `observe` | span, access log, numbers |
//! | `security_headers` | tells browsers what not to do |
//! | `grpc` (beside this folder) | turns a refusal into a gRPC status for gRPC callers |
//! | `catch_panic` | contains a panic |
//! | `admit` | path, host, origin: the head must be well-formed and meant for us |
//! | `shed` | refuses early when full |
//! | `deadline` | ends the work when the caller stops caring |
//! | `auth` | who asks; `rate`: how often |
//! | `slow_body`, `body` | the body must keep coming, stay within limits and be plain |
//! | `idempotency` | answers a repeated creating call from memory |
//! | (the port) | makes the `Ctx` |
//!
//! The order is a decision: nothing reads a body before the caller is known, and nothing asks the
//! database before the caller has a slot.

pub(crate) mod admit;
pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod budget;
pub(crate) mod catch_panic;
pub(crate) mod deadline;
mod framed;
pub(crate) mod host;
pub(crate) mod idempotency;
pub(crate) mod observe;
mod origin;
mod path;
pub(crate) mod rate;
pub(crate) mod request_id;
pub(crate) mod security_headers;
pub(crate) mod shed;
pub(crate) mod slow_body;
mod unpack;
pub(crate) mod unread;
