//! The lifecycle of a machine, common to all.

use std::time::Duration;

use crate::Nanos;

/// The states of a machine, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    /// It does its work.
    #[default]
    Open,
    /// It accepts nothing new and finishes what it has, until this time at most.
    Draining(Nanos),
    /// Its sockets are being closed.
    Closing,
    /// All its sockets are closed.
    Closed,
}

impl Lifecycle {
    /// Whether it accepts anything new.
    pub fn is_open(self) -> bool {
        self == Self::Open
    }

    /// Whether it finishes what it has.
    pub fn is_draining(self) -> bool {
        matches!(self, Self::Draining(_))
    }

    /// Whether its sockets are closing or closed.
    pub fn is_closing(self) -> bool {
        matches!(self, Self::Closing | Self::Closed)
    }

    /// Whether it is closed.
    pub fn is_closed(self) -> bool {
        self == Self::Closed
    }

    /// Starts draining, or shortens it; true the first time.
    pub fn drain(&mut self, now: Nanos, grace: Duration) -> bool {
        let until = now + grace;
        match *self {
            Self::Open => {
                *self = Self::Draining(until);
                true
            }
            Self::Draining(before) => {
                *self = Self::Draining(before.min(until));
                false
            }
            Self::Closing | Self::Closed => false,
        }
    }

    /// Starts closing once a draining machine is done, or its time is up. Returns the remaining time, once.
    pub fn close(&mut self, now: Nanos, is_done: bool) -> Option<Duration> {
        let Self::Draining(until) = *self else { return None };
        if !is_done && now < until {
            return None;
        }
        *self = Self::Closing;
        Some(until - now)
    }

    /// When draining ends at the latest.
    pub fn poll_timeout(self) -> Option<Nanos> {
        match self {
            Self::Draining(until) => Some(until),
            Self::Open | Self::Closing | Self::Closed => None,
        }
    }
}
