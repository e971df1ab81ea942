//! Runs, counted from a table of messages (CDTP-21): the account a capture keeps, over rows that are decoded already.

use std::{collections::HashMap, mem, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, Schema};
use trunkline_wire::cdtp::{MessageType, Run, RunMessage, boundary_map};

use crate::{
    BATCH_BYTES, ColumnError, RestType,
    output::{Bytes, Numbers},
    tags::{Rest, rest_field},
};

/// The columns of a table of runs, `maps` being what configurations and metadata become.
pub fn run_fields(maps: RestType) -> Fields {
    let text = |name, nullable| Field::new(name, DataType::Utf8, nullable);
    let number = |name, nullable| Field::new(name, DataType::Int64, nullable);
    Fields::from(vec![
        text("capture_id", false),
        text("sender", false),
        number("ordinal", false),
        text("run_id", true),
        text("condition", false),
        Field::new("condition_code", DataType::Int32, false),
        number("messages", false),
        number("bytes", false),
        number("missed", false),
        number("duplicates", false),
        number("out_of_order", false),
        number("first_received_at_ns", false),
        number("last_received_at_ns", false),
        number("bor_seq", true),
        number("eor_seq", true),
        rest_field(maps, "config"),
        rest_field(maps, "metadata"),
    ])
}

/// The record of a row that holds the frames of a BOR or EOR, which comes before those of the message itself.
pub const FRAMES: i32 = -1;

/// The columns that tell the sources of runs apart.
const SOURCE: [&str; 2] = ["capture_id", "sender"];

/// Counts the runs of senders.
///
/// It is given the rows of messages, those of each sender in the order of `seq` and `record`: `capture_id, sender, seq,
/// record, received_at_ns, n_bytes, type, sequence`. The frames of a BOR or EOR whose map is wanted come before it, as a row
/// with `header` and `payload`, the first payload frame, and the record [`FRAMES`].
#[derive(Debug)]
pub struct Runs {
    maps: RestType,
    senders: Sources<Sender>,
}

/// What is known of a sender.
#[derive(Debug)]
struct Sender {
    /// Its capture and its name.
    source: [String; 2],
    run: Option<Run>,
    /// The header and the payload frame of messages that are still to come, by their `seq`.
    frames: HashMap<i64, (Vec<u8>, Option<Vec<u8>>)>,
}

impl Runs {
    /// `maps` is what configurations and metadata become. Where rows are `sorted`, those of a sender stand together, and
    /// what is known of it is given once they are over.
    pub fn new(maps: RestType, sorted: bool) -> Self {
        Self { maps, senders: Sources::new(sorted) }
    }

    /// Takes the next rows in, from one of a batch on, and gives the runs that are over: about [`BATCH_BYTES`] of them, and
    /// the row that is next, unless that is the end.
    pub fn record(&mut self, batch: &RecordBatch, from: usize) -> Result<(RecordBatch, Option<usize>), ColumnError> {
        let rows = Rows::of(batch)?;
        let mut over = Table::new(self.maps);
        for row in from..batch.num_rows() {
            if over.bytes() >= BATCH_BYTES {
                return Ok((over.finish()?, Some(row)));
            }
            let message_type =
                numbered(rows.types.is_valid(row).then(|| rows.types.value(row)), rows.record.value(row));
            if message_type.is_none() && rows.record.value(row) != FRAMES {
                continue;
            }
            let source = || rows.source.each_ref().map(|column| column.value(row).to_owned());
            let (sender, gone) = self.senders.of(&rows.source, row, || Sender::new(source()));
            for Sender { source, run, .. } in gone {
                run.map_or(Ok(()), |run| over.push(&source, &run))?;
            }
            match message_type {
                Some(message_type) => {
                    let run = sender.take(&rows, row, message_type);
                    run.map_or(Ok(()), |run| over.push(&sender.source, &run))?;
                }
                None => sender.keep(&rows, row),
            }
        }
        Ok((over.finish()?, None))
    }

    /// Gives the last run of each sender that is left.
    pub fn finish(&mut self) -> Result<RecordBatch, ColumnError> {
        let mut over = Table::new(self.maps);
        for Sender { source, run, .. } in self.senders.take() {
            run.map_or(Ok(()), |run| over.push(&source, &run))?;
        }
        over.finish()
    }
}

