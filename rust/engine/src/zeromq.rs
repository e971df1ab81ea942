//! The pure-Rust `zeromq` crate as a transport: for `cargo test`, for Rust users, and where pyzmq exports no libzmq.
//!
//! Its worker thread runs the crate's tasks; bounded channels connect them to the engine.

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::zeromq::util::PeerIdentity;
use ::zeromq::{
    DealerSocket, MultiPeerBackend, PullSocket, PushSocket, RouterSocket, Socket as _, SocketEvent as ZeromqEvent,
    SocketOptions as Set, SocketRecv, SocketSend, ZmqError, ZmqMessage,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};
use tokio::task::JoinHandle;
use trunkline_wire::{MAX_FRAMES, Remote, SocketEvent, SocketKind, SocketOptions};

use crate::reactor::{self, Address};
use crate::signal::Signal;
use crate::transport::{Ending, Interest, Received, Taken, Transport, TransportError};

/// Messages between a task and the engine, by default.
const CHANNEL: usize = 1000;

/// The wait before a send without a peer is retried.
const NO_PEER: Duration = Duration::from_millis(10);

/// The wait before an endpoint is redialled whose connection was lost or refused.
const AGAIN: Duration = Duration::from_millis(100);

/// The time limit of a dial. The crate doubles the time between its attempts until then: to less than two seconds.
const DIAL: Duration = Duration::from_secs(4);

/// The `zeromq` crate and the thread it runs on.
pub struct ZeromqTransport {
    runtime: Runtime,
    signal: Arc<Signal>,
    /// Tasks that go on sending for their linger, and the latest of their deadlines.
    closing: Vec<JoinHandle<()>>,
    lingers: Instant,
}

enum Pattern {
    Dealer(DealerSocket),
    Pull(PullSocket),
    Push(PushSocket),
    Router(RouterSocket),
}

/// Calls a method that all patterns have.
macro_rules! each {
    ($pattern:expr, $socket:ident => $call:expr) => {
        match $pattern {
            Pattern::Dealer($socket) => $call,
            Pattern::Pull($socket) => $call,
            Pattern::Push($socket) => $call,
            Pattern::Router($socket) => $call,
        }
    };
}

/// A socket: one of the crate that listens, and one for each endpoint that is dialled. The crate dials an endpoint
/// once, waits for each before the next, and never disconnects from one.
pub struct Socket {
    /// The listening pattern, until its task takes it for good.
    listening: Option<Pattern>,
    dialled: HashMap<String, JoinHandle<()>>,
    shared: Arc<Shared>,
    incoming: Receiver<ZmqMessage>,
    outgoing: Option<Sender<ZmqMessage>>,
    tasks: Vec<JoinHandle<()>>,
}

/// What the tasks of a socket share.
struct Shared {
    kind: SocketKind,
    routing_id: Option<PeerIdentity>,
    signal: Arc<Signal>,
    events: Mutex<VecDeque<SocketEvent>>,
    /// Each connection has a clone.
    connections: Arc<()>,
    /// The connections of the listening socket, by routing id.
    peers: Mutex<HashMap<Bytes, Arc<()>>>,
    received: Sender<ZmqMessage>,
    to_send: tokio::sync::Mutex<ToSend>,
}

/// Messages for any connection that is ready for one.
struct ToSend {
    /// A message that found no peer.
    returned: Option<ZmqMessage>,
    waiting: Receiver<ZmqMessage>,
}

impl ZeromqTransport {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the operating system gives no thread or descriptor.
    pub fn new() -> Result<Self, TransportError> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(|e| reactor::failed(&e))?;
        let signal = Arc::new(Signal::new().map_err(|error| reactor::failed(&error))?);
        Ok(Self { runtime, signal, closing: vec![], lingers: Instant::now() })
    }
}

impl Shared {
    fn pattern(&self) -> Result<Pattern, TransportError> {
        let mut set = Set::default();
        set.connect_timeout(DIAL);
        if let Some(id) = &self.routing_id {
            set.peer_identity(id.clone());
        }
        Ok(match self.kind {
            // The crate's REQ has no halves for two tasks; a DEALER with an empty frame in front is the same on the wire.
            SocketKind::Dealer | SocketKind::Req => Pattern::Dealer(DealerSocket::with_options(set)),
            SocketKind::Pull => Pattern::Pull(PullSocket::with_options(set)),
            SocketKind::Push => Pattern::Push(PushSocket::with_options(set)),
            SocketKind::Router => Pattern::Router(RouterSocket::with_options(set)),
            SocketKind::Nats | SocketKind::Udp => return Err(TransportError::Unsupported("such sockets")),
        })
    }

