//! The partials of one entity, hop by hop.
//!
//! ```text
//! version    1 byte
//! for each hop of the plan, in its order:
//!   number of tiles
//!   for each: how far behind the last its number is, and the partials of the aggregates of the hop
//! ```
//!
//! Must hold: tiles of the same events are the same bytes. Frozen in a test: tiles outlive the
//! process.

use std::collections::BTreeMap;

use falaj_base::{Error, Result, code};

use super::aggregate::{Aggregate, MAX_VALUE};
use super::bytes::{Reader, put, put_signed};
use super::item::Item;
use super::partial::Partial;
use crate::Type;

const VERSION: u8 = 1;
/// The most bytes that the tiles of one entity may come to take.
const MAX_STATE: usize = 8 << 20;

/// The aggregates of a view, by their hops.
#[derive(Clone, Debug)]
pub struct Plan {
    aggregates: Vec<Aggregate>,
    rings: Vec<Ring>,
}

/// Aggregates that share their tiles.
#[derive(Clone, Debug)]
struct Ring {
    hop: i64,
    /// The most tiles of a window of theirs.
    tiles: i64,
    members: Vec<usize>,
}

/// The tiles of one entity.
#[derive(Clone, Debug, Default)]
pub struct Tiles {
    /// By the number of the tile, for each ring.
    rings: Vec<BTreeMap<i64, Vec<Partial>>>,
}

impl Tiles {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rings.iter().all(BTreeMap::is_empty)
    }

    /// About how much memory they take.
    #[must_use]
    pub fn memory(&self) -> usize {
        const TILE: usize = 64;
        let tile =
            |partials: &Vec<Partial>| TILE + partials.iter().map(Partial::memory).sum::<usize>();
        self.rings.iter().flat_map(BTreeMap::values).map(tile).sum()
    }
}

impl Plan {
    /// Aggregates whose tiles are not too large together.
    pub fn new(aggregates: Vec<Aggregate>) -> Result<Self> {
        let mut rings: Vec<Ring> = Vec::new();
        for (place, aggregate) in aggregates.iter().enumerate() {
            let tiles = aggregate.tiles();
            match rings.iter_mut().find(|ring| ring.hop == aggregate.hop) {
                Some(ring) => {
                    ring.tiles = ring.tiles.max(tiles);
                    ring.members.push(place);
                }
                None => rings.push(Ring { hop: aggregate.hop, tiles, members: vec![place] }),
            }
        }
        let weight = |ring: &Ring| {
            let one: usize = ring.members.iter().map(|place| aggregates[*place].weight()).sum();
            one.saturating_mul(usize::try_from(ring.tiles).unwrap_or(usize::MAX))
        };
        let state = rings.iter().map(weight).fold(0, usize::saturating_add);
        if state > MAX_STATE {
            let found = format!("tiles that may take {} KiB for each entity", state >> 10);
            let allowed = format!("at most {} KiB: longer hops, shorter windows", MAX_STATE >> 10);
            return Err(Error::invalid("aggregate", found, allowed));
        }
        Ok(Self { aggregates, rings })
    }

    #[must_use]
    pub fn aggregates(&self) -> &[Aggregate] {
        &self.aggregates
    }

    /// The tiles of no events.
    #[must_use]
    pub fn empty(&self) -> Tiles {
        Tiles { rings: vec![BTreeMap::new(); self.rings.len()] }
    }

    /// Refuses a value that cannot be kept; which, and why.
    pub fn check(&self, aggregate: usize, value: Option<&Item>) -> Result<(), String> {
        let keeps = matches!(self.aggregates[aggregate].output(), Type::Text | Type::Bytes);
        match value.map(Item::heap) {
            Some(length) if keeps && length > MAX_VALUE => {
                Err(format!("{length} bytes; {MAX_VALUE} are allowed"))
            }
            _ => Ok(()),
        }
    }

