//! Runs the machines of `trunkline-wire` over real sockets: one thread for each role, a queue to and from its user.

mod discovery;
mod engine;
mod fork;
mod guard;
mod handle;
pub mod libzmq;
mod limits;
mod notices;
mod outbox;
mod reactor;
mod recording;
mod replies;
mod settings;
mod shared;
mod signal;
mod sink;
mod tap;
mod together;
mod transport;
mod trouble;
mod udp;
#[cfg(feature = "zeromq")]
pub mod zeromq;
pub mod zmtp;

pub use discovery::{Announcing, Finding};
pub use guard::Guard;
pub use handle::{Handle, Running, Settings, join_orphans};
pub use notices::{Aside, Notice, Notices};
pub use recording::Recording;
pub use replies::{Answering, Replies, Slot};
pub use settings::{Capture, CaptureOverflow, StartError};
pub use shared::{Bounds, End, Offered, Snapshot};
pub use signal::{Signal, Waker};
pub use sink::{Queued, Sink};
pub use together::{Apart, Either, Glue, Together};
pub use transport::{Capabilities, Ending, Interest, Received, Taken, Transport, TransportError};
pub use trouble::Trouble;
