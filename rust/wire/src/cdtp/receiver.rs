//! The receiving role, with one PULL socket per endpoint.

use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::runs::{self, Condition, Follower, MAP_BYTES, numbers};
use super::{Layout, MessageType, Settings, decode};
use crate::{
    Connection, DropCounts, Dropped, Event, Frames, Incoming, Lifecycle, Machine, Nanos, Open, Origin, Output,
    SocketEvent, SocketKind, SocketOptions, Verdict, Weight, cost, shortened,
};

/// A socket that has been empty this long has delivered everything that had arrived.
const QUIET: Duration = Duration::from_millis(250);

/// How long the socket of a departed sender is read at most.
const PARTING: Duration = Duration::from_secs(1);

/// Discovered senders to connect to at a time; any host in the network can send offers.
const FOUND: usize = 256;

/// Senders with statistics of their own; names come from the network, so that memory must have a bound.
const SENDERS: usize = 1000;

#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    /// Endpoints to listen on.
    pub bind: Vec<String>,
    /// Endpoints to dial.
    pub connect: Vec<String>,
    /// Whether discovered senders are connected to while it runs.
    pub finds: bool,
    /// Options of each socket.
    pub options: SocketOptions,
    /// Which headers are accepted.
    pub decode: Settings,
    /// Whether valid messages become events; a recorder only counts them.
    pub deliver: bool,
    /// Stop reading after this many messages, valid or not.
    pub limit: Option<u64>,
}

/// One of the receiver's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Data(pub u32);

#[derive(Clone, Debug)]
pub enum ReceiverEvent {
    /// A valid message; a CDTP2 message with all its records.
    Message {
        /// The message, bit for bit.
        frames: Frames,
        layout: Layout,
    },
    /// A message that is not valid (CDTP-17).
    Dropped(Dropped),
    /// A sender was discovered, and is dialled from now on.
    Found(String),
    /// A discovered sender has departed; messages that have arrived are still read.
    Departed(String),
    /// What became of a connection.
    Connection(Connection),
    /// A sender has begun or ended a run: its BOR or EOR.
    Run {
        /// Its name, as in the statistics.
        sender: Arc<[u8]>,
        /// The `run_id` of its configuration or metadata; empty if it has none.
        id: Arc<str>,
        /// The end of the run, if it has ended.
        ended: Option<RunEnd>,
    },
}

/// How a run has ended, as far as this receiver has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The condition stated by its sender, and whether the beginning or messages are missing here.
    pub condition: Condition,
    /// Skipped sequence numbers (CDTP-21).
    pub missed: u64,
}

impl Event for ReceiverEvent {
    #[inline]
    fn weight(&self) -> Weight {
        match self {
            Self::Message { frames, layout } => Weight::Lossless(cost(frames) + layout.size()),
            Self::Dropped(dropped) => dropped.weight(),
            Self::Found(_) | Self::Departed(_) | Self::Connection(_) => Weight::Notice(0),
            Self::Run { sender, id, .. } => Weight::Notice(sender.len() + id.len()),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        if let Self::Dropped(dropped) = self { Some(&mut dropped.origin) } else { None }
    }
}

/// Counters of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceiverStats {
    /// Messages received, valid or not.
    pub received: u64,
    /// Valid messages.
    pub accepted: u64,
    /// Invalid messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Messages for the user: each CDTP2 record counts.
    pub messages: u64,
    /// Keys that occurred more than once in a map of tags; the last one counts.
    pub duplicate_keys: u64,
    /// By sender's name, cut at 200 bytes; the first thousand.
    pub senders: BTreeMap<String, SenderCount>,
    /// The `run_id` of each of these with an open run; empty if it has none.
    pub runs: BTreeMap<String, String>,
}

/// Counters of one sender, as seen by its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SenderCount {
    /// Messages; each CDTP2 record counts.
    pub messages: u64,
    /// Bytes of all frames.
    pub bytes: u64,
    /// Skipped sequence numbers (CDTP-21).
    pub missed: u64,
}

