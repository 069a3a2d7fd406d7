//! What `import` and `export` share: the project they work on, and the account of what they did.

mod account;
mod project;

pub(crate) use account::{Account, Kind};
pub(crate) use project::Project;

impl From<falaj_moving::Error> for crate::exit::Failure {
    fn from(error: falaj_moving::Error) -> Self {
        match error {
            falaj_moving::Error::Unsupported(_) => Self::usage(error.to_string()),
            _ => Self::failed(error.to_string()),
        }
    }
}