impl Sender {
    fn new(source: [String; 2]) -> Self {
        Self { source, run: None, frames: HashMap::new() }
    }

    /// Keeps the frames of a BOR or EOR that is to come.
    fn keep(&mut self, rows: &Rows, row: usize) {
        let bytes = |column: &BinaryArray| column.is_valid(row).then(|| column.value(row).to_owned());
        let frames = (bytes(&rows.header).unwrap_or_default(), bytes(&rows.payload));
        self.frames.insert(rows.seq.value(row), frames);
    }

    /// Takes a message in, and gives the run that is over with it.
    fn take(&mut self, rows: &Rows, row: usize, message_type: MessageType) -> Option<Run> {
        let mut over = None;
        if rows.record.value(row) == 0 {
            let (header, payload) = self.frames.remove(&rows.seq.value(row)).unwrap_or_default();
            let number = |column: &Int64Array| u64::try_from(column.value(row)).unwrap_or_default();
            let message = RunMessage {
                segment: 0,
                seq: number(&rows.seq),
                received_at_ns: rows.received_at_ns.value(row),
                n_bytes: number(&rows.n_bytes),
                message_type,
                map: boundary_map(&header, payload.as_deref()),
            };
            match &mut self.run {
                Some(run) => over = run.take(&message),
                none => *none = Some(Run::first(&message)),
            }
        }
        let sequence = rows.sequence.is_valid(row).then(|| rows.sequence.value(row));
        // What a BIGINT cannot hold is null there, and larger than any other here.
        let sequence = sequence.and_then(|sequence| u64::try_from(sequence).ok()).unwrap_or(u64::MAX);
        if let Some(run) = &mut self.run {
            run.follow(message_type, sequence);
        }
        over
    }
}

/// What is known of sources, by the texts that tell each apart.
#[derive(Debug)]
struct Sources<T> {
    sorted: bool,
    known: Vec<T>,
    /// Where it stands among these, by the texts of a source.
    places: HashMap<Vec<u8>, usize>,
    /// The texts of a row, kept for its room.
    key: Vec<u8>,
}

impl<T> Sources<T> {
    fn new(sorted: bool) -> Self {
        Self { sorted, known: Vec::new(), places: HashMap::new(), key: Vec::new() }
    }

    /// What is known of the source of a row, a new one being `made`, and of those that are over with it.
    fn of(&mut self, columns: &[StringArray], row: usize, made: impl FnOnce() -> T) -> (&mut T, Vec<T>) {
        self.key.clear();
        for column in columns {
            let text = column.is_valid(row).then(|| column.value(row));
            self.key.extend(text.map_or(usize::MAX, str::len).to_le_bytes());
            self.key.extend(text.unwrap_or_default().as_bytes());
        }
        if let Some(&place) = self.places.get(&self.key) {
            return (&mut self.known[place], Vec::new());
        }
        let over = if self.sorted { self.take() } else { Vec::new() };
        let place = self.known.len();
        self.places.insert(self.key.clone(), place);
        self.known.push(made());
        (&mut self.known[place], over)
    }

    /// What is known of all, which is then forgotten.
    fn take(&mut self) -> Vec<T> {
        self.places.clear();
        mem::take(&mut self.known)
    }
}

/// The columns that runs are counted from.
struct Rows {
    source: [StringArray; 2],
    seq: Int64Array,
    record: Int32Array,
    received_at_ns: Int64Array,
    n_bytes: Int64Array,
    types: StringArray,
    sequence: Int64Array,
    header: BinaryArray,
    payload: BinaryArray,
}

impl Rows {
    fn of(batch: &RecordBatch) -> Result<Self, ColumnError> {
        Ok(Self {
            source: [text(batch, SOURCE[0])?, text(batch, SOURCE[1])?],
            seq: numbers(batch, "seq")?,
            record: records(batch)?,
            received_at_ns: numbers(batch, "received_at_ns")?,
            n_bytes: numbers(batch, "n_bytes")?,
            types: text(batch, "type")?,
            sequence: numbers(batch, "sequence")?,
            header: column(batch, "header", &DataType::Binary)?.as_binary().clone(),
            payload: column(batch, "payload", &DataType::Binary)?.as_binary().clone(),
        })
    }
}

