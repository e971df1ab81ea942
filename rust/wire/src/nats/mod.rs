//! NATS, as its clients speak it: the messages and lines of a server, and one connection to it, without sockets.
//!
//! [`Connection`] is the protocol on one stream of bytes, from the server's INFO on; [`Servers`] says which server is
//! dialled next, and when.

mod codec;
mod connection;
mod info;
mod login;
mod outgoing;
mod reason;
mod servers;

pub use codec::{Delivery, Endless, First, Head, Inflow, LINE_END, Message, Whole, first};
pub use connection::{Connection, Event, Settings, Unfit};
pub use info::Info;
pub use login::{BadKey, Key, Login};
pub use reason::{Failure, Reason};
pub use servers::{BadServer, ServerUrl, Servers};
