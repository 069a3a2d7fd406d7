//! The way in, attacked over real sockets.

mod drain;
mod limits;
mod port;
mod slow;
mod tls;
