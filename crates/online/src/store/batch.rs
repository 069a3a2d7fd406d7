//! Rows to be applied together, one for each key.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::key::Key;
use crate::row::rank;

/// Rows by key: of several for one key the greatest stays.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    rows: HashMap<Key, Box<[u8]>>,
    bytes: usize,
}

impl Batch {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packed row.
    pub fn put(&mut self, key: Key, row: Box<[u8]>) {
        match self.rows.entry(key) {
            Entry::Vacant(place) => {
                self.bytes += place.key().bytes().len() + row.len();
                place.insert(row);
            }
            Entry::Occupied(mut place) => {
                if rank(&row) > rank(place.get()) {
                    self.bytes += row.len();
                    self.bytes -= place.insert(row).len();
                }
            }
        }
    }

    /// How many keys have a row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The size of keys and rows together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rows in the order of their keys: neighbours share pages of a B-tree.
    pub(super) fn sorted(self) -> Vec<(Key, Box<[u8]>)> {
        let mut rows: Vec<_> = self.rows.into_iter().collect();
        rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        rows
    }
}
