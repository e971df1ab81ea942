//! The pure-Rust `zeromq` crate as a transport: for `cargo test`, for Rust users, and where pyzmq exports no libzmq.
//!
//! A worker thread of its own runs the crate's tasks; bounded channels lie between them and the engine.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::zeromq::{
    DealerSocket, PullSocket, PushSocket, RouterSocket, Socket as _, SocketEvent as ZeromqEvent, SocketOptions as Set,
    SocketRecv, SocketSend, ZmqError, ZmqMessage,
};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};
use tokio::task::JoinHandle;
use trunkline_wire::{MAX_FRAMES, Remote, SocketEvent, SocketKind, SocketOptions};

use crate::signal::Signal;
use crate::transport::{Capabilities, Ending, Interest, Received, Taken, Transport, TransportError, whole_ms};

/// Messages between a task and the engine, where the options do not say.
const CHANNEL: usize = 1000;

/// A send that finds no peer is tried again after this long.
const NO_PEER: Duration = Duration::from_millis(10);

/// The `zeromq` crate and the thread it runs on.
pub struct ZeromqTransport {
    handle: Handle,
    /// None once the transport has ended.
    runtime: Option<Runtime>,
    signal: Arc<Signal>,
    /// What goes on sending for as long as its linger says, and until when it may at the latest.
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

/// A socket: set up first, then handed to its tasks for good.
pub struct Socket {
    kind: SocketKind,
    setup: Option<Setup>,
    events: Arc<Mutex<VecDeque<SocketEvent>>>,
    incoming: Receiver<ZmqMessage>,
    outgoing: Option<Sender<ZmqMessage>>,
    tasks: Vec<JoinHandle<()>>,
}

struct Setup {
    pattern: Pattern,
    connect: Vec<String>,
    received: Sender<ZmqMessage>,
    to_send: Receiver<ZmqMessage>,
}

impl ZeromqTransport {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the operating system gives no thread or descriptor.
    pub fn new() -> Result<Self, TransportError> {
        let failed = |error: std::io::Error| TransportError::Failed {
            errno: error.raw_os_error().unwrap_or_default(),
            reason: error.to_string(),
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(failed)?;
        let signal = Arc::new(Signal::new().map_err(failed)?);
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
            signal,
            closing: vec![],
            lingers: Instant::now(),
        })
    }

    /// Hands a socket to its tasks, once everything about it is said.
    fn launch(&self, socket: &mut Socket) {
        let Some(Setup { mut pattern, connect, received, to_send }) = socket.setup.take() else { return };
        let signal = Arc::clone(&self.signal);
        let events = Arc::clone(&socket.events);
        socket.tasks.push(self.handle.spawn(async move {
            for endpoint in connect {
                if let Err(error) = each!(&mut pattern, socket => socket.connect(&endpoint).await) {
                    report(&events, &signal, Some(SocketEvent::OpenFailed { endpoint, reason: error.to_string() }));
                }
            }
            let sending = Arc::clone(&signal);
            match pattern {
                Pattern::Dealer(socket) => {
                    let (send, receive) = socket.split();
                    both(send_all(send, to_send, sending), receive_all(receive, received, signal)).await;
                }
                Pattern::Router(socket) => {
                    let (send, receive) = socket.split();
                    both(send_all(send, to_send, sending), receive_all(receive, received, signal)).await;
                }
                Pattern::Pull(socket) => receive_all(socket, received, signal).await,
                Pattern::Push(socket) => send_all(socket, to_send, sending).await,
            }
        }));
    }
}

fn report(events: &Mutex<VecDeque<SocketEvent>>, signal: &Signal, event: Option<SocketEvent>) {
    events.lock().unwrap_or_else(PoisonError::into_inner).extend(event);
    signal.notify();
}

/// The crate names peers by their routing id when they go, not by endpoint.
fn translate(event: ZeromqEvent) -> Option<SocketEvent> {
    match event {
        ZeromqEvent::Connected(endpoint, _) | ZeromqEvent::Accepted(endpoint, _) => {
            Some(SocketEvent::Connected(endpoint.to_string().into()))
        }
        ZeromqEvent::Disconnected(_) => Some(SocketEvent::Disconnected(Remote::default())),
        ZeromqEvent::AcceptFailed(error) => {
            Some(SocketEvent::HandshakeFailed { endpoint: String::new(), reason: error.to_string() })
        }
        ZeromqEvent::ConnectDelayed
        | ZeromqEvent::ConnectRetried
        | ZeromqEvent::Listening(_)
        | ZeromqEvent::Closed
        | ZeromqEvent::CloseFailed => None,
    }
}

