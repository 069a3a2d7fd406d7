//! Why a signature does not vouch for a model.

use std::fmt;

use falaj_base::Error;
use falaj_base::error::code;

/// The longest echo of a path or value from a signature.
const ECHO_LIMIT: usize = 200;

/// What [`super::verify`] found first. Files are compared in the manifest's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not a signature as this module knows them; the text says where it departs.
    Malformed(String),
    /// A valid form that is deliberately not supported here.
    Unsupported(String),
    /// Made with another key than the one given.
    OtherKey,
    /// The envelope was changed after signing, or signed by someone else.
    BadSignature,
    /// The statement's own total does not match its list of files.
    Inconsistent,
    /// The file's content is not what was signed.
    Differs { path: String },
    /// Signed, but not in the model.
    Missing { path: String },
    /// In the model, but not signed.
    Extra { path: String },
}

impl Refusal {
    pub(super) fn malformed(why: impl fmt::Display) -> Self {
        Self::Malformed(shorten(&why.to_string()))
    }

    pub(super) fn unsupported(what: &str, value: &str, supported: &str) -> Self {
        Self::Unsupported(format!("{what} is {:?}; supported: {supported}", shorten(value)))
    }
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(ECHO_LIMIT).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "this is not a model signature: {why}"),
            Self::Unsupported(what) => write!(f, "this signature cannot be checked here: {what}"),
            Self::OtherKey => f.write_str("the model was signed with another key"),
            Self::BadSignature => f.write_str("the signature does not fit its content and the key"),
            Self::Inconsistent => {
                f.write_str("the signature's total does not match its own list of files")
            }
            Self::Differs { path } => {
                write!(f, "the file {:?} is not the one that was signed", shorten(path))
            }
            Self::Missing { path } => {
                write!(f, "the file {:?} was signed, but the model does not have it", shorten(path))
            }
            Self::Extra { path } => {
                write!(f, "the file {:?} is in the model, but was not signed", shorten(path))
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// For callers without a better word: the model's state does not allow what was asked.
impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(&code::CONFLICT, refusal.to_string()).at("signature")
    }
}
