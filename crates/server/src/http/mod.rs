//! The way in: one port, one router, one authenticated door.
//!
//! Must hold:
//! - Every request, for REST, gRPC, metrics or a path that does not exist, passes the same layers
//!   in the same order ([`port`], [`middleware`]).
//! - A route is closed unless the table says it is public.
//!
//! Not here: what the routes do (the domains, through `falaj_web`).

mod activity;
mod config;
mod connection;
mod drain;
mod express;
mod health;
mod held;
mod listener;
mod loops;
mod middleware;
mod own;
mod port;
mod reply;
mod rewound;
mod route;
mod router;
mod sources;
mod stall;
mod tls;
mod untaken;
mod words;

pub use config::{LimitsConfig, ServerConfig, TlsConfig, TlsMode};
pub use connection::Peer;
pub use drain::Drain;
pub use express::Doors;
pub use health::Readiness;
pub use listener::Listener;
pub(crate) use middleware::body::with_whole_bodies;
pub use own::{ACTIONS, Description, METRICS_READ, SELF_API, module};
pub use route::{Access, Route, RouteKind};
pub use router::{App, build, route_table};
pub use tls::Transport;
