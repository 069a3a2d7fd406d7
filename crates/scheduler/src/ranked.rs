//! A sorted set that also knows how many of its members come before a given one.
//!
//! Members lie in blocks of bounded size. Inserting and removing touch one block; counting adds up
//! the sizes of blocks, some thousands for a million members.

/// Small enough that moving half of it costs little, large enough that blocks stay few.
const BLOCK: usize = 128;

#[derive(Clone, Debug)]
pub struct RankedSet<K> {
    blocks: Vec<Vec<K>>,
    len: usize,
}

impl<K> Default for RankedSet<K> {
    fn default() -> Self {
        Self { blocks: Vec::new(), len: 0 }
    }
}

impl<K: Ord + Copy> RankedSet<K> {
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[must_use]
    pub fn first(&self) -> Option<K> {
        self.blocks.first().and_then(|block| block.first()).copied()
    }

    /// The block in which the key is or belongs.
    fn block_of(&self, key: &K) -> usize {
        self.blocks.partition_point(|block| block.last().is_some_and(|last| last < key))
    }

    /// False if it was there already.
    pub fn insert(&mut self, key: K) -> bool {
        let at = self.block_of(&key).min(self.blocks.len().saturating_sub(1));
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(vec![key]);
            self.len = 1;
            return true;
        };
        let Err(place) = block.binary_search(&key) else { return false };
        self.len += 1;
        if block.len() < BLOCK {
            block.insert(place, key);
        } else if place == BLOCK {
            // In order, as submissions come: a new block leaves no half-empty ones behind.
            self.blocks.insert(at + 1, vec![key]);
        } else {
            let mut upper = block.split_off(BLOCK / 2);
            if place <= BLOCK / 2 {
                block.insert(place, key);
            } else {
                upper.insert(place - BLOCK / 2, key);
            }
            self.blocks.insert(at + 1, upper);
        }
        true
    }

    /// False if it was not there.
    pub fn remove(&mut self, key: &K) -> bool {
        let at = self.block_of(key);
        let Some(block) = self.blocks.get_mut(at) else { return false };
        let Ok(place) = block.binary_search(key) else { return false };
        block.remove(place);
        self.len -= 1;
        if block.is_empty() {
            self.blocks.remove(at);
        }
        true
    }

    /// How many members are less than the key.
    #[must_use]
    pub fn before(&self, key: &K) -> usize {
        let at = self.block_of(key);
        let whole: usize = self.blocks[..at].iter().map(Vec::len).sum();
        whole + self.blocks.get(at).map_or(0, |block| block.partition_point(|k| k < key))
    }

    pub fn iter(&self) -> impl Iterator<Item = K> + '_ {
        self.blocks.iter().flatten().copied()
    }
}
