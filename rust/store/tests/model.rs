//! A store holds what the changes say, however often it is reopened.
#![allow(clippy::unwrap_used, reason = "what helps a test fails it")]

mod common;

use bytes::Bytes;
use common::{Model, define, put, remove, scratch};
use proptest::prelude::*;
use trunkline_store::{Op, Store, StoreError};

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, Just(u64::MAX), Just(1 << 63)]
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    prop_oneof![
        3 => (number(), bytes()).prop_map(|(queue, description)| Op::Define { queue, description: description.into() }),
        1 => number().prop_map(|queue| Op::Delete { queue }),
        12 => (number(), number(), any::<u32>(), any::<Option<u64>>(), bytes(), bytes()).prop_map(
            |(queue, position, attempts, expires_at_ms, properties, body)| Op::Put {
                queue, position, attempts, expires_at_ms, properties, body,
            }
        ),
        4 => (number(), number(), any::<u32>())
            .prop_map(|(queue, position, attempts)| Op::Attempts { queue, position, attempts }),
        4 => (number(), number()).prop_map(|(queue, position)| Op::Remove { queue, position }),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Op>),
    Tidy,
    Close,
    Drop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(op(), 0..8).prop_map(Step::Commit),
        1 => Just(Step::Tidy),
        1 => Just(Step::Close),
        1 => Just(Step::Drop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_store_is_what_was_done_to_it(steps in prop::collection::vec(step(), 1..24)) {
        let directory = scratch();
        let mut model = Model::default();
        let (mut store, stored) = Store::open(directory.path()).unwrap();
        prop_assert_eq!(stored, model.stored(true));
        for step in steps {
            let was_clean = matches!(step, Step::Close);
            match step {
                Step::Commit(ops) => {
                    let expected = if model.commit(&ops) { Ok(()) } else { Err(StoreError::NoQueue) };
                    prop_assert_eq!(store.commit(&ops), expected);
                    continue;
                }
                Step::Tidy => {
                    prop_assert_eq!(store.tidy(), Ok(false));
                    continue;
                }
                Step::Close => store.close().unwrap(),
                Step::Drop => drop(store),
            }
            let (again, stored) = Store::open(directory.path()).unwrap();
            prop_assert_eq!(stored, model.stored(was_clean));
            store = again;
        }
    }
}

#[test]
fn a_content_may_have_64_mebibytes() {
    let directory = scratch();
    let (mut store, _) = Store::open(directory.path()).unwrap();
    let body: Bytes = (0..64 << 20).map(|byte: u32| byte.to_le_bytes()[1]).collect::<Vec<_>>().into();
    store.commit(&[define(7), put(7, 1, body.clone())]).unwrap();
    store.close().unwrap();
    let (_, stored) = Store::open(directory.path()).unwrap();
    // Not by `assert_eq!`, which would print them.
    assert!(stored.contents[0].body == body);
}

#[test]
fn a_file_shrinks_when_it_is_tidied_and_not_by_itself() {
    let directory = scratch();
    let size = || {
        ["queues.sqlite", "queues.sqlite-wal"]
            .iter()
            .map(|name| std::fs::metadata(directory.path().join(name)).map_or(0, |found| found.len()))
            .sum::<u64>()
    };
    let (mut store, _) = Store::open(directory.path()).unwrap();
    let mut model = Model::default();
    let mut commit = |store: &mut Store, ops: &[Op]| {
        assert!(model.commit(ops));
        store.commit(ops).unwrap();
    };
    commit(&mut store, &[define(1), define(2)]);
    for position in 0..64 {
        commit(&mut store, &[put(1, position, vec![1; 1 << 20]), put(2, position, vec![2; 1000])]);
    }
    assert!(size() > 64 << 20);
    commit(&mut store, &[Op::Delete { queue: 1 }, define(1)]);
    assert!(size() > 64 << 20);
    // New contents take the free pages meanwhile.
    for position in 0..16 {
        commit(&mut store, &[put(1, position, vec![1; 1 << 20]), remove(1, position)]);
    }
    assert!(size() < 100 << 20, "{}", size());
    let mut steps = 0;
    while store.tidy().unwrap() {
        steps += 1;
    }
    assert!(steps > 3, "{steps} steps");
    assert!(size() < 20 << 20, "{}", size());
    store.close().unwrap();
    assert!(Store::open(directory.path()).unwrap().1 == model.stored(true));
}
