//! How a command ends: an exit code that means something, and an error that says what to do next.
//!
//! The codes are a promise to scripts. They are listed in [`Exit::ALL`], which is also what
//! `falaj help exit-codes` prints.

use std::fmt::Write as _;
use std::io;

use falaj_base::ErrorKind;
use serde_json::{Map, Value};

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command did not succeed, as far as a script needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    Unauthenticated = 3,
    Forbidden = 4,
    NotFound = 5,
    Conflict = 6,
    Unavailable = 7,
    Verification = 8,
    /// Ended by Ctrl-C, as shells number it.
    Interrupted = 130,
}

impl Exit {
    pub(crate) const ALL: [(u8, &'static str); 10] = [
        (0, "done"),
        (1, "failed; the message says why"),
        (2, "the command line or the configuration is wrong"),
        (3, "not signed in, or the token is not valid"),
        (4, "signed in, but the policy does not allow it"),
        (5, "there is no such thing, or not for you"),
        (6, "it exists already, is in use, or its state does not allow this"),
        (7, "the server cannot be reached, is overloaded, or did not answer in time"),
        (8, "a verification failed: a digest, a signature or the audit log does not hold"),
        (130, "interrupted"),
    ];

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// The exit code for an HTTP status that is not a success.
    pub(crate) const fn of_status(status: u16) -> Self {
        match status {
            401 => Self::Unauthenticated,
            403 => Self::Forbidden,
            404 | 410 => Self::NotFound,
            409 | 412 => Self::Conflict,
            408 | 429 | 502..=504 => Self::Unavailable,
            _ => Self::Failed,
        }
    }

    const fn of_kind(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Unauthenticated => Self::Unauthenticated,
            ErrorKind::Forbidden => Self::Forbidden,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::RateLimited | ErrorKind::Unavailable | ErrorKind::Timeout => {
                Self::Unavailable
            }
            _ => Self::Failed,
        }
    }
}

/// An error on its way to the person at the terminal.
#[derive(Debug)]
pub(crate) struct Failure(Box<Parts>);

#[derive(Debug)]
struct Parts {
    exit: Exit,
    message: String,
    code: Option<String>,
    field: Option<String>,
    hint: Option<String>,
    request: Option<String>,
    /// The reader of our output went away, or all was said; there is nothing to tell.
    silent: bool,
    /// The server expects that it will do later.
    passing: bool,
    /// The exit code of a command that was run for the caller.
    own_code: Option<u8>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            exit,
            message: message.into(),
            code: None,
            field: None,
            hint: None,
            request: None,
            silent: false,
            passing: false,
            own_code: None,
        }))
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A command that was run for the caller ended so, and has said itself why.
    pub(crate) fn of_command(code: u8) -> Self {
        let mut failure = Self::failed(format!("the command ended with {code}"));
        failure.0.silent = true;
        failure.0.own_code = Some(code);
        failure
    }

    pub(crate) fn own_code(&self) -> Option<u8> {
        self.0.own_code
    }

    /// What to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn code(mut self, code: Option<String>) -> Self {
        self.0.code = code;
        self
    }

    pub(crate) fn field(mut self, field: Option<String>) -> Self {
        self.0.field = field;
        self
    }

    /// Whether a field of this name is what is wrong.
    pub(crate) fn is_about(&self, field: &str) -> bool {
        self.0.field.as_deref() == Some(field)
    }

    pub(crate) fn request(mut self, id: Option<String>) -> Self {
        self.0.request = id;
        self
    }

    /// Says that the same may do later.
    pub(crate) fn passing(mut self, passing: bool) -> Self {
        self.0.passing = passing;
        self
    }

    /// Whether what can be sent twice should be sent again in a while.
    pub(crate) fn is_passing(&self) -> bool {
        self.0.passing || self.0.exit == Exit::Unavailable
    }

    pub(crate) fn exit(&self) -> Exit {
        self.0.exit
    }

    /// The same failure where it means something more exact.
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.0.exit = exit;
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// What helps against it.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.0.silent
    }

    /// Whether the server gave this code as the reason.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.0.code.as_deref() == Some(code)
    }

    /// Whether it is about the one thing that was sent: others may come. Not so where the server
    /// is away or has failed, or the caller is not known.
    pub(crate) fn is_refusal(&self) -> bool {
        let failed = ["internal", "integrity", "storage-full"].iter().any(|it| self.has_code(it));
        let of_all = [Exit::Unavailable, Exit::Unauthenticated, Exit::Interrupted];
        !failed && !self.is_silent() && !of_all.contains(&self.exit())
    }

    /// The lines for a person.
    pub(crate) fn text(&self) -> String {
        let parts = &self.0;
        let mut text = format!("error: {}", parts.message);
        let mut line = |name: &str, value: &Option<String>| {
            if let Some(value) = value {
                // Writing into a String cannot fail.
                let _ = write!(text, "\n  {name}: {value}");
            }
        };
        line("field", &parts.field);
        line("next", &parts.hint);
        line("request", &parts.request);
        text
    }

    /// The same for a program.
    pub(crate) fn json(&self) -> Value {
        let parts = &self.0;
        let mut error = Map::new();
        error.insert("exit_code".into(), parts.exit.code().into());
        error.insert("message".into(), parts.message.clone().into());
        let optional = [
            ("code", &parts.code),
            ("field", &parts.field),
            ("next", &parts.hint),
            ("request", &parts.request),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                error.insert(name.into(), value.clone().into());
            }
        }
        serde_json::json!({ "error": error })
    }
}

