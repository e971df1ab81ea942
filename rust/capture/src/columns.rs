//! Rows into Arrow columns, in place.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{ArrowDictionaryKeyType, Int8Type, Int32Type};
use arrow_array::{
    ArrayRef, BinaryArray, DictionaryArray, Int32Array, Int64Array, ListArray, PrimitiveArray, RecordBatch, StringArray,
};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use trunkline_wire::{FRAME_COST, Framing};

use crate::Direction;
use crate::schema::{frame_field, journal_schema};

/// The `error` of a row whose message has more bytes than a column can hold (2 GiB): it is recorded with its size and
/// without its frames.
pub const MESSAGE_TOO_LARGE: &str = "message_too_large";

/// The most frame bytes of a message: a batch, handed over at a fraction of this, then fits offsets of 31 bits.
pub(crate) const MESSAGE_BYTES_MAX: u64 = (1 << 31) - (1 << 16);

/// A batch is full with so many frame bytes: fewer large frames, and encoding a batch costs more than their bytes.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;
/// It is full with so many rows.
const BATCH_ROWS: usize = 8192;
/// It is full when its rows cost so much: nothing else limits empty frames.
const BATCH_COST: u64 = 8 << 20;
/// About what a row takes in memory besides its frames.
const ROW_COST: u64 = 64;

/// One message to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a, F> {
    /// Wall-clock time of receipt, or of the transport accepting a send, that never goes back.
    pub received_at_ns: i64,
    /// The framing of the message.
    pub framing: Framing,
    /// The endpoint it came or went by, if there is only one.
    pub endpoint: Option<&'a str>,
    /// The routing id of a ROUTER's peer.
    pub peer: Option<&'a [u8]>,
    /// Which way it went.
    pub direction: Direction,
    /// The topic, if the frames do not hold it at a fixed place: this one takes precedence.
    pub topic: Option<&'a str>,
    /// The address for a reply to it.
    pub reply_to: Option<&'a str>,
    /// Its frames, without the routing id.
    pub frames: &'a [F],
    /// Why it does not decode, as the error kind's slug.
    pub error: Option<&'static str>,
}

/// Consecutive rows: what the journal appends and the segment encodes at a time.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The columns of [`journal_schema`].
    pub(crate) columns: RecordBatch,
    /// The frame bytes of all rows.
    pub(crate) frame_bytes: u64,
}

impl Batch {
    pub(crate) fn rows(&self) -> u64 {
        self.columns.num_rows() as u64
    }

    /// The number of frames in lists.
    pub(crate) fn listed(&self) -> u64 {
        ["envelope", "payload"].iter().map(|name| self.columns[*name].as_list::<i32>().values().len() as u64).sum()
    }

    /// The cost of keeping its frames, and its rows besides them.
    pub(crate) fn cost(&self) -> u64 {
        self.frame_bytes + (self.rows() + self.listed()) * FRAME_COST as u64
    }
}

/// A batch being built.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    received_at_ns: Vec<i64>,
    protocol: Vec<i8>,
    endpoint: Names,
    peer: Blobs,
    direction: Vec<i8>,
    topic: Blobs,
    reply_to: Blobs,
    envelope: Lists,
    header: Blobs,
    payload: Lists,
    n_head: Vec<i32>,
    n_frames: Vec<i32>,
    n_bytes: Vec<i64>,
    error: Names,
    frame_bytes: u64,
    cost: u64,
}

impl Columns {
    pub(crate) fn rows(&self) -> usize {
        self.received_at_ns.len()
    }

    pub(crate) fn frame_bytes(&self) -> u64 {
        self.frame_bytes
    }

    /// About what the rows so far take in memory.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether it is time to encode a batch of at most so many frame bytes.
    pub(crate) fn is_full(&self, batch_bytes: u64) -> bool {
        self.rows() >= BATCH_ROWS || self.frame_bytes >= batch_bytes || self.cost >= BATCH_COST
    }

