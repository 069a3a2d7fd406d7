//! A blob as a file that is read here and there: sealed as it lies, opened piece by piece, and never
//! on a disk in the clear.

use std::io;

use bytes::{Bytes, BytesMut};
use falaj_base::Error;
use falaj_lake::place::Blocks;
use falaj_store::objects::Blob;
use falaj_tables::Ranges;
use futures::TryStreamExt;
use tokio::runtime::Handle;

/// Reads a blob from threads that may block.
#[derive(Debug)]
pub(crate) struct BlobRanges(Blocks);

impl BlobRanges {
    /// Must be called on the runtime; the reading must not be.
    pub(crate) fn new(blob: Blob) -> Self {
        let runtime = Handle::current();
        Self(Blocks::new(blob.size(), move |range| {
            let read = async {
                let length = usize::try_from(range.end - range.start).unwrap_or(0);
                let mut pieces = blob.read_range(range)?;
                let mut whole = BytesMut::with_capacity(length);
                while let Some(piece) = pieces.try_next().await? {
                    whole.extend_from_slice(&piece);
                }
                Ok::<_, Error>(whole.freeze())
            };
            runtime.block_on(read)
        }))
    }
}

impl Ranges for BlobRanges {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
        self.0.read(start, length)
    }
}
