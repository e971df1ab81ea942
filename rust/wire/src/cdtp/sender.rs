//! The sending role: queues what nobody takes yet, numbers the messages of a run.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::receiver::size;
use super::{MessageType, Variant, encode_batch, encode_header};
use crate::msgpack::{Oversize, Timestamp};
use crate::{
    Backlog, ErrorKind, Event, Frames, Incoming, Machine, Nanos, Open, Output, SendId, SocketEvent, SocketKind,
    SocketOptions, Weight,
};

/// Sends the transport is asked to take at one time; the rest waits in the machine, where it can be counted and kept.
const WINDOW: usize = 64;

/// An empty MessagePack map.
const EMPTY_MAP: &[u8] = &[0x80];

/// How a sender is set up.
#[derive(Clone, Debug)]
pub struct SenderSettings {
    /// The sender's name, second string of every header (CDTP-04).
    pub name: String,
    /// The header to write.
    pub variant: Variant,
    /// Endpoints to listen on.
    pub bind: Vec<String>,
    /// Endpoints to dial.
    pub connect: Vec<String>,
    /// What is set on the socket.
    pub options: SocketOptions,
}

/// The sender's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataOut;

/// What the user of a sender may ask for. Maps are encoded MessagePack.
#[derive(Clone, Debug)]
pub enum SenderVerb {
    /// Send data; outside a run this begins one, where the header knows runs.
    Data {
        /// The time of sending or of the payload's making (CDTP-06).
        timestamp: Timestamp,
        /// The tags map.
        tags: Bytes,
        /// The payload frames.
        payload: SmallVec<[Bytes; 2]>,
    },
    /// Begin a run.
    BeginRun {
        /// The time of sending.
        timestamp: Timestamp,
        /// The configuration map.
        config: Bytes,
    },
    /// End the run.
    EndRun {
        /// The time of sending.
        timestamp: Timestamp,
        /// The metadata map.
        metadata: Bytes,
    },
    /// Send these frames as they are.
    Raw(Frames),
}

/// What a sender tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// It listens, at this real endpoint.
    Bound(String),
    /// A receiver is connected.
    Connected(String),
    /// A receiver is gone, and up to so many messages with it.
    Disconnected {
        /// Our endpoint.
        endpoint: String,
        /// The lesser of the messages taken since it came and of what the transport holds (CDTP-18).
        at_risk: u64,
    },
    /// A second receiver came: from now on they share the stream (CDTP-20).
    Shared(String),
    /// A message was larger than MessagePack can say.
    Refused(String),
    /// An endpoint could not be used.
    Failed {
        /// The endpoint.
        endpoint: String,
        /// The transport's words for the reason.
        reason: String,
    },
}

impl Event for SenderEvent {
    fn weight(&self) -> Weight {
        Weight::Notice(0)
    }
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Messages the transport has taken.
    pub sent: u64,
    /// Messages that wait for it.
    pub queued: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Messages that may have been lost with a receiver; a lower bound.
    pub at_risk: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Draining { until: Nanos },
    Closing,
    Closed,
}

/// The sending role of CDTP.
#[derive(Debug)]
pub struct Sender {
    settings: SenderSettings,
    state: State,
    opening: Option<Open<DataOut>>,
    closing: Option<Output<DataOut>>,
    queue: VecDeque<Frames>,
    queued_bytes: usize,
    /// Bytes of each message the transport has been asked to take and has not yet taken.
    in_flight: VecDeque<usize>,
    next_send: u64,
    run: Option<u64>,
    last_timestamp: Timestamp,
    receivers: usize,
    shared: bool,
    /// Messages the transport has taken since the last receiver went. It takes none without a receiver, so this counts
    /// from the arrival of the next, even where word of that comes late.
    taken: u64,
    stats: SenderStats,
    events: VecDeque<SenderEvent>,
}

