//! Data of senders of CDTP; the oldest are dropped if there are too many.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write,
};

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use trunkline_wire::cdtp::MessageType;

use crate::{
    budget::Budget,
    ordered::{Limits, Weigh},
};

/// How many senders are followed at a time, and how many bytes they may take.
const SENDERS: usize = 1 << 17;
const SENDERS_BYTES: usize = 64 << 20;

/// A value for each sender, by its [`key`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Senders<T> {
    #[serde(skip)]
    limits: Limits,
    /// In the order in which they came.
    known: VecDeque<(String, T)>,
    bytes: usize,
    evicted: u64,
    /// The index of each, counted from the first ever. It is rebuilt after a restore.
    #[serde(skip)]
    indices: HashMap<String, u64, RandomState>,
    #[serde(skip)]
    first: u64,
}

impl<T: Default + Weigh> Senders<T> {
    /// Without senders, with the limits of this budget.
    pub(crate) fn within(budget: Budget) -> Self {
        let (limits, indices) = (Limits::of(budget, SENDERS, SENDERS_BYTES), HashMap::default());
        Self { limits, known: VecDeque::new(), bytes: 0, evicted: 0, indices, first: 0 }
    }

    /// Takes on the limits of another budget.
    pub(crate) fn resize(&mut self, budget: Budget) {
        self.limits = Limits::of(budget, SENDERS, SENDERS_BYTES);
    }

    /// Changes the value of a sender, the default for a new one.
    pub(crate) fn change<R>(&mut self, key: &str, change: impl FnOnce(&mut T) -> R) -> R {
        if self.indices.len() < self.known.len() {
            self.indices = (self.first..).zip(&self.known).map(|(index, (key, _))| (key.clone(), index)).collect();
        }
        let found = self.indices.get(key).and_then(|index| usize::try_from(index - self.first).ok());
        let at = found.unwrap_or_else(|| {
            self.indices.insert(key.to_owned(), self.first + self.known.len() as u64);
            self.known.push_back((key.to_owned(), T::default()));
            self.bytes = self.bytes.saturating_add(size(key));
            self.known.len() - 1
        });
        let value = &mut self.known[at].1;
        let before = value.weight();
        let changed = change(value);
        self.bytes = self.bytes.saturating_add(value.weight()).saturating_sub(before);
        changed
    }

    /// Evicts the oldest sender, if there are too many.
    pub(crate) fn evict(&mut self) -> Option<(String, T)> {
        let Limits { count, bytes } = self.limits;
        let is_full = self.known.len() > count || (self.bytes > bytes && self.known.len() > 1);
        let gone = if is_full { self.pop() } else { None };
        self.evicted = self.evicted.saturating_add(u64::from(gone.is_some()));
        gone
    }

    /// Takes out the oldest sender.
    pub(crate) fn pop(&mut self) -> Option<(String, T)> {
        let (key, value) = self.known.pop_front()?;
        self.first += 1;
        self.indices.remove(&key);
        self.bytes = self.bytes.saturating_sub(size(&key).saturating_add(value.weight()));
        Some((key, value))
    }

    /// How many were evicted.
    pub(crate) const fn evicted(&self) -> u64 {
        self.evicted
    }
}

const fn size(key: &str) -> usize {
    // The key is stored twice.
    2 * (key.len() + size_of::<String>()) + 64
}

/// Writes the key of a sender.
pub(crate) fn key(into: &mut String, capture_id: Option<&str>, sender: &str) {
    let capture_id = capture_id.unwrap_or_default();
    into.clear();
    // Without the length, names could be read as parts of others.
    let _ = write!(into, "{}:{capture_id}{sender}", capture_id.len());
}

/// The capture and the name of a key.
pub(crate) fn source(key: &str) -> (&str, &str) {
    let (length, names) = key.split_once(':').unwrap_or_default();
    length.parse().ok().and_then(|length| names.split_at_checked(length)).unwrap_or(("", names))
}

/// The type of a message's row with a number in a run, one for each of its numbers: those of a CDTP2 BOR or EOR number
/// its two records.
pub(crate) fn numbered(kind: Option<&str>, record: i32) -> Option<MessageType> {
    let message_type = kind?.parse().ok()?;
    (message_type == MessageType::Dat || record == 0).then_some(message_type)
}
