//! Where the files of a run are, and their bytes.
//!
//! Must hold: a file is read from below the location that was asked for, and from nowhere else;
//! links are not followed, and what a store keeps for itself is not read.

mod allowed;
mod local;
mod location;
mod s3;

use std::path::PathBuf;

use bytes::Bytes;
use futures::Stream;

pub use allowed::Allowed;
pub use location::{Location, Roots, local_path};

use crate::error::{Error, Result};

/// A file below a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// From the location, with slashes.
    pub path: String,
    pub size: u64,
    /// When it was last written, in microseconds since 1970.
    pub modified: i64,
}

/// What lies below a location.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub files: Vec<File>,
    /// How many hidden files and folders there are that are not read.
    pub hidden: usize,
}

/// A place whose files can be read.
#[derive(Clone, Debug)]
pub enum Folder {
    Local(PathBuf),
    S3(s3::Bucket),
}

impl Folder {
    /// Opens a location that can be read.
    pub fn open(location: &Location) -> Result<Self> {
        match location {
            Location::Local(path) => Ok(Self::Local(path.clone())),
            Location::S3 { bucket, prefix } => s3::Bucket::open(bucket, prefix).map(Self::S3),
            Location::Elsewhere(uri) => {
                Err(Error::Unsupported(format!("files at {uri} cannot be read from here")))
            }
        }
    }

    /// Every file below; none if there is nothing. A folder that is shared holds more than the files
    /// of one run.
    pub async fn list(&self, shared: bool) -> Result<Listing> {
        match self {
            Self::Local(folder) => local::list(folder, shared),
            Self::S3(bucket) => Ok(Listing { files: bucket.files().await?, hidden: 0 }),
        }
    }

    /// The bytes of a file as they are read: as many as it had when it was found.
    pub async fn read(
        &self,
        file: &File,
    ) -> Result<futures::stream::BoxStream<'static, Result<Bytes>>> {
        match self {
            Self::Local(folder) => local::read(folder, file).await,
            Self::S3(bucket) => bucket.read(&file.path).await,
        }
    }
}

/// A stream that can cross tasks.
fn boxed(
    stream: impl Stream<Item = Result<Bytes>> + Send + 'static,
) -> futures::stream::BoxStream<'static, Result<Bytes>> {
    Box::pin(stream)
}
