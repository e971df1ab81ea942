//! ZMTP 3.1 without sockets, clocks or threads: bytes in and messages out, messages in and bytes out.
//!
//! A [`Connection`] is one connection of either side, from its greeting to its end. The owner of the socket gives it
//! what was read and when, writes what is pending, and polls events. Nothing a peer sends makes it panic: what is
//! invalid ends the connection with a [`Reason`], and what is incomplete is bounded by [`Limits`]. What a socket does
//! with several connections is in [`patterns`].
#![forbid(unsafe_code)]

mod codec;
pub mod curve;
mod limits;
mod mechanism;
pub mod patterns;
mod reason;
mod settings;
mod socket;

pub use codec::{COPIED, Connection, Event, Heartbeat, Metadata, Ready};
pub use limits::{HighWater, Limits};
pub use reason::{Failure, Reason, Tally};
pub use settings::{Security, Settings, Side};
pub use socket::SocketType;
