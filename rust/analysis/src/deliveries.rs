//! The deliveries of each content, one after the other.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    mem,
    num::NonZeroU32,
};

use arrow_array::RecordBatch;
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use trunkline_columns::ColumnError;

use crate::{
    budget::Budget,
    dead_letters::Known,
    delivered::Delivered,
    divide::{Choice, Key},
    fingerprint::fingerprint,
    fold::Fold,
    ordered::{Id, Ordered},
    remembered::Remembered,
    settlements::{Content, DEAD, News, Settlements},
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
    known: Remembered<Known>,
    /// Their fingerprints, oldest first, in states of versions 4 to 7.
    #[serde(default, skip_serializing)]
    order: VecDeque<u128>,
    /// Whether some were forgotten.
    #[serde(default)]
    has_forgotten: bool,
    /// The fingerprints of contents whose dead letters are to be paired, and the first one that is new.
    #[serde(skip)]
    unpaired: BTreeMap<u128, i64>,
    /// The contents of a stream that may still be settled, by the fingerprint of their capture and number.
    open: HashMap<u128, Open, RandomState>,
    /// Their fingerprints, oldest first, and of some that are not open any more.
    opened: VecDeque<u128>,
    /// Rejected deliveries of a stream that are emitted at the end of this part, if they have changed.
    #[serde(skip)]
    changed: Vec<Id>,
    /// Deliveries of a stream to emit now.
    #[serde(skip)]
    ready: VecDeque<Delivered>,
    evicted: u64,
    /// How many dead letters came when what they are of had left, and redeliveries of what was forgotten.
    left_out: u64,
}

