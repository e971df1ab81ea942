//! What every fold is: rows in, settled things out, and its state as bytes.

use std::mem;

use arrow_array::RecordBatch;
use arrow_schema::Fields;
use serde::{Serialize, de::DeserializeOwned};
use trunkline_columns::ColumnError;

use crate::{
    state::{StateError, load, save},
    table::{Cell, Columns, Table, fields},
};

/// A table of things that several rows make up.
///
/// It is given the decoded rows of one protocol in the order of `capture_id`, `seq` and `record`. Rows of different keys never
/// meet, so that those of some keys are a whole.
pub(crate) trait Fold: Default + Serialize + DeserializeOwned + Send {
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

    /// Takes the next rows in.
    fn take_in(&mut self, batch: &RecordBatch) -> Result<(), ColumnError>;

    /// The next thing that leaves, of those that may; at the end all may.
    fn next(&mut self, is_end: bool) -> Option<Vec<Cell>>;

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
    /// Takes the next rows in, and gives the things that are settled.
    fn record(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>, ColumnError>;
    /// Gives what is left.
    fn finish(&mut self) -> Result<Vec<RecordBatch>, ColumnError>;
    /// How much was let go unsettled.
    fn let_go(&self) -> u64;
    /// What it has kept, as bytes.
    fn state(&self) -> Vec<u8>;
    /// Goes on from such bytes.
    fn restore(&mut self, state: &[u8]) -> Result<(), StateError>;
}

impl<F: Fold> Folding for F {
    fn protocol(&self) -> &'static str {
        F::PROTOCOL
    }

    fn needs(&self) -> &'static [&'static str] {
        F::NEEDS
    }

    fn fields(&self) -> Fields {
        fields(F::COLUMNS)
    }

    fn record(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>, ColumnError> {
        self.take_in(batch)?;
        leaving(self, false)
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>, ColumnError> {
        leaving(self, true)
    }

    fn let_go(&self) -> u64 {
        Fold::let_go(self)
    }

    fn state(&self) -> Vec<u8> {
        save(F::NAME, F::VERSION, self)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), StateError> {
        *self = load(F::NAME, F::VERSION, state)?;
        Ok(())
    }
}

/// What leaves a fold, in batches of bounded size.
fn leaving<F: Fold>(fold: &mut F, is_end: bool) -> Result<Vec<RecordBatch>, ColumnError> {
    let mut batches = Vec::new();
    let mut table = Table::new(F::COLUMNS);
    while let Some(thing) = fold.next(is_end) {
        if table.is_full() {
            batches.push(mem::replace(&mut table, Table::new(F::COLUMNS)).finish()?);
        }
        table.push(thing)?;
    }
    if !table.is_empty() {
        batches.push(table.finish()?);
    }
    Ok(batches)
}
