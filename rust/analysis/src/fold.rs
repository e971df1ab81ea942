//! The interface of folds: rows in, complete rows out, open rows as they stand, and their state as bytes.

use std::{collections::HashSet, hash::Hash, mem, num::NonZeroU32, ops::RangeInclusive};

use arrow_array::RecordBatch;
use arrow_schema::Fields;
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use trunkline_columns::ColumnError;

use crate::{
    bodies::hashed,
    budget::Budget,
    divide::{Key, divide},
    fingerprint::fingerprint,
    state::{StateError, load, save},
    summaries::key,
    table::{Cell, Columns, Table, fields},
};

/// A table whose rows are each made of several rows of messages.
///
/// It is given the decoded rows of one protocol in the order of `capture_id`, `seq` and `record`. Rows of different
/// keys never meet, so a subset of the keys can be folded alone.
pub(crate) trait Fold: Clone + Serialize + DeserializeOwned + Send {
    const NAME: &'static str;
    /// The protocol of its rows.
    const PROTOCOL: &'static str;
    /// The columns it reads.
    const NEEDS: &'static [&'static str];
    /// The columns of the table.
    const COLUMNS: Columns;
    /// Those that identify its rows; none if a row is given only once.
    const KEY: &'static [&'static str];
    /// What related rows have in common, if it is more than the protocol says.
    const RELATED: Option<Key> = None;
    /// The folds that make its table one after the other, each of the rows of the one before.
    const STEPS: &'static [&'static str] = &[Self::NAME];
    /// Whether it knows which open rows were emitted.
    const TRACKS_OPEN: bool = false;

    /// The rows with less to pass on, before they are divided.
    fn prepare(batch: &RecordBatch) -> Result<RecordBatch, ColumnError> {
        Ok(batch.clone())
    }

    /// Adds the next rows of messages.
    fn ingest(&mut self, batch: &RecordBatch) -> Result<(), ColumnError>;

    /// The next complete row; at the end any row.
    fn emit(&mut self, is_end: bool) -> Option<Vec<Cell>>;

    /// A part of a stream ends: open rows are emitted.
    fn end_part(&mut self) {}

    /// The next open row that was not emitted as it is, of a fold that knows.
    fn emit_open(&mut self) -> Option<Vec<Cell>> {
        None
    }

    /// Completes rows that are older than this moment, without emitting them again.
    fn forget(&mut self, _before_ns: i64) {}

    /// It is this moment, and what has not ended may go on.
    fn at(&mut self, _now_ns: i64) {}

    /// Takes on another budget.
    fn resize(&mut self, budget: Budget);

    /// How many rows, or senders, were let go before they were complete, to keep within the budget.
    fn evicted(&self) -> u64;

    /// How many messages are in no row, as they came for what had been let go, or there was no room for them.
    fn left_out(&self) -> u64 {
        0
    }
}

/// Any fold.
pub trait Folding: Send {
    /// The protocol of its rows.
    fn protocol(&self) -> &'static str;
    /// The columns it reads.
    fn needs(&self) -> &'static [&'static str];
    /// The columns of its table.
    fn fields(&self) -> Fields;
    /// Those that identify its rows.
    fn key(&self) -> &'static [&'static str];
    /// Divides rows into so many parts, as [`divide`] does, with less to pass on.
    fn divide(&self, batch: &RecordBatch, parts: u32) -> Result<Vec<(u64, RecordBatch)>, ColumnError>;
    /// The folds that make its table one after the other.
    fn steps(&self) -> &'static [&'static str];
    /// Adds the next rows of messages, and emits complete rows, except those already emitted as they are now.
    fn record(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>, ColumnError>;
    /// Emits open rows as the end would, if they have changed since the last call.
    fn emit_open(&mut self) -> Result<Vec<RecordBatch>, ColumnError>;
    /// Completes rows that are older than this moment, and were emitted as they stood.
    fn forget(&mut self, before_ns: i64);
    /// It is this moment, and what has not ended may go on. Without a moment nothing may.
    fn at(&mut self, now_ns: i64);
    /// Emits the rest.
    fn finish(&mut self) -> Result<Vec<RecordBatch>, ColumnError>;
    /// How many rows, or senders, were let go before they were complete, to keep within the budget.
    fn evicted(&self) -> u64;
    /// How many messages are in no row, as they came for what had been let go, or there was no room for them.
    fn left_out(&self) -> u64;
    /// Its state, as bytes.
    fn state(&self) -> Vec<u8>;
    /// Restores such a state.
    fn restore(&mut self, state: &[u8]) -> Result<(), StateError>;
}

/// The versions of states that are read: the last one is written.
const VERSIONS: RangeInclusive<u16> = 4..=8;

