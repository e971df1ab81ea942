//! The sending role: queues messages until the transport takes them, and numbers those of a run.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use smallvec::{SmallVec, smallvec};

use super::encode::record_bytes;
use super::{MessageType, Variant, encode_batch, encode_header};
use crate::msgpack::{Oversize, Timestamp};
use crate::{
    Backlog, Connection, Event, Frames, Incoming, Lifecycle, Machine, Nanos, Open, Output, Remote, SendId, SocketEvent,
    SocketKind, SocketOptions, Verdict, Weight, cost,
};

/// How many messages the transport is offered at a time; the rest stays in the machine, where it can be counted.
const WINDOW: usize = 64;

/// An empty MessagePack map.
const EMPTY_MAP: &[u8] = &[0x80];

/// The metadata of a run that ends with its sender: `{"condition_code": 4, "condition": "INTERRUPTED"}`.
const INTERRUPTED: &[u8] = b"\x82\xaecondition_code\x04\xa9condition\xabINTERRUPTED";

#[derive(Clone, Debug)]
pub struct SenderSettings {
    /// The sender's name, the second string of every header (CDTP-04).
    pub name: String,
    /// The header to write.
    pub variant: Variant,
    /// Endpoints to listen on.
    pub bind: Vec<String>,
    /// Endpoints to dial.
    pub connect: Vec<String>,
    pub options: SocketOptions,
    /// Which CDTP2 data messages are combined into one.
    pub batch: BatchBounds,
}

/// How much CDTP2 data is combined. If either is 0, none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchBounds {
    /// The records of a message take no more bytes than this; a larger one is sent alone.
    pub bytes: usize,
    /// How long a message may be delayed.
    pub time: Duration,
}

impl Default for BatchBounds {
    fn default() -> Self {
        Self { bytes: 128 << 10, time: Duration::from_millis(500) }
    }
}

/// The sender's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataOut;

/// What the user of a sender may request. Maps are encoded MessagePack.
#[derive(Clone, Debug)]
pub enum SenderVerb {
    /// Send data; begins a run if none is open, if the variant has runs.
    Data {
        /// The time of sending, or when the payload was made (CDTP-06).
        timestamp: Timestamp,
        tags: Bytes,
        payload: SmallVec<[Bytes; 2]>,
    },
    BeginRun {
        /// The time of sending.
        timestamp: Timestamp,
        /// The configuration map.
        config: Bytes,
    },
    EndRun {
        /// The time of sending.
        timestamp: Timestamp,
        /// The metadata map.
        metadata: Bytes,
    },
    /// Send these frames unchanged.
    Raw(Frames),
    /// Send the data to be combined now.
    Flush,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// It listens, on this resolved endpoint.
    Bound(String),
    /// What became of a connection.
    Connection(Connection),
    /// A receiver is gone, and at least this many messages may be lost with it.
    AtRisk {
        /// Our endpoint.
        endpoint: String,
        /// The lesser of the messages taken since it connected and of what the transport holds (CDTP-18).
        messages: u64,
    },
    /// A second receiver has connected: from now on they share the stream (CDTP-20).
    Shared(String),
    /// A message exceeded the limits of MessagePack.
    Refused(String),
}

impl Event for SenderEvent {
    fn weight(&self) -> Weight {
        Weight::Notice(0)
    }
}

/// Counters of a sender, in messages as receivers count them: a CDTP2 record is one; its BOR and EOR have two each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SenderStats {
    /// Messages the transport has taken.
    pub sent: u64,
    /// The bytes of their frames.
    pub bytes: u64,
    /// Messages queued, or waiting to be combined.
    pub queued: u64,
    pub queued_bytes: u64,
    /// Wire messages that may have been lost with a receiver; a lower bound.
    pub at_risk: u64,
}

/// A queued wire message.
#[derive(Debug)]
struct Queued {
    frames: Frames,
    messages: usize,
}

/// A message offered to the transport, and not taken yet.
#[derive(Debug)]
struct InFlight {
    messages: usize,
    /// Its share of the queue, and the bytes of its frames.
    cost: usize,
    bytes: u64,
}

/// CDTP2 data to be combined.
#[derive(Debug, Default)]
struct Pending {
    records: Vec<PendingRecord>,
    bytes: usize,
    since: Option<Nanos>,
}

#[derive(Debug)]
struct PendingRecord {
    sequence: u64,
    tags: Bytes,
    payload: SmallVec<[Bytes; 2]>,
}

/// The sending role of CDTP.
#[derive(Debug)]
pub struct Sender {
    settings: SenderSettings,
    state: Lifecycle,
    opening: Option<Open<DataOut>>,
    closing: Option<Output<DataOut>>,
    pending: Pending,
    queue: VecDeque<Queued>,
    /// Messages and bytes queued or in flight.
    queued: Backlog,
    in_flight: VecDeque<InFlight>,
    next_send: u64,
    run: Option<u64>,
    last_timestamp: Timestamp,
    receivers: usize,
    shared: bool,
    /// Messages the transport has taken since the last receiver left. It takes none without a receiver, so this counts
    /// from the arrival of the next, even if that is reported late.
    taken: u64,
    stats: SenderStats,
    events: VecDeque<SenderEvent>,
}

