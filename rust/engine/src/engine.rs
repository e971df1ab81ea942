//! The loop that runs a machine over real sockets.

mod ending;
mod sending;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use smallvec::{SmallVec, smallvec};
use trunkline_capture::Direction;
use trunkline_wire::{
    Backlog, Event, Frames, Incoming, Machine, Nanos, Open, Output, SendId, ServerNotice, SocketEvent, SocketKind,
    Unsent, Weight, cost,
};
use trunkline_zmtp::Tally;

use self::ending::Ending;
use self::sending::Envelope;
use crate::outbox::Outboxes;
use crate::settings::StartError;
use crate::shared::{Core, End, Order, Shared, sum};
use crate::sink::Sink;
use crate::tap::Tap;
use crate::transport::{Interest, Received, Transport, TransportError};
use crate::udp::Udp;

/// Messages read from one socket before the others have their turn. What they cause is sent together: a transport that
/// is woken once sends more with each call.
const BURST: usize = 512;

/// Sends after which they are written, where a burst causes more: peers work on them while the next are made.
const WRITTEN: usize = 256;

/// Bytes after which a burst ends too.
const BURST_BYTES: usize = 512 << 10;

/// How much longer a transport may try to send than its user waits.
const MARGIN: Duration = Duration::from_millis(100);

/// How long the transport of a role that ends at once may still try: it sends what is ready and reports whether it
/// could.
const GLIMPSE: Duration = Duration::from_millis(50);

/// The engine of one role, on its own thread.
pub(crate) struct Engine<M: Machine, T: Transport, S: Sink<M>> {
    /// Before the lock of the machine, which another thread could take as soon as it is let go.
    _shown: Shown<M>,
    /// Locked while the engine works, so counters are read between two rounds.
    core: ArcMutexGuard<RawMutex, Core<M>>,
    /// Before the transport: a context ends when its sockets are closed.
    slots: Vec<Slot<M::Socket, T::Socket>>,
    transport: T,
    udp: Vec<(M::Socket, Udp)>,
    shared: Arc<Shared<M>>,
    sink: S,
    origin: Instant,
    events: Vec<M::Event>,
    /// Sends to peers, before they are sorted: for a transport that writes each at once.
    outgoing: Vec<Output<M::Socket>>,
    /// Their order.
    sorted: Vec<(u64, usize)>,
    verbs: Vec<M::Verb>,
    orders: Vec<Order>,
    room: Backlog,
    /// The pending bytes allowed for all peers of the role together.
    outbox_bytes: usize,
    /// Whether the machine knows that messages are unread.
    pressed: bool,
    /// Set until the role's first sockets are open: a failure there fails the start.
    starting: bool,
    /// The deadline of the role's end, once it was asked to end.
    closing: Option<Nanos>,
    /// The deadline whatever its machine still waits for, once it was asked to end sooner.
    given_up: Option<Nanos>,
    failure: Option<StartError>,
    /// The deadline for sending what closed sockets had taken.
    lingers: Option<Nanos>,
}

/// Shows the machine until the engine ends. However it ended, a machine that may be broken is never read again.
struct Shown<M: Machine>(Arc<Shared<M>>);

/// A socket of the machine.
struct Slot<I, S> {
    id: I,
    kind: SocketKind,
    socket: S,
    /// The endpoint in the rows of a capture: none where there are several.
    endpoint: Option<Arc<str>>,
    /// The endpoints in the role's list: where it listens, and what the machine has discovered.
    listed: Vec<String>,
    outboxes: Outboxes,
    readable: bool,
    writable: bool,
    monitored: bool,
    /// Sends that the transport has taken and not confirmed, with its numbers of them.
    unconfirmed: VecDeque<(u64, SendId)>,
}

