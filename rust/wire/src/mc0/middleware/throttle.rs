//! Errors that nobody asked for are sent at a rate, so that who sends nonsense gets no flood of them.

use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::quality::RandomState;

use crate::Nanos;

/// Errors that a peer may have at once, and every second.
const BURST: u32 = 200;
const PER_SECOND: u32 = 100;

/// Places that peers share: there are more peers than anybody remembers.
const PLACES: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Place {
    since: Nanos,
    sent: u32,
}

/// How many errors were sent lately, by the hash of their receiver.
#[derive(Debug)]
pub(super) struct Throttle {
    places: Box<[Place; PLACES]>,
    hasher: RandomState,
}

impl Throttle {
    pub(super) fn new() -> Self {
        Self { places: Box::new([Place { since: Nanos(0), sent: 0 }; PLACES]), hasher: RandomState::default() }
    }

    /// Whether one more may be sent to this peer; it counts as sent then.
    pub(super) fn allows(&mut self, now: Nanos, address: &[u8]) -> bool {
        let hash = usize::try_from(self.hasher.hash_one(address) % PLACES as u64).unwrap_or_default();
        let place = &mut self.places[hash];
        let seconds = u32::try_from((now - place.since).as_secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            place.sent = place.sent.saturating_sub(seconds.saturating_mul(PER_SECOND));
            place.since = place.since + Duration::from_secs(seconds.into());
        }
        let allows = place.sent < BURST;
        place.sent += u32::from(allows);
        allows
    }
}
