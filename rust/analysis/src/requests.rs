//! The requests of DCP, each with its outcome.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    ops::Range,
    sync::Arc,
};

use arrow_array::{Array, BinaryArray, Int64Array, ListArray, RecordBatch, StringArray, cast::AsArray};
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trunkline_columns::ColumnError;

use crate::{
    budget::Budget,
    fingerprint::fingerprint,
    fold::Fold,
    ordered::{Id, Ordered, Weigh},
    queues::Queues,
    rows::{Chosen, binary, bytes_at, lists, numbers, text, text_at},
    table::{Cell, Columns, Kind},
};

/// How many stale entries may be kept of a whole table before they are removed.
const STALE_MAX: usize = 1 << 18;

/// If more requests than this wait for a worker, those that a broker answered itself are not identified.
const AMBIGUOUS: usize = 1000;

/// How many empty records of calls are kept for reuse.
const SPARE: usize = 64;

/// The bytes of another dispatch of a request.
const DISPATCH_BYTES: usize = 64;

/// Pairs requests with their dispatches and replies: those of a broker by the client's address and the metadata, those
/// of a client or a worker by the metadata.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Requests {
    #[serde(skip)]
    budget: Budget,
    begun: Ordered<Request>,
    calls: HashMap<u128, Box<Open>, RandomState>,
    stale: usize,
    /// How many replies are in no row.
    #[serde(alias = "forgotten")]
    left_out: u64,
    /// Empty records, for calls to come.
    #[serde(skip)]
    #[allow(clippy::vec_box)] // they go from one to the other as they are
    spare: Vec<Box<Open>>,
    /// The capture of the last row.
    #[serde(skip)]
    capture_id: Arc<str>,
}

/// The open parts of a call, in the order in which they came.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Open {
    /// At a broker: requests not yet sent to a worker, by their service.
    waiting: Queues<Id>,
    /// Those that were sent to one.
    dispatched: Queues<Id>,
    /// The unanswered requests of each worker.
    sent: Queues<Dispatch>,
    /// Replies that came in and have not gone out; one to a request that is not among the rows has none.
    relayed: VecDeque<Option<Id>>,
    /// Replies that a broker made itself, to one of several requests not yet sent to a worker: by their rows and times.
    answered: VecDeque<(i64, i64)>,
    /// At a worker: the requests it got, by client.
    jobs: Queues<Id>,
    /// At a client: the requests it sent.
    asked: VecDeque<Id>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Dispatch {
    request: Id,
    seq: i64,
    at_ns: i64,
}

/// The role that recorded a request, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Broker,
    Client,
    Worker,
}

impl Role {
    const ALL: [Self; 3] = [Self::Broker, Self::Client, Self::Worker];

