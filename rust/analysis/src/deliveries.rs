//! The deliveries of each content, one after the other, and those that ended as dead letters.

use std::collections::{HashMap, HashSet, VecDeque};

use arrow_array::RecordBatch;
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trunkline_columns::ColumnError;

use crate::{
    budget::Budget,
    divide::{Choice, Key},
    fingerprint::fingerprint,
    fold::Fold,
    ordered::{Id, Ordered, Weigh},
    settlements::{Content, DEAD, Fate, News, Settlements},
    table::{Cell, Columns, Kind},
};

/// How many different contents of a whole table are remembered, until they come again.
const REMEMBERED: usize = 1 << 20;

/// How many open contents of a whole table are remembered, until they are settled: about as many bytes each as this.
const OPEN: usize = 1 << 21;

/// Distinguishes the deliveries of equal contents. Of a whole table each content is added once it is settled; of a stream it
/// is when it comes, and again when it is settled.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Deliveries {
    #[serde(skip)]
    budget: Budget,
    delivered: Ordered<Delivered>,
    known: HashMap<u128, Known, RandomState>,
    /// Their fingerprints, oldest first.
    order: VecDeque<u128>,
    /// The contents of a stream that may still be settled, by the fingerprint of their capture and number.
    open: HashMap<u128, Open, RandomState>,
    /// Their fingerprints, oldest first, and of some that are not open any more.
    opened: VecDeque<u128>,
    /// Rejected deliveries of a stream that are emitted at the end of this part.
    #[serde(skip)]
    changed: Vec<Id>,
    /// Deliveries of a stream to emit now.
    #[serde(skip)]
    ready: VecDeque<Delivered>,
    evicted: u64,
    /// How many dead letters came when what they are of had left.
    left_out: u64,
}

/// What is known of equal contents, of one resource and direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    /// The number of the last delivery.
    attempts: i64,
    /// Rejected deliveries, one of which may become a dead letter.
    rejected: Vec<Id>,
}

/// A content of a stream that may still be settled.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Open {
    attempts: Option<i64>,
    at_ns: i64,
    /// The delivery, if it counts as rejected for now.
    rejected: Option<Id>,
}

/// One delivery of a content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delivered {
    pub(crate) content: Content,
    /// Which one it is; None if what had to be known for that had made way.
    attempts: Option<i64>,
    is_dead: bool,
    /// Whether it was emitted as it is.
    is_emitted: bool,
}

impl Weigh for Delivered {
    fn weight(&self) -> usize {
        self.content.weight() + 16
    }
}

