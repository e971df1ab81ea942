//! The contents of MTL, each with what settled it: connection by connection.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    sync::Arc,
};

use arrow_array::{Array, ArrayRef, RecordBatch};
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trunkline_columns::{ColumnError, flagged_objects};

use crate::{
    budget::Budget,
    divide::{Choice, Key},
    fingerprint::{Fingerprints, fingerprint},
    fold::Fold,
    ordered::{Id, Ordered, Weigh},
    rows::{Chosen, binary, bytes_at, decimal_at, decimals, flag_at, flags, number_at, numbers, small, text, text_at},
    table::{Cell, Columns, Kind},
};

/// The property of contents that are redelivered.
const REDELIVERED: &str = "property_redelivered";

/// The other properties.
const PROPERTIES: &str = "properties";

/// The suffix of a resource for dead letters.
pub(crate) const DEAD: &str = ".dead";

/// How many stale entries may be kept of a whole table before they are removed.
const STALE_MAX: usize = 1 << 18;

/// With more connections, those that have nothing open may be forgotten.
const PEERS: usize = 1 << 17;

/// How many messages wait until it is known whether a lease presented on their connection is accepted.
const UNKNOWN: usize = 1 << 12;

/// Pairs contents with what settles them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Settlements {
    #[serde(skip)]
    budget: Budget,
    peers: HashMap<Peer, Connection, RandomState>,
    sent: Ordered<Content>,
    /// The number of the next content to emit open.
    next_open: Id,
    /// The open contents that are settled as long as the leases that are not answered count as granted.
    granted: BTreeSet<Id>,
    /// The open contents to emit again, and how they are settled now.
    #[serde(skip)]
    changed: BTreeMap<Id, Option<Settled>>,
    /// How many emitted contents connections may still have open.
    stale: usize,
    /// How many messages settled what had left before, or came in a connection that waited too long for its lease.
    left_out: u64,
}

/// A data connection, as a server identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Peer {
    capture_id: Arc<str>,
    endpoint: Option<Arc<str>>,
    routing_id: Option<Arc<ByteBuf>>,
}

/// What rows of a batch have in common, each made once.
#[derive(Default)]
struct Names<'a> {
    texts: HashMap<&'a str, Arc<str>, RandomState>,
    routing_ids: HashMap<&'a [u8], Arc<ByteBuf>, RandomState>,
}

impl<'a> Names<'a> {
    fn text(&mut self, text: &'a str) -> Arc<str> {
        Arc::clone(self.texts.entry(text).or_insert_with(|| text.into()))
    }

    fn routing_id(&mut self, bytes: &'a [u8]) -> Arc<ByteBuf> {
        Arc::clone(self.routing_ids.entry(bytes).or_insert_with(|| Arc::new(ByteBuf::from(bytes))))
    }
}

/// What is open on a connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Connection {
    to_reader: Flow,
    from_writer: Flow,
    /// A lease that was presented, until it is answered: its sequence, and the messages since. Contents are counted as
    /// they come.
    asked: Option<(u64, Vec<Message>)>,
}

/// The contents of one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Flow {
    /// The highest sequence so far.
    last: u64,
    /// Those that a Confirm or Reject may settle, by their sequence.
    open: BTreeMap<u64, Id>,
    /// The latest of each sequence, which a Response may refuse.
    latest: HashMap<u64, Id, RandomState>,
    /// Those that left before they were settled, and are not among these any more.
    gone: Gone,
}

/// Contents that left before they were settled, as far as one must know to count what settles them.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Gone {
    count: u64,
    /// Their sequences are in this range.
    first: u64,
    last: u64,
}