    /// The one of this number.
    pub(crate) fn of(number: u8) -> Self {
        Self::ALL.into_iter().find(|role| *role as u8 == number).unwrap_or(Self::Broker)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Client => "client",
            Self::Worker => "worker",
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Reply,
    Forward,
    Undelivered,
    NotDispatched,
    NoReply,
    /// It made way for others before it had one of these.
    Evicted,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Forward => "forward",
            Self::Undelivered => "undelivered",
            Self::NotDispatched => "not_dispatched",
            Self::NoReply => "no_reply",
            Self::Evicted => "evicted",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    capture_id: Arc<str>,
    pub(crate) role: Role,
    is_chosen: bool,
    pub(crate) service: Option<ByteBuf>,
    client: Option<ByteBuf>,
    forwarded_by: Option<ByteBuf>,
    metadata: Vec<ByteBuf>,
    seq: i64,
    pub(crate) at_ns: i64,
    /// The worker it was last sent to, or that responded first.
    worker: Option<ByteBuf>,
    dispatch: Option<(i64, i64)>,
    /// How often it was sent to a worker.
    dispatches: usize,
    response: Option<Response>,
    reply: Option<(i64, i64)>,
    #[serde(default)]
    is_evicted: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Response {
    seq: i64,
    at_ns: i64,
    is_forward: bool,
}

/// What a response of a worker answers.
enum Answer {
    /// The first answer to a request.
    To(Id),
    /// An answer to a request that is over, or that another worker has answered.
    Late,
    /// An answer to nothing that it was sent.
    Unasked,
}

impl Weigh for Request {
    fn weight(&self) -> usize {
        let parts = [&self.service, &self.client, &self.forwarded_by];
        let texts: usize = parts.into_iter().flatten().map(|part| part.len()).sum();
        // The call holds the address and the metadata once more.
        let common: usize = self.metadata.iter().map(|part| part.len() + 24).sum();
        size_of::<Self>() + 2 * (texts + common + self.capture_id.len())
    }

    fn evict(&mut self) {
        self.is_evicted = true;
    }
}

/// The columns of a batch.
struct Rows {
    capture_id: StringArray,
    seq: Int64Array,
    received_at_ns: Int64Array,
    direction: StringArray,
    peer: BinaryArray,
    kinds: StringArray,
    service: BinaryArray,
    client: BinaryArray,
    metadata: ListArray,
}

/// A row, as far as it matters.
struct Row<'a> {
    capture_id: &'a str,
    metadata: &'a BinaryArray,
    /// The parts that the message has.
    parts: Range<usize>,
    seq: i64,
    at_ns: i64,
    comes: bool,
    asks: bool,
    is_chosen: bool,
    peer: Option<&'a [u8]>,
    service: Option<&'a [u8]>,
    client: Option<&'a [u8]>,
}

impl Fold for Requests {
    const NAME: &'static str = "requests";
    const PROTOCOL: &'static str = "dcp";
    const NEEDS: &'static [&'static str] =
        &["capture_id", "seq", "received_at_ns", "peer", "direction", "type", "service", "client", "metadata"];
    const COLUMNS: Columns = &[
        ("capture_id", Kind::Text),
        ("seen_by", Kind::Text),
        ("service", Kind::Bytes),
        ("client", Kind::Bytes),
        ("worker", Kind::Bytes),
        ("forwarded_by", Kind::Bytes),
        ("metadata", Kind::Frames),
        ("outcome", Kind::Text),
        ("latency_ns", Kind::Number),
        ("queued_ns", Kind::Number),
        ("worked_ns", Kind::Number),
        ("request_seq", Kind::Number),
        ("dispatch_seq", Kind::Number),
        ("response_seq", Kind::Number),
        ("reply_seq", Kind::Number),
        ("requested_at_ns", Kind::Number),
    ];
    const KEY: &'static [&'static str] = &["capture_id", "request_seq"];

    fn ingest(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        let rows = Rows::of(batch)?;
        let chosen = Chosen::of(batch)?;
        let Self { budget, begun, calls, stale, left_out, spare, capture_id } = self;
        let stale_max = budget.share(STALE_MAX);
        for at in 0..batch.num_rows() {
            let asks = match text_at(&rows.kinds, at) {
                Some("request") => true,
                Some("reply") => false,
                _ => continue,
            };
            let row = rows.at(at, asks, chosen.has(at));
            // A number represents what they share, which is long.
            let call = row.call();
            let open = calls.entry(call).or_insert_with(|| spare.pop().unwrap_or_default());
            if **capture_id != *row.capture_id {
                *capture_id = row.capture_id.into();
            }
            let mut matching =
                Matching { begun: &mut *begun, stale: &mut *stale, left_out: &mut *left_out, capture_id };
            if row.peer.is_some() {
                matching.at_broker(&row, open);
                matching.answer(open, false);
            } else {
                matching.at_peer(&row, open);
            }
            if open.is_empty() {
                spare.extend(calls.remove(&call).filter(|_| spare.len() < SPARE));
            }
            if *stale > stale_max {
                clean(begun, calls, left_out);
                *stale = 0;
            }
        }
        Ok(())
    }

    fn emit(&mut self, is_end: bool) -> Option<Vec<Cell>> {
        self.next_request(is_end).map(Request::cells)
    }

    fn forget(&mut self, before_ns: i64) {
        let over = self.begun.complete_where(|request| {
            let is_over = request.at_ns < before_ns;
            request.is_chosen &= !is_over;
            is_over
        });
        self.stale = self.stale.saturating_add(over);
    }

    fn resize(&mut self, budget: Budget) {
        self.budget = budget;
        self.begun.resize(budget);
    }

    fn evicted(&self) -> u64 {
        self.begun.evicted()
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Requests {
    pub(crate) fn within(budget: Budget) -> Self {
        Self { budget, begun: Ordered::within(budget), ..Self::default() }
    }

    /// The next request that leaves, of those that are selected.
    pub(crate) fn next_request(&mut self, is_end: bool) -> Option<Request> {
        if is_end {
            let Self { begun, stale, left_out, capture_id, .. } = self;
            let mut matching = Matching { begun, stale, left_out, capture_id };
            for (_, mut open) in mem::take(&mut self.calls) {
                matching.answer(&mut open, true);
            }
        }
        loop {
            let evicted = self.begun.evicted();
            let request = if is_end { self.begun.drain() } else { self.begun.emit() }?;
            // The open entries of a request that leaves early are stale.
            self.stale = self.stale.saturating_add(usize::from(self.begun.evicted() > evicted));
            if request.is_chosen {
                return Some(request);
            }
        }
    }
}

/// Matches rows with what is open.
struct Matching<'a> {
    begun: &'a mut Ordered<Request>,
    stale: &'a mut usize,
    left_out: &'a mut u64,
    capture_id: &'a Arc<str>,
}

