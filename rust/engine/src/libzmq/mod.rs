//! libzmq as a transport.

mod connections;
mod context;
mod dialled;
mod ffi;
mod shaking;

use std::collections::VecDeque;
use std::ffi::{CString, c_int};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::{Curve, MAX_FRAMES, OptionValue, Remote, SocketEvent, SocketKind, SocketOptions};

pub use connections::Connections;
pub use context::{Context, load};
pub use ffi::{ContextPtr, Libzmq, SocketPtr};

use crate::limits::{Keepalive, Repeats};
use crate::reactor;
use crate::transport::{Ending, Interest, Received, Taken, Transport, TransportError, whole_ms};
use dialled::Dialled;
use ffi::{FrameReader, event, option};
use shaking::Shaking;

/// The number of the next monitor, for its endpoint within the context.
static MONITORS: AtomicU64 = AtomicU64::new(0);

/// libzmq, in one context.
pub struct LibzmqTransport {
    zmq: &'static Libzmq,
    context: ContextPtr,
    /// Whether the context ends with the transport, and has not ended yet.
    ends_context: bool,
    adopted: VecDeque<SocketPtr>,
    connections: Connections,
    reader: FrameReader,
    poll: Vec<libc::pollfd>,
}

/// A socket and the monitor of its connections. Closed when it is dropped: its context waits for that.
#[allow(clippy::struct_excessive_bools)] // it is a list of flags
pub struct Socket {
    zmq: &'static Libzmq,
    data: SocketPtr,
    kind: SocketKind,
    monitor: SocketPtr,
    data_fd: c_int,
    monitor_fd: c_int,
    authenticated: bool,
    /// Whether it must know the key of the server it dials.
    knows_server: bool,
    /// Whether messages in an envelope carry their host.
    hosts: bool,
    adopted: bool,
    /// Set from an empty receive until the socket is used again.
    is_drained: bool,
    shaking: Shaking,
    /// Why handshakes failed, until the disconnection that follows names the peer; none where we refused it.
    refused: VecDeque<Option<String>>,
    /// Peers that were refused: their handshakes fail only for that.
    turned_away: usize,
    /// When a peer was last refused because we lacked something, for example descriptors.
    want_of_room: Repeats,
    /// Set while its monitor may have more events, which the descriptor does not signal twice.
    has_news: bool,
    bound: Vec<String>,
    dialled: Dialled,
}

/// The longest time that a peer may take to identify itself: a silent one holds a descriptor.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Room for frames in a message of more than a few.
const MANY_FRAMES: usize = 9;

/// Repeated events that are read in one go.
const OLD_NEWS: usize = 256;

impl LibzmqTransport {
    /// A transport whose sockets live in `context`. The first sockets that it opens are the `adopted` ones.
    pub fn new(zmq: &'static Libzmq, context: Context, adopted: Vec<SocketPtr>, connections: Connections) -> Self {
        Self {
            zmq,
            context: context.pointer(),
            ends_context: matches!(context, Context::Own(_)),
            adopted: adopted.into(),
            connections,
            reader: FrameReader::new(zmq),
            poll: Vec::new(),
        }
    }