impl Sender {
    /// A sender that asks for its socket at once.
    pub fn new(settings: SenderSettings) -> Self {
        let opening = Open {
            socket: DataOut,
            kind: SocketKind::Push,
            bind: settings.bind.clone(),
            connect: settings.connect.clone(),
            options: SocketOptions { immediate: true, ..settings.options.clone() },
        };
        Self {
            settings,
            state: State::Open,
            opening: Some(opening),
            closing: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            in_flight: VecDeque::new(),
            next_send: 0,
            run: None,
            last_timestamp: Timestamp::default(),
            receivers: 0,
            shared: false,
            taken: 0,
            stats: SenderStats::default(),
            events: VecDeque::new(),
        }
    }

    fn push(&mut self, frames: Frames) {
        self.queued_bytes += size(&frames);
        self.queue.push_back(frames);
    }

    fn header(
        &self,
        timestamp: Timestamp,
        message_type: MessageType,
        sequence: u64,
        tags: &[u8],
    ) -> Result<Bytes, Oversize> {
        let Self { settings: SenderSettings { variant, name, .. }, .. } = self;
        let mut header = Vec::with_capacity(name.len() + tags.len() + 32);
        encode_header(&mut header, *variant, name, timestamp, message_type, sequence, tags)?;
        Ok(header.into())
    }

    /// A, B: the map is the one payload frame; CDTP2: user tags in a first record, the map in a second.
    fn boundary(
        &mut self,
        timestamp: Timestamp,
        message_type: MessageType,
        sequence: u64,
        map: &Bytes,
    ) -> Result<(), Oversize> {
        let frames = if self.settings.variant == Variant::Two {
            let records: [(u64, &[u8], &[Bytes]); 2] = [(0, EMPTY_MAP, &[]), (1, map, &[])];
            smallvec![encode_batch(&self.settings.name, message_type, &records)?.into()]
        } else {
            smallvec![self.header(timestamp, message_type, sequence, EMPTY_MAP)?, map.clone()]
        };
        self.push(frames);
        Ok(())
    }

    fn begin(&mut self, timestamp: Timestamp, config: &Bytes) -> Result<(), Oversize> {
        self.boundary(timestamp, MessageType::Bor, 0, config)?;
        self.run = Some(0);
        Ok(())
    }

    /// EOR bears the number of the last DAT.
    fn end(&mut self, timestamp: Timestamp, metadata: &Bytes) -> Result<(), Oversize> {
        match self.run.take() {
            Some(last) => self.boundary(timestamp, MessageType::Eor, last, metadata),
            None => Ok(()),
        }
    }

    fn data(&mut self, timestamp: Timestamp, tags: &[u8], payload: SmallVec<[Bytes; 2]>) -> Result<(), Oversize> {
        let mut sequence = 0;
        if self.settings.variant != Variant::S {
            if self.run.is_none() {
                self.begin(timestamp, &Bytes::from_static(EMPTY_MAP))?;
            }
            sequence = self.run.map_or(1, |last| last + 1);
        }
        let frames = if self.settings.variant == Variant::Two {
            smallvec![encode_batch(&self.settings.name, MessageType::Dat, &[(sequence, tags, &payload[..])])?.into()]
        } else {
            let mut frames = Frames::new();
            frames.push(self.header(timestamp, MessageType::Dat, sequence, tags)?);
            frames.extend(payload);
            frames
        };
        self.run = self.run.map(|_| sequence);
        self.push(frames);
        Ok(())
    }

    fn settle(&mut self, taken: bool) {
        if let Some(bytes) = self.in_flight.pop_front() {
            self.queued_bytes -= bytes;
            if taken {
                self.stats.sent += 1;
                self.taken += 1;
            }
        }
    }

    fn close_if_done(&mut self, now: Nanos) {
        let State::Draining { until } = self.state else { return };
        let empty = self.queue.is_empty() && self.in_flight.is_empty();
        if empty || now >= until {
            self.state = State::Closing;
            self.closing = Some(Output::Close { socket: DataOut, linger: until - now });
        }
    }
}

