//! The options of a socket, by names and by libzmq's numbers.

use std::sync::Arc;
use std::time::Duration;

use trunkline_wire::{Curve, OptionValue, SocketKind, SocketOptions};
use trunkline_zmtp::curve::{ClientKeys, Crypto, KeyPair, Secret, ServerKeys};
use trunkline_zmtp::{Heartbeat, HighWater, Limits, Security, Settings, SocketType};

use crate::limits::Keepalive;
use crate::reactor::{Address, Backoff, StreamOptions};
use crate::transport::TransportError;

/// libzmq's defaults.
const RECONNECT: Duration = Duration::from_millis(100);
const MESSAGES: usize = 1000;

/// The most bytes pending for a peer.
const BYTES: usize = 16 << 20;

/// All options of a socket.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is an option of its own
pub(super) struct Chosen {
    pub(super) settings: Arc<Settings>,
    pub(super) stream: StreamOptions,
    pub(super) backoff: Backoff,
    pub(super) high_water: HighWater,
    pub(super) mandatory: bool,
    pub(super) handover: bool,
    pub(super) immediate: bool,
}

/// The type of socket that a machine asks for.
pub(super) fn socket_type(kind: SocketKind) -> Result<SocketType, TransportError> {
    match kind {
        SocketKind::Dealer => Ok(SocketType::Dealer),
        SocketKind::Pull => Ok(SocketType::Pull),
        SocketKind::Push => Ok(SocketType::Push),
        SocketKind::Req => Ok(SocketType::Req),
        SocketKind::Router => Ok(SocketType::Router),
        SocketKind::Nats => Err(TransportError::Unsupported("NATS")),
        SocketKind::Udp => Err(TransportError::Unsupported("UDP")),
    }
}

/// Whether this transport has such endpoints: libzmq may have others.
pub fn takes_endpoint(endpoint: &str, is_dialled: bool) -> bool {
    Address::is_one(endpoint, is_dialled)
}

/// The first of the options by libzmq's numbers that this transport lacks, or lacks with this value.
pub fn lacks(options: &SocketOptions) -> Option<i32> {
    let mut numbered = Numbered::default();
    options.extra.iter().find(|(number, value)| numbered.set(*number, value).is_err()).map(|(number, _)| *number)
}

/// Chooses the options of a socket.
pub(super) fn choose(
    kind: SocketKind,
    options: &SocketOptions,
    crypto: Option<&Arc<dyn Crypto>>,
) -> Result<Chosen, TransportError> {
    let identity = options.routing_id.clone().unwrap_or_default();
    if identity.len() > 255 || identity.first() == Some(&0) {
        return Err(invalid());
    }
    let mut settings = Settings::new(socket_type(kind)?, identity);
    settings.security = security(options.curve.as_ref(), crypto)?;
    settings.heartbeat =
        options.heartbeat.map(|(interval, timeout)| Heartbeat { interval, timeout: Some(timeout), ttl: None });
    if let Some(bytes) = options.max_message_bytes {
        settings.limits = Limits::default().with_frames_of(bytes);
    }
    let limits = &mut settings.limits;
    limits.handshake_time = options.handshake_timeout.unwrap_or(limits.handshake_time);
    limits.handshake_bytes = options.max_handshake_bytes.unwrap_or(limits.handshake_bytes);
    limits.message_frames = options.max_message_frames.unwrap_or(limits.message_frames);
    let numbered = Numbered::read(options)?;
    numbered.settle(&mut settings);
    let messages = options.send_hwm.or(numbered.send_hwm).map_or(MESSAGES, |messages| match messages {
        0 => usize::MAX,
        messages => messages as usize,
    });
    Ok(Chosen {
        settings: Arc::new(settings),
        stream: numbered.stream(),
        backoff: Backoff::new(numbered.reconnect.unwrap_or(RECONNECT), numbered.reconnect_most),
        high_water: HighWater { messages, bytes: BYTES },
        mandatory: options.mandatory || numbered.mandatory,
        handover: numbered.handover,
        immediate: options.immediate || numbered.immediate,
    })
}

fn security(curve: Option<&Curve>, crypto: Option<&Arc<dyn Crypto>>) -> Result<Security, TransportError> {
    let Some(curve) = curve else { return Ok(Security::Null) };
    let crypto = Arc::clone(crypto.ok_or(TransportError::Unsupported(
        "libsodium, which CURVE needs: reinstall pyzmq, whose wheels have it, or use transport='libzmq'",
    ))?);
    Ok(match curve {
        Curve::Server { secret } => {
            let secret = Secret::new(secret);
            let keys = KeyPair { public: crypto.public_key(&secret), secret };
            Security::CurveServer(Arc::new(ServerKeys { crypto, keys }))
        }
        Curve::Client { public, secret, server } => {
            let keys = KeyPair { public: *public, secret: Secret::new(secret) };
            Security::CurveClient(Arc::new(ClientKeys { crypto, keys, server: *server }))
        }
    })
}

