//! The messages of CDTP before which numbers were skipped (CDTP-21).

use std::collections::{HashMap, VecDeque};

use arrow_array::RecordBatch;
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use trunkline_columns::{ColumnError, cdtp::numbered};
use trunkline_wire::cdtp::{Follower, MessageType};

use crate::{
    fold::Fold,
    rows::{Chosen, number_at, numbers, small, text, text_at},
    table::{Cell, Columns, Kind},
};

/// How many senders are followed at a time, and how many bytes their names may take.
const SENDERS: usize = 1 << 17;
const NAMES_BYTES: usize = 64 << 20;

/// Finds gaps, sender by sender.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Gaps {
    senders: HashMap<Sender, Follower, RandomState>,
    /// The same in the order in which they came.
    order: VecDeque<Sender>,
    bytes: usize,
    let_go: u64,
    found: VecDeque<Gap>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Sender {
    capture_id: String,
    name: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Gap {
    sender: Sender,
    endpoint: Option<String>,
    seq: i64,
    received_at_ns: i64,
    missed: u64,
}

impl Fold for Gaps {
    const NAME: &'static str = "gaps";
    const VERSION: u16 = 1;
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

    fn take_in(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        let (capture_id, endpoint, names) =
            (text(batch, "capture_id")?, text(batch, "endpoint")?, text(batch, "sender")?);
        let (seq, received_at_ns) = (numbers(batch, "seq")?, numbers(batch, "received_at_ns")?);
        let (records, types, sequences) = (small(batch, "record")?, text(batch, "type")?, numbers(batch, "sequence")?);
        let chosen = Chosen::of(batch)?;
        for row in 0..batch.num_rows() {
            let number = followed(text_at(&types, row), records.value(row), number_at(&sequences, row));
            let Some((message_type, sequence)) = number else { continue };
            let Some(name) = text_at(&names, row) else { continue };
            let sender =
                Sender { capture_id: text_at(&capture_id, row).unwrap_or_default().to_owned(), name: name.to_owned() };
            let missed = self.follow(&sender, message_type, sequence);
            if missed > 0 && chosen.has(row) {
                self.found.push_back(Gap {
                    sender,
                    endpoint: text_at(&endpoint, row).map(str::to_owned),
                    seq: seq.value(row),
                    received_at_ns: received_at_ns.value(row),
                    missed,
                });
            }
        }
        Ok(())
    }

    fn next(&mut self, _is_end: bool) -> Option<Vec<Cell>> {
        let Gap { sender, endpoint, seq, received_at_ns, missed } = self.found.pop_front()?;
        let missed = i64::try_from(missed).unwrap_or(i64::MAX);
        let texts = [Cell::Text(sender.capture_id), endpoint.into(), Cell::Text(sender.name)];
        Some(texts.into_iter().chain([seq, received_at_ns, missed].map(Cell::Number)).collect())
    }

    fn let_go(&self) -> u64 {
        self.let_go
    }
}

/// The type of a row of a message and the number to follow; None for one that has none.
pub(crate) fn followed(kind: Option<&str>, record: i32, sequence: Option<i64>) -> Option<(MessageType, u64)> {
    // What a BIGINT cannot hold is null, and larger than any other.
    let sequence = u64::try_from(sequence.unwrap_or(i64::MAX)).ok()?;
    Some((numbered(kind, record)?, sequence))
}

impl Gaps {
    /// Follows the next message of a sender, giving how many numbers before it were skipped.
    fn follow(&mut self, sender: &Sender, message_type: MessageType, sequence: u64) -> u64 {
        if let Some(follower) = self.senders.get_mut(sender) {
            return follower.follow(message_type, sequence);
        }
        self.bytes += sender.weight();
        self.order.push_back(sender.clone());
        while self.order.len() > SENDERS || (self.bytes > NAMES_BYTES && self.order.len() > 1) {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.weight());
            self.senders.remove(&oldest);
            self.let_go += 1;
        }
        self.senders.entry(sender.clone()).or_default().follow(message_type, sequence)
    }
}

impl Sender {
    const fn weight(&self) -> usize {
        2 * (self.capture_id.len() + self.name.len() + size_of::<Self>())
    }
}