    /// Adds an event with the value of each aggregate's column.
    pub fn add(&self, tiles: &mut Tiles, event: i64, values: &[Option<Item>]) {
        for (ring, kept) in self.rings.iter().zip(&mut tiles.rings) {
            let members = || ring.members.iter().map(|place| (*place, &self.aggregates[*place]));
            let fresh = || members().map(|(_, aggregate)| Partial::new(aggregate)).collect();
            let tile = kept.entry(event.div_euclid(ring.hop)).or_insert_with(fresh);
            for (partial, (place, aggregate)) in tile.iter_mut().zip(members()) {
                partial.add(aggregate, event, values[place].as_ref());
            }
        }
    }

    /// Adds what others know.
    pub fn merge(&self, tiles: &mut Tiles, others: &Tiles) {
        for ((ring, ours), theirs) in self.rings.iter().zip(&mut tiles.rings).zip(&others.rings) {
            for (number, partials) in theirs {
                let Some(known) = ours.get_mut(number) else {
                    ours.insert(*number, partials.clone());
                    continue;
                };
                let members = ring.members.iter().map(|place| &self.aggregates[*place]);
                for ((known, more), aggregate) in known.iter_mut().zip(partials).zip(members) {
                    known.merge(aggregate, more);
                }
            }
        }
    }

    /// Whether an event still counts at a moment, or will later.
    #[must_use]
    pub fn counts(&self, event: i64, at: i64) -> bool {
        self.rings.iter().any(|ring| {
            event.div_euclid(ring.hop) > at.div_euclid(ring.hop).saturating_sub(ring.tiles)
        })
    }

    /// Forgets tiles that no window reaches at this moment or later.
    pub fn prune(&self, tiles: &mut Tiles, at: i64) {
        for (ring, kept) in self.rings.iter().zip(&mut tiles.rings) {
            let first = at.div_euclid(ring.hop).saturating_sub(ring.tiles).saturating_add(1);
            *kept = kept.split_off(&first);
        }
    }

    /// What the tiles say at a moment, aggregate by aggregate. Events behind the moment are taken
    /// for known: whoever keeps tiles keeps nothing of the future in them.
    #[must_use]
    pub fn values(&self, tiles: &Tiles, at: i64) -> Vec<Option<Item>> {
        let mut values = vec![None; self.aggregates.len()];
        for (ring, kept) in self.rings.iter().zip(&tiles.rings) {
            let last = at.div_euclid(ring.hop);
            for (slot, place) in ring.members.iter().enumerate() {
                let aggregate = &self.aggregates[*place];
                let first = last.saturating_sub(aggregate.tiles()).saturating_add(1);
                let mut whole = Partial::new(aggregate);
                for (_, partials) in kept.range(first..=last) {
                    whole.merge(aggregate, &partials[slot]);
                }
                values[*place] = whole.value(aggregate);
            }
        }
        values
    }

    #[must_use]
    pub fn write(&self, tiles: &Tiles) -> Vec<u8> {
        let mut out = vec![VERSION];
        for kept in &tiles.rings {
            put(&mut out, kept.len() as u128);
            let mut last = 0;
            for (number, partials) in kept {
                put_signed(&mut out, i128::from(*number) - i128::from(last));
                last = *number;
                for partial in partials {
                    partial.write(&mut out);
                }
            }
        }
        out
    }

    /// Tiles as they were written by the same plan.
    pub fn read(&self, bytes: &[u8]) -> Result<Tiles> {
        let damaged = || Error::new(&code::INTEGRITY, "the tiles of an aggregate are damaged");
        self.read_all(bytes).ok_or_else(damaged)
    }

    fn read_all(&self, bytes: &[u8]) -> Option<Tiles> {
        let mut from = Reader(bytes);
        if from.byte()? != VERSION {
            return None;
        }
        let mut tiles = self.empty();
        for (ring, kept) in self.rings.iter().zip(&mut tiles.rings) {
            let mut last = 0_i64;
            for _ in 0..from.length()? {
                last = i64::try_from(i128::from(last).checked_add(from.signed()?)?).ok()?;
                let members = ring.members.iter().map(|place| &self.aggregates[*place]);
                let partials: Option<Vec<_>> =
                    members.map(|aggregate| Partial::read(aggregate, &mut from)).collect();
                kept.insert(last, partials?);
            }
        }
        from.0.is_empty().then_some(tiles)
    }
}
