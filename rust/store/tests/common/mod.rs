//! The expected contents of a store, and copies of it.
#![allow(dead_code, clippy::unwrap_used, reason = "each of the tests uses a part, and what helps a test fails it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use trunkline_store::{Op, Restored, StoredContent};

/// A directory for the test, in memory if possible: what a killed process leaves survives there too.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A store without a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    queues: BTreeMap<u64, Vec<u8>>,
    contents: BTreeMap<(u64, u64), StoredContent>,
}

impl Model {
    /// Makes all of these changes, or none; gives whether they could be made.
    pub(crate) fn commit(&mut self, ops: &[Op]) -> bool {
        let before = self.clone();
        let done = ops.iter().all(|op| self.apply(op));
        if !done {
            *self = before;
        }
        done
    }

    fn apply(&mut self, op: &Op) -> bool {
        match op.clone() {
            Op::Define { queue, description } => drop(self.queues.insert(queue, description)),
            Op::Delete { queue } => {
                self.queues.remove(&queue);
                self.contents.retain(|(of, _), _| *of != queue);
            }
            Op::Put { queue, position, attempts, expires_at_ms, properties, body } => {
                let content = StoredContent { queue, position, attempts, expires_at_ms, properties, body };
                self.contents.insert((queue, position), content);
                return self.queues.contains_key(&queue);
            }
            Op::Attempts { queue, position, attempts } => {
                if let Some(content) = self.contents.get_mut(&(queue, position)) {
                    content.attempts = attempts;
                }
            }
            Op::Remove { queue, position } => drop(self.contents.remove(&(queue, position))),
        }
        true
    }

    pub(crate) fn stored(&self, was_clean: bool) -> Restored {
        Restored {
            queues: self.queues.clone().into_iter().collect(),
            contents: self.contents.values().cloned().collect(),
            was_clean,
        }
    }
}

pub(crate) fn define(queue: u64) -> Op {
    Op::Define { queue, description: format!("queue {queue}").into() }
}

pub(crate) fn put(queue: u64, position: u64, body: impl Into<Bytes>) -> Op {
    Op::Put { queue, position, attempts: 0, expires_at_ms: None, properties: Bytes::new(), body: body.into() }
}

pub(crate) fn remove(queue: u64, position: u64) -> Op {
    Op::Remove { queue, position }
}

/// One of a series of different batches: contents of up to 50 kB come, are delivered and go.
pub(crate) fn batch(number: u64) -> Vec<Op> {
    let queue = number % 3;
    let mut ops = vec![define(queue)];
    for place in 0..=number % 7 {
        let length = usize::try_from((number * 7919 + place * 104_729) % 50_000).unwrap();
        ops.push(put(queue, number * 10 + place, vec![u8::try_from(number % 251).unwrap(); length]));
    }
    if let Some(earlier) = number.checked_sub(6) {
        ops.extend((0..=earlier % 7).map(|place| remove(earlier % 3, earlier * 10 + place)));
    }
    if number % 40 == 39 {
        ops.extend([Op::Delete { queue: 1 }, define(1)]);
    }
    ops
}

/// The contents after the batches before this one.
pub(crate) fn before(number: u64) -> Model {
    let mut model = Model::default();
    for number in 0..number {
        assert!(model.commit(&batch(number)));
    }
    model
}

/// A copy of a directory as it is at this moment.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