#[derive(Debug)]
struct Sender {
    name: Arc<[u8]>,
    count: SenderCount,
    follower: Follower,
    run: Option<Current>,
}

/// The open run of a sender.
#[derive(Debug)]
struct Current {
    /// Its `run_id`; empty if it has none.
    id: Arc<str>,
    /// How many numbers the sender had skipped before.
    missed_before: u64,
}

impl Sender {
    /// Follows the sender's runs. Returns the event for the user.
    fn follow_run(&mut self, frames: &Frames, layout: &Layout) -> Option<ReceiverEvent> {
        let has_ended = match layout.message_type()? {
            MessageType::Dat => return None,
            MessageType::Bor => false,
            MessageType::Eor => true,
        };
        let current = self.run.take().filter(|_| has_ended);
        let map = runs::map(&frames[0], frames.get(1).map(|payload| &payload[..]), layout);
        let map = map.filter(|map| map.len() as u64 <= MAP_BYTES);
        let id = map.and_then(runs::run_id).map(Arc::from);
        let id = id.or_else(|| current.as_ref().map(|current| Arc::clone(&current.id))).unwrap_or_default();
        let all_missed = self.count.missed;
        if !has_ended {
            self.run = Some(Current { id: Arc::clone(&id), missed_before: all_missed });
        }
        let ended = has_ended.then(|| {
            let missed = all_missed - current.as_ref().map_or(0, |current| current.missed_before);
            let said = map.map_or(Condition::GOOD, runs::said);
            let is_whole = missed == 0 && current.is_some();
            RunEnd { condition: if is_whole { said } else { said | Condition::INCOMPLETE }, missed }
        });
        Some(ReceiverEvent::Run { sender: Arc::clone(&self.name), id, ended })
    }
}

#[derive(Debug)]
struct Endpoint {
    address: String,
    active: bool,
    /// Whether a sender ever connected.
    answered: bool,
    hold: Hold,
}

/// How long a socket is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Until the receiver ends.
    Configured,
    /// Until its sender departs.
    Found,
    /// Its sender has departed: until it is empty.
    Parting { quiet: Nanos, until: Nanos },
    /// It is being closed.
    Closing,
}

/// The receiving role of CDTP.
#[derive(Debug)]
pub struct Receiver {
    settings: ReceiverSettings,
    message_limit: Option<u64>,
    /// By the number of the socket; no number is used twice.
    endpoints: BTreeMap<u32, Endpoint>,
    next: u32,
    found: usize,
    parting: usize,
    /// Whether messages stay unread because the user or the disk is slow.
    pressed: bool,
    state: Lifecycle,
    /// When a draining receiver has been quiet for long enough.
    quiet: Nanos,
    stats: ReceiverStats,
    senders: Vec<Sender>,
    by_name: HashMap<Arc<[u8]>, usize>,
    recent: usize,
    outputs: VecDeque<Output<Data>>,
    events: VecDeque<ReceiverEvent>,
}

impl Receiver {
    /// A receiver that opens its sockets at once.
    pub fn new(settings: ReceiverSettings) -> Self {
        let mut outputs = VecDeque::new();
        let mut endpoints = BTreeMap::new();
        let binds = settings.bind.iter().map(|address| (vec![address.clone()], vec![]));
        let connects = settings.connect.iter().map(|address| (vec![], vec![address.clone()]));
        let mut all: Vec<_> = binds.chain(connects).collect();
        // Without endpoints, the user supplies a socket that is bound or connected.
        let active = all.is_empty();
        if active && !settings.finds {
            all.push((vec![], vec![]));
        }
        for (number, (bind, connect)) in (0..).zip(all) {
            let address = bind.iter().chain(&connect).next().cloned().unwrap_or_default();
            endpoints.insert(number, Endpoint { address, active, answered: false, hold: Hold::Configured });
            let options = settings.options.clone();
            outputs.push_back(Output::Open(Box::new(Open {
                socket: Data(number),
                kind: SocketKind::Pull,
                bind,
                connect,
                options,
            })));
        }
        Self {
            next: endpoints.keys().next_back().map_or(0, |last| last + 1),
            endpoints,
            found: 0,
            parting: 0,
            pressed: false,
            settings,
            message_limit: None,
            state: Lifecycle::Open,
            quiet: Nanos(0),
            stats: ReceiverStats::default(),
            senders: vec![],
            by_name: HashMap::new(),
            recent: 0,
            outputs,
            events: VecDeque::new(),
        }
    }

