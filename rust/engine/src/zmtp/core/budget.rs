//! How much may be pending for all peers of a role.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use foldhash::fast::RandomState;
use trunkline_wire::{Backlog, Frames, cost};
use trunkline_zmtp::COPIED;

/// Long frames that are known before those that are gone are forgotten.
const KNOWN: usize = 64;

/// A message that all peers together have no room for: a peer may have its share of as much again.
#[derive(Clone, Copy, Debug)]
pub(in crate::zmtp) struct Share {
    of_peer: usize,
    message: usize,
}

impl Share {
    /// Whether a peer with this backlog may have the message.
    pub(in crate::zmtp) const fn admits(self, backlog: Backlog) -> bool {
        backlog.bytes.saturating_add(self.message) <= self.of_peer
    }
}

/// The bytes that may be pending for all peers together.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    shared: usize,
    long: LongFrames,
}

impl Budget {
    /// Of so many bytes: half of them are for any peer, a quarter is for all in equal shares, and the rest at least for
    /// the engine's outboxes.
    pub(super) fn new(bytes: usize) -> Self {
        Self { limit: bytes / 2, shared: bytes / 4, long: LongFrames::default() }
    }

    /// The bytes of long frames, each of which counts once.
    pub(super) fn long_bytes(&self) -> usize {
        self.long.bytes.load(Ordering::Relaxed)
    }

    /// How far a refusal must ease before what was refused is retried.
    pub(super) fn step(&self) -> usize {
        self.limit / 8
    }

    /// The share of one of so many peers.
    pub(super) fn share(&self, peers: usize) -> usize {
        self.shared / peers.max(1)
    }

    /// Whether all peers, for which `held` bytes are pending, have room for a message; else the share of one. A single
    /// message of any size has room.
    #[inline]
    pub(super) fn admits(&self, held: usize, peers: usize, frames: &[Bytes]) -> Option<Share> {
        if held == 0 || held + cost(frames) <= self.limit {
            return None;
        }
        let is_new = |frame: &&Bytes| frame.len() <= COPIED || !self.long.is_known(frame);
        let message = frames.iter().filter(is_new).map(|frame| cost(std::slice::from_ref(frame))).sum();
        (held + message > self.limit).then(|| Share { of_peer: self.share(peers), message })
    }

    /// The frames of a message as they are sent: long ones count until the last peer has them.
    #[inline]
    pub(super) fn hold<'a>(&mut self, frames: &'a [Bytes], own: &'a mut Frames) -> &'a [Bytes] {
        if frames.iter().all(|frame| frame.len() <= COPIED) {
            return frames;
        }
        own.extend(
            frames.iter().map(|frame| if frame.len() <= COPIED { frame.clone() } else { self.long.hold(frame) }),
        );
        own
    }
}

/// The long frames that are pending, by their addresses.
#[derive(Debug, Default)]
struct LongFrames {
    bytes: Arc<AtomicUsize>,
    known: HashMap<(usize, usize), Weak<Held>, RandomState>,
    /// How many may be known before those that are gone are forgotten.
    room: usize,
}

impl LongFrames {
    fn is_known(&self, frame: &Bytes) -> bool {
        self.known.get(&key(frame)).is_some_and(|held| held.strong_count() > 0)
    }

    fn hold(&mut self, frame: &Bytes) -> Bytes {
        let held = self.known.get(&key(frame)).and_then(Weak::upgrade);
        Bytes::from_owner(Holder(held.unwrap_or_else(|| self.add(frame))))
    }

    fn add(&mut self, frame: &Bytes) -> Arc<Held> {
        self.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        let held = Arc::new(Held { frame: frame.clone(), all: Arc::clone(&self.bytes) });
        if self.known.len() >= self.room {
            self.known.retain(|_, held| held.strong_count() > 0);
            self.room = KNOWN.max(2 * self.known.len());
        }
        self.known.insert(key(frame), Arc::downgrade(&held));
        held
    }
}

/// A frame is known by where it lies, which is its own as long as it is held.
fn key(frame: &Bytes) -> (usize, usize) {
    (frame.as_ptr().addr(), frame.len())
}

/// A long frame that counts until it is dropped.
#[derive(Debug)]
struct Held {
    frame: Bytes,
    all: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.frame.len(), Ordering::Relaxed);
    }
}

struct Holder(Arc<Held>);

impl AsRef<[u8]> for Holder {
    fn as_ref(&self) -> &[u8] {
        &self.0.frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 1 << 20;

    fn hold(budget: &mut Budget, frame: &Bytes) -> Bytes {
        budget.hold(std::slice::from_ref(frame), &mut Frames::new())[0].clone()
    }

    #[test]
    fn a_frame_counts_once_for_all_peers_until_the_last_has_it() {
        let mut budget = Budget::new(8 * LONG);
        let frame = Bytes::from(vec![7; LONG]);
        let mut held: Vec<_> = (0..100).map(|_| hold(&mut budget, &frame)).collect();
        assert_eq!((budget.long_bytes(), &held[99]), (LONG, &frame));
        held.truncate(1);
        assert_eq!(budget.long_bytes(), LONG);
        held.clear();
        assert_eq!(budget.long_bytes(), 0);
        assert_eq!(hold(&mut budget, &Bytes::from_static(b"short")), b"short"[..]);
        assert_eq!(budget.long_bytes(), 0);
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let mut budget = Budget::new(8 * LONG);
        let kept: Vec<_> = (0..10).map(|_| hold(&mut budget, &Bytes::from(vec![1; LONG]))).collect();
        (0..10_000).for_each(|_| drop(hold(&mut budget, &Bytes::from(vec![2; COPIED + 1]))));
        assert!(budget.long.known.len() <= KNOWN);
        assert_eq!(budget.long_bytes(), kept.len() * LONG);
    }

    #[test]
    fn beyond_the_limit_each_peer_has_its_share() {
        let mut budget = Budget::new(8 * LONG);
        let frames = [Bytes::from(vec![7; 5 * LONG])];
        assert!(budget.admits(0, 10, &frames).is_none(), "one may be larger");
        assert!(budget.admits(1, 10, &frames).is_some_and(|share| !share.admits(Backlog::default())));
        let _held = hold(&mut budget, &frames[0]);
        assert!(budget.admits(5 * LONG, 10, &frames[..0]).is_some(), "all is held");
        assert!(budget.admits(3 * LONG, 10, &frames).is_none(), "it counts already");
        let small = [Bytes::from(vec![7; LONG / 10])];
        let share = budget.admits(4 * LONG, 10, &small).expect("there is no room");
        assert!(share.admits(Backlog { messages: 1, bytes: LONG / 20 }));
        assert!(!share.admits(Backlog { messages: 1, bytes: LONG / 5 }));
        assert!(budget.admits(3 * LONG, 10, &small).is_none());
    }
}
