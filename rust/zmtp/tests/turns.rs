//! Turns: each connection with something to read gets as many bytes as the others, whatever the size of its messages.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_zmtp::patterns::{ConnectionId, Turns};

/// The bytes of a turn.
const TURN: usize = 64 << 10;

#[derive(Clone, Debug)]
enum Operation {
    Enter(u64),
    Leave(u64),
    Read(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0u64..6).prop_map(Operation::Enter),
        (0u64..6).prop_map(Operation::Leave),
        prop_oneof![1usize..100, 1000usize..2_000_000].prop_map(Operation::Read),
    ]
}

proptest! {
    #[test]
    fn shares_are_equal(sizes in vec(prop_oneof![64usize..500, 1000usize..500_000], 2..6)) {
        let mut turns = Turns::new();
        (0..sizes.len() as u64).for_each(|number| turns.enter(ConnectionId(number)));
        let mut had = vec![0usize; sizes.len()];
        while had.iter().sum::<usize>() < 40 * TURN * sizes.len() {
            let at = usize::try_from(turns.first().expect("a turn").0).expect("few");
            had[at] += sizes[at];
            turns.took(sizes[at]);
        }
        let (least, most) = (had.iter().min().expect("some"), had.iter().max().expect("some"));
        let largest = sizes.iter().max().expect("some");
        prop_assert!(most - least <= TURN + 2 * largest, "{had:?} of {sizes:?}");
    }

    #[test]
    fn whose_turn_it_is_has_something_to_read(operations in vec(operation(), 0..300)) {
        let mut turns = Turns::new();
        let mut there = BTreeSet::new();
        for operation in operations {
            match operation {
                Operation::Enter(number) => {
                    turns.enter(ConnectionId(number));
                    there.insert(number);
                }
                Operation::Leave(number) => {
                    turns.leave(ConnectionId(number));
                    there.remove(&number);
                }
                Operation::Read(bytes) => {
                    let first = turns.first();
                    prop_assert_eq!(first.is_none(), there.is_empty());
                    prop_assert!(first.is_none_or(|first| there.contains(&first.0)));
                    prop_assert_eq!(turns.first(), first, "it stays until it has taken or left");
                    turns.took(bytes);
                }
            }
        }
        // Every connection gets its turn.
        let mut seen = BTreeSet::new();
        for _ in 0..there.len() * 40 {
            seen.extend(turns.first().map(|first| first.0));
            turns.took(TURN);
        }
        prop_assert_eq!(seen, there);
    }
}