impl Matching<'_> {
    fn request(&self, row: &Row<'_>, role: Role) -> Request {
        Request {
            capture_id: Arc::clone(self.capture_id),
            role,
            is_chosen: row.is_chosen,
            service: row.service.map(owned),
            client: row.address().or(row.client).map(owned),
            forwarded_by: None,
            metadata: row.metadata().map(owned).collect(),
            seq: row.seq,
            at_ns: row.at_ns,
            worker: None,
            dispatch: None,
            dispatches: 0,
            response: None,
            reply: None,
            is_evicted: false,
        }
    }

    /// A request comes in and goes out to a worker; its response comes in and goes out to the client. The response is a
    /// reply, or a request that the worker forwards for the same client: that one is a new request too.
    fn at_broker(&mut self, row: &Row<'_>, open: &mut Open) {
        let peer = row.peer.unwrap_or_default();
        let service = key(row.service);
        match (row.asks, row.comes) {
            (true, true) => {
                let is_sent_on = row.client.is_some_and(|client| client != peer);
                let ended = is_sent_on && !matches!(self.respond(row, peer, open, true), Answer::Unasked);
                let mut request = self.request(row, Role::Broker);
                request.forwarded_by = ended.then(|| owned(peer));
                open.waiting.push(service, self.begun.begin(request));
            }
            (true, false) => {
                let id = self.oldest(&mut open.waiting, service, true);
                let id = id.or_else(|| self.oldest(&mut open.dispatched, service, false));
                let Some((id, request)) = id.and_then(|id| Some((id, self.begun.get(id)?))) else { return };
                let is_first = request.dispatch.is_none();
                request.worker = Some(owned(peer));
                request.dispatch = Some((row.seq, row.at_ns));
                request.dispatches = request.dispatches.saturating_add(1);
                if is_first {
                    open.dispatched.push(service, id);
                } else {
                    self.begun.grow(id, DISPATCH_BYTES);
                }
                open.sent.push(key(Some(peer)), Dispatch { request: id, seq: row.seq, at_ns: row.at_ns });
            }
            (false, true) => match self.respond(row, peer, open, false) {
                Answer::To(request) => open.relayed.push_back(Some(request)),
                Answer::Late => {}
                // The reply to an unknown request goes out too.
                Answer::Unasked => {
                    *self.stale = self.stale.saturating_add(1);
                    open.relayed.push_back(None);
                }
            },
            (false, false) => {
                match open.relayed.pop_front() {
                    Some(Some(id)) => self.reply(id, row.seq, row.at_ns),
                    Some(None) => *self.stale = self.stale.saturating_sub(1),
                    // No worker gets what a broker answers itself.
                    None if open.waiting.is_empty() => {}
                    None if open.waiting.len() > AMBIGUOUS => *self.left_out = self.left_out.saturating_add(1),
                    None => open.answered.push_back((row.seq, row.at_ns)),
                }
            }
        }
    }

    fn reply(&mut self, id: Id, seq: i64, at_ns: i64) {
        if let Some(request) = self.begun.get(id) {
            request.reply = Some((seq, at_ns));
            self.begun.complete(id);
        } else {
            self.leave_out();
        }
    }

    /// A reply came for a request that has left.
    const fn leave_out(&mut self) {
        *self.left_out = self.left_out.saturating_add(1);
    }

    /// Pairs replies that a broker made itself with their requests, the oldest first: once no more requests wait for a
    /// worker than there are replies, or at the end.
    fn answer(&mut self, open: &mut Open, is_end: bool) {
        let Some(&(last, _)) = open.answered.back() else { return };
        let mut waiting: Vec<(Id, i64)> = Vec::new();
        for id in open.waiting.all() {
            if let Some(request) = self.begun.get(id).filter(|request| request.seq < last) {
                waiting.push((id, request.seq));
            }
        }
        if !is_end && waiting.len() > open.answered.len() {
            return;
        }
        waiting.sort_unstable();
        let mut waiting: VecDeque<_> = waiting.into();
        for (seq, at_ns) in open.answered.drain(..) {
            if waiting.front().is_some_and(|(_, asked)| *asked < seq)
                && let Some((id, _)) = waiting.pop_front()
            {
                self.reply(id, seq, at_ns);
            }
        }
        open.waiting.retain(|id| self.begun.get(*id).is_some());
    }

    /// A worker responds to the oldest request it was sent.
    fn respond(&mut self, row: &Row<'_>, worker: &[u8], open: &mut Open, is_forward: bool) -> Answer {
        let Some(dispatch) = open.sent.pop(key(Some(worker))) else { return Answer::Unasked };
        let Some(request) = self.begun.get(dispatch.request).filter(|request| request.response.is_none()) else {
            *self.stale = self.stale.saturating_sub(1);
            if self.begun.may_be_lost(dispatch.request) {
                self.leave_out();
            }
            return Answer::Late;
        };
        // Other workers that got it may answer yet.
        *self.stale = self.stale.saturating_add(request.dispatches.saturating_sub(1));
        if request.worker.as_ref().is_none_or(|known| **known != *worker) {
            request.worker = Some(owned(worker));
        }
        request.dispatch = Some((dispatch.seq, dispatch.at_ns));
        request.response = Some(Response { seq: row.seq, at_ns: row.at_ns, is_forward });
        let service = key(request.service.as_ref().map(|service| service.as_slice()));
        if is_forward {
            self.begun.complete(dispatch.request);
        }
        self.oldest(&mut open.dispatched, service, false);
        Answer::To(dispatch.request)
    }

    /// A worker gets requests and responds; it also sends its own requests as a client does, and gets replies.
    fn at_peer(&mut self, row: &Row<'_>, open: &mut Open) {
        let client = key(row.client);
        match (row.asks, row.comes) {
            (true, true) => open.jobs.push(client, self.begun.begin(self.request(row, Role::Worker))),
            (_, false) if !row.asks || row.client.is_some() => {
                if let Some(id) = open.jobs.pop(client) {
                    if let Some(request) = self.begun.get(id) {
                        request.response = Some(Response { seq: row.seq, at_ns: row.at_ns, is_forward: row.asks });
                        self.begun.complete(id);
                    } else {
                        self.leave_out();
                    }
                } else if row.asks {
                    open.asked.push_back(self.begun.begin(self.request(row, Role::Client)));
                }
            }
            // A DEALER sees no address except in the replies to its own requests, all of which are to itself.
            (true, false) => open.asked.push_back(self.begun.begin(self.request(row, Role::Client))),
            (false, _) => {
                if let Some(id) = open.asked.pop_front() {
                    if let Some(request) = self.begun.get(id) {
                        request.client = request.client.take().max(row.client.map(owned));
                    }
                    self.reply(id, row.seq, row.at_ns);
                }
            }
        }
    }

    /// The oldest open and unanswered request of a queue, which is `taken` out of it or stays.
    fn oldest(&mut self, queues: &mut Queues<Id>, key: u128, taken: bool) -> Option<Id> {
        while let Some(id) = queues.first(key) {
            let is_open = self.begun.get(id).is_some_and(|request| request.response.is_none());
            if !is_open || taken {
                queues.pop(key);
            }
            if is_open {
                return Some(id);
            }
        }
        None
    }
}