    pub(crate) fn push<F: AsRef<[u8]>>(&mut self, row: &Row<'_, F>, n_bytes: u64) {
        let at = self.rows();
        self.cost += ROW_COST + n_bytes + (FRAME_COST * row.frames.len()) as u64;
        self.received_at_ns.push(row.received_at_ns);
        self.protocol.push(row.framing as i8);
        self.endpoint.push(at, row.endpoint);
        self.peer.push(at, row.peer);
        self.direction.push(row.direction as i8);
        self.reply_to.push(at, row.reply_to.map(str::as_bytes));
        self.n_frames.push(i32::try_from(row.frames.len()).unwrap_or(i32::MAX));
        self.n_bytes.push(i64::try_from(n_bytes).unwrap_or(i64::MAX));
        if n_bytes > MESSAGE_BYTES_MAX {
            self.topic.push(at, row.topic.map(str::as_bytes));
            self.envelope.push::<F>(&[]);
            self.payload.push::<F>(&[]);
            self.n_head.push(0);
            self.error.push(at, Some(MESSAGE_TOO_LARGE));
            return;
        }
        let split = row.framing.split(row.frames);
        self.n_head.push(i32::try_from(split.head()).unwrap_or(i32::MAX));
        let frame = |at: usize| row.frames[at].as_ref();
        let topic = row.topic.or_else(|| split.topic.and_then(|at| str::from_utf8(frame(at)).ok()));
        self.topic.push(at, topic.map(str::as_bytes));
        self.envelope.push(&row.frames[split.envelope]);
        self.header.push(at, split.header.map(frame));
        self.payload.push(&row.frames[split.payload]);
        self.error.push(at, row.error);
        self.frame_bytes += n_bytes;
    }

    /// The rows so far as a batch. The builder keeps room for as many again.
    pub(crate) fn finish(&mut self) -> Result<Batch, ArrowError> {
        let rows = self.rows();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(take(&mut self.received_at_ns))),
            dictionary::<Int8Type, _>(
                take(&mut self.protocol),
                None,
                Framing::ALL.iter().map(|framing| framing.name()),
            )?,
            self.endpoint.finish(rows)?,
            Arc::new(self.peer.finish_binary(rows)?),
            dictionary::<Int8Type, _>(take(&mut self.direction), None, Direction::ALL.map(Direction::name))?,
            Arc::new(self.topic.finish_string(rows)?),
            Arc::new(self.reply_to.finish_string(rows)?),
            Arc::new(self.envelope.finish(rows)?),
            Arc::new(self.header.finish_binary(rows)?),
            Arc::new(self.payload.finish(rows)?),
            Arc::new(Int32Array::from(take(&mut self.n_head))),
            Arc::new(Int32Array::from(take(&mut self.n_frames))),
            Arc::new(Int64Array::from(take(&mut self.n_bytes))),
            self.error.finish(rows)?,
        ];
        let columns = RecordBatch::try_new(journal_schema(), columns)?;
        self.cost = 0;
        Ok(Batch { columns, frame_bytes: std::mem::take(&mut self.frame_bytes) })
    }
}

/// Takes the values, leaving room for about as many.
fn take<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = values.len() + values.len() / 8;
    std::mem::replace(values, Vec::with_capacity(room))
}

fn dictionary<K: ArrowDictionaryKeyType, S: AsRef<str>>(
    keys: Vec<K::Native>,
    nulls: Option<NullBuffer>,
    values: impl IntoIterator<Item = S>,
) -> Result<ArrayRef, ArrowError> {
    let keys = PrimitiveArray::<K>::new(ScalarBuffer::from(keys), nulls);
    let values = StringArray::from_iter_values(values);
    Ok(Arc::new(DictionaryArray::try_new(keys, Arc::new(values))?))
}

/// Which rows have a value. It is given only those, and writes no bits until a row without a value precedes one with.
#[derive(Debug, Default)]
struct Validity {
    valid: usize,
    bits: Option<BooleanBufferBuilder>,
}

impl Validity {
    #[inline]
    fn push(&mut self, row: usize) {
        if self.bits.is_some() || row != self.valid {
            self.push_bit(row);
        }
        self.valid += 1;
    }

