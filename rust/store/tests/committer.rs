//! A thread that commits for many callers, and reports to each of them.
#![allow(clippy::unwrap_used, reason = "what helps a test fails it")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};

use common::{Model, batch, before, define, put, scratch};
use trunkline_store::{Committer, Op, Outcome, Store, StoreError};

/// A committer of a new directory, its outcomes, and what lets it go on after each of them.
fn committer() -> (tempfile::TempDir, Committer, Receiver<Outcome>, Sender<()>) {
    let directory = scratch();
    let (store, _) = Store::open(directory.path()).unwrap();
    let (report, outcomes) = channel();
    let (go, may_go) = channel();
    let committer = Committer::start(store, move |outcome| {
        report.send(outcome).unwrap();
        let _ = may_go.recv();
    });
    (directory, committer.unwrap(), outcomes, go)
}

#[test]
fn those_who_wait_share_one_commit() {
    let (directory, committer, outcomes, go) = committer();
    assert!(committer.submit(0, batch(0)));
    assert_eq!(outcomes.recv().unwrap(), Outcome::Done(0));
    // It is held up there, as by a slow disk.
    for number in 1..300 {
        assert!(committer.submit(number, batch(number)));
    }
    go.send(()).unwrap();
    assert_eq!(outcomes.recv().unwrap(), Outcome::Done(299));
    drop(go);
    committer.close().unwrap();
    assert!(outcomes.try_recv().is_err());
    assert!(Store::open(directory.path()).unwrap().1 == before(300).stored(true));
}

#[test]
fn only_the_batch_that_does_not_fit_fails() {
    let (directory, committer, outcomes, go) = committer();
    committer.submit(100, vec![define(1)]);
    assert_eq!(outcomes.recv().unwrap(), Outcome::Done(100));
    let mut model = Model::default();
    assert!(model.commit(&[define(1)]));
    let bad = [3, 4, 40];
    for number in 0..64 {
        let ops = vec![put(1, number, "good"), put(if bad.contains(&number) { 9 } else { 1 }, 100 + number, "or not")];
        assert_eq!(model.commit(&ops), !bad.contains(&number));
        committer.submit(101 + number, ops);
    }
    drop(go);
    committer.close().unwrap();
    let outcomes: Vec<_> = outcomes.iter().collect();
    let failed: Vec<_> = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Failed { .. })).cloned().collect();
    let reason = StoreError::NoQueue;
    assert_eq!(failed, bad.map(|number| Outcome::Failed { number: 101 + number, reason: reason.clone() }));
    assert_eq!(outcomes.last(), Some(&Outcome::Done(164)));
    assert!(outcomes.is_sorted_by_key(|outcome| match outcome {
        Outcome::Done(number) | Outcome::Failed { number, .. } => *number,
    }));
    // Most of them were not written one by one.
    assert!(outcomes.len() < 20, "{outcomes:?}");
    assert!(Store::open(directory.path()).unwrap().1 == model.stored(true));
}

#[test]
fn what_is_large_is_not_joined_without_end() {
    let (_directory, committer, outcomes, go) = committer();
    committer.submit(0, vec![define(1)]);
    assert_eq!(outcomes.recv().unwrap(), Outcome::Done(0));
    for number in 1..=10 {
        committer.submit(number, vec![put(1, number, vec![0; 20 << 20]), Op::Remove { queue: 1, position: number }]);
    }
    drop(go);
    committer.close().unwrap();
    let outcomes: Vec<_> = outcomes.iter().collect();
    assert_eq!(outcomes, [4, 8, 10].map(Outcome::Done));
}

#[test]
fn what_is_put_and_removed_meanwhile_is_not_written() {
    let (directory, committer, outcomes, go) = committer();
    committer.submit(0, vec![define(1), define(2), put(1, 0, "before")]);
    assert_eq!(outcomes.recv().unwrap(), Outcome::Done(0));
    let remove = |queue, position| Op::Remove { queue, position };
    committer.submit(1, vec![put(1, 1, vec![0; 20 << 20]), put(1, 2, "after")]);
    committer.submit(2, vec![put(2, 1, "of another queue"), remove(1, 0)]);
    committer.submit(3, vec![remove(1, 1)]);
    drop(go);
    committer.close().unwrap();
    assert_eq!(outcomes.iter().collect::<Vec<_>>(), [Outcome::Done(3)]);
    let size = |name| std::fs::metadata(directory.path().join(name)).map_or(0, |found| found.len());
    assert!(size("queues.sqlite") + size("queues.sqlite-wal") < 1 << 20);
    let mut model = Model::default();
    assert!(model.commit(&[define(1), define(2), put(1, 2, "after"), put(2, 1, "of another queue")]));
    assert!(Store::open(directory.path()).unwrap().1 == model.stored(true));
}

#[test]
fn a_batch_of_nothing_is_reported() {
    let (_directory, committer, outcomes, go) = committer();
    drop(go);
    committer.submit(7, vec![]);
    assert_eq!(outcomes.recv().unwrap(), Outcome::Done(7));
    committer.close().unwrap();
}

#[test]
fn idle_it_gives_back_what_the_file_does_not_need() {
    let (directory, committer, outcomes, go) = committer();
    drop(go);
    let length = || std::fs::metadata(directory.path().join("queues.sqlite")).unwrap().len();
    committer.submit(0, vec![define(1), put(1, 0, vec![0; 40 << 20])]);
    committer.submit(1, vec![put(1, 1, vec![0; 100])]);
    while outcomes.recv().unwrap() != Outcome::Done(1) {}
    assert!(length() > 40 << 20);
    committer.submit(2, vec![Op::Delete { queue: 1 }]);
    assert_eq!(outcomes.recv().unwrap(), Outcome::Done(2));
    while length() > 10 << 20 {
        std::thread::yield_now();
    }
    committer.close().unwrap();
}

#[test]
fn submitting_fails_once_no_outcome_will_be_reported() {
    let directory = scratch();
    let (store, _) = Store::open(directory.path()).unwrap();
    let committer = Committer::start(store, |_| panic!("as an owner might")).unwrap();
    while committer.submit(0, vec![]) {
        std::thread::yield_now();
    }
    assert!(catch_unwind(AssertUnwindSafe(|| committer.close())).is_err());
}
