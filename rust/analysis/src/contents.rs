//! The contents of MTL, each with what settled it and which delivery it is.

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use trunkline_columns::ColumnError;

use crate::{
    budget::Budget,
    delivered::Delivered,
    deliveries::Deliveries,
    fold::Fold,
    settlements::Settlements,
    table::{Cell, Columns},
};

/// Pairs contents with what settles them, and then distinguishes the deliveries of each: both steps at once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Contents {
    settlements: Settlements,
    deliveries: Deliveries,
}

impl Fold for Contents {
    const NAME: &'static str = "contents";
    const PROTOCOL: &'static str = Settlements::PROTOCOL;
    const NEEDS: &'static [&'static str] = Settlements::NEEDS;
    const COLUMNS: Columns = Deliveries::COLUMNS;
    const KEY: &'static [&'static str] = Deliveries::KEY;
    const STEPS: &'static [&'static str] = &[Settlements::NAME, Deliveries::NAME];

    fn ingest(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        self.settlements.ingest(&Settlements::prepare(batch)?)
    }

    fn emit(&mut self, is_end: bool) -> Option<Vec<Cell>> {
        loop {
            let delivered = self.next_delivery(is_end)?;
            if delivered.content.is_chosen {
                return Some(delivered.cells());
            }
        }
    }

    fn forget(&mut self, before_ns: i64) {
        self.settlements.forget(before_ns);
        self.deliveries.forget(before_ns);
    }

    fn resize(&mut self, budget: Budget) {
        self.settlements.resize(budget);
        self.deliveries.resize(budget);
    }

    fn evicted(&self) -> u64 {
        self.settlements.evicted().saturating_add(self.deliveries.evicted())
    }

    fn left_out(&self) -> u64 {
        self.settlements.left_out().saturating_add(self.deliveries.left_out())
    }
}

impl Contents {
    /// The number of a delivery depends on equal ones before it.
    pub(crate) fn within(budget: Budget) -> Self {
        Self { settlements: Settlements::within(budget).in_order(), deliveries: Deliveries::within(budget) }
    }

    /// The next delivery to emit, selected or not.
    pub(crate) fn next_delivery(&mut self, is_end: bool) -> Option<Delivered> {
        while let Some(content) = self.settlements.next(is_end) {
            self.deliveries.add(content);
        }
        self.deliveries.pair_dead_letters();
        self.deliveries.next(is_end)
    }
}
