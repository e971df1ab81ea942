//! Where a machine stands between its beginning and its end: the same for all.

use std::time::Duration;

use crate::Nanos;

/// The states of a machine, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    /// It does what it is for.
    #[default]
    Open,
    /// It takes on nothing new and finishes what it has, until then at most.
    Draining(Nanos),
    /// Its sockets are being closed.
    Closing,
    /// It has none left.
    Closed,
}

impl Lifecycle {
    /// Whether it takes on anything new.
    pub fn is_open(self) -> bool {
        self == Self::Open
    }

    /// Whether it finishes what it has.
    pub fn is_draining(self) -> bool {
        matches!(self, Self::Draining(_))
    }

    /// Whether nothing is to be done on its sockets any more.
    pub fn is_closing(self) -> bool {
        matches!(self, Self::Closing | Self::Closed)
    }

    /// Whether it is over.
    pub fn is_closed(self) -> bool {
        self == Self::Closed
    }

    /// Begins the end, or brings it forward; true the first time.
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

    /// Goes on to close what is open once a machine that drains is done, or its time is up. Gives the time that is left, once.
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