/// The type of a row of a message that knows runs, one for each of its numbers: those of a CDTP2 BOR or EOR number its two
/// records.
pub fn numbered(kind: Option<&str>, record: i32) -> Option<MessageType> {
    let message_type = kind?.parse().ok()?;
    (message_type == MessageType::Dat || record == 0).then_some(message_type)
}

fn column(batch: &RecordBatch, name: &str, data_type: &DataType) -> Result<ArrayRef, ColumnError> {
    let column = batch.column_by_name(name).ok_or_else(|| ColumnError::Input(format!("no column {name}")))?;
    Ok(cast(column, data_type)?)
}

fn text(batch: &RecordBatch, name: &str) -> Result<StringArray, ColumnError> {
    Ok(column(batch, name, &DataType::Utf8)?.as_string().clone())
}

fn records(batch: &RecordBatch) -> Result<Int32Array, ColumnError> {
    Ok(column(batch, "record", &DataType::Int32)?.as_primitive::<Int32Type>().clone())
}

fn numbers(batch: &RecordBatch, name: &str) -> Result<Int64Array, ColumnError> {
    Ok(column(batch, name, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// A table of runs, being built.
struct Table {
    fields: Fields,
    texts: [Bytes; 2],
    ordinal: Numbers<Int64Type>,
    run_id: Bytes,
    condition: Bytes,
    condition_code: Numbers<Int32Type>,
    counts: [Numbers<Int64Type>; 7],
    boundaries: [Numbers<Int64Type>; 2],
    maps: [Rest; 2],
}

impl Table {
    fn new(maps: RestType) -> Self {
        Self {
            fields: run_fields(maps),
            texts: Default::default(),
            ordinal: Numbers::default(),
            run_id: Bytes::default(),
            condition: Bytes::default(),
            condition_code: Numbers::default(),
            counts: Default::default(),
            boundaries: Default::default(),
            maps: [Rest::new(maps), Rest::new(maps)],
        }
    }

    fn push(&mut self, source: &[String; 2], run: &Run) -> Result<(), ColumnError> {
        let count = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
        for (column, text) in self.texts.iter_mut().zip(source) {
            column.push(Some(text.as_bytes()))?;
        }
        self.ordinal.push(count(run.ordinal));
        self.run_id.push(run.run_id().map(str::as_bytes))?;
        let condition = run.condition();
        self.condition.push(Some(condition.to_string().as_bytes()))?;
        self.condition_code.push(Some(condition.code().into()));
        let counts = [run.messages, run.bytes, run.missed, run.duplicates, run.out_of_order].map(count);
        let times = [run.first_received_at_ns, run.last_received_at_ns].map(Some);
        for (column, number) in self.counts.iter_mut().zip(counts.into_iter().chain(times)) {
            column.push(number);
        }
        for (column, boundary) in self.boundaries.iter_mut().zip([&run.begin, &run.end]) {
            column.push(boundary.as_ref().and_then(|boundary| count(boundary.seq)));
        }
        for (column, map) in self.maps.iter_mut().zip([run.config(), run.metadata()]) {
            column.append(map)?;
        }
        Ok(())
    }

    /// The bytes they take.
    fn bytes(&self) -> usize {
        let texts = self.texts.iter().chain([&self.run_id, &self.condition]).map(Bytes::bytes);
        let numbers = self.counts.iter().chain(&self.boundaries).chain([&self.ordinal]).map(Numbers::bytes);
        let maps = self.maps.iter().map(Rest::bytes);
        texts.chain(numbers).chain(maps).sum::<usize>() + self.condition_code.bytes()
    }

    fn finish(mut self) -> Result<RecordBatch, ColumnError> {
        let mut columns: Vec<ArrayRef> = Vec::new();
        for column in &mut self.texts {
            columns.push(Arc::new(column.finish_text()?));
        }
        columns.push(Arc::new(self.ordinal.finish()?));
        columns.push(Arc::new(self.run_id.finish_text()?));
        columns.push(Arc::new(self.condition.finish_text()?));
        columns.push(Arc::new(self.condition_code.finish()?));
        for column in self.counts.iter_mut().chain(&mut self.boundaries) {
            columns.push(Arc::new(column.finish()?));
        }
        for column in &mut self.maps {
            columns.push(column.finish()?);
        }
        Ok(RecordBatch::try_new(Arc::new(Schema::new(self.fields)), columns)?)
    }
}