/// A content, and what settled it.
#[allow(clippy::struct_excessive_bools)] // none depends on another
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) capture_id: Arc<str>,
    pub(crate) endpoint: Option<Arc<str>>,
    pub(crate) peer: Option<Arc<ByteBuf>>,
    pub(crate) is_out: bool,
    pub(crate) resource: Option<Arc<str>>,
    pub(crate) sequence: Option<u64>,
    pub(crate) body_bytes: Option<i64>,
    pub(crate) is_redelivered: bool,
    /// Equal for contents of which one may be delivered in place of the other.
    pub(crate) alike: u128,
    pub(crate) seq: i64,
    pub(crate) at_ns: i64,
    pub(crate) is_chosen: bool,
    pub(crate) settled: Option<Settled>,
    pub(crate) is_evicted: bool,
    /// Whether it was emitted while it was open, and as settled by what.
    is_emitted: bool,
    emitted: Option<Settled>,
}

/// What is new of a content of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct News {
    /// Whether it is new itself.
    pub(crate) is_new: bool,
    /// Whether it is settled in another way than it was.
    pub(crate) is_changed: bool,
    /// Whether no more is expected of it.
    pub(crate) is_over: bool,
}

/// What settled a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settled {
    pub(crate) seq: i64,
    pub(crate) at_ns: i64,
    pub(crate) fate: Fate,
    pub(crate) status: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    Confirmed,
    Rejected,
    Recycled,
    Refused,
}

/// A message of a connection, as far as it matters.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Message {
    Content { id: Id, is_out: bool, sequence: u64 },
    Settlement { is_out: bool, sequence: u64, is_multiple: bool, settled: Settled },
}

impl Weigh for Content {
    fn weight(&self) -> usize {
        let texts = [&self.endpoint, &self.resource].into_iter().flatten().map(|text| text.len()).sum::<usize>();
        size_of::<Self>() + 100 + texts + self.capture_id.len() + self.peer.as_ref().map_or(0, |peer| peer.len())
    }

    fn evict(&mut self) {
        self.is_evicted = true;
    }
}