/// Options by libzmq's numbers.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is an option of its own
struct Numbered {
    send_hwm: Option<u32>,
    reconnect: Option<Duration>,
    reconnect_most: Option<Duration>,
    handshake: Option<Duration>,
    ping: Option<Duration>,
    ping_timeout: Option<Duration>,
    ping_ttl: Option<Duration>,
    mandatory: bool,
    handover: bool,
    immediate: bool,
    keepalive: Option<bool>,
    idle: Option<Duration>,
    probes: Option<u32>,
    between: Option<Duration>,
    rest: StreamOptions,
}

impl Numbered {
    fn read(options: &SocketOptions) -> Result<Self, TransportError> {
        let mut numbered = Self::default();
        for (number, value) in &options.extra {
            numbered.set(*number, value)?;
        }
        Ok(numbered)
    }

    fn set(&mut self, number: i32, value: &OptionValue) -> Result<(), TransportError> {
        let OptionValue::Int(value) = *value else {
            return Err(TransportError::Unsupported("socket option of text"));
        };
        let milliseconds = || u64::try_from(value).map(Duration::from_millis).map_err(|_| invalid());
        let seconds = || u64::try_from(value).map(Duration::from_secs).map_err(|_| invalid());
        let size = || u32::try_from(value).map_err(|_| invalid());
        // A size of zero is the system's default.
        let own = |size: u32| (size > 0).then_some(size as usize);
        match number {
            // A negative value asks for the default.
            11 | 12 | 34..=37 if value < 0 => {}
            11 => self.rest.send_buffer = own(size()?),
            12 => self.rest.receive_buffer = own(size()?),
            18 if value < 0 => return Err(TransportError::Unsupported("option RECONNECT_IVL of -1")),
            18 => self.reconnect = Some(milliseconds()?),
            19 => self.rest.backlog = Some(i32::try_from(value).map_err(|_| invalid())?),
            21 => self.reconnect_most = Some(milliseconds()?),
            23 => self.send_hwm = Some(size()?),
            // Received messages stay with the system, not in a queue; there are no threads to choose from; waits and
            // the linger are the role's.
            4 | 17 | 24 | 27 | 28 => {}
            33 => self.mandatory = value != 0,
            34 => self.keepalive = Some(value != 0),
            35 => self.probes = Some(size()?),
            36 => self.idle = Some(seconds()?),
            37 => self.between = Some(seconds()?),
            39 => self.immediate = value != 0,
            42 => self.rest.ipv6 = value != 0,
            56 => self.handover = value != 0,
            57 => self.rest.tos = Some(size()?),
            66 if value == 0 => {
                return Err(TransportError::Unsupported("option HANDSHAKE_IVL of 0, a handshake without limit"));
            }
            66 => self.handshake = Some(milliseconds()?),
            75 => self.ping = Some(milliseconds()?),
            76 => self.ping_ttl = Some(milliseconds()?),
            77 => self.ping_timeout = Some(milliseconds()?),
            _ => return Err(TransportError::Unsupported("socket option of this number")),
        }
        Ok(())
    }

    /// Sets those that are ZMTP's.
    fn settle(&self, settings: &mut Settings) {
        if let Some(time) = self.handshake {
            settings.limits.handshake_time = time;
        }
        match self.ping {
            Some(interval) if interval.is_zero() => settings.heartbeat = None,
            Some(interval) => {
                // libzmq's: zero is no limit.
                let timeout = Some(self.ping_timeout.unwrap_or(interval)).filter(|timeout| !timeout.is_zero());
                settings.heartbeat = Some(Heartbeat { interval, timeout, ttl: None });
            }
            None => {}
        }
        if let Some(heartbeat) = &mut settings.heartbeat {
            heartbeat.ttl = self.ping_ttl.filter(|ttl| !ttl.is_zero());
        }
    }

    fn stream(&self) -> StreamOptions {
        let Keepalive { idle, probes, interval } = Keepalive::default();
        let keepalive = Keepalive {
            idle: self.idle.unwrap_or(idle),
            probes: self.probes.unwrap_or(probes),
            interval: self.between.unwrap_or(interval),
        };
        StreamOptions { keepalive: self.keepalive.unwrap_or(true).then_some(keepalive), ..self.rest }
    }
}

fn invalid() -> TransportError {
    crate::reactor::failed(&nix::errno::Errno::EINVAL.into())
}