    #[inline(never)]
    fn push_bit(&mut self, row: usize) {
        let bits = self.bits.get_or_insert_with(|| {
            let mut bits = BooleanBufferBuilder::new(2 * row);
            bits.append_n(self.valid, true);
            bits
        });
        bits.append_n(row - bits.len(), false);
        bits.append(true);
    }

    fn finish(&mut self, rows: usize) -> Option<NullBuffer> {
        let Self { valid, bits } = std::mem::take(self);
        if valid == rows {
            return None;
        }
        let mut bits = bits.unwrap_or_else(|| {
            let mut bits = BooleanBufferBuilder::new(rows);
            bits.append_n(valid, true);
            bits
        });
        bits.append_n(rows - bits.len(), false);
        Some(NullBuffer::new(bits.finish()))
    }
}

/// A column of bytes or text. Offsets of nulls are written when a value or the end comes.
#[derive(Debug, Default)]
struct Blobs {
    ends: Vec<i32>,
    data: Vec<u8>,
    validity: Validity,
}

impl Blobs {
    #[inline]
    fn push(&mut self, row: usize, value: Option<&[u8]>) {
        let Some(value) = value else { return };
        self.catch_up(row);
        self.data.extend_from_slice(value);
        self.ends.push(offset(self.data.len()));
        self.validity.push(row);
    }

    #[inline]
    fn catch_up(&mut self, rows: usize) {
        if self.ends.len() < rows {
            self.ends.resize(rows, offset(self.data.len()));
        }
    }

    fn finish(&mut self, rows: usize) -> (OffsetBuffer<i32>, Vec<u8>, Option<NullBuffer>) {
        self.catch_up(rows);
        (offsets(take(&mut self.ends)), take(&mut self.data), self.validity.finish(rows))
    }

    fn finish_binary(&mut self, rows: usize) -> Result<BinaryArray, ArrowError> {
        let (offsets, data, nulls) = self.finish(rows);
        BinaryArray::try_new(offsets, data.into(), nulls)
    }

    fn finish_string(&mut self, rows: usize) -> Result<StringArray, ArrowError> {
        let (offsets, data, nulls) = self.finish(rows);
        StringArray::try_new(offsets, data.into(), nulls)
    }
}

/// A column of lists of frames.
#[derive(Debug, Default)]
struct Lists {
    ends: Vec<i32>,
    frame_ends: Vec<i32>,
    data: Vec<u8>,
}

impl Lists {
    #[inline]
    fn push<F: AsRef<[u8]>>(&mut self, frames: &[F]) {
        for frame in frames {
            self.data.extend_from_slice(frame.as_ref());
            self.frame_ends.push(offset(self.data.len()));
        }
        self.ends.push(offset(self.frame_ends.len()));
    }

    fn finish(&mut self, rows: usize) -> Result<ListArray, ArrowError> {
        debug_assert_eq!(self.ends.len(), rows);
        let frames = BinaryArray::try_new(offsets(take(&mut self.frame_ends)), take(&mut self.data).into(), None)?;
        ListArray::try_new(frame_field(), offsets(take(&mut self.ends)), Arc::new(frames), None)
    }
}

/// A column of repeated names. Keys of nulls are written when a name or the end comes.
#[derive(Debug, Default)]
pub(crate) struct Names {
    keys: Vec<i32>,
    seen: Vec<Box<str>>,
    by_name: HashMap<Box<str>, i32>,
    latest: usize,
    validity: Validity,
}

impl Names {
    #[inline]
    pub(crate) fn push(&mut self, row: usize, name: Option<&str>) {
        let Some(name) = name else { return };
        let is_latest = self.seen.get(self.latest).is_some_and(|latest| **latest == *name);
        let key = if is_latest { offset(self.latest) } else { self.find(name) };
        self.keys.resize(row, 0);
        self.keys.push(key);
        self.validity.push(row);
    }

    fn find(&mut self, name: &str) -> i32 {
        if let Some(key) = self.by_name.get(name) {
            self.latest = usize::try_from(*key).unwrap_or_default();
            return *key;
        }
        self.latest = self.seen.len();
        let key = offset(self.latest);
        self.seen.push(name.into());
        self.by_name.insert(name.into(), key);
        key
    }

