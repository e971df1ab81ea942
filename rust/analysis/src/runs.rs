//! The runs of CDTP: the messages of a sender from one BOR to the next (CDTP-21), as in the account of a capture.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trunkline_columns::ColumnError;
use trunkline_wire::cdtp::{Boundary, MessageType, Run, RunMessage, boundary_map};

use crate::{
    budget::Budget,
    fold::Fold,
    ordered::Weigh,
    rows::{binary, bytes_at, number_at, numbers, size_at, small, text, text_at},
    senders::{Senders, key, numbered, source},
    table::{Cell, Columns, Kind},
};

/// The record of a row that holds the frames of a BOR or EOR, which comes before those of the message itself.
pub const FRAMES: i32 = -1;

/// The condition of a run whose sender made way for others before it ended.
const EVICTED: &str = "EVICTED";

/// Counts runs, sender by sender. Configurations and metadata are JSON text, or VARIANTs.
///
/// If the map of a BOR or EOR is wanted, its rows have two columns more: `header`, and the first frame of the
/// `payload`. They may come before it instead, as a row of the record [`FRAMES`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Runs<const JSON: bool> {
    senders: Senders<Current>,
    /// The map of the next BOR or EOR, with its `seq`.
    map: Option<(i64, ByteBuf)>,
    over: VecDeque<(String, Run)>,
    /// Runs whose senders made way in a stream, where more of them may come; they are emitted before a state is saved.
    #[serde(skip)]
    evicted: VecDeque<(String, Run)>,
    #[serde(skip)]
    is_streamed: bool,
    /// Now, if runs without an EOR may go on.
    #[serde(skip)]
    now_ns: Option<i64>,
}

/// The current run of a sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Current(Option<Run>);

impl<const JSON: bool> Runs<JSON> {
    pub(crate) fn within(budget: Budget) -> Self {
        Self {
            senders: Senders::within(budget),
            map: None,
            over: VecDeque::new(),
            evicted: VecDeque::new(),
            is_streamed: budget.is_streamed(),
            now_ns: None,
        }
    }
}

impl Weigh for Current {
    fn weight(&self) -> usize {
        self.0.as_ref().map_or(0, |run| {
            let maps = [run.config(), run.metadata()].into_iter().flatten().map(<[u8]>::len).sum::<usize>();
            size_of::<Run>() + maps + run.gaps.len() * size_of::<(u64, u64)>()
        })
    }
}

