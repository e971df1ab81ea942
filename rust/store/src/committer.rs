use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use crate::{Batch, Op, Store, StoreError};

/// The most bytes joined into one change: beyond it, its log would grow without end.
const JOINED_BYTES: usize = 64 << 20;

/// The outcome of batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All batches submitted up to and including this one are durable, except those reported as failed.
    Done(u64),
    /// Nothing of this batch was kept.
    Failed {
        /// The number it was submitted with.
        number: u64,
        reason: StoreError,
    },
}

/// A store on its own thread, which reports to its callers when what they submitted is durable.
///
/// Batches are made durable in the order they were submitted. All that are pending when one change has been written are
/// the next, as one transaction of up to 64 MiB; if that fails, only those batches fail that do by themselves. While
/// nothing is pending, the file is shortened if much of it is free. A content that is put and removed within what is
/// pending is not written.
#[derive(Debug)]
pub struct Committer {
    sender: Sender<Batch>,
    thread: JoinHandle<Result<(), StoreError>>,
}

impl Committer {
    /// Starts the thread. `report` is called on it, once for each change and once for each batch that failed.
    pub fn start(store: Store, report: impl FnMut(Outcome) + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let committing = Committing { store, report };
        let thread = thread::Builder::new().name("trunkline-store".into()).spawn(move || committing.run(&receiver))?;
        Ok(Self { sender, thread })
    }

    /// Hands over a batch, which is kept whole or not at all; never waits.
    ///
    /// Whether its outcome will be reported: not once `tell` has panicked.
    pub fn submit(&self, number: u64, ops: Vec<Op>) -> bool {
        self.sender.send(Batch { number, ops }).is_ok()
    }

    /// Waits until the outcome of all that was submitted has been reported, and closes the store.
    pub fn close(self) -> Result<(), StoreError> {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct Committing<F> {
    store: Store,
    report: F,
}

impl<F: FnMut(Outcome)> Committing<F> {
    fn run(mut self, receiver: &Receiver<Batch>) -> Result<(), StoreError> {
        while let Some(first) = self.next(receiver) {
            let mut cost = first.bytes();
            let mut batches = vec![first];
            while cost < JOINED_BYTES
                && let Ok(batch) = receiver.try_recv()
            {
                cost += batch.bytes();
                batches.push(batch);
            }
            self.commit(&batches);
        }
        self.store.close()
    }

    /// Waits for a batch, and tidies up meanwhile; `None` once there will be no more.
    fn next(&mut self, receiver: &Receiver<Batch>) -> Option<Batch> {
        loop {
            match receiver.try_recv() {
                Ok(batch) => return Some(batch),
                Err(TryRecvError::Disconnected) => return None,
                // Its error changes nothing: the next write meets and reports it.
                Err(TryRecvError::Empty) if matches!(self.store.tidy(), Ok(true)) => {}
                Err(TryRecvError::Empty) => return receiver.recv().ok(),
            }
        }
    }

    /// Commits them as one; on failure by halves, so that few that do not fit cost the others little.
    fn commit(&mut self, batches: &[Batch]) {
        match (self.store.commit_each(lasting(batches).into_iter()), batches) {
            (Ok(()), [.., last]) => (self.report)(Outcome::Done(last.number)),
            (Err(reason), [batch]) => (self.report)(Outcome::Failed { number: batch.number, reason }),
            _ => {
                let (former, latter) = batches.split_at(batches.len() / 2);
                self.commit(former);
                self.commit(latter);
            }
        }
    }
}

/// The changes of these batches that outlast them.
fn lasting(batches: &[Batch]) -> Vec<&Op> {
    let ops = || batches.iter().flat_map(|batch| &batch.ops);
    let removals = ops().filter(|op| matches!(op, Op::Remove { .. }));
    let removed: HashSet<_> = removals.filter_map(Op::place).collect();
    let puts = ops().filter(|op| matches!(op, Op::Put { .. }));
    let passing: HashSet<_> = puts.filter_map(Op::place).filter(|place| removed.contains(place)).collect();
    // A place is never reused.
    ops().filter(|op| op.place().is_none_or(|place| !passing.contains(&place))).collect()
}