impl Sender {
    /// A sender that opens its socket at once.
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
            state: Lifecycle::Open,
            opening: Some(opening),
            closing: None,
            pending: Pending::default(),
            queue: VecDeque::new(),
            queued: Backlog::default(),
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

    fn push(&mut self, frames: Frames, messages: usize) {
        self.queued.messages += messages;
        self.queued.bytes += cost(&frames);
        self.queue.push_back(Queued { frames, messages });
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

    /// A, B: the map is the only payload frame. CDTP2: the user's tags in a first record, the map in a second.
    fn boundary(
        &mut self,
        timestamp: Timestamp,
        message_type: MessageType,
        sequence: u64,
        map: &Bytes,
    ) -> Result<(), Oversize> {
        if self.settings.variant == Variant::Two {
            let records: [(u64, &[u8], &[Bytes]); 2] = [(0, EMPTY_MAP, &[]), (1, map, &[])];
            let frames = smallvec![encode_batch(&self.settings.name, message_type, &records)?.into()];
            self.push(frames, records.len());
        } else {
            let frames = smallvec![self.header(timestamp, message_type, sequence, EMPTY_MAP)?, map.clone()];
            self.push(frames, 1);
        }
        Ok(())
    }

    fn begin(&mut self, timestamp: Timestamp, config: &Bytes) -> Result<(), Oversize> {
        self.boundary(timestamp, MessageType::Bor, 0, config)?;
        self.run = Some(0);
        Ok(())
    }

    /// The EOR has the number of the last DAT.
    fn end(&mut self, timestamp: Timestamp, metadata: &Bytes) -> Result<(), Oversize> {
        match self.run.take() {
            Some(last) => self.boundary(timestamp, MessageType::Eor, last, metadata),
            None => Ok(()),
        }
    }

    fn data(
        &mut self,
        now: Nanos,
        timestamp: Timestamp,
        tags: Bytes,
        payload: SmallVec<[Bytes; 2]>,
    ) -> Result<(), Oversize> {
        let mut sequence = 0;
        if self.settings.variant != Variant::S {
            if self.run.is_none() {
                self.begin(timestamp, &Bytes::from_static(EMPTY_MAP))?;
            }
            sequence = self.run.map_or(1, |last| last + 1);
        }
        if self.settings.variant == Variant::Two {
            self.record(now, PendingRecord { sequence, tags, payload })?;
        } else {
            let mut frames = Frames::new();
            frames.push(self.header(timestamp, MessageType::Dat, sequence, &tags)?);
            frames.extend(payload);
            self.push(frames, 1);
        }
        self.run = self.run.map(|_| sequence);
        Ok(())
    }

    /// Holds a record back for others, unless it fills a message: a record that cannot be written then costs no other.
    fn record(&mut self, now: Nanos, record: PendingRecord) -> Result<(), Oversize> {
        let BatchBounds { bytes: limit, time } = self.settings.batch;
        let bytes = record_bytes(&record.tags, &record.payload);
        if self.pending.bytes + bytes > limit {
            self.flush()?;
        }
        if bytes >= limit || time.is_zero() {
            let frames = smallvec![self.batch(&[record])?];
            self.push(frames, 1);
            return Ok(());
        }
        self.queued.messages += 1;
        self.queued.bytes += bytes;
        self.pending.bytes += bytes;
        self.pending.since.get_or_insert(now);
        self.pending.records.push(record);
        if self.pending.bytes >= limit { self.flush() } else { Ok(()) }
    }

    /// Sends the data to be combined.
    fn flush(&mut self) -> Result<(), Oversize> {
        let Pending { records, bytes, .. } = std::mem::take(&mut self.pending);
        if records.is_empty() {
            return Ok(());
        }
        self.queued.messages -= records.len();
        self.queued.bytes -= bytes;
        let frames = smallvec![self.batch(&records)?];
        self.push(frames, records.len());
        Ok(())
    }

    fn batch(&self, records: &[PendingRecord]) -> Result<Bytes, Oversize> {
        let records: SmallVec<[_; 1]> =
            records.iter().map(|record| (record.sequence, &record.tags[..], &record.payload[..])).collect();
        encode_batch(&self.settings.name, MessageType::Dat, &records).map(Bytes::from)
    }

    fn batch_deadline(&self) -> Option<Nanos> {
        self.pending.since.map(|since| since + self.settings.batch.time)
    }

    fn refuse(&mut self, encoded: Result<(), Oversize>) {
        if let Err(oversize) = encoded {
            self.events.push_back(SenderEvent::Refused(oversize.to_string()));
        }
    }

    fn settle(&mut self, taken: bool) {
        if let Some(InFlight { messages, cost, bytes }) = self.in_flight.pop_front() {
            self.queued.messages -= messages;
            self.queued.bytes -= cost;
            if taken {
                self.stats.sent += messages as u64;
                self.stats.bytes += bytes;
                self.taken += 1;
            }
        }
    }

    fn close_if_done(&mut self, now: Nanos) {
        let is_done = self.queue.is_empty() && self.in_flight.is_empty();
        if let Some(linger) = self.state.close(now, is_done) {
            self.closing = Some(Output::Close { socket: DataOut, linger });
        }
    }
}

impl Machine for Sender {
    type Socket = DataOut;
    type Event = SenderEvent;
    type Verb = SenderVerb;
    type Stats = SenderStats;

