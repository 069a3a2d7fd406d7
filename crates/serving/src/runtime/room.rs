//! A number of bytes that several share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(super) struct Room {
    limit: usize,
    used: AtomicUsize,
}

impl Room {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Takes bytes if they are free. Dropping what is given frees them.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let fits = |used: usize| used.checked_add(bytes).filter(|&used| used <= self.limit);
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fits);
        taken.ok().map(|_| Taken { room: Arc::clone(self), bytes })
    }
}

/// Bytes that are taken until this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Taken {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Corrects how many bytes it is, even if they are more than are free: they are in use.
    pub(super) fn correct(&mut self, bytes: usize) {
        self.room.used.fetch_add(bytes, Ordering::AcqRel);
        self.room.used.fetch_sub(self.bytes, Ordering::AcqRel);
        self.bytes = bytes;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_and_all_comes_back() {
        let room = Room::new(10);
        let mut first = room.take(6).unwrap();
        assert!(room.take(5).is_none());
        assert!(room.take(usize::MAX).is_none());
        let second = room.take(4).unwrap();
        first.correct(9);
        assert_eq!(room.used(), 13);
        drop((first, second));
        assert_eq!(room.used(), 0);
    }
}
