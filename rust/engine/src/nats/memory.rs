//! A NATS inside this process, for tests and first steps: subjects, wildcards, queue groups, and the answer to a request
//! that has no subscriber.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use nix::errno::Errno;
use trunkline_wire::cdt::subject::matches;
use trunkline_wire::nats::{Head, Unfit};
use trunkline_wire::{Frames, ServerNotice, SocketEvent, SocketKind, SocketOptions, cost};

use super::socket::{Socket, Sockets};
use crate::fork;
use crate::signal::Signal;
use crate::transport::{Capabilities, Ending, Interest, Received, Taken, Transport, TransportError};

/// The largest body.
const MAX_PAYLOAD: usize = 1 << 20;

/// The bytes that may wait for a subscriber; a server cuts off one that is slower.
const INBOX: usize = 64 << 20;

const NO_RESPONDERS: &[u8] = b"NATS/1.0 503\r\n\r\n";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What waits for a role.
#[derive(Debug)]
struct Inbox {
    messages: Mutex<Messages>,
    signal: Signal,
}

#[derive(Debug, Default)]
struct Messages {
    /// Each with the socket that it is for.
    all: VecDeque<(usize, Received)>,
    bytes: usize,
}

impl Inbox {
    /// Takes a message; false if there is no room.
    fn put(&self, socket: usize, received: Received) -> bool {
        let mut messages = lock(&self.messages);
        let bytes = messages.bytes + cost(&received.frames);
        if bytes > INBOX {
            return false;
        }
        messages.bytes = bytes;
        messages.all.push_back((socket, received));
        drop(messages);
        self.signal.notify();
        true
    }

    /// The next message, if it is for this socket.
    fn take(&self, socket: usize) -> Option<Received> {
        let mut messages = lock(&self.messages);
        messages.all.front().filter(|(of, _)| *of == socket)?;
        let (_, received) = messages.all.pop_front()?;
        messages.bytes -= cost(&received.frames);
        Some(received)
    }

    /// The socket that the next message is for.
    fn next(&self) -> Option<usize> {
        lock(&self.messages).all.front().map(|(socket, _)| *socket)
    }

    fn leave(&self, socket: usize) {
        let mut messages = lock(&self.messages);
        messages.all.retain(|(of, _)| *of != socket);
        messages.bytes = messages.all.iter().map(|(_, received)| cost(&received.frames)).sum();
    }
}

#[derive(Clone, Debug)]
struct Subscription {
    inbox: Arc<Inbox>,
    socket: usize,
    /// The queue group; empty for none.
    queue: Box<str>,
}

/// The subscriptions of all roles at one name: to subjects, and to patterns.
#[derive(Debug, Default)]
struct Broker {
    exact: HashMap<Box<str>, Vec<Subscription>>,
    patterns: Vec<(Box<str>, Subscription)>,
}

impl Broker {
    fn add(&mut self, subject: &str, subscription: Subscription) {
        if subject.contains(['*', '>']) {
            self.patterns.push((subject.into(), subscription));
        } else {
            self.exact.entry(subject.into()).or_default().push(subscription);
        }
    }

    fn remove(&mut self, inbox: &Arc<Inbox>, socket: usize) {
        let stays = |one: &Subscription| !(Arc::ptr_eq(&one.inbox, inbox) && one.socket == socket);
        self.patterns.retain(|(_, one)| stays(one));
        self.exact.retain(|_, all| {
            all.retain(stays);
            !all.is_empty()
        });
    }

    /// Delivers a message; false if a subscriber had no room.
    fn publish(&self, subject: &Bytes, [reply_to, block, body]: [&Bytes; 3]) -> bool {
        let text = str::from_utf8(subject).unwrap_or_default();
        let matching = self.patterns.iter().filter(|(pattern, _)| matches(pattern, text)).map(|(_, one)| one);
        let mut chosen = vec![];
        let mut groups = BTreeMap::<&str, Vec<&Subscription>>::new();
        for one in self.exact.get(text).into_iter().flatten().chain(matching) {
            if one.queue.is_empty() { chosen.push(one) } else { groups.entry(&one.queue).or_default().push(one) }
        }
        chosen.extend(groups.into_values().map(|group| {
            let chance = getrandom::u32().unwrap_or_default() as usize;
            group[chance % group.len()]
        }));
        if chosen.is_empty() && !reply_to.is_empty() {
            let none = Bytes::new();
            return self.publish(reply_to, [&none, &Bytes::from_static(NO_RESPONDERS), &none]);
        }
        let frames = Frames::from([reply_to.clone(), block.clone(), body.clone()]);
        let received = Received { peer: Some(subject.clone()), frames, ..Received::default() };
        // All others get it, where one has no room.
        chosen.iter().filter(|one| !one.inbox.put(one.socket, received.clone())).count() == 0
    }
}

type Brokers = Mutex<HashMap<String, Weak<Mutex<Broker>>>>;

