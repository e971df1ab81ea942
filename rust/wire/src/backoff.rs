//! How long to wait before something is tried again.

use std::time::Duration;

/// Waits that double, up to the longest; each is between half and all of it, so that many who begin together spread.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    tries: u32,
    jitter: u64,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration, seed: [u8; 32]) -> Self {
        let jitter = seed
            .chunks_exact(8)
            .fold(1, |jitter, chunk| jitter ^ chunk.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        Self { first, longest, tries: 0, jitter }
    }

    /// It has gone well: the next wait is a first one.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.first.saturating_mul(1 << self.tries.min(20)).min(self.longest);
        self.tries += 1;
        wait / 2 + wait / 2 * self.random() / 256
    }

    /// Xorshift: eight bits are enough to spread.
    fn random(&mut self) -> u32 {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        (self.jitter >> 56) as u32
    }
}