    /// A PUSH socket receives nothing.
    fn handle_message(&mut self, _now: Nanos, _incoming: Incoming<DataOut>) -> Verdict {
        Verdict::default()
    }

    fn handle_socket(&mut self, now: Nanos, _socket: DataOut, event: SocketEvent) {
        if let Some(connection) = event.connection() {
            self.events.push_back(SenderEvent::Connection(connection));
        }
        match event {
            SocketEvent::Bound(endpoint) => self.events.push_back(SenderEvent::Bound(endpoint)),
            SocketEvent::OpenFailed { .. }
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. } => {}
            SocketEvent::Connected(Remote { endpoint, .. }) => {
                self.receivers += 1;
                if self.receivers == 2 && !self.shared {
                    self.shared = true;
                    self.events.push_back(SenderEvent::Shared(endpoint));
                }
            }
            SocketEvent::Disconnected(Remote { endpoint, .. }) => {
                self.receivers = self.receivers.saturating_sub(1);
                let held = self.settings.options.send_hwm.map_or(u64::MAX, u64::from);
                let at_risk = self.taken.min(held);
                self.stats.at_risk += at_risk;
                self.taken = 0;
                if at_risk > 0 {
                    self.events.push_back(SenderEvent::AtRisk { endpoint, messages: at_risk });
                }
            }
            SocketEvent::Sent(_) => self.settle(true),
            SocketEvent::Unsent(..) => {
                if self.state.is_open() {
                    self.settle(false);
                }
            }
            SocketEvent::Closed => self.state = Lifecycle::Closed,
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if self.batch_deadline().is_some_and(|deadline| deadline <= now) {
            let flushed = self.flush();
            self.refuse(flushed);
        }
        self.close_if_done(now);
    }

    /// Only data is held back; everything else is sent at once, after earlier data.
    fn handle_verb(&mut self, now: Nanos, verb: SenderVerb) {
        let encoded = match verb {
            SenderVerb::Data { timestamp, tags, payload } => {
                self.last_timestamp = timestamp;
                self.data(now, timestamp, tags, payload)
            }
            SenderVerb::BeginRun { timestamp, config } => self.flush().and_then(|()| self.begin(timestamp, &config)),
            SenderVerb::EndRun { timestamp, metadata } => self.flush().and_then(|()| self.end(timestamp, &metadata)),
            SenderVerb::Raw(frames) => self.flush().map(|()| self.push(frames, 1)),
            SenderVerb::Flush => self.flush(),
        };
        self.refuse(encoded);
    }

    /// Sends what is queued for at most `grace`, and counts what could not be sent (CDTP-19). A run that no verb has ended
    /// ends as interrupted.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        if self.state.drain(now, grace) {
            let flushed = self.flush();
            self.refuse(flushed);
            // Such a map is never too large.
            let _ = self.end(self.last_timestamp, &Bytes::from_static(INTERRUPTED));
        }
        self.close_if_done(now);
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output<DataOut>> {
        if let Some(open) = self.opening.take() {
            return Some(Output::Open(Box::new(open)));
        }
        if let Some(close) = self.closing.take() {
            return Some(close);
        }
        if self.in_flight.len() >= WINDOW || self.state.is_closing() {
            return None;
        }
        let Queued { frames, messages } = self.queue.pop_front()?;
        let bytes = crate::nbytes(&frames);
        self.in_flight.push_back(InFlight { messages, cost: cost(&frames), bytes });
        self.next_send += 1;
        Some(Output::Send {
            id: Some(SendId(self.next_send)),
            socket: DataOut,
            to: None,
            frames: frames.into(),
            until: None,
        })
    }

    fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.state.poll_timeout().into_iter().chain(self.batch_deadline()).min()
    }

    fn backlog(&self) -> Backlog {
        self.queued
    }

    fn stats(&self) -> SenderStats {
        let backlog = self.backlog();
        SenderStats { queued: backlog.messages as u64, queued_bytes: backlog.bytes as u64, ..self.stats }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}
