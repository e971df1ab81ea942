//! ZMTP on the engine's own thread: no other thread hands a message over, and the memory that a peer may use is limited
//! while its message comes.

mod admission;
mod core;
mod options;
mod peer;
mod socket;
mod sodium;

use std::sync::Arc;

use trunkline_zmtp::curve::Crypto;

pub use self::admission::{Admission, Asking};
pub use self::core::ZmtpTransport;
pub use self::options::{lacks, takes_endpoint};
pub use self::sodium::load_sodium;

use crate::outbox::OUTBOX_BYTES;

/// The settings of this transport.
#[derive(Clone, Debug)]
pub struct ZmtpSettings {
    /// The limit of connections.
    pub max_connections: Option<usize>,
    /// The limit of connections from one host.
    pub max_connections_per_host: Option<usize>,
    /// Bytes that may be pending for all peers together; half of it here, the other half with the engine.
    pub outbox_bytes: usize,
    /// Bytes held of incomplete messages, of all peers together: beyond it the peer with the most is hung up on. It
    /// must be more than a message may have.
    pub inbox_bytes: usize,
    /// The cryptography of CURVE.
    pub crypto: Option<Arc<dyn Crypto>>,
    /// The admission of CURVE clients; without, each client with a key is admitted.
    pub admission: Option<Arc<Admission>>,
}

impl Default for ZmtpSettings {
    fn default() -> Self {
        Self {
            max_connections: None,
            max_connections_per_host: None,
            outbox_bytes: OUTBOX_BYTES,
            inbox_bytes: 2 << 30,
            crypto: None,
            admission: None,
        }
    }
}