impl Fold for Settlements {
    const NAME: &'static str = "settlements";
    const PROTOCOL: &'static str = "mtl";
    const NEEDS: &'static [&'static str] = &[
        "capture_id",
        "seq",
        "received_at_ns",
        "endpoint",
        "direction",
        "peer",
        "type",
        "status",
        "sequence",
        "resource",
        "multiple",
        "recycle",
        "body_bytes",
        REDELIVERED,
        PROPERTIES,
    ];
    const COLUMNS: Columns = &[
        ("capture_id", Kind::Text),
        ("endpoint", Kind::Text),
        ("peer", Kind::Bytes),
        ("direction", Kind::Text),
        ("resource", Kind::Text),
        ("sequence", Kind::Decimal),
        ("body_bytes", Kind::Number),
        ("redelivered", Kind::Flag),
        ("alike", Kind::Bytes),
        ("sent_seq", Kind::Number),
        ("sent_at_ns", Kind::Number),
        ("fate", Kind::Text),
        ("status", Kind::Small),
        ("settled_seq", Kind::Number),
        ("settled_at_ns", Kind::Number),
        ("is_evicted", Kind::Flag),
        ("is_new", Kind::Flag),
        ("is_changed", Kind::Flag),
        ("is_over", Kind::Flag),
        ("seq", Kind::Number),
    ];
    const KEY: &'static [&'static str] = &["capture_id", "sent_seq"];
    const RELATED: Option<Key> =
        Some(&[&[Choice::always("capture_id")], &[Choice::always("endpoint")], &[Choice::always("peer")]]);
    const TRACKS_OPEN: bool = true;

    /// With properties as bytes that are equal for equal ones, and whether they say that a content is redelivered.
    fn prepare(batch: &RecordBatch) -> Result<RecordBatch, ColumnError> {
        let Some(properties) = batch.column_by_name(PROPERTIES) else { return Ok(batch.clone()) };
        let (redelivered, others) = flagged_objects(PROPERTIES, properties, "redelivered")?;
        let schema = batch.schema_ref();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let mut columns: Vec<(&str, ArrayRef, bool)> =
            names.zip(batch.columns()).map(|(name, column)| (name, Arc::clone(column), true)).collect();
        columns.retain(|(name, ..)| *name != PROPERTIES);
        columns.push((PROPERTIES, Arc::new(others), true));
        if batch.column_by_name(REDELIVERED).is_none() {
            columns.push((REDELIVERED, Arc::new(redelivered), true));
        }
        Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
    }

    fn ingest(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        let [capture_id, endpoint, direction] =
            [text(batch, "capture_id")?, text(batch, "endpoint")?, text(batch, "direction")?];
        let (kinds, resource, peers) = (text(batch, "type")?, text(batch, "resource")?, binary(batch, "peer")?);
        let (seq, received_at_ns) = (numbers(batch, "seq")?, numbers(batch, "received_at_ns")?);
        let (body_bytes, status) = (numbers(batch, "body_bytes")?, small(batch, "status")?);
        let (multiple, recycle, redelivered) =
            (flags(batch, "multiple")?, flags(batch, "recycle")?, flags(batch, REDELIVERED)?);
        let sequences = decimals(batch, "sequence")?;
        let is_property = |name: &str| name != REDELIVERED && (name.starts_with("property_") || name == PROPERTIES);
        let fingerprints = Fingerprints::of(batch, |name| is_property(name) || ["body_bytes", "body"].contains(&name));
        let chosen = Chosen::of(batch)?;
        let mut names = Names::default();
        for row in 0..batch.num_rows() {
            let Some(kind @ ("lease" | "response" | "content" | "confirm" | "reject")) = text_at(&kinds, row) else {
                continue;
            };
            let peer = Peer {
                capture_id: names.text(text_at(&capture_id, row).unwrap_or_default()),
                endpoint: text_at(&endpoint, row).map(|name| names.text(name)),
                routing_id: bytes_at(&peers, row).map(|peer| names.routing_id(peer)),
            };
            let is_out = text_at(&direction, row) == Some("out");
            let sequence = decimal_at(&sequences, row);
            let is = |flag| flag_at(flag, row);
            let status = status.is_valid(row).then(|| status.value(row));
            if kind == "lease" {
                self.lease(peer, sequence.unwrap_or_default());
                continue;
            }
            if kind == "response" && self.answers(&peer, sequence, status) {
                continue;
            }
            let settled =
                |fate, status| Settled { seq: seq.value(row), at_ns: received_at_ns.value(row), fate, status };
            let is_multiple = is(&multiple) && kind != "response";
            let settlement =
                |settled| Message::Settlement { is_out, sequence: sequence.unwrap_or_default(), is_multiple, settled };
            let message = match kind {
                "content" => {
                    let resource = text_at(&resource, row);
                    let id = self.sent.begin(Content {
                        capture_id: peer.capture_id.clone(),
                        endpoint: peer.endpoint.clone(),
                        peer: peer.routing_id.clone(),
                        is_out,
                        resource: resource.map(|name| names.text(name)),
                        sequence,
                        body_bytes: number_at(&body_bytes, row),
                        is_redelivered: is(&redelivered),
                        alike: alike(fingerprints.at(row)?, is_out, &peer.capture_id, resource.unwrap_or_default()),
                        seq: seq.value(row),
                        at_ns: received_at_ns.value(row),
                        is_chosen: chosen.has(row),
                        settled: None,
                        is_evicted: false,
                        is_emitted: false,
                        emitted: None,
                    });
                    let Some(sequence) = sequence else {
                        self.sent.complete(id); // No message can name it.
                        continue;
                    };
                    Message::Content { id, is_out, sequence }
                }
                "confirm" => settlement(settled(Fate::Confirmed, None)),
                "reject" => settlement(settled(if is(&recycle) { Fate::Recycled } else { Fate::Rejected }, None)),
                _ if status.is_some_and(|status| status >= 400) => settlement(settled(Fate::Refused, status)),
                _ => continue,
            };
            self.take(peer, message);
        }
        Ok(())
    }

    fn emit(&mut self, is_end: bool) -> Option<Vec<Cell>> {
        loop {
            let content = self.next(is_end)?;
            if content.is_chosen {
                return Some(content.cells(true));
            }
        }
    }

    fn end_part(&mut self) {
        let mut changed = self.as_granted();
        let granted = changed.iter().filter(|(_, settled)| settled.is_some()).map(|(id, _)| *id).collect();
        for id in mem::replace(&mut self.granted, granted) {
            changed.entry(id).or_default();
        }
        changed.retain(|id, settled| self.sent.get(*id).is_some_and(|content| content.emitted != *settled));
        self.changed = changed;
    }

    fn emit_open(&mut self) -> Option<Vec<Cell>> {
        let Self { sent, next_open, changed, .. } = self;
        let (id, content) = if let Some((id, content)) = sent.next_incomplete(*next_open) {
            *next_open = id.saturating_add(1);
            (id, content)
        } else {
            let id = *changed.keys().next()?;
            (id, sent.get(id)?)
        };
        let emitted = Content { settled: changed.remove(&id).flatten(), ..content.clone() };
        (content.is_emitted, content.emitted) = (true, emitted.settled);
        Some(emitted.cells(false))
    }

    fn forget(&mut self, before_ns: i64) {
        let over = self.sent.complete_where(|content| content.expire(before_ns));
        self.stale = self.stale.saturating_add(over);
    }

    fn resize(&mut self, budget: Budget) {
        self.budget = budget;
        self.sent.resize(budget);
    }

    fn evicted(&self) -> u64 {
        self.sent.evicted()
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Connection {
    /// Whether it has nothing open.
    fn is_idle(&self) -> bool {
        let flows = [&self.to_reader, &self.from_writer];
        self.asked.is_none() && flows.iter().all(|flow| flow.open.is_empty() && flow.latest.is_empty())
    }

    /// The answer to the last lease presented is known. Gives the number of contents that are settled and are not here.
    fn end_lease(&mut self, is_granted: bool, sent: &mut Ordered<Content>) -> u64 {
        let Some((_, since)) = self.asked.take() else { return 0 };
        if is_granted {
            // What was sent before can no longer be settled.
            for flow in [mem::take(&mut self.to_reader), mem::take(&mut self.from_writer)] {
                flow.open.values().chain(flow.latest.values()).for_each(|id| sent.complete(*id));
            }
        }
        since.iter().map(|message| self.apply(message, sent)).fold(0, u64::saturating_add)
    }

    /// Takes a message; gives the number of contents that it settles and that are not here.
    fn apply(&mut self, message: &Message, sent: &mut Ordered<Content>) -> u64 {
        let mut unknown = 0_u64;
        match *message {
            Message::Content { id, is_out, sequence } => {
                let flow = if is_out { &mut self.to_reader } else { &mut self.from_writer };
                if let Some(before) = flow.latest.insert(sequence, id)
                    && flow.open.get(&sequence) != Some(&before)
                {
                    // A Response would now refer to the new one.
                    sent.complete(before);
                }
                if sequence > flow.last {
                    flow.open.insert(sequence, id);
                    flow.last = sequence;
                }
            }
            Message::Settlement { is_out, sequence, is_multiple, settled } => {
                // A content is settled in the other direction.
                let flow = if is_out { &mut self.from_writer } else { &mut self.to_reader };
                let mut settle = |id: Id| {
                    if let Some(content) = sent.get(id) {
                        content.settled = Some(settled);
                        sent.complete(id);
                    } else {
                        unknown = unknown.saturating_add(1);
                    }
                };
                if settled.fate == Fate::Refused {
                    if let Some(id) = flow.latest.remove(&sequence) {
                        flow.open.retain(|_, open| *open != id);
                        settle(id);
                    }
                } else if is_multiple {
                    // A sequence beyond the last covers what was sent.
                    let up_to = sequence.min(flow.last);
                    let after = up_to.checked_add(1).map(|after| flow.open.split_off(&after)).unwrap_or_default();
                    for (number, id) in mem::replace(&mut flow.open, after) {
                        flow.forget_latest(number, id);
                        settle(id);
                    }
                    unknown = unknown.saturating_add(flow.gone.settle_to(up_to));
                } else if let Some(id) = flow.open.remove(&sequence) {
                    flow.forget_latest(sequence, id);
                    settle(id);
                } else {
                    unknown = unknown.saturating_add(flow.gone.settle(sequence));
                }
            }
        }
        unknown
    }
}

impl Flow {
    /// A content is settled: a Response to its sequence refuses another, if one of that sequence came later.
    fn forget_latest(&mut self, sequence: u64, id: Id) {
        if self.latest.get(&sequence) == Some(&id) {
            self.latest.remove(&sequence);
        }
    }
}

impl Gone {
    fn add(&mut self, sequence: u64) {
        self.first = if self.count == 0 { sequence } else { self.first.min(sequence) };
        self.last = self.last.max(sequence);
        self.count = self.count.saturating_add(1);
    }

    /// How many of them this sequence settles: one, as far as is known.
    const fn settle(&mut self, sequence: u64) -> u64 {
        let is_one = self.count > 0 && self.first <= sequence && sequence <= self.last;
        self.count -= is_one as u64;
        is_one as u64
    }

    /// How many the sequences up to this one settle, as far as is known: all in between were theirs.
    fn settle_to(&mut self, sequence: u64) -> u64 {
        if self.count == 0 || sequence < self.first {
            return 0;
        }
        let covered = (sequence - self.first).saturating_add(1);
        let settled = if sequence >= self.last { self.count } else { self.count.min(covered) };
        self.count -= settled;
        self.first = sequence.saturating_add(1);
        settled
    }
}

impl Content {
    /// Whether it is older than this moment: then it is complete, and not emitted again.
    pub(crate) fn expire(&mut self, before_ns: i64) -> bool {
        let is_older = self.at_ns < before_ns;
        self.is_chosen &= !is_older;
        is_older
    }

    /// Whether it is delivered: sent by a server to a reader, or received by a client.
    pub(crate) const fn is_delivered(&self) -> bool {
        self.is_out == self.peer.is_some()
    }

    /// Whether it may end as a dead letter.
    pub(crate) fn may_die(&self) -> bool {
        self.is_delivered() && self.is_rejected_before(i64::MAX)
    }

    /// Whether it was rejected by a message with a lower number than this one.
    pub(crate) fn is_rejected_before(&self, seq: i64) -> bool {
        self.settled.is_some_and(|settled| matches!(settled.fate, Fate::Rejected | Fate::Recycled) && settled.seq < seq)
    }

    /// A row of the contents as they are settled. Rows are read in the order of what they are of: the content, or what
    /// settled it.
    fn cells(self, is_over: bool) -> Vec<Cell> {
        let settled = self.settled;
        let is_new = !self.is_emitted;
        let is_changed = is_new || self.is_evicted || self.emitted != settled;
        let of = settled.filter(|_| !is_new).map_or(self.seq, |settled| settled.seq);
        vec![
            self.capture_id.into(),
            self.endpoint.into(),
            self.peer.into(),
            Cell::Word(if self.is_out { "out" } else { "in" }),
            self.resource.into(),
            self.sequence.map_or(Cell::Null, Cell::Decimal),
            self.body_bytes.into(),
            Cell::Flag(self.is_redelivered),
            Cell::Fingerprint(self.alike),
            self.seq.into(),
            self.at_ns.into(),
            settled.map_or(Cell::Null, |settled| Cell::Word(settled.fate.name())),
            settled.and_then(|settled| settled.status).map(i64::from).into(),
            settled.map(|settled| settled.seq).into(),
            settled.map(|settled| settled.at_ns).into(),
            Cell::Flag(self.is_evicted),
            Cell::Flag(is_new),
            Cell::Flag(is_changed),
            Cell::Flag(is_over),
            of.into(),
        ]
    }

    /// The contents of such rows, each with what is new of it.
    pub(crate) fn of_rows(batch: &RecordBatch) -> Result<Vec<(Self, News)>, ColumnError> {
        let [capture_id, endpoint, direction] =
            [text(batch, "capture_id")?, text(batch, "endpoint")?, text(batch, "direction")?];
        let [resource, fate] = [text(batch, "resource")?, text(batch, "fate")?];
        let [peers, alike] = [binary(batch, "peer")?, binary(batch, "alike")?];
        let [body_bytes, seq, at_ns] =
            [numbers(batch, "body_bytes")?, numbers(batch, "sent_seq")?, numbers(batch, "sent_at_ns")?];
        let [settled_seq, settled_at_ns] = [numbers(batch, "settled_seq")?, numbers(batch, "settled_at_ns")?];
        let (sequences, status) = (decimals(batch, "sequence")?, small(batch, "status")?);
        let redelivered = flags(batch, "redelivered")?;
        let [is_evicted, is_new, is_changed, is_over] =
            ["is_evicted", "is_new", "is_changed", "is_over"].map(|name| flags(batch, name));
        let [is_evicted, is_new, is_changed, is_over] = [is_evicted?, is_new?, is_changed?, is_over?];
        let mut names = Names::default();
        let content = |row| {
            let settled = text_at(&fate, row).and_then(Fate::named).map(|fate| Settled {
                seq: settled_seq.value(row),
                at_ns: settled_at_ns.value(row),
                fate,
                status: status.is_valid(row).then(|| status.value(row)),
            });
            let content = Self {
                capture_id: names.text(text_at(&capture_id, row).unwrap_or_default()),
                endpoint: text_at(&endpoint, row).map(|name| names.text(name)),
                peer: bytes_at(&peers, row).map(|peer| names.routing_id(peer)),
                is_out: text_at(&direction, row) == Some("out"),
                resource: text_at(&resource, row).map(|name| names.text(name)),
                sequence: decimal_at(&sequences, row),
                body_bytes: number_at(&body_bytes, row),
                is_redelivered: flag_at(&redelivered, row),
                alike: bytes_at(&alike, row).and_then(|bytes| bytes.try_into().ok()).map_or(0, u128::from_be_bytes),
                seq: seq.value(row),
                at_ns: at_ns.value(row),
                is_chosen: true,
                settled,
                is_evicted: flag_at(&is_evicted, row),
                is_emitted: false,
                emitted: None,
            };
            let news = News {
                is_new: flag_at(&is_new, row),
                is_changed: flag_at(&is_changed, row),
                is_over: flag_at(&is_over, row),
            };
            (content, news)
        };
        Ok((0..batch.num_rows()).map(content).collect())
    }
}

/// A fingerprint of what contents have in common of which one may be delivered in place of the other: their values, their
/// direction, their capture, and their resource with those of its dead letters.
fn alike(values: u128, is_out: bool, capture_id: &str, resource: &str) -> u128 {
    let mut living = resource;
    while let Some(of) = living.strip_suffix(DEAD) {
        living = of;
    }
    fingerprint(|hasher| {
        hasher.write_u128(values);
        hasher.write_u8(u8::from(is_out));
        hasher.write_usize(capture_id.len());
        hasher.write(capture_id.as_bytes());
        hasher.write(living.as_bytes());
    })
}

impl Fate {
    const ALL: [Self; 4] = [Self::Confirmed, Self::Rejected, Self::Recycled, Self::Refused];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Rejected => "rejected",
            Self::Recycled => "recycled",
            Self::Refused => "refused",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fate| fate.name() == name)
    }
}