    fn report(&self, event: SocketEvent) {
        self.events.lock().push_back(event);
        self.signal.notify();
    }

    /// Whether a peer is connected: until then messages stay where they are counted. A ROUTER addresses its peers by
    /// routing id.
    fn is_connected(&self) -> bool {
        self.kind == SocketKind::Router || Arc::strong_count(&self.connections) > 1
    }

    fn add_peer(&self, id: Bytes) {
        self.peers.lock().entry(id).or_insert_with(|| Arc::clone(&self.connections));
    }

    /// Gives the engine what was received, once there is room. Nothing reads any more once the socket is closed.
    async fn pass_on(&self, held: &mut Option<ZmqMessage>) {
        if held.is_some()
            && let Ok(room) = self.received.reserve().await
            && let Some(message) = held.take()
        {
            room.send(message);
            self.signal.notify();
        }
    }

    /// Waits until connections have taken all pending messages.
    async fn all_is_taken(&self) {
        loop {
            let to_send = self.to_send.lock().await;
            if to_send.returned.is_none() && to_send.waiting.is_empty() {
                return;
            }
            drop(to_send);
            tokio::time::sleep(NO_PEER).await;
        }
    }
}

/// Hangs up for a PULL when dropped: unlike the crate's other sockets it leaves its connections open.
struct HangingUp(Arc<dyn MultiPeerBackend>);

