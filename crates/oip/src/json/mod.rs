//! JSON straight into tensors and back, without a tree of values between.

mod cursor;
mod data;
mod decimal;
mod number;
mod request;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use cursor::Cursor;
pub(crate) use data::{Wants, read as read_data};
pub(crate) use number::append;
pub(crate) use request::{Input, read};
pub(crate) use write::{put, response};
