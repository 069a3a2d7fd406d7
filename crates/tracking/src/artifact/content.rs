//! The content of an artifact, ready to be read: one blob, or several in a row.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use falaj_base::{BlobId, Error, Result, TenantId};
use falaj_store::objects::{Blob, Objects};
use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::store::PartRow;

/// Bytes as they are read.
pub type ContentStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// A content opened for reading.
#[derive(Clone, Debug)]
pub struct Content {
    size: u64,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Whole(Blob),
    /// A file in ten thousand parts is not opened ten thousand times before its first byte: each
    /// part is opened when its turn comes.
    Parts {
        objects: Objects,
        tenant: TenantId,
        parts: Arc<[Part]>,
    },
}

#[derive(Clone, Debug)]
struct Part {
    start: u64,
    size: u64,
    blob: BlobId,
}

impl Content {
    pub(super) async fn whole(objects: &Objects, tenant: TenantId, blob: BlobId) -> Result<Self> {
        let blob = objects.blob(tenant, blob).await?;
        Ok(Self { size: blob.size(), source: Source::Whole(blob) })
    }

    pub(super) async fn parts(
        objects: &Objects,
        tenant: TenantId,
        rows: Vec<PartRow>,
    ) -> Result<Self> {
        let mut size = 0;
        let mut parts = Vec::with_capacity(rows.len());
        for row in rows {
            parts.push(Part { start: size, size: row.size, blob: row.blob });
            size += row.size;
        }
        // Opened before anything is promised: a destroyed key is an answer, not a broken body.
        let first = parts.first().ok_or_else(|| Error::internal("an artifact has no content"))?;
        objects.blob(tenant, first.blob).await?;
        let source = Source::Parts { objects: objects.clone(), tenant, parts: parts.into() };
        Ok(Self { size, source })
    }

    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The SHA-256, where the content is one piece.
    #[must_use]
    pub fn sha256(&self) -> Option<[u8; 32]> {
        match &self.source {
            Source::Whole(blob) => Some(*blob.sha256()),
            Source::Parts { .. } => None,
        }
    }

    /// The whole content. What is read whole is also checked whole, blob by blob.
    #[must_use]
    pub fn read(&self) -> ContentStream {
        match &self.source {
            Source::Whole(blob) => blob.read(),
            Source::Parts { .. } => self.in_parts(0..self.size),
        }
    }

    /// The bytes of `range`, which must lie within the content.
    pub fn read_range(&self, range: Range<u64>) -> Result<ContentStream> {
        if range.start > range.end || range.end > self.size {
            let shown = format!("{}..{}", range.start, range.end);
            return Err(Error::invalid("range", shown, format!("within 0..{}", self.size)));
        }
        match &self.source {
            Source::Whole(_) if range == (0..self.size) => Ok(self.read()),
            Source::Whole(blob) => blob.read_range(range),
            Source::Parts { .. } => Ok(self.in_parts(range)),
        }
    }

    fn in_parts(&self, range: Range<u64>) -> ContentStream {
        let Source::Parts { objects, tenant, parts } = &self.source else {
            return Box::pin(stream::empty());
        };
        let wanted: Vec<(BlobId, Range<u64>, bool)> =
            parts.iter().filter_map(|part| part.within(&range)).collect();
        let (objects, tenant) = (objects.clone(), *tenant);
        let opened = stream::iter(wanted).then(move |(blob, range, whole)| {
            let objects = objects.clone();
            async move {
                let blob = objects.blob(tenant, blob).await?;
                if whole { Ok(blob.read()) } else { blob.read_range(range) }
            }
        });
        Box::pin(opened.try_flatten())
    }
}

impl Part {
    /// What of this part lies in a range of the whole, and whether that is all of it.
    fn within(&self, range: &Range<u64>) -> Option<(BlobId, Range<u64>, bool)> {
        let start = range.start.max(self.start) - self.start;
        let end = range.end.min(self.start + self.size).checked_sub(self.start)?;
        (start < end).then_some((self.blob, start..end, start == 0 && end == self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_of_a_range_are_the_range(
            sizes in prop::collection::vec(0u64..20, 1..8), a in 0u64..150, b in 0u64..150,
        ) {
            let total: u64 = sizes.iter().sum();
            let range = a.min(b).min(total)..a.max(b).min(total);
            let (mut start, mut read) = (0, Vec::new());
            for size in sizes {
                let part = Part { start, size, blob: BlobId::new() };
                if let Some((_, inside, whole)) = part.within(&range) {
                    prop_assert!(inside.end <= size);
                    prop_assert_eq!(whole, inside == (0..size));
                    read.extend(inside.map(|at| at + start));
                }
                start += size;
            }
            prop_assert_eq!(read, range.collect::<Vec<_>>());
        }
    }
}
