//! The sorted set against the one of the standard library.

use std::collections::BTreeSet;

use falaj_scheduler::ranked::RankedSet;

use crate::world::Dice;

#[test]
fn is_a_set_that_counts() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let (mut ours, mut theirs) = (RankedSet::default(), BTreeSet::new());
        let range = 1 + dice.below(3000);
        for step in 0..6000 {
            // In order as well as at random, since both happen.
            let key = if seed % 2 == 0 { dice.below(range) } else { step };
            if dice.one_in(3) {
                let key = dice.below(range);
                assert_eq!(ours.remove(&key), theirs.remove(&key));
            } else {
                assert_eq!(ours.insert(key), theirs.insert(key));
            }
            assert_eq!(ours.len(), theirs.len());
            assert_eq!(ours.first(), theirs.first().copied());
            if step % 97 == 0 {
                let key = dice.below(range);
                assert_eq!(ours.before(&key), theirs.range(..key).count());
            }
        }
        assert!(ours.iter().eq(theirs.iter().copied()));
    }
}
