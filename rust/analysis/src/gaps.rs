//! The messages of CDTP before which numbers were skipped (CDTP-21).

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use trunkline_columns::ColumnError;
use trunkline_wire::cdtp::{Follower, MessageType};

use crate::{
    budget::Budget,
    fold::Fold,
    ordered::Weigh,
    rows::{Chosen, number_at, numbers, small, text, text_at},
    senders::{Senders, key, numbered, source},
    table::{Cell, Columns, Kind},
};

/// Finds gaps, sender by sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Gaps {
    senders: Senders<Follower>,
    found: VecDeque<Gap>,
}

impl Gaps {
    pub(crate) fn within(budget: Budget) -> Self {
        Self { senders: Senders::within(budget), found: VecDeque::new() }
    }
}

impl Weigh for Follower {
    fn weight(&self) -> usize {
        size_of::<Self>()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Gap {
    sender: String,
    endpoint: Option<String>,
    seq: i64,
    received_at_ns: i64,
    missed: u64,
}

impl Fold for Gaps {
    const NAME: &'static str = "gaps";
    const PROTOCOL: &'static str = "cdtp";
    const NEEDS: &'static [&'static str] =
        &["capture_id", "seq", "received_at_ns", "endpoint", "record", "sender", "type", "sequence"];
    const COLUMNS: Columns = &[
        ("capture_id", Kind::Text),
        ("endpoint", Kind::Text),
        ("sender", Kind::Text),
        ("seq", Kind::Number),
        ("received_at_ns", Kind::Number),
        ("missed", Kind::Number),
    ];
    // Nothing that comes later changes a gap.
    const KEY: &'static [&'static str] = &[];

    fn ingest(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        let (capture_id, endpoint, names) =
            (text(batch, "capture_id")?, text(batch, "endpoint")?, text(batch, "sender")?);
        let (seq, received_at_ns) = (numbers(batch, "seq")?, numbers(batch, "received_at_ns")?);
        let (records, types, sequences) = (small(batch, "record")?, text(batch, "type")?, numbers(batch, "sequence")?);
        let chosen = Chosen::of(batch)?;
        let mut sender = String::new();
        for row in 0..batch.num_rows() {
            let number = followed(text_at(&types, row), records.value(row), number_at(&sequences, row));
            let Some((message_type, sequence)) = number else { continue };
            let Some(name) = text_at(&names, row) else { continue };
            key(&mut sender, text_at(&capture_id, row), name);
            let missed = self.senders.change(&sender, |follower| follower.follow(message_type, sequence));
            while self.senders.evict().is_some() {}
            if missed > 0 && chosen.has(row) {
                self.found.push_back(Gap {
                    sender: sender.clone(),
                    endpoint: text_at(&endpoint, row).map(str::to_owned),
                    seq: seq.value(row),
                    received_at_ns: received_at_ns.value(row),
                    missed,
                });
            }
        }
        Ok(())
    }

    fn emit(&mut self, _is_end: bool) -> Option<Vec<Cell>> {
        let Gap { sender, endpoint, seq, received_at_ns, missed } = self.found.pop_front()?;
        let missed = i64::try_from(missed).unwrap_or(i64::MAX);
        let (capture_id, name) = source(&sender);
        let texts = [Cell::Text(capture_id.to_owned()), endpoint.into(), Cell::Text(name.to_owned())];
        Some(texts.into_iter().chain([seq, received_at_ns, missed].map(Cell::Number)).collect())
    }

    fn resize(&mut self, budget: Budget) {
        self.senders.resize(budget);
    }

    fn evicted(&self) -> u64 {
        self.senders.evicted()
    }
}

/// The type of a message's row and the number to follow; None if it has none.
pub(crate) fn followed(kind: Option<&str>, record: i32, sequence: Option<i64>) -> Option<(MessageType, u64)> {
    // A number that a BIGINT cannot hold is null, and larger than any other.
    let sequence = u64::try_from(sequence.unwrap_or(i64::MAX)).ok()?;
    Some((numbered(kind, record)?, sequence))
}
