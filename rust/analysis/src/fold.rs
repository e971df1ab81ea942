//! What every fold is: rows in, settled things out, what is open as it stands, and its state as bytes.

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

/// A table of things that several rows make up.
///
/// It is given the decoded rows of one protocol in the order of `capture_id`, `seq` and `record`. Rows of different keys never
/// meet, so that those of some keys are a whole.
pub(crate) trait Fold: Clone + Serialize + DeserializeOwned + Send {
    /// What it is called.
    const NAME: &'static str;
    /// The version of its state.
    const VERSION: u16;
    /// The protocol of its rows.
    const PROTOCOL: &'static str;
    /// The columns it reads.
    const NEEDS: &'static [&'static str];
    /// The columns of the table.
    const COLUMNS: Columns;
    /// Those that tell its rows apart; none where a row is given once and never again.
    const KEY: &'static [&'static str];

    /// Takes the next rows in.
    fn take_in(&mut self, batch: &RecordBatch) -> Result<(), ColumnError>;

    /// The next thing that leaves, of those that may; at the end all may.
    fn next(&mut self, is_end: bool) -> Option<Vec<Cell>>;

    /// Nothing more is to come of what is older than this moment, which is not given again.
    fn forget(&mut self, _before_ns: i64) {}

    /// How many things left unsettled, to make way for others, and how much else was forgotten.
    fn let_go(&self) -> u64;
}

/// A fold, whichever it is.
pub trait Folding: Send {
    /// The protocol of its rows.
    fn protocol(&self) -> &'static str;
    /// The columns it reads.
    fn needs(&self) -> &'static [&'static str];
    /// The columns of its table.
    fn fields(&self) -> Fields;
    /// Those that tell its rows apart.
    fn key(&self) -> &'static [&'static str];
    /// Takes the next rows in, and gives the things that are settled, but for those that were given as they are now.
    fn record(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>, ColumnError>;
    /// Gives what is open as it would be given if nothing more came; of that only what it did not give the last time.
    fn standing(&mut self) -> Result<Vec<RecordBatch>, ColumnError>;
    /// Nothing more is to come of what is older than this moment, and was given as it stood.
    fn forget(&mut self, before_ns: i64);
    /// Gives what is left.
    fn finish(&mut self) -> Result<Vec<RecordBatch>, ColumnError>;
    /// How much was let go unsettled.
    fn let_go(&self) -> u64;
    /// What it has kept, as bytes.
    fn state(&self) -> Vec<u8>;
    /// Goes on from such bytes.
    fn restore(&mut self, state: &[u8]) -> Result<(), StateError>;
}

/// A fold, and what it gave of what is open.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept<F> {
    fold: F,
    /// The numbers of the rows, which stand for them.
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
        // What the fold would give at the end is what there is to say now, whatever it is of.
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

/// The number that stands for a row.
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