impl Settlements {
    pub(crate) fn within(budget: Budget) -> Self {
        Self { budget, sent: Ordered::within(budget).in_any_order(), ..Self::default() }
    }

    /// The same, emitted in order within any budget.
    pub(crate) fn in_order(self) -> Self {
        Self { sent: self.sent.in_order(), ..self }
    }

    /// The next content of which no more is expected, selected or not; at the end any.
    pub(crate) fn next(&mut self, is_end: bool) -> Option<Content> {
        if is_end {
            self.settle_leases();
        }
        let evicted = self.sent.evicted();
        let content = if is_end { self.sent.drain() } else { self.sent.emit() };
        let gone = usize::try_from(self.sent.evicted().saturating_sub(evicted)).unwrap_or(usize::MAX);
        self.stale = self.stale.saturating_add(gone);
        if self.stale > self.budget.share(STALE_MAX) {
            self.stale = 0;
            self.clean();
        }
        content
    }

    /// The open contents of which nothing more would be expected if the leases that are not answered were granted.
    fn as_granted(&self) -> BTreeMap<Id, Option<Settled>> {
        if self.peers.values().all(|connection| connection.asked.is_none()) {
            return BTreeMap::new();
        }
        let mut granted = self.clone();
        granted.settle_leases();
        granted.sent.complete_items().map(|(id, content)| (id, content.settled)).collect()
    }