/// Removes stale entries.
fn clean(begun: &mut Ordered<Request>, calls: &mut HashMap<u128, Box<Open>, RandomState>, left_out: &mut u64) {
    calls.retain(|_, open| {
        let mut is_open = |id: &Id| begun.get(*id).is_some();
        for queues in [&mut open.waiting, &mut open.dispatched, &mut open.jobs] {
            queues.retain(&mut is_open);
        }
        open.sent.retain(|dispatch| is_open(&dispatch.request));
        *left_out = left_out.saturating_add(open.relayed.iter().filter(|id| id.is_none()).count() as u64);
        open.relayed.retain(|id| id.is_some_and(|id| is_open(&id)));
        open.asked.retain(is_open);
        !open.is_empty()
    });
}

impl Open {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
            && self.dispatched.is_empty()
            && self.sent.is_empty()
            && self.relayed.is_empty()
            && self.answered.is_empty()
            && self.jobs.is_empty()
            && self.asked.is_empty()
    }
}

impl Request {
    /// The row of its answer, as its role saw it, and when.
    fn answer(&self) -> Option<(i64, i64)> {
        match self.role {
            // The worker's response is the reply as it sees it.
            Role::Worker => {
                let reply = self.response.filter(|response| !response.is_forward);
                reply.map(|response| (response.seq, response.at_ns))
            }
            Role::Broker | Role::Client => self.reply,
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match self.role {
            _ if self.is_evicted => Outcome::Evicted,
            _ if self.response.is_some_and(|response| response.is_forward) => Outcome::Forward,
            _ if self.answer().is_some() => Outcome::Reply,
            Role::Broker if self.response.is_some() => Outcome::Undelivered,
            Role::Broker if self.dispatch.is_none() => Outcome::NotDispatched,
            Role::Broker | Role::Client | Role::Worker => Outcome::NoReply,
        }
    }

    const fn since(&self, at_ns: i64) -> i64 {
        at_ns.saturating_sub(self.at_ns)
    }

    pub(crate) fn latency_ns(&self) -> Option<i64> {
        self.answer().map(|(_, at_ns)| self.since(at_ns))
    }

    pub(crate) fn queued_ns(&self) -> Option<i64> {
        self.dispatch.map(|(_, at_ns)| self.since(at_ns))
    }

    pub(crate) fn worked_ns(&self) -> Option<i64> {
        let at_worker = (self.role == Role::Worker).then_some(self.at_ns);
        let from = at_worker.or_else(|| self.dispatch.map(|(_, at_ns)| at_ns));
        self.response.zip(from).map(|(response, from)| response.at_ns.saturating_sub(from))
    }

    fn cells(self) -> Vec<Cell> {
        let bytes = |part: Option<ByteBuf>| part.map(ByteBuf::into_vec).into();
        let (latency_ns, queued_ns, worked_ns) = (self.latency_ns(), self.queued_ns(), self.worked_ns());
        let (outcome, answer) = (self.outcome(), self.answer());
        vec![
            self.capture_id.into(),
            Cell::Word(self.role.name()),
            bytes(self.service),
            bytes(self.client),
            bytes(self.worker),
            bytes(self.forwarded_by),
            Cell::Frames(self.metadata.into_iter().map(ByteBuf::into_vec).collect()),
            Cell::Word(outcome.name()),
            latency_ns.into(),
            queued_ns.into(),
            worked_ns.into(),
            Cell::Number(self.seq),
            self.dispatch.map(|(seq, _)| seq).into(),
            self.response.map(|response| response.seq).into(),
            answer.map(|(seq, _)| seq).into(),
            Cell::Number(self.at_ns),
        ]
    }
}

impl<'a> Row<'a> {
    /// The client's address, at a broker.
    fn address(&self) -> Option<&'a [u8]> {
        let address = if self.comes && self.asks { self.client.or(self.peer) } else { self.client };
        address.filter(|_| self.peer.is_some())
    }

