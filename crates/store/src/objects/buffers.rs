//! Buffers that are used again. The pages of a fresh one cost as much as copying into it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::seal::Buffer;

/// The buffers of one transfer; there are never more than it had in use at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Buffer>>>);

impl Buffers {
    /// An empty buffer.
    pub(super) fn take(&self) -> Buffer {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(super) fn give_back(&self, mut buffer: Buffer) {
        buffer.clear();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }

    /// The contents of a buffer, which comes back when they are dropped.
    pub(super) fn lend(&self, buffer: Buffer) -> Bytes {
        Bytes::from_owner(Loan { buffer, home: self.clone() })
    }
}

struct Loan {
    buffer: Buffer,
    home: Buffers,
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.buffer));
    }
}