    /// Removes open entries of connections whose contents are gone, and idle connections if there are many.
    fn clean(&mut self) {
        let Self { budget, peers, sent, .. } = self;
        for connection in peers.values_mut() {
            for flow in [&mut connection.to_reader, &mut connection.from_writer] {
                let Flow { open, gone, .. } = flow;
                open.retain(|sequence, id| {
                    let is_here = sent.get(*id).is_some();
                    if !is_here {
                        gone.add(*sequence);
                    }
                    is_here
                });
                flow.latest.retain(|_, id| sent.get(*id).is_some());
            }
        }
        if peers.len() > budget.share(PEERS) {
            peers.retain(|_, connection| !connection.is_idle());
        }
    }

    /// A lease is presented: a connection begins, unless it is refused.
    fn lease(&mut self, peer: Peer, sequence: u64) {
        self.end_lease(&peer, true);
        self.peers.entry(peer).or_default().asked = Some((sequence, Vec::new()));
    }

    /// Whether a Response answers the last lease presented.
    fn answers(&mut self, peer: &Peer, sequence: Option<u64>, status: Option<i32>) -> bool {
        let asked = self.peers.get(peer).and_then(|connection| connection.asked.as_ref());
        let is_answer = asked.is_some_and(|(asked, _)| sequence == Some(*asked));
        if is_answer {
            self.end_lease(peer, status == Some(200));
        }
        is_answer
    }