    fn metadata(&self) -> impl Iterator<Item = &'a [u8]> {
        self.parts.clone().map(|at| self.metadata.value(at))
    }

    /// The key shared by a request and its replies.
    fn call(&self) -> u128 {
        let address = self.address();
        fingerprint(|hasher| {
            hasher.write_u8(u8::from(self.peer.is_some()) + 2 * u8::from(address.is_some()));
            for part in [self.capture_id.as_bytes(), address.unwrap_or_default()].into_iter().chain(self.metadata()) {
                hasher.write_usize(part.len());
                hasher.write(part);
            }
        })
    }
}

impl Rows {
    fn at(&self, at: usize, asks: bool, is_chosen: bool) -> Row<'_> {
        let offsets = self.metadata.value_offsets();
        let offset = |at: usize| usize::try_from(offsets[at]).unwrap_or_default();
        Row {
            capture_id: text_at(&self.capture_id, at).unwrap_or_default(),
            metadata: self.metadata.values().as_binary(),
            parts: if self.metadata.is_valid(at) { offset(at)..offset(at + 1) } else { 0..0 },
            seq: self.seq.value(at),
            at_ns: self.received_at_ns.value(at),
            comes: text_at(&self.direction, at) == Some("in"),
            asks,
            is_chosen,
            peer: bytes_at(&self.peer, at),
            service: bytes_at(&self.service, at),
            client: bytes_at(&self.client, at),
        }
    }

    fn of(batch: &RecordBatch) -> Result<Self, ColumnError> {
        Ok(Self {
            capture_id: text(batch, "capture_id")?,
            seq: numbers(batch, "seq")?,
            received_at_ns: numbers(batch, "received_at_ns")?,
            direction: text(batch, "direction")?,
            peer: binary(batch, "peer")?,
            kinds: text(batch, "type")?,
            service: binary(batch, "service")?,
            client: binary(batch, "client")?,
            metadata: lists(batch, "metadata")?,
        })
    }
}

/// The number of a name.
fn key(name: Option<&[u8]>) -> u128 {
    name.map_or(0, |name| fingerprint(|hasher| hasher.write(name)))
}

fn owned(bytes: &[u8]) -> ByteBuf {
    ByteBuf::from(bytes)
}
