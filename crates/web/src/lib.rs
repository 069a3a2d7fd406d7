//! How a domain speaks HTTP: typed endpoints that document and police themselves.
//!
//! An endpoint is declared once, with its action; from that one declaration come the route, the
//! OpenAPI entry, the strict parsing of its input and the gate on its reply.
//!
//! Must hold:
//! - A success leaves only if the endpoint's action was authorised in this request and, for a
//!   write, put on record ([`gate`]).
//! - Every error leaves as RFC 9457 problem JSON, and says nothing that [`falaj_base::Error`] does
//!   not say to the caller.
//!
//! Not here: sockets, TLS, limits and authentication (`server`).

mod connection;
mod direct;
pub mod download;
mod gate;
mod handler;
mod input;
mod module;
pub mod openapi;
mod problem;
mod reply;
mod routes;
pub mod upload;

pub use connection::{ConnectionLife, Lifeline, Stopping};
pub use direct::{Answer, Direct, Plain};
pub use handler::handled;
pub use input::{Input, query};
pub use module::Module;
pub use problem::{Problem, Told, grpc_code, http_status, problem_response};
pub use reply::{Accepted, Created, NoContent, Ok200, Reply};
pub use routes::{Body, Doc, Endpoint, Routes};
