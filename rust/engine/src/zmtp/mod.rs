//! ZMTP on the engine's own thread: no other thread hands a message over, and the memory that a peer may use is limited
//! while its message comes.

mod admission;
mod core;
mod options;
mod peer;
mod socket;
mod sodium;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::{SocketEvent, SocketKind, SocketOptions};
use trunkline_zmtp::Tally;
use trunkline_zmtp::curve::Crypto;

pub use self::admission::{Admission, Asking};
pub use self::options::{lacks, takes_endpoint};
pub use self::sodium::load_sodium;

use self::core::Core;
use crate::outbox::OUTBOX_BYTES;
use crate::transport::{Capabilities, Ending, Interest, Received, Taken, Transport, TransportError};

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

/// Sockets of ZMTP.
pub struct ZmtpTransport {
    /// Until it ends.
    core: Option<Core>,
    /// Whether there is CURVE.
    curve: bool,
}

/// A socket.
#[derive(Debug, PartialEq, Eq)]
pub struct Socket(usize);

impl ZmtpTransport {
    /// Without sockets.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub fn new(settings: ZmtpSettings) -> Result<Self, TransportError> {
        let curve = settings.crypto.is_some();
        Ok(Self { core: Some(Core::new(settings)?), curve })
    }

    fn core(&mut self) -> Result<&mut Core, TransportError> {
        self.core.as_mut().ok_or(TransportError::Terminated)
    }
}

impl Transport for ZmtpTransport {
    type Socket = Socket;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "zmtp",
            curve: self.curve,
            zap: false,
            inproc: false,
            full_peer_refuses: true,
            reports_unreachable: true,
            reconnects: true,
            reports_drained: true,
            writes_on_flush: true,
        }
    }

    fn open(&mut self, kind: SocketKind, options: &SocketOptions) -> Result<Socket, TransportError> {
        self.core()?.open(kind, options).map(Socket)
    }

    fn bind(&mut self, socket: &mut Socket, endpoint: &str) -> Result<String, TransportError> {
        self.core()?.bind(socket.0, endpoint)
    }

    fn connect(&mut self, socket: &mut Socket, endpoint: &str) -> Result<(), TransportError> {
        self.core()?.connect(socket.0, endpoint)
    }

    fn disconnect(&mut self, socket: &mut Socket, endpoint: &str) -> Result<(), TransportError> {
        self.core()?.disconnect(socket.0, endpoint)
    }

    #[inline]
    fn receive(&mut self, socket: &mut Socket) -> Result<Option<Received>, TransportError> {
        Ok(self.core()?.receive(socket.0))
    }

    fn address(&self, socket: &Socket) -> Option<Box<str>> {
        self.core.as_ref()?.address(socket.0)
    }

    #[inline]
    fn send(&mut self, socket: &mut Socket, to: Option<&Bytes>, frames: &[Bytes]) -> Result<Taken, TransportError> {
        Ok(self.core()?.send(socket.0, to, frames))
    }

    fn flush(&mut self) {
        if let Some(core) = &mut self.core {
            core.flush();
        }
    }

    fn poll_drained(&mut self, socket: &mut Socket) -> Option<Bytes> {
        self.core.as_mut()?.poll_drained(socket.0)
    }

    fn turned_away(&self) -> u64 {
        self.core.as_ref().map_or(0, Core::turned_away)
    }

    fn failures(&self) -> Option<&Tally> {
        self.core.as_ref().map(Core::failures)
    }

    fn waiting(&self) -> usize {
        self.core.as_ref().map_or(0, Core::waiting)
    }

    fn poll_monitor(&mut self, socket: &mut Socket) -> Option<SocketEvent> {
        self.core.as_mut()?.poll_monitor(socket.0)
    }

    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, Socket>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        let core = self.core()?;
        let mut is_ready = false;
        // What this makes room for is sent at once.
        core.flush();
        core.relieve();
        for interest in &mut *sockets {
            core.set_reading(interest.socket.0, interest.read);
            is_ready |= core.ready(interest);
        }
        let is_other = core.turn(others, if is_ready { Some(Duration::ZERO) } else { timeout })?;
        for interest in sockets {
            core.ready(interest);
        }
        Ok(is_other)
    }

    fn close(&mut self, socket: Socket, linger: Duration) {
        if let Some(core) = &mut self.core {
            core.close(socket.0, linger);
        }
    }

    fn ending(&mut self) -> Ending {
        match self.core.take() {
            Some(core) => Box::new(move || core.linger()),
            None => Box::new(|| None),
        }
    }
}
