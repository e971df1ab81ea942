//! ZMTP 3.1 over one connection, bytes in and bytes out: RFC 37.

pub(crate) mod command;
mod connection;
pub(crate) mod frame;
mod greeting;
mod heartbeat;
mod inbox;
pub(crate) mod metadata;
pub(crate) mod outbox;

pub use connection::{Connection, Event, Ready};
pub use heartbeat::Heartbeat;
pub use metadata::Metadata;
pub use outbox::COPIED;