/// A fold, and the open rows that it has emitted.
#[derive(Serialize, Deserialize)]
pub(crate) struct Emitter<F> {
    fold: F,
    /// Their fingerprints.
    open: HashSet<u128, RandomState>,
    /// How many buckets the stream has: with another number, a bucket has other messages.
    #[serde(default = "buckets_4")]
    buckets: Option<NonZeroU32>,
    /// Whether they are numbered by the partitions of the stream: else from zero, as before version 6.
    #[serde(default)]
    is_spread: bool,
    #[serde(skip)]
    budget: Budget,
}

/// How many the streams of version 4 had.
const fn buckets_4() -> Option<NonZeroU32> {
    NonZeroU32::new(16)
}

impl<F: Fold> Emitter<F> {
    /// Of a whole table, or of one of the buckets of a stream: their number, and whether that is by its partitions.
    pub(crate) fn of(fold: F, (buckets, is_spread): (Option<NonZeroU32>, bool), budget: Budget) -> Self {
        Self { fold, open: HashSet::default(), buckets, is_spread, budget }
    }

    /// Emits rows, unless they were emitted as they are.
    fn emit(&mut self, is_end: bool) -> Result<Vec<RecordBatch>, ColumnError> {
        let mut emitted = Emitted::new(F::COLUMNS);
        while let Some(row) = self.fold.emit(is_end) {
            if self.open.is_empty() || !self.open.contains(&fingerprint_of(&row)) {
                emitted.push(row)?;
            }
        }
        emitted.finish()
    }
}

impl<F: Fold> Folding for Emitter<F> {
    fn protocol(&self) -> &'static str {
        F::PROTOCOL
    }

    fn needs(&self) -> &'static [&'static str] {
        F::NEEDS
    }

    fn fields(&self) -> Fields {
        fields(F::COLUMNS)
    }

    fn key(&self) -> &'static [&'static str] {
        F::KEY
    }

    fn divide(&self, batch: &RecordBatch, parts: u32) -> Result<Vec<(u64, RecordBatch)>, ColumnError> {
        divide(F::RELATED.or_else(|| key(F::PROTOCOL)).unwrap_or_default(), &hashed(F::prepare(batch)?)?, parts)
    }

    fn steps(&self) -> &'static [&'static str] {
        F::STEPS
    }

    fn record(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>, ColumnError> {
        self.fold.ingest(batch)?;
        self.emit(false)
    }

    fn emit_open(&mut self) -> Result<Vec<RecordBatch>, ColumnError> {
        let mut emitted = Emitted::new(F::COLUMNS);
        if F::TRACKS_OPEN {
            self.fold.end_part();
            while let Some(row) = self.fold.emit_open() {
                emitted.push(row)?;
            }
            return emitted.finish();
        }
        let mut open = HashSet::default();
        let mut ended = self.fold.clone();
        while let Some(row) = ended.emit(true) {
            let fingerprint = fingerprint_of(&row);
            open.insert(fingerprint);
            if !self.open.contains(&fingerprint) {
                emitted.push(row)?;
            }
        }
        self.open = open;
        emitted.finish()
    }

    fn forget(&mut self, before_ns: i64) {
        self.fold.forget(before_ns);
    }

    fn at(&mut self, now_ns: i64) {
        self.fold.at(now_ns);
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>, ColumnError> {
        self.emit(true)
    }

    fn evicted(&self) -> u64 {
        self.fold.evicted()
    }

    fn left_out(&self) -> u64 {
        self.fold.left_out()
    }

    fn state(&self) -> Vec<u8> {
        save(F::NAME, *VERSIONS.end(), self)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), StateError> {
        let found: Self = load(F::NAME, VERSIONS, state)?;
        if (found.buckets, found.is_spread) != (self.buckets, self.is_spread) {
            return Err(StateError::Buckets { number: found.buckets, is_spread: found.is_spread });
        }
        *self = Self { budget: self.budget, ..found };
        self.fold.resize(self.budget);
        Ok(())
    }
}

/// The fingerprint of a row.
fn fingerprint_of(row: &[Cell]) -> u128 {
    fingerprint(|mut hasher| row.hash(&mut hasher))
}

/// Emitted rows, in batches of bounded size.
struct Emitted {
    columns: Columns,
    table: Table,
    batches: Vec<RecordBatch>,
}

impl Emitted {
    fn new(columns: Columns) -> Self {
        Self { columns, table: Table::new(columns), batches: Vec::new() }
    }

    fn push(&mut self, row: Vec<Cell>) -> Result<(), ColumnError> {
        if self.table.is_full() {
            self.batches.push(mem::replace(&mut self.table, Table::new(self.columns)).finish()?);
        }
        self.table.push(row)
    }

    fn finish(mut self) -> Result<Vec<RecordBatch>, ColumnError> {
        if !self.table.is_empty() {
            self.batches.push(self.table.finish()?);
        }
        Ok(self.batches)
    }
}
