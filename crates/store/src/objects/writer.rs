//! Sealed bytes on their way into a root.

use std::fmt;
use std::sync::Arc;

use falaj_base::{Error, Result};
use object_store::path::Path;
use tokio::task::spawn_blocking;

use super::failure::file_error;
use super::parts::{Ledger, PartWriter};
use super::root::Root;
use super::staged::StagedFile;
use crate::seal::Buffer;

/// Writes one blob. Until [`BlobWriter::finish`] has returned nothing of it can be read.
pub(super) enum BlobWriter {
    File(StagedFile),
    Parts(Box<PartWriter>),
}

impl BlobWriter {
    pub(super) fn new(
        root: &Arc<Root>,
        location: Path,
        ledger: Ledger,
        expected_len: Option<u64>,
        in_flight: usize,
    ) -> Self {
        if let Some(place) = root.file(&location) {
            return Self::File(StagedFile::new(place));
        }
        let parts = PartWriter::new(root, location, ledger, expected_len, in_flight);
        Self::Parts(Box::new(parts))
    }

    /// Whether sealed bytes are sent, rather than written to a file.
    pub(super) fn sends(&self) -> bool {
        matches!(self, Self::Parts(_))
    }

    /// Writes `sealed` to the file and empties it; blocks. What goes elsewhere is left for
    /// [`BlobWriter::send`].
    pub(super) fn append(&mut self, sealed: &mut Buffer) -> Result<()> {
        if let Self::File(file) = self
            && !sealed.is_empty()
        {
            file.append(sealed).map_err(file_error)?;
            sealed.clear();
        }
        Ok(())
    }

    /// Sends `sealed` to the store and empties it; waits while enough is on its way. What goes to
    /// a file is left for [`BlobWriter::append`].
    pub(super) async fn send(&mut self, sealed: &mut Buffer) -> Result<()> {
        match self {
            Self::Parts(parts) => parts.write(std::mem::take(sealed).into()).await,
            Self::File(_) => Ok(()),
        }
    }

    /// Writes the last bytes and puts the blob in its place. When this returns `Ok`, it is durable.
    pub(super) async fn finish(self, sealed: Buffer) -> Result<()> {
        match self {
            Self::File(mut file) => {
                let publish = move || file.append(&sealed).and_then(|()| file.publish());
                let published = spawn_blocking(publish).await.map_err(Error::internal)?;
                published.map_err(file_error)
            }
            Self::Parts(mut parts) => {
                parts.write(sealed.into()).await?;
                parts.finish().await
            }
        }
    }
}

impl fmt::Debug for BlobWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Parts(_) => f.write_str("PartWriter"),
        }
    }
}