    /// Stops reading for good after this many messages in total; `None` for no limit.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.settings.limit = limit;
    }

    /// Stops reading for good after this many messages for the user; `None` for no limit.
    pub fn set_message_limit(&mut self, limit: Option<u64>) {
        self.message_limit = limit;
    }

    fn limit_reached(&self) -> bool {
        self.settings.limit.is_some_and(|limit| self.stats.received >= limit)
            || self.message_limit.is_some_and(|limit| self.stats.messages >= limit)
    }

    fn accept(&mut self, frames: Frames, layout: Layout, bytes: u64) {
        self.stats.accepted += 1;
        self.stats.messages += layout.messages() as u64;
        self.stats.duplicate_keys += layout.duplicate_keys() as u64;
        let mut run = None;
        if let Some(sender) = self.sender(&frames[0][layout.sender()]) {
            sender.count.messages += layout.messages() as u64;
            sender.count.bytes += bytes;
            for (message_type, sequence) in numbers(&layout) {
                let missed = sender.follower.follow(message_type, sequence);
                // Each BOR may reset the numbers, so that the sum of skipped ones can exceed any counter.
                sender.count.missed = sender.count.missed.saturating_add(missed);
            }
            run = sender.follow_run(&frames, &layout);
        }
        if let Some(begun) = run.take_if(|run| matches!(run, ReceiverEvent::Run { ended: None, .. })) {
            self.events.push_back(begun);
        }
        if self.settings.deliver {
            self.events.push_back(ReceiverEvent::Message { frames, layout });
        }
        if let Some(ended) = run {
            self.events.push_back(ended);
        }
    }

    fn sender(&mut self, name: &[u8]) -> Option<&mut Sender> {
        // The full name first: a name kept whole belongs to one sender only.
        if self.senders.get(self.recent).is_none_or(|sender| *sender.name != *name) {
            let name = &*shortened(name);
            self.recent = match self.by_name.get(name) {
                Some(&at) => at,
                None if self.senders.len() < SENDERS => {
                    let name = Arc::<[u8]>::from(name);
                    self.senders.push(Sender {
                        name: Arc::clone(&name),
                        count: SenderCount::default(),
                        follower: Follower::default(),
                        run: None,
                    });
                    self.by_name.insert(name, self.senders.len() - 1);
                    self.senders.len() - 1
                }
                None => return None,
            };
        }
        self.senders.get_mut(self.recent)
    }

    /// Dials a discovered sender; one that had departed is back.
    fn connect(&mut self, address: String) {
        if !self.state.is_open() {
            return;
        }
        if let Some(known) = self.endpoints.values_mut().find(|known| known.is_found(&address)) {
            if matches!(known.hold, Hold::Parting { .. }) {
                known.hold = Hold::Found;
                self.parting -= 1;
                self.events.push_back(ReceiverEvent::Found(address));
            }
            return;
        }
        if self.found == FOUND {
            // A sender that never connected gives way: any host can offer senders that do not exist.
            let silent = self.endpoints.iter().find(|(_, known)| known.hold == Hold::Found && !known.answered);
            if let Some(number) = silent.map(|(number, _)| *number) {
                self.drop_socket(number);
            }
        }
        if self.found == FOUND {
            let reason = format!("{FOUND} senders are followed already");
            let failed = Connection::Failed { endpoint: address, reason };
            self.events.push_back(ReceiverEvent::Connection(failed));
            return;
        }
        self.outputs.push_back(Output::Open(Box::new(Open {
            socket: Data(self.next),
            kind: SocketKind::Pull,
            bind: vec![],
            connect: vec![address.clone()],
            options: self.settings.options.clone(),
        })));
        self.endpoints.insert(
            self.next,
            Endpoint { address: address.clone(), active: false, answered: false, hold: Hold::Found },
        );
        self.next += 1;
        self.found += 1;
        self.events.push_back(ReceiverEvent::Found(address));
    }

    /// Drops a departed sender once its messages are read: closing a socket discards what has arrived.
    fn release(&mut self, now: Nanos, address: String) {
        if let Some(known) = self.endpoints.values_mut().find(|known| known.is_found(&address))
            && known.hold == Hold::Found
        {
            known.hold = Hold::Parting { quiet: now + QUIET, until: now + PARTING };
            self.parting += 1;
            self.events.push_back(ReceiverEvent::Departed(address));
        }
    }

    /// Whether reading is paused: silence means nothing then.
    fn is_paused(&self) -> bool {
        self.pressed || self.limit_reached()
    }

    /// Gives the sockets of departed senders their full time again.
    fn resume(&mut self, now: Nanos) {
        for endpoint in self.endpoints.values_mut() {
            if matches!(endpoint.hold, Hold::Parting { .. }) {
                endpoint.hold = Hold::Parting { quiet: now + QUIET, until: now + PARTING };
            }
        }
    }

    fn drop_socket(&mut self, number: u32) {
        if let Some(endpoint) = self.endpoints.get_mut(&number)
            && endpoint.hold != Hold::Closing
        {
            self.found -= usize::from(endpoint.hold != Hold::Configured);
            self.parting -= usize::from(matches!(endpoint.hold, Hold::Parting { .. }));
            endpoint.hold = Hold::Closing;
            self.outputs.push_back(Output::Close { socket: Data(number), linger: Duration::ZERO });
        }
    }

    fn close(&mut self) {
        self.state = Lifecycle::Closing;
        for number in self.endpoints.keys().copied().collect::<Vec<_>>() {
            self.drop_socket(number);
        }
    }
}