    fn set(&self, socket: SocketPtr, options: &SocketOptions) -> Result<(), TransportError> {
        let int = |option, value: i64| self.zmq.set_int(socket, option, value);
        int(option::LINGER, 0)?;
        int(option::HANDSHAKE_IVL, milliseconds(HANDSHAKE))?;
        let Keepalive { idle, probes, interval } = Keepalive::default();
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let keepalive = [1, seconds(idle), probes.into(), seconds(interval)];
        for (option, value) in option::KEEPALIVE.into_iter().zip(keepalive) {
            int(option, value)?;
        }
        if let Some(messages) = options.send_hwm {
            int(option::SNDHWM, messages.into())?;
        }
        if let Some(messages) = options.receive_hwm {
            int(option::RCVHWM, messages.into())?;
        }
        if let Some(bytes) = options.max_message_bytes {
            int(option::MAXMSGSIZE, i64::try_from(bytes).unwrap_or(-1))?;
        }
        if let Some(time) = options.handshake_timeout {
            int(option::HANDSHAKE_IVL, milliseconds(time))?;
        }
        if options.immediate {
            int(option::IMMEDIATE, 1)?;
        }
        if options.mandatory {
            int(option::ROUTER_MANDATORY, 1)?;
        }
        if let Some((interval, timeout)) = options.heartbeat {
            int(option::HEARTBEAT_IVL, milliseconds(interval))?;
            int(option::HEARTBEAT_TIMEOUT, milliseconds(timeout))?;
        }
        if let Some(id) = &options.routing_id {
            self.zmq.set_bytes(socket, option::ROUTING_ID, id)?;
        }
        match &options.curve {
            None => {}
            Some(Curve::Server { secret }) => {
                int(option::CURVE_SERVER, 1)?;
                self.zmq.set_bytes(socket, option::CURVE_SECRETKEY, &**secret)?;
            }
            Some(Curve::Client { public, secret, server }) => {
                self.zmq.set_bytes(socket, option::CURVE_SERVERKEY, server)?;
                self.zmq.set_bytes(socket, option::CURVE_PUBLICKEY, public)?;
                self.zmq.set_bytes(socket, option::CURVE_SECRETKEY, &**secret)?;
            }
        }
        for (number, value) in &options.extra {
            match value {
                OptionValue::Int(value) => int(*number, *value)?,
                OptionValue::Bytes(value) => self.zmq.set_bytes(socket, *number, value)?,
            }
        }
        Ok(())
    }

    /// libzmq takes IPv6 addresses only on sockets with that option. On those it resolves names to IPv6 first, so the
    /// others stay without it.
    fn allow_family(&self, socket: SocketPtr, endpoint: &str) -> Result<(), TransportError> {
        if endpoint.starts_with("tcp://[") { self.zmq.set_int(socket, option::IPV6, 1) } else { Ok(()) }
    }

    /// Watches the socket's connections at an endpoint that is unique within the process.
    fn watch(&self, socket: SocketPtr) -> Result<SocketPtr, TransportError> {
        let number = MONITORS.fetch_add(1, Ordering::Relaxed);
        let endpoint = format!("inproc://trunkline-monitor-{}-{number}", std::process::id());
        let monitor = self.zmq.socket(self.context, PAIR)?;
        let name = CString::new(endpoint.as_str()).unwrap_or_default();
        let watched = self
            .zmq
            .set_int(monitor, option::LINGER, 0)
            .and_then(|()| self.zmq.monitor(socket, Some(&name)))
            .and_then(|()| self.zmq.connect(monitor, &endpoint));
        match watched {
            Ok(()) => Ok(monitor),
            Err(error) => {
                self.zmq.close(monitor);
                Err(error)
            }
        }
    }
}

impl Socket {
    /// An endpoint has refused us for good: it is redialled later.
    fn let_go(&mut self, endpoint: &str) {
        if self.dialled.refused(endpoint) {
            // Else libzmq believes it is still dialling.
            let _ = self.zmq.disconnect(self.data, endpoint);
        }
    }

    /// The endpoint as it was given; libzmq names it by its address once it has resolved it.
    fn given(&self, endpoint: String) -> String {
        let only = self.dialled.only().filter(|_| self.bound.is_empty());
        only.map_or(endpoint, str::to_owned)
    }
}

const PAIR: c_int = 0;

fn number(kind: SocketKind) -> c_int {
    match kind {
        SocketKind::Req => 3,
        SocketKind::Dealer => 5,
        SocketKind::Router => 6,
        SocketKind::Pull => 7,
        SocketKind::Push => 8,
        // These have no number: the engine opens UDP itself, and NATS is not ZeroMQ.
        SocketKind::Nats | SocketKind::Udp => -1,
    }
}

/// The patterns of ZeroMQ, by number.
const PATTERNS: [&str; 12] =
    ["PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB", "STREAM"];

fn pattern(number: c_int) -> &'static str {
    usize::try_from(number).ok().and_then(|number| PATTERNS.get(number)).copied().unwrap_or("draft")
}

/// ZAP's status code for a refused client.
const NOT_ALLOWED: i32 = 400;