impl Machine for Sender {
    type Socket = DataOut;
    type Event = SenderEvent;
    type Verb = SenderVerb;
    type Stats = SenderStats;

    /// A PUSH socket receives nothing.
    fn handle_message(&mut self, _now: Nanos, _incoming: Incoming<DataOut>) -> Option<ErrorKind> {
        None
    }

    fn handle_socket(&mut self, now: Nanos, _socket: DataOut, event: SocketEvent) {
        match event {
            SocketEvent::Bound(endpoint) => self.events.push_back(SenderEvent::Bound(endpoint)),
            SocketEvent::OpenFailed { endpoint, reason } | SocketEvent::HandshakeFailed { endpoint, reason } => {
                self.events.push_back(SenderEvent::Failed { endpoint, reason });
            }
            SocketEvent::Connected(endpoint) => {
                self.receivers += 1;
                if self.receivers == 2 && !self.shared {
                    self.shared = true;
                    self.events.push_back(SenderEvent::Shared(endpoint.clone()));
                }
                self.events.push_back(SenderEvent::Connected(endpoint));
            }
            SocketEvent::Disconnected(endpoint) => {
                self.receivers = self.receivers.saturating_sub(1);
                let held = self.settings.options.send_hwm.map_or(u64::MAX, u64::from);
                let at_risk = self.taken.min(held);
                self.stats.at_risk += at_risk;
                self.taken = 0;
                self.events.push_back(SenderEvent::Disconnected { endpoint, at_risk });
            }
            SocketEvent::Sent(_) => self.settle(true),
            SocketEvent::Unsent(..) => {
                if self.state == State::Open {
                    self.settle(false);
                }
            }
            SocketEvent::Closed => self.state = State::Closed,
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, _now: Nanos, verb: SenderVerb) {
        let encoded = match verb {
            SenderVerb::Data { timestamp, tags, payload } => {
                self.last_timestamp = timestamp;
                self.data(timestamp, &tags, payload)
            }
            SenderVerb::BeginRun { timestamp, config } => self.begin(timestamp, &config),
            SenderVerb::EndRun { timestamp, metadata } => self.end(timestamp, &metadata),
            SenderVerb::Raw(frames) => {
                self.push(frames);
                Ok(())
            }
        };
        if let Err(oversize) = encoded {
            self.events.push_back(SenderEvent::Refused(oversize.to_string()));
        }
    }

    /// Ends the run, sends what is queued for as long as `grace`, and counts what could not be sent (CDTP-19).
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        if self.state == State::Open {
            // An empty map is never too large.
            let _ = self.end(self.last_timestamp, &Bytes::from_static(EMPTY_MAP));
            self.state = State::Draining { until: now + grace };
            self.close_if_done(now);
        }
    }

    fn poll_output(&mut self) -> Option<Output<DataOut>> {
        if let Some(open) = self.opening.take() {
            return Some(Output::Open(open));
        }
        if let Some(close) = self.closing.take() {
            return Some(close);
        }
        if self.in_flight.len() >= WINDOW || matches!(self.state, State::Closing | State::Closed) {
            return None;
        }
        let frames = self.queue.pop_front()?;
        self.in_flight.push_back(size(&frames));
        self.next_send += 1;
        Some(Output::Send { id: Some(SendId(self.next_send)), socket: DataOut, to: None, frames, until: None })
    }

    fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        match self.state {
            State::Draining { until } => Some(until),
            State::Open | State::Closing | State::Closed => None,
        }
    }

    fn backlog(&self) -> Backlog {
        Backlog { messages: self.queue.len() + self.in_flight.len(), bytes: self.queued_bytes }
    }

    fn stats(&self) -> SenderStats {
        let backlog = self.backlog();
        SenderStats { queued: backlog.messages as u64, queued_bytes: backlog.bytes as u64, ..self.stats }
    }

    fn is_closed(&self) -> bool {
        self.state == State::Closed
    }
}
