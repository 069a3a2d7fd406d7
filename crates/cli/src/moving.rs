//! What `import`, `sync` and `export` share: bringing a store over, the project they work on, and the
//! account of what they did.

mod account;
mod bring;
mod project;

pub(crate) use account::{Account, Kind};
pub(crate) use bring::{Bring, Memory, StoreArgs};
pub(crate) use project::{Project, Way};

impl From<falaj_moving::Error> for crate::exit::Failure {
    fn from(error: falaj_moving::Error) -> Self {
        match error {
            falaj_moving::Error::Unsupported(_) => Self::usage(error.to_string()),
            _ => Self::failed(error.to_string()),
        }
    }
}