impl Drop for HangingUp {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

/// Reports peers that connect to the listening socket and those that leave it: the crate names the latter by their
/// routing ids.
async fn watch(mut monitor: impl Stream<Item = ZeromqEvent> + Unpin, shared: Arc<Shared>) {
    while let Some(event) = monitor.next().await {
        #[allow(clippy::wildcard_enum_match_arm)] // the others are not about peers of a listening socket
        match event {
            ZeromqEvent::Accepted(endpoint, id) => {
                shared.add_peer(id.into());
                shared.report(SocketEvent::Connected(endpoint.to_string().into()));
            }
            ZeromqEvent::Disconnected(id) => {
                shared.peers.lock().remove(&*id);
                shared.report(SocketEvent::Disconnected(Remote::default()));
            }
            ZeromqEvent::AcceptFailed(error) => {
                shared.report(SocketEvent::HandshakeFailed { endpoint: String::new(), reason: error.to_string() });
            }
            _ => {}
        }
    }
}

/// Dials an endpoint for a socket, each time with a new one of the crate, until nothing more will be sent.
async fn dial(endpoint: String, at: String, shared: Arc<Shared>) {
    while let Ok(mut pattern) = shared.pattern() {
        let mut monitor = each!(&mut pattern, socket => socket.monitor());
        match each!(&mut pattern, socket => socket.connect(&at).await) {
            Ok(()) => {
                let connected = Arc::clone(&shared.connections);
                shared.report(SocketEvent::Connected(endpoint.as_str().into()));
                let mut held = None;
                let lost =
                    async { while !matches!(monitor.next().await, Some(ZeromqEvent::Disconnected(_)) | None) {} };
                tokio::select! {
                    () = serve(pattern, &shared, &mut held) => return,
                    () = lost => {}
                }
                shared.pass_on(&mut held).await;
                drop(connected);
                shared.report(SocketEvent::Disconnected(endpoint.as_str().into()));
            }
            // No peer listens there yet.
            Err(ZmqError::ConnectTimeout(_)) => {}
            Err(error) => {
                let (endpoint, reason) = (endpoint.clone(), error.to_string());
                shared.report(SocketEvent::HandshakeFailed { endpoint, reason });
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Sends and receives, until the socket is closed and all pending messages are sent; receives until it is dropped. A
/// message received without room for it is held.
async fn serve(pattern: Pattern, shared: &Shared, held: &mut Option<ZmqMessage>) {
    match pattern {
        Pattern::Dealer(socket) => both_ways(socket.split(), shared, held).await,
        Pattern::Router(socket) => both_ways(socket.split(), shared, held).await,
        Pattern::Pull(socket) => {
            let _hanging_up = HangingUp(socket.backend());
            receive_all(socket, shared, held).await;
        }
        Pattern::Push(socket) => send_all(socket, shared).await,
    }
}

async fn both_ways(
    (send, receive): (impl SocketSend, impl SocketRecv),
    shared: &Shared,
    held: &mut Option<ZmqMessage>,
) {
    tokio::select! {
        () = send_all(send, shared) => {}
        () = receive_all(receive, shared, held) => {}
    }
}

async fn receive_all(mut socket: impl SocketRecv, shared: &Shared, held: &mut Option<ZmqMessage>) {
    loop {
        match socket.recv().await {
            Ok(message) => {
                if let (SocketKind::Router, Some(peer)) = (shared.kind, message.get(0)) {
                    shared.add_peer(peer.clone());
                }
                *held = Some(message);
                shared.pass_on(held).await;
            }
            // A peer that breaks off does not end the others.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn send_all(mut socket: impl SocketSend, shared: &Shared) {
    loop {
        let mut to_send = shared.to_send.lock().await;
        let message = match to_send.returned.take() {
            Some(message) => message,
            None => match to_send.waiting.recv().await {
                Some(message) => message,
                None => return,
            },
        };
        if let Err(ZmqError::ReturnToSender { message, .. }) = socket.send(message).await {
            to_send.returned = Some(message);
            drop(to_send);
            tokio::time::sleep(NO_PEER).await;
        } else {
            shared.signal.notify();
        }
    }
}

fn failed(error: &ZmqError) -> TransportError {
    if let ZmqError::Network(error) = error {
        return reactor::failed(error);
    }
    TransportError::Failed { errno: 0, reason: error.to_string() }
}

/// An endpoint as the crate writes it.
fn written(address: &Address) -> Result<String, TransportError> {
    match address {
        Address::Tcp(address) => Ok(format!("tcp://{address}")),
        Address::Named { host, port } => Ok(format!("tcp://{host}:{port}")),
        Address::Unix(path) if path.as_os_str().is_empty() => Err(TransportError::Unsupported("ipc://*")),
        Address::Unix(path) => Ok(format!("ipc://{}", path.display())),
    }
}

/// Notes what a socket can do; gives whether that is anything.
fn ready(interest: &mut Interest<'_, Socket>) -> bool {
    let Socket { incoming, outgoing, shared, .. } = &*interest.socket;
    let has_room = outgoing.as_ref().is_some_and(|outgoing| outgoing.capacity() > 0);
    interest.readable = interest.read && !incoming.is_empty();
    interest.writable = interest.write && has_room && shared.is_connected();
    interest.monitored = !shared.events.lock().is_empty();
    interest.readable || interest.writable || interest.monitored
}

impl Transport for ZeromqTransport {
    type Socket = Socket;

    fn open(&mut self, kind: SocketKind, options: &SocketOptions) -> Result<Socket, TransportError> {
        if options.curve.is_some() {
            return Err(TransportError::Unsupported("CURVE"));
        }
        if !options.extra.is_empty() {
            return Err(TransportError::Unsupported("socket options"));
        }
        let routing_id = options.routing_id.as_ref().map(|id| id.clone().try_into()).transpose();
        let capacity = |hwm: Option<u32>| hwm.map_or(CHANNEL, |hwm| hwm.max(1) as usize);
        let (received, incoming) = mpsc::channel(capacity(options.receive_hwm));
        let (outgoing, waiting) = mpsc::channel(capacity(options.send_hwm));
        let shared = Shared {
            kind,
            routing_id: routing_id.map_err(|error| failed(&error))?,
            signal: Arc::clone(&self.signal),
            events: Mutex::default(),
            connections: Arc::default(),
            peers: Mutex::default(),
            received,
            to_send: tokio::sync::Mutex::new(ToSend { returned: None, waiting }),
        };
        // An unsupported kind is an error at once.
        shared.pattern()?;
        Ok(Socket {
            listening: None,
            dialled: HashMap::new(),
            shared: Arc::new(shared),
            incoming,
            outgoing: Some(outgoing),
            tasks: vec![],
        })
    }

    fn bind(&mut self, socket: &mut Socket, endpoint: &str) -> Result<String, TransportError> {
        let address = Address::to_listen(endpoint, false).map_err(|error| reactor::failed(&error))?;
        let at = written(&address)?;
        let pattern = match &mut socket.listening {
            Some(pattern) => pattern,
            None if !socket.tasks.is_empty() => return Err(TransportError::Unsupported("binding once it runs")),
            none => {
                let mut pattern = socket.shared.pattern()?;
                // Before it is bound: a peer may connect before the engine waits for it.
                let monitor = each!(&mut pattern, socket => socket.monitor());
                socket.tasks.push(self.runtime.spawn(watch(monitor, Arc::clone(&socket.shared))));
                none.insert(pattern)
            }
        };
        let bound = self.runtime.block_on(async { each!(pattern, socket => socket.bind(&at).await) });
        let bound = bound.map_err(|error| failed(&error))?;
        Ok(if let Address::Unix(_) = address { endpoint.to_owned() } else { bound.to_string() })
    }

    fn connect(&mut self, socket: &mut Socket, endpoint: &str) -> Result<(), TransportError> {
        if socket.shared.kind == SocketKind::Router {
            return Err(TransportError::Unsupported("ROUTER that dials"));
        }
        let at = written(&Address::to_dial(endpoint).map_err(|error| reactor::failed(&error))?)?;
        let task = self.runtime.spawn(dial(endpoint.to_owned(), at, Arc::clone(&socket.shared)));
        if let Some(before) = socket.dialled.insert(endpoint.to_owned(), task) {
            before.abort();
        }
        Ok(())
    }

    fn disconnect(&mut self, socket: &mut Socket, endpoint: &str) -> Result<(), TransportError> {
        let task = socket.dialled.remove(endpoint);
        task.ok_or(TransportError::Unsupported("letting go of what it listens at"))?.abort();
        Ok(())
    }

    fn receive(&mut self, socket: &mut Socket) -> Result<Option<Received>, TransportError> {
        let kind = socket.shared.kind;
        let mut frames = loop {
            let Ok(message) = socket.incoming.try_recv() else { return Ok(None) };
            let mut frames = message.into_vec().into_iter();
            // A message without an empty first frame is no reply.
            if kind != SocketKind::Req || frames.next().is_some_and(|first| first.is_empty()) {
                break frames;
            }
        };
        let peer = if kind == SocketKind::Router { frames.next() } else { None };
        Ok(Some(Received { peer, user_id: None, host: None, frames: frames.take(MAX_FRAMES + 1).collect() }))
    }

    fn send(&mut self, socket: &mut Socket, to: Option<&Bytes>, frames: &[Bytes]) -> Result<Taken, TransportError> {
        if to.is_some_and(|peer| !socket.shared.peers.lock().contains_key(peer)) {
            return Ok(Taken::Unreachable);
        }
        if !socket.shared.is_connected() {
            return Ok(Taken::Full);
        }
        let delimiter = (socket.shared.kind == SocketKind::Req).then(Bytes::new);
        let frames: Vec<Bytes> = delimiter.iter().chain(to).chain(frames).cloned().collect();
        let Ok(message) = ZmqMessage::try_from(frames) else { return Ok(Taken::Unreachable) };
        match socket.outgoing.as_ref().map(|outgoing| outgoing.try_send(message)) {
            Some(Ok(())) => Ok(Taken::Yes),
            Some(Err(TrySendError::Full(_))) => Ok(Taken::Full),
            Some(Err(TrySendError::Closed(_))) | None => Ok(Taken::Unreachable),
        }
    }

    fn poll_monitor(&mut self, socket: &mut Socket) -> Option<SocketEvent> {
        socket.shared.events.lock().pop_front()
    }

    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, Socket>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        self.signal.arm();
        let mut is_ready = false;
        for interest in &mut *sockets {
            // It is bound to all its endpoints.
            if let Some(pattern) = interest.socket.listening.take() {
                let shared = Arc::clone(&interest.socket.shared);
                let task = self.runtime.spawn(async move { serve(pattern, &shared, &mut None).await });
                interest.socket.tasks.push(task);
            }
            is_ready |= ready(interest);
        }
        let is_other = self.signal.poll(others, if is_ready { Some(Duration::ZERO) } else { timeout });
        for interest in sockets {
            ready(interest);
        }
        Ok(is_other)
    }

    fn close(&mut self, mut socket: Socket, linger: Duration) {
        // Without a sender the tasks end when they have sent the rest.
        socket.outgoing = None;
        socket.incoming.close();
        let Socket { shared, tasks, dialled, .. } = socket;
        let sends = shared.kind != SocketKind::Pull;
        if sends {
            self.lingers = self.lingers.max(Instant::now() + linger);
        }
        self.closing.push(self.runtime.spawn(async move {
            if sends {
                // What is left after that is given up.
                let _ = tokio::time::timeout(linger, shared.all_is_taken()).await;
            }
            tasks.iter().chain(dialled.values()).for_each(JoinHandle::abort);
        }));
    }

    fn ending(self) -> Ending {
        let Self { runtime, closing, lingers, .. } = self;
        Box::new(move || {
            runtime.block_on(async {
                for socket in closing {
                    // An error leaves nothing to wait for.
                    let _ = socket.await;
                }
                // The crate writes in its own tasks, which end when they have nothing left.
                while Instant::now() < lingers && runtime.metrics().num_alive_tasks() > 0 {
                    tokio::time::sleep(NO_PEER).await;
                }
            });
            None
        })
    }
}
