//! Every error code a caller can meet. A code is a promise: it is never renamed, and each has a
//! page `docs/errors/<id>.md` (a test compares the two lists).

use super::ErrorKind;

/// A stable, documented reason.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// Stable id, the last part of the problem's `type` URI.
    pub id: &'static str,
    pub kind: ErrorKind,
    /// The problem's `title`: the same for every occurrence.
    pub title: &'static str,
}

macro_rules! codes {
    ($($name:ident = $id:literal, $kind:ident, $title:literal;)*) => {
        /// The codes by name.
        pub mod code {
            use super::{Code, ErrorKind};
            $(pub static $name: Code = Code { id: $id, kind: ErrorKind::$kind, title: $title };)*
        }

        /// The codes as a list, for the documentation and the OpenAPI document.
        pub static ALL_CODES: &[&Code] = &[$(&code::$name),*];

        /// The page about each code, in the same order: a code without one does not compile.
        static PAGES: &[&str] = &[$(include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/", $id, ".md"
        ))),*];
    };
}

codes! {
    INVALID_INPUT = "invalid-input", InvalidInput, "A field has a value that is not allowed";
    MALFORMED_BODY = "malformed-body", InvalidInput, "The request body could not be read";
    UNAUTHENTICATED = "unauthenticated", Unauthenticated, "No valid credential was given";
    FORBIDDEN = "forbidden", Forbidden, "The policy does not allow this";
    CROSS_SITE = "cross-site", Forbidden, "The request came from another site";
    NOT_FOUND = "not-found", NotFound, "There is nothing here, or not for you";
    METHOD_NOT_ALLOWED = "method-not-allowed", MethodNotAllowed, "The route has no such method";
    ALREADY_EXISTS = "already-exists", Conflict, "The name is taken";
    IN_USE = "in-use", Conflict, "Something still depends on it";
    LEGAL_HOLD = "legal-hold", Conflict, "A legal hold keeps it";
    CONFLICT = "conflict", Conflict, "The state does not allow this now";
    CHANGED = "changed", Conflict, "It changed while the request was under way";
    INVALID_STATE = "invalid-state", InvalidInput, "It is not in a state that takes this";
    TOO_LARGE = "too-large", TooLarge, "The request is over a limit";
    UNSUPPORTED_MEDIA = "unsupported-media", UnsupportedMedia, "The content type or encoding is not accepted";
    IDEMPOTENCY_MISMATCH = "idempotency-mismatch", Unprocessable, "The Idempotency-Key was used for another request";
    RESIDENCY = "residency", Unprocessable, "A residency rule forbids this placement";
    INVALID_POLICY = "invalid-policy", Unprocessable, "The policy does not pass validation";
    ERASED = "erased", Unprocessable, "The key of this data was destroyed";
    RATE_LIMITED = "rate-limited", RateLimited, "Too many requests from this source";
    OVERLOADED = "overloaded", Unavailable, "The server is at its limit";
    SHUTTING_DOWN = "shutting-down", Unavailable, "The server is draining";
    UNAVAILABLE = "unavailable", Unavailable, "Something the server depends on does not answer";
    DEADLINE_EXCEEDED = "deadline-exceeded", Timeout, "The deadline passed before the answer";
    STORAGE_FULL = "storage-full", StorageFull, "The disk or quota is full";
    INTEGRITY = "integrity", Internal, "Stored data failed its integrity check";
    INTERNAL = "internal", Internal, "The server failed";
    INVALID_CONFIG = "invalid-config", InvalidInput, "The configuration is not valid";
    NEWER_SCHEMA = "newer-schema", Conflict, "The store was written by a newer version";
}

/// The page that explains a code to people, as Markdown; none if there is no such code.
#[must_use]
pub fn error_page(id: &str) -> Option<&'static str> {
    let place = ALL_CODES.iter().position(|code| code.id == id)?;
    PAGES.get(place).copied()
}
