//! What sockets do with several connections: RFC 28 and RFC 30, as decisions without connections.
//!
//! A PUSH is a [`Distributor`]; a PULL takes [`Turns`]; a DEALER does both. A REQ is a [`Req`], a REP a [`Rep`], which
//! take turns as well, and a ROUTER is a [`Router`] that takes turns. The owner of the connections reports which came
//! and went, and the backlog of each; they decide which one to read next, and where a message goes.

mod distributor;
mod holders;
mod rep;
mod req;
mod router;
mod turns;

use bytes::Bytes;
use trunkline_wire::nbytes;

pub use distributor::{Distributor, PipeId, Placed};
pub use holders::Holder;
pub use rep::Rep;
pub use req::{Answer, Req};
pub use router::{Admitted, Routed, Router, RouterCounts, Unsent};
pub use turns::Turns;

/// One connection among all that were ever made: a number that is never reused, so that a message for a peer that is
/// gone does not go to the peer that has its routing id now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What a message adds to the backlog of a connection, until the connection reports it.
fn wire_bytes(frames: &[Bytes]) -> usize {
    const HEAD: usize = 9;
    usize::try_from(nbytes(frames)).expect("it is in memory") + HEAD * frames.len()
}