async fn receive_all(mut socket: impl SocketRecv, received: Sender<ZmqMessage>, signal: Arc<Signal>) {
    loop {
        match socket.recv().await {
            Ok(message) => {
                if received.send(message).await.is_err() {
                    return;
                }
                signal.notify();
            }
            Err(ZmqError::NoMessage) => return,
            // A peer that breaks off does not end the others.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn send_all(mut socket: impl SocketSend, mut to_send: Receiver<ZmqMessage>, signal: Arc<Signal>) {
    while let Some(mut message) = to_send.recv().await {
        while let Err(ZmqError::ReturnToSender { message: back, .. }) = socket.send(message).await {
            message = back;
            tokio::time::sleep(NO_PEER).await;
        }
        signal.notify();
    }
}

/// Receives for as long as it sends: until the socket is closed, and all that was to be sent then has been.
async fn both(send: impl Future<Output = ()>, receive: impl Future<Output = ()>) {
    let receive = async {
        receive.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = send => {}
        () = receive => {}
    }
}

fn failed(error: &ZmqError) -> TransportError {
    let errno = if let ZmqError::Network(error) = error { error.raw_os_error().unwrap_or_default() } else { 0 };
    TransportError::Failed { errno, reason: error.to_string() }
}

fn poll(fd: &impl AsRawFd) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

impl Transport for ZeromqTransport {
    type Socket = Socket;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "zeromq",
            curve: false,
            zap: false,
            inproc: false,
            full_peer_refuses: false,
            reports_unreachable: false,
            reconnects: false,
            reports_drained: false,
        }
    }

    fn open(&mut self, kind: SocketKind, options: &SocketOptions) -> Result<Socket, TransportError> {
        if options.curve.is_some() {
            return Err(TransportError::Unsupported("CURVE"));
        }
        if !options.extra.is_empty() {
            return Err(TransportError::Unsupported("socket options"));
        }
        let _runtime = self.handle.enter();
        let mut set = Set::default();
        set.no_connect_timeout();
        if let Some(id) = &options.routing_id {
            let id = id.to_vec().try_into().map_err(|error| failed(&error))?;
            set.peer_identity(id);
        }
        let mut pattern = match kind {
            // The crate's REQ has no halves for two tasks; a DEALER with an empty frame in front is the same on the wire.
            SocketKind::Dealer | SocketKind::Req => Pattern::Dealer(DealerSocket::with_options(set)),
            SocketKind::Pull => Pattern::Pull(PullSocket::with_options(set)),
            SocketKind::Push => Pattern::Push(PushSocket::with_options(set)),
            SocketKind::Router => Pattern::Router(RouterSocket::with_options(set)),
            SocketKind::Nats => return Err(TransportError::Unsupported("NATS")),
            SocketKind::Udp => return Err(TransportError::Unsupported("UDP")),
        };
        // Before it is bound: a peer may be there sooner than the engine comes to wait for it.
        let mut monitor = each!(&mut pattern, socket => socket.monitor());
        let events = Arc::<Mutex<VecDeque<_>>>::default();
        let watching = self.handle.spawn({
            let (signal, events) = (Arc::clone(&self.signal), Arc::clone(&events));
            async move {
                while let Some(event) = monitor.next().await {
                    report(&events, &signal, translate(event));
                }
            }
        });
        let (received, incoming) = mpsc::channel(options.receive_hwm.map_or(CHANNEL, |hwm| hwm.max(1) as usize));
        let (outgoing, to_send) = mpsc::channel(options.send_hwm.map_or(CHANNEL, |hwm| hwm.max(1) as usize));
        Ok(Socket {
            kind,
            setup: Some(Setup { pattern, connect: vec![], received, to_send }),
            events,
            incoming,
            outgoing: Some(outgoing),
            tasks: vec![watching],
        })
    }

    fn bind(&mut self, socket: &mut Socket, endpoint: &str) -> Result<String, TransportError> {
        let setup = socket.setup.as_mut().ok_or(TransportError::Unsupported("binding once it runs"))?;
        let endpoint = endpoint.replace(":*", ":0");
        let bound = self.handle.block_on(async { each!(&mut setup.pattern, socket => socket.bind(&endpoint).await) });
        bound.map(|endpoint| endpoint.to_string()).map_err(|error| failed(&error))
    }

    fn connect(&mut self, socket: &mut Socket, endpoint: &str) -> Result<(), TransportError> {
        let setup = socket.setup.as_mut().ok_or(TransportError::Unsupported("connecting once it runs"))?;
        setup.connect.push(endpoint.to_owned());
        Ok(())
    }

    fn disconnect(&mut self, _socket: &mut Socket, _endpoint: &str) -> Result<(), TransportError> {
        Err(TransportError::Unsupported("disconnecting"))
    }

    fn receive(&mut self, socket: &mut Socket) -> Result<Option<Received>, TransportError> {
        self.launch(socket);
        let mut frames = loop {
            let Ok(message) = socket.incoming.try_recv() else { return Ok(None) };
            let mut frames = message.into_vec().into_iter();
            // What has no empty frame in front is no reply.
            if socket.kind != SocketKind::Req || frames.next().is_some_and(|first| first.is_empty()) {
                break frames;
            }
        };
        let peer = if socket.kind == SocketKind::Router { frames.next() } else { None };
        Ok(Some(Received { peer, user_id: None, host: None, frames: frames.take(MAX_FRAMES + 1).collect() }))
    }

    fn send(&mut self, socket: &mut Socket, to: Option<&Bytes>, frames: &[Bytes]) -> Result<Taken, TransportError> {
        self.launch(socket);
        let delimiter = (socket.kind == SocketKind::Req).then(Bytes::new);
        let frames: Vec<Bytes> = delimiter.iter().chain(to).chain(frames).cloned().collect();
        let Ok(message) = ZmqMessage::try_from(frames) else { return Ok(Taken::Unreachable) };
        match socket.outgoing.as_ref().map(|outgoing| outgoing.try_send(message)) {
            Some(Ok(())) => Ok(Taken::Yes),
            Some(Err(TrySendError::Full(_))) => Ok(Taken::Full),
            Some(Err(TrySendError::Closed(_))) | None => Ok(Taken::Unreachable),
        }
    }

    fn poll_monitor(&mut self, socket: &mut Socket) -> Option<SocketEvent> {
        socket.events.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, Socket>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        for interest in &mut *sockets {
            self.launch(interest.socket);
        }
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            self.signal.arm();
            let mut any = false;
            for interest in &mut *sockets {
                let Socket { incoming, outgoing, events, .. } = &*interest.socket;
                interest.readable = interest.read && !incoming.is_empty();
                interest.writable = interest.write && outgoing.as_ref().is_some_and(|outgoing| outgoing.capacity() > 0);
                interest.monitored = !events.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
                any |= interest.readable || interest.writable || interest.monitored;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if any || left.is_some_and(|left| left.is_zero()) {
                self.signal.disarm(false);
                return Ok(false);
            }
            let mut fds: Vec<_> = others.iter().chain([&self.signal.as_fd()]).map(poll).collect();
            // SAFETY: pointer and length are those of the vector. An error is an early wake-up.
            unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, whole_ms(left)) };
            self.signal.disarm(fds[others.len()].revents != 0);
            if fds[..others.len()].iter().any(|other| other.revents != 0) {
                return Ok(true);
            }
        }
    }

    fn close(&mut self, mut socket: Socket, linger: Duration) {
        // Without a sender the sending task ends when it has sent what it holds.
        socket.outgoing = None;
        socket.incoming.close();
        let mut tasks = std::mem::take(&mut socket.tasks);
        let sends = socket.kind != SocketKind::Pull;
        if sends {
            self.lingers = self.lingers.max(Instant::now() + linger);
        }
        self.closing.push(self.handle.spawn(async move {
            if let Some(sending) = tasks.pop_if(|_| sends) {
                let abort = sending.abort_handle();
                // One that panicked has nothing left to send.
                if tokio::time::timeout(linger, sending).await.is_err() {
                    abort.abort();
                }
            }
            tasks.iter().for_each(JoinHandle::abort);
        }));
    }

    fn ending(&mut self) -> Ending {
        let (closing, lingers) = (std::mem::take(&mut self.closing), self.lingers);
        let Some(runtime) = self.runtime.take() else { return Box::new(|| None) };
        Box::new(move || {
            runtime.block_on(async {
                for socket in closing {
                    // As above.
                    let _ = socket.await;
                }
                // The crate writes in tasks of its own, which end when they have nothing left.
                while Instant::now() < lingers && runtime.metrics().num_alive_tasks() > 0 {
                    tokio::time::sleep(NO_PEER).await;
                }
            });
            None
        })
    }
}