/// How a handshake broke the protocol, by libzmq's number.
fn broken(error: i32) -> &'static str {
    match error {
        0x1100_0001 => "the keys of the two sides do not fit together",
        0x1100_0002 => "only one side is encrypted",
        _ => "the peer does not follow ZMTP",
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Transport for LibzmqTransport {
    type Socket = Socket;

    fn open(&mut self, kind: SocketKind, options: &SocketOptions) -> Result<Socket, TransportError> {
        if options.curve.is_some() && !self.zmq.has(c"curve") {
            return Err(TransportError::Unsupported("CURVE"));
        }
        let adopted = self.adopted.pop_front();
        let data = match adopted {
            Some(socket) => {
                let given = self.zmq.int(socket, option::TYPE)?;
                if given != number(kind) {
                    let (needed, given) = (pattern(number(kind)), pattern(given));
                    return Err(TransportError::WrongSocket { needed, given });
                }
                socket
            }
            None => self.zmq.socket(self.context, number(kind))?,
        };
        let finish = || {
            if adopted.is_none() {
                self.set(data, options)?;
            }
            let monitor = self.watch(data)?;
            Ok(Socket {
                zmq: self.zmq,
                data,
                kind,
                monitor,
                data_fd: self.zmq.int(data, option::FD)?,
                monitor_fd: self.zmq.int(monitor, option::FD)?,
                authenticated: matches!(options.curve, Some(Curve::Server { .. })),
                knows_server: matches!(options.curve, Some(Curve::Client { .. })),
                hosts: options.hosts,
                adopted: adopted.is_some(),
                is_drained: false,
                shaking: Shaking::default(),
                refused: VecDeque::new(),
                turned_away: 0,
                want_of_room: Repeats::default(),
                has_news: true,
                bound: vec![],
                dialled: Dialled::default(),
            })
        };
        finish().inspect_err(|_| {
            if adopted.is_none() {
                self.zmq.close(data);
            }
        })
    }

    fn bind(&mut self, socket: &mut Socket, endpoint: &str) -> Result<String, TransportError> {
        socket.is_drained = false;
        self.allow_family(socket.data, endpoint)?;
        // libzmq would take the path away from another role, or remove a file that is there.
        reactor::check_free(endpoint).map_err(|error| reactor::failed(&error))?;
        self.zmq.bind(socket.data, endpoint)?;
        let real = self.zmq.text(socket.data, option::LAST_ENDPOINT)?;
        socket.bound.push(real.clone());
        Ok(real)
    }

    fn adopted_endpoint(&self, socket: &Socket) -> Option<String> {
        let endpoint = socket.adopted.then(|| self.zmq.text(socket.data, option::LAST_ENDPOINT).ok());
        endpoint.flatten().filter(|endpoint| !endpoint.is_empty())
    }

    fn connect(&mut self, socket: &mut Socket, endpoint: &str) -> Result<(), TransportError> {
        socket.is_drained = false;
        self.allow_family(socket.data, endpoint)?;
        self.zmq.connect(socket.data, endpoint)?;
        socket.dialled.add(endpoint);
        Ok(())
    }

    fn disconnect(&mut self, socket: &mut Socket, endpoint: &str) -> Result<(), TransportError> {
        socket.is_drained = false;
        if let Some(at) = socket.bound.iter().position(|bound| bound == endpoint) {
            socket.bound.swap_remove(at);
            self.zmq.unbind(socket.data, endpoint)
        } else {
            socket.dialled.remove(endpoint);
            self.zmq.disconnect(socket.data, endpoint)
        }
    }

    fn receive(&mut self, socket: &mut Socket) -> Result<Option<Received>, TransportError> {
        let mut received = Received::default();
        let Some((first, mut more)) = self.reader.receive(socket.data)? else {
            socket.is_drained = true;
            return Ok(None);
        };
        if socket.authenticated {
            received.user_id = self.reader.property(c"User-Id");
        }
        if socket.kind == SocketKind::Router {
            received.peer = Some(first);
        } else {
            received.frames.push(first);
        }
        while more {
            // The frames of a message arrive together.
            let Some((frame, another)) = self.reader.receive(socket.data)? else { break };
            let kept = received.frames.len();
            if frame.is_empty() && socket.hosts && received.host.is_none() && (kept == 0 || another) {
                let host = self.reader.property(c"Peer-Address");
                received.host = host.map(|host| String::from_utf8_lossy(&host).into());
            }
            if kept == received.frames.inline_size() {
                // Reserved once, not frame by frame.
                received.frames.reserve_exact(MANY_FRAMES);
            }
            // Frames beyond the limit are read and discarded; one frame too many marks the message.
            if kept <= MAX_FRAMES {
                received.frames.push(frame);
            }
            more = another;
        }
        Ok(Some(received))
    }

    fn address(&self, _socket: &Socket) -> Option<Box<str>> {
        let text = |name| String::from_utf8(self.reader.property(name)?.into()).ok();
        let (host, connection) = (text(c"Peer-Address")?, text(c"__fd")?.parse().ok()?);
        // The descriptor may belong to another connection now: believe only one from the same host. A connection that
        // has just been accepted may have no address yet.
        let address = self.connections.address(connection).or_else(|| connections::address(connection));
        address.filter(|address| connections::host_of(address) == host).map(Into::into)
    }

    fn send(&mut self, socket: &mut Socket, to: Option<&Bytes>, frames: &[Bytes]) -> Result<Taken, TransportError> {
        socket.is_drained = false;
        let parts = to.into_iter().chain(frames);
        let last = frames.len() + usize::from(to.is_some()) - 1;
        for (at, frame) in parts.enumerate() {
            match self.zmq.send(socket.data, frame, at < last) {
                Ok(true) => {}
                // Only the first frame of a message can be refused.
                Ok(false) => return Ok(Taken::Full),
                Err(TransportError::Failed { errno: libc::EHOSTUNREACH, .. }) => return Ok(Taken::Unreachable),
                Err(error) => return Err(error),
            }
        }
        Ok(Taken::Yes)
    }

    fn turned_away(&self) -> u64 {
        self.connections.turned_away()
    }

    fn poll_monitor(&mut self, socket: &mut Socket) -> Option<SocketEvent> {
        let mut old = 0;
        while old < OLD_NEWS {
            let Ok(Some((head, more))) = self.reader.receive(socket.monitor) else {
                socket.has_news = false;
                return None;
            };
            let endpoint = if more { self.reader.receive(socket.monitor).ok()??.0 } else { Bytes::new() };
            let (Some(&[low, high]), Some(value)) = (head.first_chunk::<2>(), head.get(2..6)) else { continue };
            let value = i32::from_ne_bytes(value.try_into().unwrap_or_default());
            let endpoint = socket.given(String::from_utf8_lossy(&endpoint).into_owned());
            let refused = |reason: String| SocketEvent::HandshakeFailed { endpoint: endpoint.clone(), reason };
            return Some(match u16::from_ne_bytes([low, high]) {
                event::HANDSHAKE_SUCCEEDED => {
                    socket.dialled.succeeded(&endpoint);
                    let address =
                        socket.shaking.succeeded().and_then(|connection| self.connections.address(connection));
                    SocketEvent::Connected(Remote { endpoint, address })
                }
                event::CONNECTED => {
                    socket.shaking.began(value);
                    continue;
                }
                event::ACCEPTED => {
                    let Some(reason) = self.connections.admit(value, &endpoint) else {
                        socket.shaking.began(value);
                        continue;
                    };
                    socket.turned_away += 1;
                    if !socket.want_of_room.is_news() {
                        old += 1;
                        continue;
                    }
                    refused(reason)
                }
                event::DISCONNECTED if !socket.refused.is_empty() => {
                    let address = self.connections.leave(value);
                    socket.shaking.failed(value);
                    let Some(reason) = socket.refused.pop_front().flatten() else {
                        old += 1;
                        continue;
                    };
                    refused(address.map_or_else(|| reason.clone(), |address| format!("{address}: {reason}")))
                }
                event::DISCONNECTED => {
                    socket.shaking.ended(value);
                    SocketEvent::Disconnected(Remote { endpoint, address: self.connections.leave(value) })
                }
                event::ACCEPT_FAILED => {
                    if !socket.want_of_room.is_news() {
                        old += 1;
                        continue;
                    }
                    refused(std::io::Error::from_raw_os_error(value).to_string())
                }
                event::HANDSHAKE_FAILED_NO_DETAIL if socket.turned_away > 0 => {
                    socket.turned_away -= 1;
                    socket.refused.push_back(None);
                    continue;
                }
                event::HANDSHAKE_FAILED_NO_DETAIL => {
                    let question = if socket.knows_server {
                        "is the server key the one of this server, is it encrypted, and does it take another connection?"
                    } else {
                        "is only one side encrypted, or are there too many connections?"
                    };
                    socket.refused.push_back(Some(format!("the peer disconnected during the handshake: {question}")));
                    continue;
                }
                event::HANDSHAKE_FAILED_PROTOCOL => {
                    socket.let_go(&endpoint);
                    socket.refused.push_back(Some(broken(value).to_owned()));
                    continue;
                }
                event::HANDSHAKE_FAILED_AUTH => {
                    socket.let_go(&endpoint);
                    let reason = match (socket.authenticated, value) {
                        (true, _) => "its key is not allowed",
                        (false, NOT_ALLOWED) => "the peer does not allow this key",
                        (false, _) => "the peer refuses this key",
                    };
                    socket.refused.push_back(Some(format!("{reason}: authentication failed with status {value}")));
                    continue;
                }
                _ => continue,
            });
        }
        None
    }

    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, Socket>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        let (mut any, mut timeout) = (false, timeout);
        for Interest { socket, read, write, readable, writable, .. } in &mut *sockets {
            // Not before all refusals are known: libzmq identifies its connections only by memory addresses.
            while !socket.has_news
                && let Some(endpoint) = socket.dialled.due()
            {
                self.zmq.connect(socket.data, &endpoint)?;
            }
            timeout = timeout.into_iter().chain(socket.dialled.wait()).min();
            // The descriptor signals only what no call has seen yet.
            any |= socket.has_news;
            if *write || (*read && !socket.is_drained) {
                let events = self.zmq.int(socket.data, option::EVENTS)?;
                *readable = *read && events & ffi::POLLIN != 0;
                *writable = *write && events & ffi::POLLOUT != 0;
                any |= *readable || *writable;
            }
        }
        let listen = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.poll.clear();
        self.poll.extend(others.iter().map(|other| listen(other.as_raw_fd())));
        self.poll.extend(sockets.iter().flat_map(|interest| {
            let Socket { data_fd, monitor_fd, .. } = *interest.socket;
            [listen(data_fd), listen(monitor_fd)]
        }));
        let timeout = whole_ms(if any { Some(Duration::ZERO) } else { timeout });
        // SAFETY: pointer and length are those of the vector.
        if unsafe { libc::poll(self.poll.as_mut_ptr(), self.poll.len() as libc::nfds_t, timeout) } < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() == std::io::ErrorKind::Interrupted {
                return Ok(false);
            }
            let errno = error.raw_os_error().unwrap_or_default();
            return Err(TransportError::Failed { errno, reason: error.to_string() });
        }
        let (others, polled) = self.poll.split_at(others.len());
        for (interest, polled) in sockets.iter_mut().zip(polled.chunks_exact(2)) {
            interest.socket.has_news |= polled[1].revents != 0;
            interest.monitored = interest.socket.has_news;
            if polled[0].revents != 0 {
                interest.socket.is_drained = false;
                interest.readable = interest.read;
                if !interest.read {
                    // The query clears the signal, which would wake us repeatedly.
                    let events = self.zmq.int(interest.socket.data, option::EVENTS)?;
                    interest.writable = interest.write && events & ffi::POLLOUT != 0;
                }
            }
        }
        Ok(others.iter().any(|other| other.revents != 0))
    }

    fn close(&mut self, socket: Socket, linger: Duration) {
        if !socket.adopted {
            // A socket that fails here is closed all the same.
            let _ = self.zmq.set_int(socket.data, option::LINGER, milliseconds(linger));
        }
    }

    /// A context ends when the system has the last byte of its sockets, or their linger is over.
    fn ending(mut self) -> Ending {
        let (zmq, context) = (self.zmq, self.context);
        let ends_context = std::mem::take(&mut self.ends_context);
        Box::new(move || {
            if ends_context {
                zmq.terminate(context);
            }
            None
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A socket that fails here is closed all the same.
        let _ = self.zmq.monitor(self.data, None);
        self.zmq.close(self.monitor);
        if !self.adopted {
            self.zmq.close(self.data);
        }
    }
}

impl Drop for LibzmqTransport {
    /// One that never ran has nothing to send.
    fn drop(&mut self) {
        if self.ends_context {
            self.zmq.terminate(self.context);
        }
    }
}