impl<M: Machine + Send + 'static, T: Transport, S: Sink<M>> Engine<M, T, S> {
    /// Runs until the machine is closed or cannot go on.
    pub(crate) fn run(mut self) {
        let end = loop {
            if let Err(end) = self.round() {
                break end;
            }
            if self.core.machine.is_closed() {
                break End::Closed;
            }
        };
        if !self.core.machine.is_closed() && !self.udp.is_empty() {
            // Wakes all threads that wait for this role.
            let now = self.now();
            self.core.machine.handle_close(now, Duration::ZERO);
            self.drain(now);
        }
        // The system may soon have what a transport that was given up still holds.
        self.close_all(if end == End::Closed { GLIMPSE } else { Duration::ZERO });
        self.publish();
        let Self { mut core, transport, shared, origin, lingers, .. } = self;
        let ending = Ending::start(transport.ending(), &shared);
        // Counters can be read while the capture is closed, which waits for the disk.
        let mut last = core.snapshot();
        shared.remember(last.clone());
        let end = match core.tap.take().map(Tap::close) {
            Some(Ok(progress)) => {
                last.capture = progress;
                end
            }
            // A capture that failed still says what it made durable.
            Some(Err(error)) if end == End::Closed => End::Capture(error.to_string()),
            None | Some(Err(_)) => end,
        };
        if end == End::Closed {
            shared.flushed.store(u64::MAX, Ordering::SeqCst);
        }
        shared.remember(last);
        let all_sent = ending.wait(&shared, origin, lingers);
        shared.unsent.store(!all_sent, Ordering::SeqCst);
        shared.finish(end);
    }
}

impl<M: Machine, T: Transport, S: Sink<M>> Engine<M, T, S> {
    pub(crate) fn new(
        machine: M,
        transport: T,
        sink: S,
        shared: Arc<Shared<M>>,
        tap: Option<Tap>,
        outbox_bytes: usize,
    ) -> Self {
        let core = Arc::new(Mutex::new(Core {
            machine,
            tap,
            peer_full: 0,
            unroutable: 0,
            queue_full: 0,
            turned_away: 0,
            failures: Tally::default(),
        }));
        shared.show(Some(&core));
        Self {
            _shown: Shown(Arc::clone(&shared)),
            core: core.lock_arc(),
            slots: vec![],
            transport,
            udp: vec![],
            room: Backlog { messages: shared.unread.messages, bytes: shared.unread.bytes },
            shared,
            sink,
            outbox_bytes,
            origin: Instant::now(),
            events: vec![],
            outgoing: vec![],
            sorted: vec![],
            verbs: vec![],
            orders: vec![],
            pressed: false,
            starting: true,
            closing: None,
            given_up: None,
            failure: None,
            lingers: None,
        }
    }

    /// Opens the sockets the machine asks for at its birth.
    pub(crate) fn start(&mut self) -> Result<(), StartError> {
        self.drain(self.now());
        self.starting = false;
        self.publish();
        match self.failure.take() {
            None => Ok(()),
            Some(failure) => {
                self.close_all(Duration::ZERO);
                Err(failure)
            }
        }
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.origin.elapsed()
    }