impl<const JSON: bool> Fold for Runs<JSON> {
    const NAME: &'static str = "runs";
    const PROTOCOL: &'static str = "cdtp";
    const NEEDS: &'static [&'static str] =
        &["capture_id", "seq", "received_at_ns", "n_bytes", "record", "sender", "type", "sequence"];
    const COLUMNS: Columns = &[
        ("capture_id", Kind::Text),
        ("sender", Kind::Text),
        ("ordinal", Kind::Number),
        ("run_id", Kind::Text),
        ("condition", Kind::Text),
        ("condition_code", Kind::Small),
        ("messages", Kind::Number),
        ("bytes", Kind::Number),
        ("missed", Kind::Number),
        ("duplicates", Kind::Number),
        ("out_of_order", Kind::Number),
        ("first_received_at_ns", Kind::Number),
        ("last_received_at_ns", Kind::Number),
        ("bor_seq", Kind::Number),
        ("eor_seq", Kind::Number),
        ("config", if JSON { Kind::Json } else { Kind::Variant }),
        ("metadata", if JSON { Kind::Json } else { Kind::Variant }),
    ];
    const KEY: &'static [&'static str] = &["capture_id", "sender", "ordinal"];

    fn ingest(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        let (capture_ids, names, types) = (text(batch, "capture_id")?, text(batch, "sender")?, text(batch, "type")?);
        let (seqs, times) = (numbers(batch, "seq")?, numbers(batch, "received_at_ns")?);
        let (sizes, sequences) = (numbers(batch, "n_bytes")?, numbers(batch, "sequence")?);
        let records = small(batch, "record")?;
        let frames = |name| batch.column_by_name(name).map(|_| binary(batch, name)).transpose();
        let (headers, payloads) = (frames("header")?, frames("payload")?);
        let mut sender = String::new();
        for row in 0..batch.num_rows() {
            let (seq, record) = (seqs.value(row), records.value(row));
            let said = || {
                let [header, payload] =
                    [&headers, &payloads].map(|column| column.as_ref().and_then(|column| bytes_at(column, row)));
                boundary_map(header?, payload).map(ByteBuf::from)
            };
            if record == FRAMES {
                self.map = said().map(|map| (seq, map));
                continue;
            }
            let Some(message_type) = numbered(text_at(&types, row), record) else { continue };
            let before = self.map.take_if(|(of, _)| record == 0 && *of == seq).map(|(_, map)| map);
            let map = before.or_else(|| if record == 0 { said() } else { None });
            let message = (record == 0).then(|| RunMessage {
                segment: 0,
                seq: u64::try_from(seq).unwrap_or_default(),
                received_at_ns: times.value(row),
                n_bytes: size_at(&sizes, row),
                message_type,
                map: map.as_deref().map(Vec::as_slice),
            });
            key(&mut sender, text_at(&capture_ids, row), text_at(&names, row).unwrap_or_default());
            let sequence = number_at(&sequences, row);
            let over =
                self.senders.change(&sender, |Current(run)| follow(run, message.as_ref(), message_type, sequence));
            self.over.extend(over.map(|run| (sender.clone(), run)));
            while let Some((sender, Current(run))) = self.senders.evict() {
                // The rows of a batch are sorted by sender, so that one that makes way is complete.
                let gone = if self.is_streamed { &mut self.evicted } else { &mut self.over };
                gone.extend(run.map(|run| (sender, run)));
            }
        }
        Ok(())
    }

    fn emit(&mut self, is_end: bool) -> Option<Vec<Cell>> {
        if let Some((sender, run)) = self.over.pop_front() {
            return Some(cells(&sender, &run, run.said(false)));
        }
        if let Some((sender, run)) = self.evicted.pop_front() {
            return Some(cells(&sender, &run, (EVICTED.to_owned(), None)));
        }
        if !is_end {
            return None;
        }
        loop {
            let (sender, Current(run)) = self.senders.pop()?;
            if let Some(run) = run {
                let is_in_progress = self.now_ns.is_some_and(|now_ns| run.may_go_on(now_ns));
                return Some(cells(&sender, &run, run.said(is_in_progress)));
            }
        }
    }

    fn at(&mut self, now_ns: i64) {
        self.now_ns = Some(now_ns);
    }

    fn resize(&mut self, budget: Budget) {
        self.senders.resize(budget);
        self.is_streamed = budget.is_streamed();
    }

    fn evicted(&self) -> u64 {
        self.senders.evicted()
    }
}

/// Takes in a message, unless it was taken before, and one of its numbers; gives the run that it ends.
fn follow(
    run: &mut Option<Run>,
    message: Option<&RunMessage<'_>>,
    message_type: MessageType,
    sequence: Option<i64>,
) -> Option<Run> {
    let mut over = None;
    if let Some(message) = message {
        match run {
            Some(run) => over = run.take(message),
            None => *run = Some(Run::first(message)),
        }
    }
    // A number that a BIGINT cannot hold is null there, and larger than any other here.
    let sequence = sequence.and_then(|sequence| u64::try_from(sequence).ok()).unwrap_or(u64::MAX);
    if let Some(run) = run {
        run.follow(message_type, sequence);
    }
    over
}

fn cells(sender: &str, run: &Run, (condition, code): (String, Option<u8>)) -> Vec<Cell> {
    let count = |number: u64| Cell::Number(i64::try_from(number).unwrap_or(i64::MAX));
    let seq_of = |boundary: &Option<Boundary>| boundary.as_ref().map_or(Cell::Null, |at| count(at.seq));
    let (capture_id, name) = source(sender);
    let mut cells = vec![
        Cell::Text(capture_id.to_owned()),
        Cell::Text(name.to_owned()),
        count(run.ordinal),
        run.run_id().map(str::to_owned).into(),
        Cell::Text(condition),
        code.map_or(Cell::Null, |code| Cell::Number(code.into())),
    ];
    cells.extend([run.messages, run.bytes, run.missed, run.duplicates, run.out_of_order].map(count));
    cells.extend([run.first_received_at_ns, run.last_received_at_ns].map(Cell::Number));
    cells.extend([&run.begin, &run.end].map(seq_of));
    cells.extend([run.config(), run.metadata()].map(|map| map.map(<[u8]>::to_vec).into()));
    cells
}
