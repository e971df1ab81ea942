//! Runs the machines of `trunkline-wire` over real sockets: one thread a role, a queue to and from its user.

mod discovery;
mod engine;
mod fork;
mod guard;
mod handle;
pub mod libzmq;
mod notices;
mod outbox;
mod recording;
mod replies;
mod shared;
mod signal;
mod sink;
mod tap;
mod together;
mod transport;
mod udp;
#[cfg(feature = "zeromq")]
pub mod zeromq;

pub use discovery::{Announcing, Finding};
pub use guard::Guard;
pub use handle::{Capture, Handle, Running, Settings, StartError, Waker, join_orphans};
pub use notices::{Aside, Notice, Notices};
pub use recording::Recording;
pub use replies::{Answering, Replies, Slot};
pub use shared::{Bounds, End, Offered, Snapshot};
pub use signal::Signal;
pub use sink::{Queued, Sink};
pub use tap::{CaptureOverflow, Trouble};
pub use together::{Apart, Either, Glue, Together};
pub use transport::{Capabilities, Interest, Received, Taken, Transport, TransportError};