    pub(crate) fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        self.keys.resize(rows, 0);
        self.by_name.clear();
        self.latest = 0;
        let names = std::mem::take(&mut self.seen);
        dictionary::<Int32Type, _>(take(&mut self.keys), self.validity.finish(rows), names)
    }
}

/// A length as an Arrow offset. A batch exceeds its limit by one message at most, and that one has less than 2 GiB.
#[inline]
fn offset(length: usize) -> i32 {
    i32::try_from(length).expect("a batch has less than 2 GiB")
}

/// Arrow's offsets from the ends of the values.
fn offsets(mut ends: Vec<i32>) -> OffsetBuffer<i32> {
    ends.insert(0, 0);
    OffsetBuffer::new(ScalarBuffer::from(ends))
}

#[cfg(test)]
mod tests {
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;

    use super::*;

    fn row<'a>(frames: &'a [&'a [u8]]) -> Row<'a, &'a [u8]> {
        Row {
            received_at_ns: 1,
            framing: Framing::Cdtp,
            endpoint: None,
            peer: None,
            direction: Direction::In,
            topic: None,
            reply_to: None,
            frames,
            error: None,
        }
    }

    #[test]
    fn nulls_before_between_and_after_values() {
        let pattern = [None, None, Some("a"), Some(""), None, Some("b"), Some("a"), None];
        let mut columns = Columns::default();
        for round in 0..2 {
            for value in pattern {
                let peer = value.map(str::as_bytes);
                columns.push(&Row { endpoint: value, peer, topic: value, ..row(&[]) }, 0);
            }
            let batch = columns.finish().unwrap().columns;
            let endpoint = batch.column(2).as_dictionary::<Int32Type>();
            let endpoint: Vec<_> = endpoint.downcast_dict::<StringArray>().unwrap().into_iter().collect();
            assert_eq!(endpoint, pattern, "round {round}");
            assert_eq!(batch.column(5).as_string::<i32>().iter().collect::<Vec<_>>(), pattern);
            let peer: Vec<_> = batch.column(3).as_binary::<i32>().iter().collect();
            assert_eq!(peer, pattern.map(|value| value.map(str::as_bytes)));
            assert_eq!(batch.column(6).null_count(), pattern.len());
        }
    }

    #[test]
    fn topic_comes_from_its_frame_unless_given() {
        let mut columns = Columns::default();
        let frames: &[&[u8]] = &[b"", b"DGBX\x01", b"\x04", b"echo", b"", b""];
        let dcp = Row { framing: Framing::Dcp, ..row(frames) };
        columns.push(&dcp, 11);
        columns.push(&Row { topic: Some("mine"), ..dcp }, 11);
        columns.push(&Row { framing: Framing::Dcp, ..row(&[b"", b"DGBX\x01", b"\x04", b"\xff"]) }, 7);
        let batch = columns.finish().unwrap();
        let topics: Vec<_> = batch.columns.column(5).as_string::<i32>().iter().collect();
        assert_eq!(topics, [Some("echo"), Some("mine"), None]);
        assert_eq!(batch.frame_bytes, 29);
        assert_eq!(batch.columns["n_head"].as_primitive::<Int32Type>().values(), &[4, 4, 2]);
    }

    #[test]
    fn a_message_past_the_limit_is_a_row_without_frames() {
        let mut columns = Columns::default();
        columns.push(&row(&[b"pretended"]), MESSAGE_BYTES_MAX + 1);
        let batch = columns.finish().unwrap();
        assert_eq!(batch.frame_bytes, 0);
        let n_bytes = batch.columns["n_bytes"].as_primitive::<arrow_array::types::Int64Type>();
        assert_eq!(n_bytes.value(0), i64::try_from(MESSAGE_BYTES_MAX).unwrap() + 1);
        assert!(batch.columns["header"].is_null(0));
        assert_eq!(batch.columns["n_head"].as_primitive::<Int32Type>().value(0), 0);
    }
}