/// A content of a stream that may still be settled.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Open {
    /// The fingerprint of what it has in common with equal ones.
    #[serde(default)]
    key: u128,
    attempts: Option<NonZeroU32>,
    at_ns: i64,
    /// The delivery, if it counts as rejected for now.
    rejected: Option<Id>,
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
        self.pair_dead_letters();
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
        let before: Vec<_> = self.open.iter().filter(|(_, open)| open.at_ns < before_ns).map(|(at, _)| *at).collect();
        for message in before {
            self.close(message);
        }
    }

    fn resize(&mut self, budget: Budget) {
        self.budget = budget;
        self.delivered.resize(budget);
        if !self.order.is_empty() {
            self.known.reorder(mem::take(&mut self.order));
        }
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
        let key = own_key(&content);
        let attempts = self.number(&content, key);
        if content.may_die() {
            self.reject(content, key, attempts);
        } else {
            let id = self.delivered.begin(Delivered::of(content, attempts));
            self.delivered.complete(id);
        }
    }

    /// Adds a content of a stream, which may have been added before.
    fn update(&mut self, content: Content, news: News) {
        let message = fingerprint(|hasher| {
            hasher.write_i64(content.seq);
            hasher.write(content.capture_id.as_bytes());
        });
        let (key, at_ns) = (own_key(&content), content.at_ns);
        let before = self.close(message);
        let attempts = if news.is_new { self.number(&content, key) } else { before.and_then(|open| open.attempts) };
        let mut rejected = before.and_then(|open| open.rejected);
        if news.is_changed {
            rejected = match rejected {
                Some(id) => self.replace(id, key, content).then_some(id),
                None if content.may_die() => Some(self.reject(content, key, attempts)),
                None => {
                    self.ready.push_back(Delivered::of(content, attempts));
                    None
                }
            };
            self.changed.extend(rejected);
        }
        if !news.is_over {
            let known = self.known(key);
            known.open = known.open.saturating_add(1);
            self.open.insert(message, Open { key, attempts, at_ns, rejected });
            self.opened.push_back(message);
            self.forget_open();
        }
    }

    /// Numbers a delivery, and notes it if it is a dead letter.
    fn number(&mut self, content: &Content, own: u128) -> Option<NonZeroU32> {
        let resource = content.resource.as_deref().unwrap_or_default();
        if let Some(of) = resource.strip_suffix(DEAD).filter(|_| content.is_delivered()) {
            self.bury(key(content, of), content.seq);
        }
        let has_forgotten = self.has_forgotten;
        let known = self.known(own);
        let before = known.attempts;
        known.attempts = match before {
            Some(attempts) if content.is_redelivered => Some(attempts.saturating_add(1)),
            None if content.is_redelivered && has_forgotten => None,
            _ => Some(NonZeroU32::MIN),
        };
        let attempts = known.attempts;
        self.left_out = self.left_out.saturating_add(u64::from(attempts.is_none()));
        attempts
    }

    /// What is known of contents that are equal to one.
    fn known(&mut self, key: u128) -> &mut Known {
        if !self.known.contains(key) && self.known.len() >= self.budget.share(REMEMBERED) {
            self.forget_oldest();
        }
        self.known.get_or_default(key)
    }

    /// Keeps a rejected delivery, which may become a dead letter.
    fn reject(&mut self, content: Content, key: u128, attempts: Option<NonZeroU32>) -> Id {
        let id = self.delivered.begin(Delivered::of(content, attempts));
        self.known(key).reject(id);
        self.pair_again(key);
        id
    }

    /// A delivery that counted as rejected is settled anew: whether it still does.
    fn replace(&mut self, id: Id, key: u128, content: Content) -> bool {
        let may_die = content.may_die();
        let Some(delivered) = self.delivered.get(id) else { return false };
        delivered.is_emitted &= delivered.content.settled == content.settled;
        delivered.content = content;
        if !may_die {
            delivered.make_dead(false);
            self.delivered.complete(id);
            if let Some(known) = self.known.get_mut(key) {
                known.take_back(id);
            }
        }
        self.pair_again(key);
        may_die
    }

    /// A content of a stream is no longer among those that may be settled.
    fn close(&mut self, message: u128) -> Option<Open> {
        let open = self.open.remove(&message)?;
        if let Some(known) = self.known.get_mut(open.key) {
            known.open = known.open.saturating_sub(1);
            self.pair_again(open.key);
        }
        Some(open)
    }

    /// A dead letter is sent.
    fn bury(&mut self, key: u128, seq: i64) {
        if let Some(known) = self.known.get_mut(key) {
            known.bury(seq);
            let first = self.unpaired.entry(key).or_insert(seq);
            *first = seq.min(*first);
        }
    }

    /// What dead letters are paired with has changed.
    fn pair_again(&mut self, key: u128) {
        if self.known.get_mut(key).is_some_and(|known| known.has_dead_letters()) {
            self.unpaired.entry(key).or_insert(i64::MAX);
        }
    }

    /// Pairs the dead letters of contents of which something has changed.
    pub(crate) fn pair_dead_letters(&mut self) {
        for (key, first) in mem::take(&mut self.unpaired) {
            let Some(known) = self.known.get_mut(key) else { continue };
            let lost = known.pair(first, &mut self.delivered, &mut self.changed);
            self.left_out = self.left_out.saturating_add(lost);
        }
    }

    /// Forgets the oldest content: it is unknown when it comes again.
    fn forget_oldest(&mut self) {
        self.has_forgotten = true;
        if let Some(known) = self.known.pop() {
            for id in known.end(&mut self.delivered) {
                self.evicted = self.evicted.saturating_add(u64::from(self.delivered.get(id).is_some()));
                self.delivered.complete(id);
            }
        }
    }

    /// Forgets the oldest open contents beyond the limit: which deliveries they are is unknown when they are settled.
    fn forget_open(&mut self) {
        while self.open.len() > self.budget.share(OPEN) {
            let Some(oldest) = self.opened.pop_front() else { return };
            self.evicted = self.evicted.saturating_add(u64::from(self.close(oldest).is_some()));
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

/// A fingerprint of what a content has in common with equal ones.
fn own_key(content: &Content) -> u128 {
    key(content, content.resource.as_deref().unwrap_or_default())
}

/// A fingerprint of what equal contents of one resource have in common.
fn key(content: &Content, resource: &str) -> u128 {
    fingerprint(|hasher| {
        hasher.write_u128(content.alike);
        hasher.write(resource.as_bytes());
    })
}
