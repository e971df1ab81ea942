//! Dials one of several endpoints at a time, again after delays that double.

use std::time::Duration;

use crate::{Nanos, Output};

/// The connection of a dialling DEALER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    /// The transport, or the user, dials again.
    Lost,
    /// We dial again at this time.
    Away {
        until: Nanos,
    },
}

impl Link {
    /// When we dial again.
    pub(crate) fn until(self) -> Option<Nanos> {
        match self {
            Self::Away { until } => Some(until),
            Self::Up | Self::Lost => None,
        }
    }
}

/// The endpoints, one of which is dialled. Delays double up to the longest; each is between half and all of it, so that
/// simultaneous clients spread.
#[derive(Debug)]
pub(crate) struct Dialling {
    endpoints: Vec<String>,
    dialled: usize,
    first: Duration,
    longest: Duration,
    tries: u32,
    jitter: u64,
}

impl Dialling {
    /// Starts with the first endpoint, if there is any.
    pub(crate) fn new(endpoints: Vec<String>, first: Duration, longest: Duration, seed: [u8; 32]) -> Self {
        let jitter = seed
            .chunks_exact(8)
            .fold(1, |jitter, chunk| jitter ^ chunk.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        Self { endpoints, dialled: 0, first, longest, tries: 0, jitter }
    }

    /// The current endpoint.
    pub(crate) fn current(&self) -> Option<String> {
        self.endpoints.get(self.dialled).cloned()
    }

    /// Whether there are others to try.
    pub(crate) fn has_others(&self) -> bool {
        self.endpoints.len() > 1
    }

    /// Whether there is none: the user supplies the socket.
    pub(crate) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// The connection has succeeded: the next delay is the first again.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Drops the endpoint. Returns until when to wait, and the output for it.
    pub(crate) fn hang_up<S>(&mut self, now: Nanos, socket: S) -> (Link, Option<Output<S>>) {
        let wait = self.first.saturating_mul(1 << self.tries.min(20)).min(self.longest);
        self.tries += 1;
        let until = now + (wait / 2 + wait / 2 * self.random() / 256);
        (Link::Away { until }, self.current().map(|endpoint| Output::Disconnect { socket, endpoint }))
    }

    /// Goes on to the next endpoint; the only one follows itself. Returns the output for it.
    pub(crate) fn dial<S>(&mut self, socket: S) -> Option<Output<S>> {
        self.dialled = (self.dialled + 1) % self.endpoints.len().max(1);
        self.current().map(|endpoint| Output::Connect { socket, endpoint })
    }

    /// Xorshift: eight bits spread enough.
    fn random(&mut self) -> u32 {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        (self.jitter >> 56) as u32
    }
}