    /// The answer to the last lease presented is known: a connection that presents a second lease keeps the first
    /// (MTL-34).
    fn end_lease(&mut self, peer: &Peer, is_granted: bool) {
        if let Some(connection) = self.peers.get_mut(peer) {
            let unknown = connection.end_lease(is_granted, &mut self.sent);
            self.left_out = self.left_out.saturating_add(unknown);
        }
    }

    /// Those that are not answered count as granted.
    fn settle_leases(&mut self) {
        let asked = |(peer, connection): (&Peer, &Connection)| connection.asked.is_some().then(|| peer.clone());
        let peers: Vec<_> = self.peers.iter().filter_map(asked).collect();
        for peer in peers {
            self.end_lease(&peer, true);
        }
    }

    fn take(&mut self, peer: Peer, message: Message) {
        let Self { peers, sent, left_out, .. } = self;
        let connection = peers.entry(peer).or_default();
        let Some((_, since)) = &mut connection.asked else {
            let unknown = connection.apply(&message, sent);
            *left_out = left_out.saturating_add(unknown);
            return;
        };
        since.push(message);
        if since.len() >= UNKNOWN {
            let unknown = connection.end_lease(true, sent);
            *left_out = left_out.saturating_add(unknown).saturating_add(1);
        }
    }
}
