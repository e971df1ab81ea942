//! The interface of folds: rows in, settled things out, open things as they stand, and their state as bytes.

use std::{collections::HashSet, hash::Hash, mem};

use arrow_array::RecordBatch;
use arrow_schema::Fields;
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use trunkline_columns::ColumnError;

use crate::{
    alike::number,
    state::{StateError, load, save},
    table::{Cell, Columns, Table, fields},
};

/// A table of things that are each made of several rows.
///
/// It is given the decoded rows of one protocol in the order of `capture_id`, `seq` and `record`. Rows of different
/// keys never meet, so a subset of the keys can be folded alone.
pub(crate) trait Fold: Clone + Serialize + DeserializeOwned + Send {
    /// Its name.
    const NAME: &'static str;
    /// The version of its state.
    const VERSION: u16;
    /// The protocol of its rows.
    const PROTOCOL: &'static str;
    /// The columns it reads.
    const NEEDS: &'static [&'static str];
    /// The columns of the table.
    const COLUMNS: Columns;
    /// Those that identify its rows; none if a row is given only once.
    const KEY: &'static [&'static str];

    /// Takes in the next rows.
    fn take_in(&mut self, batch: &RecordBatch) -> Result<(), ColumnError>;

    /// The next thing that leaves, of those that may; at the end all may.
    fn next(&mut self, is_end: bool) -> Option<Vec<Cell>>;

    /// Ends the wait for what is older than this moment, which is not given again.
    fn forget(&mut self, _before_ns: i64) {}

    /// How many things left unsettled, to make room for others, and how much else was forgotten.
    fn let_go(&self) -> u64;
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
    /// Takes in the next rows, and gives the things that are settled, except those already given as they are now.
    fn record(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>, ColumnError>;
    /// Gives the open things as they would be given at the end, if they have changed since the last call.
    fn standing(&mut self) -> Result<Vec<RecordBatch>, ColumnError>;
    /// Ends the wait for what is older than this moment, and was given as it stood.
    fn forget(&mut self, before_ns: i64);
    /// Gives the rest.
    fn finish(&mut self) -> Result<Vec<RecordBatch>, ColumnError>;
    /// How many things were dropped unsettled.
    fn let_go(&self) -> u64;
    /// Its state, as bytes.
    fn state(&self) -> Vec<u8>;
    /// Restores such a state.
    fn restore(&mut self, state: &[u8]) -> Result<(), StateError>;
}

/// A fold, and the open things that it gave.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept<F> {
    fold: F,
    /// The numbers of the rows, in place of the rows.
    given: HashSet<u128, RandomState>,
}

impl<F: Fold> Kept<F> {
    pub(crate) fn of(fold: F) -> Self {
        Self { fold, given: HashSet::default() }
    }

    /// What leaves, unless it was given as it is.
    fn leave(&mut self, is_end: bool) -> Result<Vec<RecordBatch>, ColumnError> {
        let mut leaving = Leaving::new(F::COLUMNS);
        while let Some(thing) = self.fold.next(is_end) {
            if self.given.is_empty() || !self.given.contains(&number_of(&thing)) {
                leaving.push(thing)?;
            }
        }
        leaving.finish()
    }
}

impl<F: Fold> Folding for Kept<F> {
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

    fn record(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>, ColumnError> {
        self.fold.take_in(batch)?;
        self.leave(false)
    }

    fn standing(&mut self) -> Result<Vec<RecordBatch>, ColumnError> {
        let mut leaving = Leaving::new(F::COLUMNS);
        let mut given = HashSet::default();
        // Open things are given as the fold would give them at the end.
        let mut ended = self.fold.clone();
        while let Some(thing) = ended.next(true) {
            let number = number_of(&thing);
            given.insert(number);
            if !self.given.contains(&number) {
                leaving.push(thing)?;
            }
        }
        self.given = given;
        leaving.finish()
    }

    fn forget(&mut self, before_ns: i64) {
        self.fold.forget(before_ns);
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>, ColumnError> {
        self.leave(true)
    }

    fn let_go(&self) -> u64 {
        self.fold.let_go()
    }

    fn state(&self) -> Vec<u8> {
        save(F::NAME, F::VERSION, self)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), StateError> {
        *self = load(F::NAME, F::VERSION, state)?;
        Ok(())
    }
}

/// The number of a row.
fn number_of(thing: &[Cell]) -> u128 {
    number(|mut hasher| thing.hash(&mut hasher))
}

/// What leaves a fold, in batches of bounded size.
struct Leaving {
    columns: Columns,
    table: Table,
    batches: Vec<RecordBatch>,
}

impl Leaving {
    fn new(columns: Columns) -> Self {
        Self { columns, table: Table::new(columns), batches: Vec::new() }
    }

    fn push(&mut self, thing: Vec<Cell>) -> Result<(), ColumnError> {
        if self.table.is_full() {
            self.batches.push(mem::replace(&mut self.table, Table::new(self.columns)).finish()?);
        }
        self.table.push(thing)
    }

    fn finish(mut self) -> Result<Vec<RecordBatch>, ColumnError> {
        if !self.table.is_empty() {
            self.batches.push(self.table.finish()?);
        }
        Ok(self.batches)
    }
}
