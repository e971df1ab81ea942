//! Runs the machines of `trunkline-wire` over real sockets: one thread for each role, a queue to and from its user.

mod discovery;
mod engine;
mod fork;
mod guard;
mod handle;
pub mod libzmq;
mod limits;
pub mod nats;
mod notices;
mod outbox;
mod reactor;
mod recording;
mod replies;
mod settings;
mod shared;
mod signal;
mod simulated;
mod sink;
mod tap;
pub mod tls;
mod together;
mod transport;
mod trouble;
mod udp;
#[cfg(feature = "zeromq")]
pub mod zeromq;
pub mod zmtp;

pub use discovery::{Announcing, Finding};
pub use guard::Guard;
pub use handle::{Handle, Hold, Running, Settings, join_orphans};
pub use notices::{Aside, Notice, Notices};
pub use recording::Recording;
pub use replies::{Answering, Replies, Slot};
pub use settings::{Capture, CaptureOverflow, StartError};
pub use shared::{Bounds, End, Offered, Snapshot};
pub use signal::{Signal, Waker};
pub use simulated::{Member, Simulated, World};
pub use sink::{Queued, Sink};
pub use together::{Apart, Either, Glue, Together};
pub use transport::{Capabilities, Confirmation, Ending, Interest, Received, Taken, Transport, TransportError};
pub use trouble::Trouble;
pub use udp::has_network;
