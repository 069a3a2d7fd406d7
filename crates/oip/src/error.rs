//! Errors in the protocol's shape, and names of strangers inside messages.

use std::fmt;

use falaj_base::{Error, code};

/// The body of any reply that is not a success.
#[must_use]
pub fn body(error: &Error) -> Vec<u8> {
    body_of(error.message())
}

/// The same for a text that is no [`Error`].
#[must_use]
pub fn body_of(message: &str) -> Vec<u8> {
    let mut body = b"{\"error\":".to_vec();
    crate::json::put(&mut body, message);
    body.push(b'}');
    body
}

pub(crate) fn too_large(what: impl fmt::Display, most: usize, field: impl Into<String>) -> Error {
    Error::new(&code::TOO_LARGE, format!("there are more than {most} {what}")).at(field)
}

/// `inputs.NAME` or `outputs.NAME`: a name as a part of a field, on one line and bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of<'a>(pub &'static str, pub &'a str);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.0)?;
        self.1.chars().take(80).flat_map(char::escape_debug).try_for_each(|c| write!(f, "{c}"))
    }
}
