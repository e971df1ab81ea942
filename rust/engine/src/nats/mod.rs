//! NATS on the engine's own thread: one connection for all subscriptions of a role, which is made again whenever it is
//! lost.

mod connecting;
mod core;
mod link;
mod memory;
mod socket;

use std::path::PathBuf;
use std::time::Duration;

use trunkline_wire::nats::{Login, ServerUrl, Settings};

pub use self::core::NatsTransport;
pub use self::memory::MemoryTransport;

use crate::tls::Tls;

/// The settings of this transport.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// The servers, of which one is used.
    pub servers: Vec<ServerUrl>,
    pub login: Login,
    /// A credentials file, which is read for each connection: it may be renewed. It replaces the key of the login.
    pub credentials: Option<PathBuf>,
    pub connection: Settings,
    /// How to encrypt, if a server must. Without, one that wants to encrypt must be trusted by the system.
    pub tls: Option<Tls>,
    /// How long a server may take to be reached; for the login, see [`Settings::handshake`].
    pub reach: Duration,
    /// The bytes that are held while there is no connection.
    pub held_bytes: usize,
    /// The bytes that may wait to be written: beyond them nothing is read, and what is sent waits all the same.
    pub outbox_bytes: usize,
}

impl NatsSettings {
    /// Those of a role that logs in nowhere.
    pub fn new(servers: Vec<ServerUrl>) -> Self {
        Self {
            servers,
            login: Login::default(),
            credentials: None,
            connection: Settings::default(),
            tls: None,
            reach: Duration::from_secs(2),
            held_bytes: 2 << 20,
            outbox_bytes: 64 << 20,
        }
    }
}