impl Endpoint {
    fn is_found(&self, address: &str) -> bool {
        matches!(self.hold, Hold::Found | Hold::Parting { .. }) && self.address == address
    }

    /// When the socket of a departed sender may be closed.
    fn parts_at(&self) -> Option<Nanos> {
        match self.hold {
            Hold::Parting { quiet, until } => Some(quiet.min(until)),
            Hold::Configured | Hold::Found | Hold::Closing => None,
        }
    }
}

impl Machine for Receiver {
    type Socket = Data;
    type Event = ReceiverEvent;
    type Verb = ReceiverVerb;
    type Stats = ReceiverStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Data>) -> Verdict {
        let Incoming { socket, user_id: user, frames, .. } = incoming;
        let bytes = crate::nbytes(&frames);
        self.stats.received += 1;
        self.stats.bytes += bytes;
        self.quiet = now + QUIET;
        if self.parting > 0
            && let Some(Endpoint { hold: Hold::Parting { quiet, .. }, .. }) = self.endpoints.get_mut(&socket.0)
        {
            *quiet = now + QUIET;
        }
        match decode(&frames, &self.settings.decode) {
            Ok(layout) => {
                self.accept(frames, layout, bytes);
                Verdict::default()
            }
            Err(error) => {
                let dropped = Dropped::new(error, Origin { user, ..Origin::default() }, frames);
                dropped.count(&mut self.stats.dropped);
                self.events.push_back(ReceiverEvent::Dropped(dropped));
                error.into()
            }
        }
    }

    fn handle_socket(&mut self, _now: Nanos, socket: Data, mut event: SocketEvent) {
        if let SocketEvent::OpenFailed { endpoint, .. } = &mut event
            && let Some(known) = self.endpoints.get(&socket.0).filter(|known| known.hold != Hold::Configured)
        {
            endpoint.clone_from(&known.address);
            self.drop_socket(socket.0);
        }
        if let Some(connection) = event.connection() {
            self.events.push_back(ReceiverEvent::Connection(connection));
        }
        match event {
            SocketEvent::Bound(endpoint) => {
                if let Some(known) = self.endpoints.get_mut(&socket.0) {
                    known.address = endpoint;
                }
            }
            SocketEvent::Connected(_) => {
                if let Some(known) = self.endpoints.get_mut(&socket.0) {
                    known.active = true;
                    known.answered = true;
                }
            }
            SocketEvent::Disconnected(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. }
            | SocketEvent::Sent(_)
            | SocketEvent::Unsent(..) => {}
            SocketEvent::Closed => {
                self.endpoints.remove(&socket.0);
            }
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if self.state.close(now, now >= self.quiet).is_some() {
            self.close();
        }
        if self.parting > 0 && !self.is_paused() {
            let due = |(_, endpoint): &(&u32, &Endpoint)| endpoint.parts_at().is_some_and(|at| at <= now);
            for number in self.endpoints.iter().filter(due).map(|(number, _)| *number).collect::<Vec<_>>() {
                self.drop_socket(number);
            }
        }
    }

    fn handle_verb(&mut self, now: Nanos, verb: ReceiverVerb) {
        match verb {
            ReceiverVerb::Limit(limit) => {
                self.set_limit(limit);
                self.resume(now);
            }
            ReceiverVerb::Connect(endpoint) => self.connect(endpoint),
            ReceiverVerb::Release(endpoint) => self.release(now, endpoint),
        }
    }

    fn handle_pressure(&mut self, now: Nanos, pressed: bool) {
        self.pressed = pressed;
        self.resume(now);
    }

    /// Reads what has arrived first: ZeroMQ discards it when a connection is closed, and the sender counts it as sent.
    /// Unbinding would close connections at once, so that the endpoint stays bound meanwhile.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.state.drain(now, grace);
        self.quiet = now + QUIET;
        let is_done = self.limit_reached() || !self.endpoints.values().any(|endpoint| endpoint.active);
        if self.state.close(now, is_done).is_some() {
            self.close();
        }
    }

    fn poll_output(&mut self) -> Option<Output<Data>> {
        self.outputs.pop_front()
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let parting = match self.parting {
            0 => None,
            _ if self.is_paused() => None,
            _ => self.endpoints.values().filter_map(Endpoint::parts_at).min(),
        };
        match self.state {
            Lifecycle::Draining(until) => parting.into_iter().chain([self.quiet, until]).min(),
            Lifecycle::Open => parting,
            Lifecycle::Closing | Lifecycle::Closed => None,
        }
    }

    fn reads(&self, _socket: Data) -> bool {
        !self.state.is_closing() && !self.limit_reached()
    }

    fn progress(&self) -> u64 {
        self.stats.received
    }

    fn stats(&self) -> ReceiverStats {
        let mut stats = self.stats.clone();
        for sender in &self.senders {
            let name = String::from_utf8_lossy(&sender.name).into_owned();
            stats.runs.extend(sender.run.as_ref().map(|run| (name.clone(), run.id.to_string())));
            stats.senders.insert(name, sender.count);
        }
        stats
    }

    fn is_closed(&self) -> bool {
        self.state.is_closing() && self.endpoints.is_empty()
    }
}

/// What the user of a receiver may request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverVerb {
    /// Stop reading after this many messages in total.
    Limit(Option<u64>),
    /// Dial a discovered sender; repeated requests have no effect.
    Connect(String),
    /// Drop a discovered sender, once the messages that have arrived are read.
    Release(String),
}
