//! The command as people and scripts run it: the real binary, and a real server behind it.

mod offline;
mod place;
mod with_server;