/// Those of this process. A child after fork has none: the roles of its parent go on there, and one of their threads
/// may hold the lock for ever.
fn brokers() -> &'static Brokers {
    static CURRENT: AtomicPtr<(u64, Brokers)> = AtomicPtr::new(ptr::null_mut());
    let process = fork::generation();
    loop {
        let current = CURRENT.load(Ordering::Acquire);
        // SAFETY: what is stored there is never freed.
        if let Some((_, brokers)) = unsafe { current.as_ref() }.filter(|(of, _)| *of == process) {
            return brokers;
        }
        let new = Box::into_raw(Box::new((process, Brokers::default())));
        if CURRENT.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it was not stored, so this is its only pointer.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// The one at this name, which lasts as long as roles are there.
fn broker(name: &str) -> Arc<Mutex<Broker>> {
    let mut all = lock(brokers());
    all.retain(|_, broker| broker.strong_count() > 0);
    if let Some(broker) = all.get(name).and_then(Weak::upgrade) {
        return broker;
    }
    let broker = Arc::<Mutex<Broker>>::default();
    all.insert(name.to_owned(), Arc::downgrade(&broker));
    broker
}

/// The connection of one role to `memory://NAME`.
pub struct MemoryTransport {
    name: String,
    broker: Arc<Mutex<Broker>>,
    inbox: Arc<Inbox>,
    sockets: Sockets,
    is_connected: bool,
}

impl MemoryTransport {
    /// A transport without sockets.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub fn new(name: &str) -> Result<Self, TransportError> {
        let signal = Signal::new().map_err(|error| crate::reactor::failed(&error))?;
        Ok(Self {
            name: name.to_owned(),
            broker: broker(name),
            inbox: Arc::new(Inbox { messages: Mutex::default(), signal }),
            sockets: Sockets::new(),
            is_connected: false,
        })
    }

    /// Notes what sockets can do; gives whether that is anything.
    fn ready(&self, sockets: &mut [Interest<'_, usize>]) -> bool {
        let (next, mut is_ready) = (self.inbox.next(), false);
        for interest in sockets {
            let Some(socket) = self.sockets.get(*interest.socket) else { continue };
            interest.readable = interest.read && next == Some(*interest.socket);
            interest.writable = true;
            interest.monitored = !socket.events.is_empty();
            is_ready |= interest.readable || interest.monitored;
        }
        is_ready
    }
}

fn refused(unfit: Unfit) -> TransportError {
    TransportError::Failed { errno: Errno::EINVAL as i32, reason: unfit.to_string() }
}

impl Transport for MemoryTransport {
    /// The number of a socket.
    type Socket = usize;

    fn capabilities(&self) -> Capabilities {
        Capabilities { reports_drained: true, writes_on_flush: true }
    }

    fn open(&mut self, kind: SocketKind, _options: &SocketOptions) -> Result<usize, TransportError> {
        if kind != SocketKind::Nats {
            return Err(TransportError::Unsupported("ZeroMQ"));
        }
        let mut socket = Socket::default();
        if !std::mem::replace(&mut self.is_connected, true) {
            socket.events.extend([
                SocketEvent::Server(ServerNotice::Used(self.name.clone())),
                SocketEvent::Server(ServerNotice::MaxPayload(MAX_PAYLOAD)),
                SocketEvent::Connected(self.name.clone().into()),
            ]);
        }
        Ok(self.sockets.insert(socket))
    }

    fn bind(&mut self, at: &mut usize, endpoint: &str) -> Result<String, TransportError> {
        let (subject, queue) = endpoint.split_once(' ').unwrap_or((endpoint, ""));
        Head::new(subject.as_bytes(), queue.as_bytes(), 0).ok_or_else(|| refused(Unfit::Subject))?;
        let subscription = Subscription { inbox: Arc::clone(&self.inbox), socket: *at, queue: queue.into() };
        lock(&self.broker).add(subject, subscription);
        Ok(endpoint.to_owned())
    }

    fn connect(&mut self, _at: &mut usize, _endpoint: &str) -> Result<(), TransportError> {
        Err(TransportError::Unsupported("sockets that dial"))
    }

    fn disconnect(&mut self, _at: &mut usize, _endpoint: &str) -> Result<(), TransportError> {
        Err(TransportError::Unsupported("sockets that dial"))
    }

    fn poll_monitor(&mut self, at: &mut usize) -> Option<SocketEvent> {
        self.sockets.get_mut(*at)?.events.pop_front()
    }

    #[inline]
    fn receive(&mut self, at: &mut usize) -> Result<Option<Received>, TransportError> {
        Ok(self.inbox.take(*at))
    }

    #[inline]
    fn send(&mut self, at: &mut usize, to: Option<&Bytes>, frames: &[Bytes]) -> Result<Taken, TransportError> {
        let ([reply_to, block, body], Some(subject)) = (frames, to) else { return Err(refused(Unfit::Subject)) };
        let reason = if block.len() + body.len() > MAX_PAYLOAD {
            Unfit::TooLarge.to_string()
        } else if Head::new(subject, reply_to, body.len()).is_none() {
            Unfit::Subject.to_string()
        } else if lock(&self.broker).publish(subject, [reply_to, block, body]) {
            return Ok(Taken::Yes);
        } else {
            "a subscriber does not read what it is sent".to_owned()
        };
        if let Some(socket) = self.sockets.get_mut(*at) {
            socket.report_unsent(&reason);
        }
        Ok(Taken::Unreachable)
    }

    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, usize>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        self.inbox.signal.arm();
        let is_ready = self.ready(sockets);
        let is_other = self.inbox.signal.poll(others, if is_ready { Some(Duration::ZERO) } else { timeout });
        self.ready(sockets);
        Ok(is_other)
    }

    fn close(&mut self, at: usize, _linger: Duration) {
        if self.sockets.try_remove(at).is_some() {
            lock(&self.broker).remove(&self.inbox, at);
            self.inbox.leave(at);
        }
    }

    fn ending(self) -> Ending {
        Box::new(|| Some(true))
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        for (at, _) in &self.sockets {
            lock(&self.broker).remove(&self.inbox, at);
        }
    }
}
