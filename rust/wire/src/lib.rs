//! Codecs and state machines of the protocols, without sockets, clocks, threads or files.
//!
//! A codec turns frames into messages and back. A [`Machine`] is given events with their times, and returns what to
//! send, what to report to the user and when to wake it; the owner of the sockets drives it.
#![forbid(unsafe_code)]

mod calling;
pub mod cdt;
pub mod cdtp;
pub mod chirp;
pub mod dcp;
mod dialling;
mod dropped;
mod error;
mod frames;
mod latencies;
mod lifecycle;
mod machine;
pub mod mc0;
pub mod msgpack;
pub mod mtl;
mod names;
pub mod nats;
pub mod network;
mod pattern;
mod protocol;
pub mod question;
pub mod simulation;
mod slab;
mod status;
mod throttle;
pub mod zap;

pub use calling::{CallId, Calling};
pub use dropped::{DropCounts, DropReason, Dropped, Origin};
pub use error::{DecodeError, DropKind, ErrorKind, Fault, system_words};
pub use frames::{ECHO_BYTES, FRAME_COST, Frames, MAX_FRAMES, Parcel, cost, nbytes};
pub use latencies::{LATENCY_BOUNDS_NS, Latencies};
pub use lifecycle::Lifecycle;
pub use machine::{
    Backlog, Connection, Curve, Event, Incoming, Label, Machine, Multicast, Nanos, Open, OptionValue, Output, Remote,
    SendId, ServerNotice, SocketEvent, SocketKind, SocketOptions, Unsent, Verdict, Weight,
};
pub use names::{NAME_BYTES, shortened};
pub use pattern::Pattern;
pub use protocol::{Protocol, Split, UnknownSubject};

protocol::framings! {
    /// Endpoint configuration over NATS.
    Cdt: cdt::Cdt,
    /// Data taking.
    Cdtp: cdtp::Cdtp,
    /// The service broker.
    Dcp: dcp::Dcp,
    /// The topic bus.
    Mc0: mc0::Mc0,
    /// Commands of MTL and their replies.
    MtlControl: mtl::Control,
    /// The leased binary data flow of MTL.
    MtlData: mtl::Data,
}