    /// One pass: the user's requests, what is due, what has come in; then a wait if there was nothing.
    fn round(&mut self) -> Result<(), End> {
        self.look_at_capture()?;
        let (now, unix_ms) = (self.now(), unix_ms());
        self.core.machine.handle_clock(now, unix_ms);
        self.take_orders();
        self.monitor();
        self.confirm();
        self.retry()?;
        self.receive()?;
        self.receive_udp();
        let now = self.now();
        let pressed = !self.has_room();
        if pressed != self.pressed {
            self.pressed = pressed;
            self.core.machine.handle_pressure(now, pressed);
            self.drain(now);
        }
        if self.core.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.core.machine.handle_timeout(now);
            self.drain(now);
        }
        self.publish();
        if self.core.machine.is_closed() {
            return Ok(());
        }
        if self.given_up.is_some_and(|at| at <= now) {
            return Err(End::Closed);
        }
        self.wait()
    }

    fn take_orders(&mut self) {
        let (mut verbs, mut orders) = (std::mem::take(&mut self.verbs), std::mem::take(&mut self.orders));
        let handed = self.shared.take_outbox(&mut verbs, &mut orders);
        let is_news = !verbs.is_empty() || !orders.is_empty();
        for verb in verbs.drain(..) {
            let now = self.now();
            self.core.machine.handle_verb(now, verb);
            self.drain(now);
        }
        for order in orders.drain(..) {
            match order {
                Order::Close(grace) => {
                    let now = self.now();
                    let end = now + grace;
                    match self.closing {
                        Some(before) if end >= before => {}
                        before => {
                            self.closing = Some(end);
                            self.given_up = before.map(|_| end);
                        }
                    }
                    self.core.machine.handle_close(now, grace);
                    self.drain(now);
                }
                Order::Flush { ticket, publish } => {
                    if let Some(tap) = &mut self.core.tap {
                        tap.flush(ticket, publish);
                    }
                }
            }
        }
        self.verbs = verbs;
        self.orders = orders;
        if is_news {
            self.shared.settle(handed);
        }
    }

    fn look_at_capture(&mut self) -> Result<(), End> {
        let Some(tap) = &mut self.core.tap else { return Ok(()) };
        tap.look().map_err(|error| End::Capture(error.to_string()))?;
        for trouble in tap.troubles.drain(..).filter_map(|trouble| self.sink.take_trouble(trouble)) {
            self.shared.trouble(trouble);
        }
        Ok(())
    }

    fn monitor(&mut self) {
        self.core.turned_away = self.transport.turned_away();
        if self.slots.iter().any(|slot| slot.monitored)
            && let Some(failures) = self.transport.failures()
        {
            self.core.failures.clone_from(failures);
        }
        for at in 0..self.slots.len() {
            while let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.monitored) {
                let Some(event) = self.transport.poll_monitor(&mut slot.socket) else {
                    slot.monitored = false;
                    break;
                };
                let (id, now) = (slot.id, self.now());
                self.look_at_server(&event);
                self.core.machine.handle_socket(now, id, event);
                self.drain(now);
            }
        }
    }

    /// Takes over which server all sockets of NATS use: it is the role's endpoint, and that of its rows in a capture.
    fn look_at_server(&mut self, event: &SocketEvent) {
        let SocketEvent::Server(notice) = event else { return };
        let used = match notice {
            ServerNotice::Used(endpoint) => Some(endpoint),
            ServerNotice::Left => None,
            ServerNotice::Denied { .. }
            | ServerNotice::Forbidden(_)
            | ServerNotice::MaxPayload(_)
            | ServerNotice::Unsent(_) => return,
        };
        let mut listed: Vec<_> = used.cloned().into_iter().collect();
        for slot in self.slots.iter_mut().filter(|slot| slot.kind == SocketKind::Nats) {
            slot.endpoint = used.map(|endpoint| Arc::from(endpoint.as_str()));
            slot.listed = std::mem::take(&mut listed);
        }
        self.list_endpoints();
    }

    fn receive(&mut self) -> Result<(), End> {
        if self.shared.sheds {
            // The user may have read meanwhile.
            self.room = self.shared.room();
        }
        for at in 0..self.slots.len() {
            let Some(slot) = self.slots.get(at) else { break };
            let (mut messages, mut bytes) = (0, 0);
            // A REQ needs its answer before there is another message.
            let in_step = slot.kind == SocketKind::Req;
            let (now, burst) = (self.now(), if in_step { 1 } else { BURST });
            while messages < burst && bytes < BURST_BYTES && self.may_read(at) {
                let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.readable) else { break };
                match self.transport.receive(&mut slot.socket) {
                    Ok(Some(received)) => {
                        messages += 1;
                        bytes += self.take_in(now, at, received);
                    }
                    Ok(None) => slot.readable = false,
                    Err(error) => return Err(ended(&error)),
                }
            }
            if messages > 0 {
                self.drain(self.now());
            }
        }
        Ok(())
    }

    /// Datagrams are few, and their sender cannot be slowed down: back-pressure does not stop them.
    fn receive_udp(&mut self) {
        for at in 0..self.udp.len() {
            for _ in 0..BURST {
                let Some((socket, udp)) = self.udp.get_mut(at) else { break };
                let Some((datagram, peer)) = udp.receive() else { break };
                let (socket, now) = (*socket, self.now());
                let frames = Frames::from_iter([datagram]);
                self.core
                    .machine
                    .handle_message(now, Incoming { socket, peer: Some(peer), user_id: None, host: None, frames });
                self.drain(now);
            }
        }
    }

    /// Whether the user's queue has room.
    fn has_room_to_read(&self) -> bool {
        self.events.len() < self.room.messages && self.room.bytes > 0
    }

    fn has_room(&self) -> bool {
        (self.shared.sheds || self.has_room_to_read()) && self.core.tap.as_ref().is_none_or(Tap::has_room)
    }

    /// Under pressure messages stay unread, so the sender is slowed down.
    fn may_read(&self, at: usize) -> bool {
        let Some(slot) = self.slots.get(at) else { return false };
        match slot.kind {
            SocketKind::Push | SocketKind::Udp => return false,
            SocketKind::Dealer | SocketKind::Nats | SocketKind::Pull | SocketKind::Req | SocketKind::Router => {}
        }
        self.has_room() && self.sink.has_room() && self.core.machine.reads(slot.id)
    }

    /// Gives the machine a message; returns its size.
    fn take_in(&mut self, now: Nanos, at: usize, received: Received) -> usize {
        let slot = &self.slots[at];
        let id = slot.id;
        let Received { peer, user_id, host, frames } = received;
        let record = self.core.tap.is_some().then(|| (slot.endpoint.clone(), peer.clone(), frames.clone()));
        let (size, sender) = (cost(&frames), peer.clone());
        let verdict = self.core.machine.handle_message(now, Incoming { socket: id, peer, user_id, host, frames });
        let core = &mut *self.core;
        let mut seq = None;
        if let (Some(tap), Some((endpoint, peer, frames))) = (&mut core.tap, record) {
            let shown = core.machine.shown(id, &frames);
            let frames = shown.as_deref().unwrap_or(&frames);
            seq = tap.record(Direction::In, endpoint.as_deref(), peer.as_ref(), frames, &verdict);
        }
        let seen = self.events.len();
        while let Some(mut event) = self.core.machine.poll_event() {
            // The message may also cause events for other senders.
            if let Some(origin) = event.origin().filter(|origin| origin.peer == sender) {
                let slot = &self.slots[at];
                origin.address = self.transport.address(&slot.socket);
                if slot.kind != SocketKind::Nats {
                    origin.endpoint.clone_from(&slot.endpoint);
                }
                origin.seq = seq;
            }
            self.emit(event);
        }
        // The events may take more memory than the message did on the wire.
        let weight = self.events[seen..].iter().map(|event| match event.weight() {
            Weight::Lossless(bytes) => bytes,
            Weight::Notice(_) => 0,
        });
        self.room.bytes = self.room.bytes.saturating_sub(size.max(weight.sum()));
        size
    }

    /// Does what the machine asks for, and collects its events.
    fn drain(&mut self, now: Nanos) {
        let writes_on_flush = self.transport.capabilities().writes_on_flush;
        let most = if writes_on_flush { WRITTEN } else { BURST };
        let mut sends = 0;
        loop {
            let Some(mut output) = self.core.machine.poll_output() else {
                if self.outgoing.is_empty() {
                    break;
                }
                // Sends that are settled may give rise to others.
                self.post(now);
                continue;
            };
            if output.peer().is_none() {
                self.post(now);
                self.act(now, &mut output);
                continue;
            }
            if writes_on_flush {
                self.act(now, &mut output);
            } else {
                self.outgoing.push(output);
            }
            sends += 1;
            if sends % most == 0 {
                self.post(now);
                self.transport.flush();
            }
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.core.machine.poll_event() {
            self.emit(event);
        }
    }

    fn emit(&mut self, event: M::Event) {
        let Some(event) = self.sink.take(event) else { return };
        if !self.shared.sheds || self.has_room_to_read() {
            self.events.push(event);
            return;
        }
        self.core.queue_full += 1;
        let lost = M::Event::shed().and_then(|event| self.sink.take(event));
        debug_assert!(lost.is_none(), "what reports a loss is set aside");
    }

    fn find(&self, socket: M::Socket) -> Option<usize> {
        self.slots.iter().position(|slot| slot.id == socket)
    }

    /// Carries out an output; frames that were not kept stay in it.
    fn act(&mut self, now: Nanos, output: &mut Output<M::Socket>) {
        match output {
            Output::Send { id, socket, to, frames, until } => {
                let (id, socket, until) = (*id, *socket, *until);
                if let Some(at) = self.find(socket) {
                    self.send(now, at, Envelope { id, to: to.as_ref(), until }, frames);
                } else {
                    let udp = self.udp.iter().find(|(id, _)| *id == socket).map(|(_, udp)| udp);
                    let event = match udp.map(|udp| udp.send(to.as_deref().unwrap_or_default(), &frames.concat())) {
                        Some(true) => SocketEvent::Sent,
                        Some(false) => |id| SocketEvent::Unsent(id, Unsent::Unreachable),
                        None => |id| SocketEvent::Unsent(id, Unsent::Closed),
                    };
                    if let Some(id) = id {
                        self.core.machine.handle_socket(now, socket, event(id));
                    }
                }
            }
            Output::Withdraw { socket, id } => self.withdraw(now, *socket, *id),
            Output::Open(open) => self.open(now, open),
            Output::Connect { socket, endpoint } => {
                let Some(at) = self.find(*socket) else { return };
                // A slot with one endpoint has another now.
                if let Some(only) = &mut self.slots[at].endpoint {
                    *only = Arc::from(endpoint.as_str());
                }
                if let Err(error) = self.transport.connect(&mut self.slots[at].socket, endpoint) {
                    self.open_failed(now, *socket, std::mem::take(endpoint), error);
                }
            }
            Output::Disconnect { socket, endpoint } => {
                if let Some(at) = self.find(*socket) {
                    // An endpoint that is already gone counts as disconnected.
                    let _ = self.transport.disconnect(&mut self.slots[at].socket, endpoint);
                }
            }
            Output::Close { socket, linger } => {
                let glimpse = if self.closing.is_some() { GLIMPSE } else { Duration::ZERO };
                let (socket, linger) = (*socket, glimpse.max(*linger));
                if let Some(at) = self.find(socket) {
                    let mut slot = self.slots.swap_remove(at);
                    let unconfirmed = slot.unconfirmed.drain(..).map(|(_, id)| id);
                    for id in slot.outboxes.clear().filter_map(|pending| pending.id).chain(unconfirmed) {
                        self.core.machine.handle_socket(now, socket, SocketEvent::Unsent(id, Unsent::Closed));
                    }
                    self.close_socket(slot.socket, linger);
                    self.list_endpoints();
                }
                self.udp.retain(|(id, _)| *id != socket);
                self.core.machine.handle_socket(now, socket, SocketEvent::Closed);
            }
        }
    }

    fn open(&mut self, now: Nanos, open: &Open<M::Socket>) {
        let id = open.socket;
        if open.kind == SocketKind::Udp {
            return self.open_udp(now, open);
        }
        let mut socket = match self.transport.open(open.kind, &open.options) {
            Ok(socket) => socket,
            Err(error) => {
                self.open_failed(now, id, String::new(), error);
                return;
            }
        };
        let mut bound = vec![];
        let mut failed = vec![];
        for endpoint in &open.bind {
            match self.transport.bind(&mut socket, endpoint) {
                Ok(real) => bound.push(real),
                Err(error) => failed.push((endpoint.clone(), error)),
            }
        }
        for endpoint in &open.connect {
            if let Err(error) = self.transport.connect(&mut socket, endpoint) {
                failed.push((endpoint.clone(), error));
            }
        }
        let mut endpoints = bound.iter().chain(&open.connect);
        let endpoint = match (endpoints.next(), endpoints.next()) {
            (Some(only), None) => Some(Arc::from(only.as_str())),
            _ => None,
        };
        // Subjects are no endpoints.
        let is_nats = open.kind == SocketKind::Nats;
        let endpoint = if is_nats { self.slots.first().and_then(|slot| slot.endpoint.clone()) } else { endpoint };
        let mut listed = if is_nats { vec![] } else { bound.clone() };
        listed.extend(self.transport.adopted_endpoint(&socket));
        if !self.starting {
            listed.extend_from_slice(&open.connect);
        }
        self.slots.push(Slot {
            id,
            kind: open.kind,
            socket,
            endpoint,
            listed,
            outboxes: Outboxes::new(self.transport.capabilities().reports_drained),
            readable: true,
            writable: true,
            monitored: true,
            unconfirmed: VecDeque::new(),
        });
        self.list_endpoints();
        for real in bound {
            self.core.machine.handle_socket(now, id, SocketEvent::Bound(real));
        }
        for (endpoint, error) in failed {
            self.open_failed(now, id, endpoint, error);
        }
    }

    fn open_udp(&mut self, now: Nanos, open: &Open<M::Socket>) {
        for endpoint in &open.bind {
            match Udp::open(endpoint, open.options.multicast) {
                Ok(udp) => {
                    self.udp.push((open.socket, udp));
                    self.core.machine.handle_socket(now, open.socket, SocketEvent::Bound(endpoint.clone()));
                }
                Err(error) => self.open_failed(now, open.socket, endpoint.clone(), error),
            }
        }
    }

    /// The endpoints of a role that ends stay as they were.
    fn list_endpoints(&self) {
        if self.closing.is_none() {
            self.shared.set_endpoints(self.slots.iter().flat_map(|slot| slot.listed.clone()).collect());
        }
    }

    fn open_failed(&mut self, now: Nanos, socket: M::Socket, endpoint: String, error: TransportError) {
        let event = SocketEvent::OpenFailed { endpoint: endpoint.clone(), reason: error.to_string() };
        if self.starting {
            self.failure.get_or_insert(StartError::Open { endpoint, error });
        }
        self.core.machine.handle_socket(now, socket, event);
    }

    /// Shows the user what has happened, and wakes a waiting user.
    fn publish(&mut self) {
        let shared = &self.shared;
        let news = !self.events.is_empty();
        self.room = shared.publish(&mut self.events);
        if news {
            shared.events.notify();
        }
        self.transport.flush();
        let backlog = sum(self.core.machine.backlog(), self.transport.backlog());
        let mut wake = shared.set_backlog(backlog, self.transport.has_unsent());
        let progress = self.core.machine.progress();
        shared.progress.store(progress, Ordering::SeqCst);
        if progress >= shared.awaited.load(Ordering::SeqCst) {
            // A thread that waits for more sets it again.
            shared.awaited.store(u64::MAX, Ordering::SeqCst);
            wake = true;
        }
        let flushed = self.flushed();
        wake |= self.shared.flushed.swap(flushed, Ordering::SeqCst) != flushed;
        if wake {
            self.shared.user.notify();
        }
    }

    /// The last flush that is done; the highest number where nothing is recorded.
    fn flushed(&self) -> u64 {
        self.core.tap.as_ref().map_or(u64::MAX, Tap::flushed)
    }

    fn wait(&mut self) -> Result<(), End> {
        let capture = self.core.tap.as_mut().and_then(Tap::idle);
        let now = self.now();
        let machine = self.core.machine.poll_timeout();
        let outboxes = self.slots.iter().filter_map(|slot| slot.outboxes.deadline());
        let deadline = machine.into_iter().chain(outboxes).chain(self.given_up).min().map(|at| at - now);
        let capture = capture.map(|at| at.saturating_duration_since(self.origin + (now - Nanos(0))));
        let mut timeout = deadline.into_iter().chain(capture).min();
        self.shared.engine.arm();
        // A signal before this was missed: look once more.
        self.look_at_capture()?;
        let relieved = self.room == Backlog::default() && !self.shared.pressed.load(Ordering::SeqCst);
        let untold = self.pressed == self.has_room() || self.shared.flushed.load(Ordering::SeqCst) != self.flushed();
        let reads: SmallVec<[bool; 4]> = (0..self.slots.len()).map(|at| self.may_read(at)).collect();
        let unread = self.slots.iter().zip(&reads).any(|(slot, reads)| slot.readable && *reads);
        if unread || relieved || untold || !self.shared.is_outbox_empty() {
            timeout = Some(Duration::ZERO);
        }
        let mut interests: SmallVec<[_; 4]> = self
            .slots
            .iter_mut()
            .zip(reads)
            .map(|(slot, read)| Interest {
                read,
                write: slot.outboxes.wants_writable(),
                readable: false,
                writable: false,
                monitored: false,
                socket: &mut slot.socket,
            })
            .collect();
        let mut others: SmallVec<[_; 4]> = smallvec![self.shared.engine.as_fd()];
        others.extend(self.udp.iter().map(|(_, udp)| udp.as_fd()));
        let transport = &mut self.transport;
        let waited = ArcMutexGuard::unlocked_fair(&mut self.core, || transport.wait(&mut interests, &others, timeout));
        let found: SmallVec<[_; 4]> = interests.iter().map(|i| (i.readable, i.writable, i.monitored)).collect();
        drop((interests, others));
        for (slot, (readable, writable, monitored)) in self.slots.iter_mut().zip(found) {
            (slot.readable, slot.writable, slot.monitored) = (readable, writable, monitored);
        }
        self.shared.engine.disarm(waited.as_ref().is_ok_and(|others| *others));
        waited.map(drop).map_err(|error| ended(&error))
    }

    fn close_all(&mut self, linger: Duration) {
        for slot in std::mem::take(&mut self.slots) {
            self.close_socket(slot.socket, linger);
        }
        self.udp.clear();
    }

    /// Closes a socket. Its transport gets a little longer than `linger`, so that it can report whether it was in time.
    fn close_socket(&mut self, socket: T::Socket, linger: Duration) {
        if linger.is_zero() {
            return self.transport.close(socket, linger);
        }
        self.lingers = self.lingers.max(Some(self.now() + linger));
        self.transport.close(socket, linger + MARGIN);
    }
}

impl<M: Machine> Drop for Shown<M> {
    fn drop(&mut self) {
        self.0.show(None);
    }
}

/// The system's time.
fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn ended(error: &TransportError) -> End {
    match error {
        TransportError::Terminated => End::Terminated,
        TransportError::Unsupported(_) | TransportError::WrongSocket { .. } | TransportError::Failed { .. } => {
            End::Transport(error.to_string())
        }
    }
}
