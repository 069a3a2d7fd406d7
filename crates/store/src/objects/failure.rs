//! What a failing object root means to the caller.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use falaj_base::{Error, code};
use object_store::Error as StoreError;

/// Words by which S3 servers say that they are full; there is no common code.
const FULL_WORDS: [&str; 3] = ["XMinioStorageFull", "InsufficientCapacity", "QuotaExceeded"];

pub(super) fn store_error(error: StoreError) -> Error {
    if is_full(&error) {
        let text = "the object root is full; free space or add a root, then try again";
        return Error::new(&code::STORAGE_FULL, text).caused_by(error);
    }
    match error {
        StoreError::NotFound { .. } => missing(error),
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            Error::new(&code::UNAVAILABLE, "the object root refuses our credentials")
                .caused_by(error)
        }
        StoreError::JoinError { .. } | StoreError::InvalidPath { .. } => Error::internal(error),
        _ => Error::new(&code::UNAVAILABLE, "the object root does not answer")
            .retry_after(Duration::from_secs(5))
            .caused_by(error),
    }
}

/// The same of a file that is written or read without the store.
pub(super) fn file_error(error: io::Error) -> Error {
    store_error(StoreError::Generic { store: "directory", source: Box::new(error) })
}

/// Bytes that a row promises are not there.
pub(super) fn missing(error: impl StdError + Send + Sync + 'static) -> Error {
    Error::new(&code::INTEGRITY, "the stored bytes are missing").caused_by(error)
}

fn is_full(error: &StoreError) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            let full = matches!(
                io.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge
            );
            if full {
                return true;
            }
        }
        cause = error.source();
    }
    let text = error.to_string();
    FULL_WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart() {
        let io = |kind: io::ErrorKind| StoreError::Generic {
            store: "test",
            source: Box::new(io::Error::from(kind)),
        };
        let text = |text: &str| StoreError::Generic { store: "test", source: text.into() };
        let gone = StoreError::NotFound { path: "x".into(), source: "gone".into() };
        for (error, expected) in [
            (io(io::ErrorKind::StorageFull), &code::STORAGE_FULL),
            (io(io::ErrorKind::QuotaExceeded), &code::STORAGE_FULL),
            (text("<Code>XMinioStorageFull</Code>"), &code::STORAGE_FULL),
            (io(io::ErrorKind::TimedOut), &code::UNAVAILABLE),
            (text("503"), &code::UNAVAILABLE),
            (gone, &code::INTEGRITY),
        ] {
            let shown = error.to_string();
            assert_eq!(store_error(error).code(), expected, "{shown}");
        }
    }
}