impl Fold for Deliveries {
    const NAME: &'static str = "deliveries";
    const PROTOCOL: &'static str = Settlements::PROTOCOL;
    const NEEDS: &'static [&'static str] = &[];
    const COLUMNS: Columns = &[
        ("capture_id", Kind::Text),
        ("endpoint", Kind::Text),
        ("peer", Kind::Bytes),
        ("direction", Kind::Text),
        ("resource", Kind::Text),
        ("sequence", Kind::Decimal),
        ("body_bytes", Kind::Number),
        ("redelivered", Kind::Flag),
        ("attempts", Kind::Small),
        ("fate", Kind::Text),
        ("status", Kind::Small),
        ("latency_ns", Kind::Number),
        ("seq", Kind::Number),
        ("settled_seq", Kind::Number),
        ("sent_at_ns", Kind::Number),
        ("settled_at_ns", Kind::Number),
    ];
    const KEY: &'static [&'static str] = &["capture_id", "seq"];
    const RELATED: Option<Key> = Some(&[&[Choice::always("alike")]]);
    const TRACKS_OPEN: bool = true;

    /// Adds rows of [`Settlements`].
    fn ingest(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        for (content, news) in Content::of_rows(batch)? {
            if self.budget.is_streamed() {
                self.update(content, news);
            } else {
                self.add(content);
            }
        }
        Ok(())
    }

    fn emit(&mut self, is_end: bool) -> Option<Vec<Cell>> {
        self.next(is_end).map(Delivered::cells)
    }

    fn emit_open(&mut self) -> Option<Vec<Cell>> {
        while let Some(id) = self.changed.pop() {
            if let Some(delivered) = self.delivered.get(id).filter(|delivered| !delivered.is_emitted) {
                delivered.is_emitted = true;
                return Some(delivered.clone().cells());
            }
        }
        None
    }

    /// Ends the wait for dead letters of deliveries that are older than this moment, which were emitted.
    fn forget(&mut self, before_ns: i64) {
        self.delivered.complete_where(|delivered| delivered.content.expire(before_ns));
        self.open.retain(|_, open| open.at_ns >= before_ns);
    }

    fn resize(&mut self, budget: Budget) {
        self.budget = budget;
        self.delivered.resize(budget);
    }

    fn evicted(&self) -> u64 {
        self.evicted.saturating_add(self.delivered.evicted())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Deliveries {
    pub(crate) fn within(budget: Budget) -> Self {
        Self { budget, delivered: Ordered::within(budget), ..Self::default() }
    }

    /// Adds the next content, with what settled it.
    pub(crate) fn add(&mut self, content: Content) {
        let attempts = self.number(&content);
        if content.may_die() {
            self.reject(content, Some(attempts));
        } else {
            let id = self.delivered.begin(Delivered::of(content, Some(attempts)));
            self.delivered.complete(id);
        }
    }

    /// Adds a content of a stream, which may have been added before.
    fn update(&mut self, content: Content, news: News) {
        let message = fingerprint(|hasher| {
            hasher.write_i64(content.seq);
            hasher.write(content.capture_id.as_bytes());
        });
        let (at_ns, before) = (content.at_ns, self.open.remove(&message));
        let attempts = if news.is_new { Some(self.number(&content)) } else { before.and_then(|open| open.attempts) };
        let mut rejected = before.and_then(|open| open.rejected);
        if news.is_changed {
            rejected = match rejected {
                Some(id) => self.replace(id, content).then_some(id),
                None if content.may_die() => Some(self.reject(content, attempts)),
                None => {
                    self.ready.push_back(Delivered::of(content, attempts));
                    None
                }
            };
            self.changed.extend(rejected);
        }
        if !news.is_over {
            self.open.insert(message, Open { attempts, at_ns, rejected });
            self.opened.push_back(message);
            self.forget_open();
        }
    }

    /// Numbers a delivery, and ends another if this is its dead letter.
    fn number(&mut self, content: &Content) -> i64 {
        let resource = content.resource.as_deref().unwrap_or_default();
        if let Some(of) = resource.strip_suffix(DEAD).filter(|_| content.is_delivered()) {
            self.bury(key(content, of), content.seq);
        }
        let known = self.known(key(content, resource));
        known.attempts = if content.is_redelivered { known.attempts.saturating_add(1) } else { 1 };
        known.attempts
    }

    /// What is known of contents that are equal to one.
    fn known(&mut self, key: u128) -> &mut Known {
        if !self.known.contains_key(&key) {
            self.order.push_back(key);
            if self.order.len() > self.budget.share(REMEMBERED) {
                self.forget_oldest();
            }
        }
        self.known.entry(key).or_default()
    }

    /// Keeps a rejected delivery, which may become a dead letter.
    fn reject(&mut self, content: Content, attempts: Option<i64>) -> Id {
        let key = key(&content, content.resource.as_deref().unwrap_or_default());
        let id = self.delivered.begin(Delivered::of(content, attempts));
        self.known(key).rejected.push(id);
        id
    }

    /// A delivery that counted as rejected is settled anew, unless it has ended as a dead letter.
    fn replace(&mut self, id: Id, content: Content) -> bool {
        let may_die = content.may_die();
        let Some(delivered) = self.delivered.get(id) else { return false };
        delivered.is_emitted &= delivered.content.settled == content.settled;
        delivered.content = content;
        if !may_die {
            self.delivered.complete(id);
        }
        may_die
    }

    /// A dead letter is sent: pairs it with the latest delivery that was rejected before, and has none.
    fn bury(&mut self, key: u128, seq: i64) {
        let Self { delivered, known, left_out, .. } = self;
        let Some(known) = known.get_mut(&key) else { return };
        let rejected = known.rejected.len();
        known.rejected.retain(|id| delivered.get(*id).is_some());
        let gone = rejected > known.rejected.len();
        let mut latest = None;
        for (at, id) in known.rejected.iter().enumerate() {
            if let Some(found) = delivered.get(*id)
                && found.content.is_rejected_before(seq)
            {
                latest = latest.max(Some((found.content.seq, at)));
            }
        }
        if let Some((_, at)) = latest {
            let id = known.rejected.remove(at);
            if let Some(found) = delivered.get(id) {
                (found.is_dead, found.is_emitted) = (true, false);
            }
            delivered.complete(id);
        } else if gone {
            *left_out = left_out.saturating_add(1);
        }
    }

    /// Forgets the oldest content: it is unknown when it comes again.
    fn forget_oldest(&mut self) {
        if let Some(known) = self.order.pop_front().and_then(|oldest| self.known.remove(&oldest)) {
            for id in known.rejected {
                self.evicted = self.evicted.saturating_add(u64::from(self.delivered.get(id).is_some()));
                self.delivered.complete(id);
            }
        }
    }

    /// Forgets the oldest open contents beyond the limit: which deliveries they are is unknown when they are settled.
    fn forget_open(&mut self) {
        while self.open.len() > self.budget.share(OPEN) {
            let Some(oldest) = self.opened.pop_front() else { return };
            self.evicted = self.evicted.saturating_add(u64::from(self.open.remove(&oldest).is_some()));
        }
        if self.opened.len() > self.open.len().saturating_mul(2).max(1024) {
            // One that is open again comes twice: it stays as old as it was.
            let mut seen = HashSet::<u128, RandomState>::default();
            self.opened.retain(|message| self.open.contains_key(message) && seen.insert(*message));
        }
    }

    /// The next delivery to emit.
    pub(crate) fn next(&mut self, is_end: bool) -> Option<Delivered> {
        if let Some(delivered) = self.ready.pop_front() {
            return Some(delivered);
        }
        loop {
            let delivered = if is_end { self.delivered.drain() } else { self.delivered.emit() }?;
            if !delivered.is_emitted {
                return Some(delivered);
            }
        }
    }
}

/// A fingerprint of what equal contents of one resource have in common.
fn key(content: &Content, resource: &str) -> u128 {
    fingerprint(|hasher| {
        hasher.write_u128(content.alike);
        hasher.write(resource.as_bytes());
    })
}

impl Delivered {
    const fn of(content: Content, attempts: Option<i64>) -> Self {
        Self { content, attempts, is_dead: false, is_emitted: false }
    }

    /// Its fate; None if it is open, or its dead letter is another content.
    pub(crate) fn fate(&self) -> Option<Fate> {
        self.content.settled.map(|settled| settled.fate).filter(|_| !self.is_dead)
    }

    /// Whether it ended as a dead letter.
    pub(crate) const fn is_dead(&self) -> bool {
        self.is_dead
    }

    pub(crate) fn latency_ns(&self) -> Option<i64> {
        self.content.settled.map(|settled| settled.at_ns.saturating_sub(self.content.at_ns))
    }

    pub(crate) fn cells(self) -> Vec<Cell> {
        let (latency, fate) = (self.latency_ns(), self.fate());
        let Self { content, attempts, is_dead, .. } = self;
        let settled = content.settled;
        let fate = match fate {
            _ if is_dead => "dead_lettered",
            None if content.is_evicted => "evicted",
            None => "open",
            Some(fate) => fate.name(),
        };
        vec![
            Cell::Text(content.capture_id),
            content.endpoint.into(),
            content.peer.map(ByteBuf::into_vec).into(),
            Cell::Word(if content.is_out { "out" } else { "in" }),
            content.resource.into(),
            content.sequence.map_or(Cell::Null, Cell::Decimal),
            content.body_bytes.into(),
            Cell::Flag(content.is_redelivered),
            attempts.into(),
            Cell::Word(fate),
            settled.and_then(|settled| settled.status).map(i64::from).into(),
            latency.into(),
            content.seq.into(),
            settled.map(|settled| settled.seq).into(),
            content.at_ns.into(),
            settled.map(|settled| settled.at_ns).into(),
        ]
    }
}
