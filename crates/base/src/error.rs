//! One error type for the whole platform, neutral to transport.
//!
//! An [`Error`] is what a *caller* may read: a stable [`Code`], one sentence, and the field at
//! fault. What the *operator* needs (the driver's text, a path, a statement) travels as `source`
//! and is logged once, where the error is turned into a reply; it never leaves the process.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

pub use codes::code;
pub use codes::{ALL_CODES, Code, error_page};

mod codes;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the terms that decide an HTTP status, a gRPC status and whether to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    InvalidInput,
    Unauthenticated,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    Conflict,
    TooLarge,
    UnsupportedMedia,
    Unprocessable,
    RateLimited,
    Unavailable,
    Timeout,
    StorageFull,
    Internal,
}

impl ErrorKind {
    /// Whether it is the server's doing, or its state: 5xx.
    #[must_use]
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Unavailable | Self::Timeout | Self::StorageFull | Self::Internal)
    }
}

/// An error fit to be shown to the caller.
pub struct Error(Box<Inner>);

struct Inner {
    code: &'static Code,
    message: String,
    field: Option<String>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The longest echo of a caller's value inside a message.
const ECHO_LIMIT: usize = 80;

impl Error {
    #[must_use]
    pub fn new(code: &'static Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            field: None,
            retry_after: None,
            source: None,
        }))
    }

    /// The one shape of a refusal of bad input: the field, the value, what is allowed.
    #[must_use]
    pub fn invalid(
        field: impl Into<String>,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        let field = field.into();
        let value = echo(&value.to_string());
        Self::new(&code::INVALID_INPUT, format!("`{field}` is {value}; allowed: {allowed}"))
            .at(field)
    }

    /// The reply to an unknown name and to one the caller may not see: the two must not differ.
    #[must_use]
    pub fn not_found(what: &str, name: impl fmt::Display) -> Self {
        let name = echo(&name.to_string());
        Self::new(&code::NOT_FOUND, format!("there is no {what} {name} here"))
    }

    #[must_use]
    pub fn already_exists(what: &str, name: impl fmt::Display) -> Self {
        Self::new(&code::ALREADY_EXISTS, format!("{what} `{name}` already exists"))
    }

    /// A fault of ours. The caller learns only that; `source` says the rest in the log.
    #[must_use]
    pub fn internal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(&code::INTERNAL, "the server failed; the request id finds the reason in its log")
            .caused_by(source)
    }

    /// Names the request field at fault.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// The same about a part of something larger: the field is named from there on.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        if let Some(field) = self.0.field.take() {
            let full = format!("{outer}.{field}");
            self.0.message =
                self.0.message.replacen(&format!("`{field}`"), &format!("`{full}`"), 1);
            self.0.field = Some(full);
        }
        self
    }

    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    #[must_use]
    pub fn code(&self) -> &'static Code {
        self.0.code
    }

    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.code.kind
    }

    /// The sentence for the caller.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The message and every cause, for the log and the command line.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.0.message.clone();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// Quotes a caller's value for a message: printable, bounded, on one line.
fn echo(value: &str) -> String {
    let shown: String = value.chars().take(ECHO_LIMIT).collect();
    let more = if shown.len() < value.len() { "…" } else { "" };
    format!("{shown:?}{more}")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.id, self.chain())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_field_value_and_what_is_allowed() {
        let error = Error::invalid("page_size", 0, "1 to 1000");
        assert_eq!(error.message(), "`page_size` is \"0\"; allowed: 1 to 1000");
        assert_eq!(error.field(), Some("page_size"));
    }

    #[test]
    fn an_echo_is_bounded_and_cannot_forge_a_line() {
        let error = Error::invalid("name", "x\nERROR forged".repeat(1000), "a name");
        assert!(error.message().len() < 400);
        assert!(!error.message().contains('\n'));
    }

    #[test]
    fn the_cause_is_for_the_log_only() {
        let error = Error::internal("disk /secret/path is on fire");
        assert!(!error.message().contains("secret"));
        assert!(error.chain().contains("/secret/path"));
    }
}
