//! JSON straight into tensors and back, without a tree of values between.

mod cursor;
mod data;
mod number;
mod request;
mod write;

pub(crate) use cursor::Cursor;
pub(crate) use request::{Input, read};
pub(crate) use write::{put_text, response};