impl From<falaj_base::Error> for Failure {
    fn from(error: falaj_base::Error) -> Self {
        let exit = if error.code() == &falaj_base::code::INVALID_CONFIG {
            Exit::Usage
        } else {
            Exit::of_kind(error.kind())
        };
        // Local work has no server log to look in: the causes are shown here.
        Self::new(exit, error.chain())
            .code(Some(error.code().id.to_owned()))
            .field(error.field().map(str::to_owned))
    }
}

/// Output that fails because its reader has gone (`falaj … | head`) ends the command quietly.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let mut failure = Self::failed(error.to_string());
        failure.0.silent = error.kind() == io::ErrorKind::BrokenPipe;
        failure
    }
}

/// Names the file in an I/O error: "permission denied" alone helps nobody.
pub(crate) fn file_error(
    verb: &str,
    path: &std::path::Path,
) -> impl Fn(io::Error) -> Failure + use<> {
    let (verb, path) = (verb.to_owned(), path.display().to_string());
    move |error| Failure::failed(format!("cannot {verb} {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_its_exit_code() {
        for (status, exit) in [
            (400, 1),
            (401, 3),
            (403, 4),
            (404, 5),
            (409, 6),
            (413, 1),
            (422, 1),
            (429, 7),
            (500, 1),
            (503, 7),
            (504, 7),
            (507, 1),
        ] {
            assert_eq!(Exit::of_status(status).code(), exit, "{status}");
        }
    }

    #[test]
    fn every_exit_code_is_documented() {
        use Exit::{
            Conflict, Failed, Forbidden, Interrupted, NotFound, Unauthenticated, Unavailable,
            Usage, Verification,
        };
        for exit in [
            Failed,
            Usage,
            Unauthenticated,
            Forbidden,
            NotFound,
            Conflict,
            Unavailable,
            Verification,
            Interrupted,
        ] {
            assert!(Exit::ALL.iter().any(|(code, _)| *code == exit.code()), "{exit:?}");
        }
    }

    #[test]
    fn a_refusal_is_about_one_thing() {
        for (exit, code, refusal) in [
            (Exit::Failed, Some("invalid-input"), true),
            (Exit::Failed, None, true),
            (Exit::Conflict, Some("already-exists"), true),
            (Exit::NotFound, Some("not-found"), true),
            (Exit::Forbidden, Some("forbidden"), true),
            (Exit::Failed, Some("internal"), false),
            (Exit::Failed, Some("storage-full"), false),
            (Exit::Unavailable, None, false),
            (Exit::Unauthenticated, None, false),
        ] {
            let failure = Failure::new(exit, "x").code(code.map(str::to_owned));
            assert_eq!(failure.is_refusal(), refusal, "{exit:?} {code:?}");
        }
    }

    #[test]
    fn an_error_says_what_to_do_next() {
        let failure = Failure::new(Exit::Unauthenticated, "no valid credential")
            .hint("run `falaj login`")
            .request(Some("req_1".into()));
        let text = "error: no valid credential\n  next: run `falaj login`\n  request: req_1";
        assert_eq!(failure.text(), text);
        assert_eq!(failure.json()["error"]["exit_code"], 3);
    }
}
