//! Rows of captures, from many tasks in any order, into files that a capture is then made of.
//!
//! Each task has a [`Stager`], which writes its rows in order into staged files. A staged file is a segment but for its
//! numbers: `capture_id` and `seq` are those of the capture that a row was of, by which rows are ordered. The files of
//! all tasks become segments by [`publish`](crate::publish).

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, BinaryArray, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use trunkline_wire::{ErrorKind, Framing};

use crate::columns::{BATCH_BYTES, Columns, Names};
use crate::disk::Disk;
use crate::interleaving::in_order;
use crate::journal::Header;
use crate::local::LocalDisk;
use crate::manifest::random_id;
use crate::notes::Sum;
use crate::rows::frames;
use crate::schema::schema;
use crate::segment::SegmentWriter;
use crate::{Access, CaptureError, CaptureErrorKind, Direction, Row, Settings};

/// What a task holds of rows that are not in order: more is sorted, and written.
const HELD_BYTES: usize = 64 << 20;

/// Rows of different captures are in one file up to so many rows, and bytes of frames: files of other tasks may have rows
/// in between, and are then merged.
const SHARED_ROWS: u64 = 8192;
const SHARED_BYTES: u64 = 1 << 20;

/// A file ends when its rows cost so many times the frame bytes it may have: nothing else limits empty frames.
const COST_OF_BYTES: u64 = 4;

/// Where a row was: its capture, and its number there. Rows are ordered by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub capture_id: String,
    pub seq: i64,
}

/// A staged file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Its name in the staging directory.
    pub name: String,
    pub rows: u64,
    pub frame_bytes: u64,
    /// The bytes of the file, and their CRC-32.
    pub bytes: u64,
    pub crc: u32,
    /// Its first and its last row.
    pub first: Key,
    pub last: Key,
}

/// Writes the rows of a task into a staging directory.
pub struct Stager {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    segment_bytes: u64,
    held: Vec<RecordBatch>,
    held_bytes: usize,
    out: Out,
}

impl Stager {
    /// Begins in a directory that may be that of other tasks too. It must be there: the end of a job removes it.
    pub fn open(directory: &Path, segment_bytes: Option<u64>) -> Result<Self, CaptureError> {
        let writing = |error| CaptureError::writing(directory, error);
        let disk: Arc<dyn Disk> = Arc::new(LocalDisk::open(directory, Access::Umask).map_err(writing)?);
        let segment_bytes = segment_bytes.unwrap_or_else(|| Settings::default().segment_bytes);
        let out = Out::new(Arc::clone(&disk), directory, segment_bytes)?;
        Ok(Self { disk, directory: directory.to_owned(), segment_bytes, held: Vec::new(), held_bytes: 0, out })
    }

    /// Adds rows with the columns of [`schema`](crate::schema), in any order. Rows that come in order are written at once.
    pub fn append(&mut self, rows: &RecordBatch) -> Result<(), CaptureError> {
        let rows = as_recorded(rows).map_err(|error| CaptureError::columns(&self.directory, &error))?;
        if self.held.is_empty() {
            let recorded = Recorded::new(&rows).ok_or_else(|| self.out.refused("has other columns"))?;
            if self.out.is_followed_by(&recorded) {
                let mut frames = Vec::new();
                return (0..rows.num_rows()).try_for_each(|at| self.out.push(&recorded, at, &mut frames));
            }
        }
        self.held_bytes += rows.columns().iter().map(|column| slice_bytes(column)).sum::<usize>();
        self.held.push(rows);
        if self.held_bytes >= HELD_BYTES { self.sort() } else { Ok(()) }
    }

    /// Writes what is left. Of the files of a task none has rows between those of another.
    pub fn finish(mut self) -> Result<Vec<Staged>, CaptureError> {
        self.sort()?;
        in_order(&self.disk, &self.directory, self.out.finish()?, self.segment_bytes)
    }

    fn sort(&mut self) -> Result<(), CaptureError> {
        self.held_bytes = 0;
        let held = mem::take(&mut self.held);
        let parts: Vec<Recorded<'_>> = held.iter().filter_map(Recorded::new).collect();
        // Captures by their order: numbers are compared sooner than ids.
        let mut ids: Vec<&str> = Vec::new();
        for part in &parts {
            for id in part.capture_id.iter().flatten() {
                if ids.last() != Some(&id) {
                    ids.push(id);
                }
            }
            ids.sort_unstable();
            ids.dedup();
        }
        let mut order = Vec::with_capacity(parts.iter().map(|part| part.seq.len()).sum());
        let mut latest = 0;
        for (of, part) in parts.iter().enumerate() {
            for at in 0..part.seq.len() {
                let (id, seq) = part.key(at);
                if ids.get(latest) != Some(&id) {
                    latest = ids.binary_search(&id).unwrap_or_default();
                }
                order.push((latest, seq, of, at));
            }
        }
        order.sort_unstable();
        let mut frames = Vec::new();
        order.into_iter().try_for_each(|(_, _, of, at)| self.out.push(&parts[of], at, &mut frames))
    }
}

/// The bytes of the values of a column, whatever it shares its memory with.
fn slice_bytes(column: &dyn arrow_array::Array) -> usize {
    column.to_data().get_slice_memory_size().unwrap_or_default()
}

/// Rows with the types of captures: Spark may have been told to use larger ones.
fn as_recorded(rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = schema();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let column = rows
            .column_by_name(field.name())
            .ok_or_else(|| ArrowError::SchemaError(format!("the rows have no column {}", field.name())))?;
        let column = if is_like(column.data_type(), field.data_type()) {
            Arc::clone(column)
        } else {
            cast(column, field.data_type())?
        };
        columns.push((field.name(), column));
    }
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
}

/// Whether two types are the same, whatever they call the items of a list.
fn is_like(one: &DataType, other: &DataType) -> bool {
    match (one, other) {
        (DataType::List(one), DataType::List(other)) => is_like(one.data_type(), other.data_type()),
        _ => one == other,
    }
}

/// The columns of rows that decide what a row of a capture is; the others follow from them.
pub(crate) struct Recorded<'a> {
    capture_id: &'a StringArray,
    seq: &'a Int64Array,
    received_at_ns: &'a Int64Array,
    protocol: &'a StringArray,
    endpoint: &'a StringArray,
    peer: &'a BinaryArray,
    direction: &'a StringArray,
    topic: &'a StringArray,
    reply_to: &'a StringArray,
    envelope: &'a ListArray,
    header: &'a BinaryArray,
    payload: &'a ListArray,
    error: &'a StringArray,
}

impl<'a> Recorded<'a> {
    /// The columns of a batch, in the order of [`schema`].
    pub(crate) fn new(batch: &'a RecordBatch) -> Option<Self> {
        let columns = batch.columns();
        let text = |at: usize| columns.get(at)?.as_string_opt::<i32>();
        let bytes = |at: usize| columns.get(at)?.as_binary_opt::<i32>();
        let number = |at: usize| columns.get(at)?.as_primitive_opt::<Int64Type>();
        let lists = |at: usize| columns.get(at)?.as_list_opt::<i32>();
        Some(Self {
            capture_id: text(0)?,
            seq: number(2)?,
            received_at_ns: number(3)?,
            protocol: text(4)?,
            endpoint: text(5)?,
            peer: bytes(6)?,
            direction: text(7)?,
            topic: text(8)?,
            reply_to: text(9)?,
            envelope: lists(10)?,
            header: bytes(11)?,
            payload: lists(12)?,
            error: text(16)?,
        })
    }

    pub(crate) fn key(&self, at: usize) -> (&'a str, i64) {
        (self.capture_id.value(at), self.seq.value(at))
    }
}

/// The staged files being written: each row goes to the end of one, or to a new one.
pub(crate) struct Out {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    segment_bytes: u64,
    /// The names of its files begin with it.
    prefix: String,
    /// Rows that are to be encoded, with their keys.
    columns: Columns,
    ids: Names,
    seqs: Vec<i64>,
    first: Option<Key>,
    /// The latest row, if there is a file or there will be one.
    last: Option<Key>,
    file: Option<File>,
    done: Vec<Staged>,
}

struct File {
    writer: SegmentWriter,
    name: String,
    first: Key,
    rows: u64,
    frame_bytes: u64,
    cost: u64,
}

impl Out {
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path, segment_bytes: u64) -> Result<Self, CaptureError> {
        Ok(Self {
            disk,
            directory: directory.to_owned(),
            segment_bytes,
            prefix: random_id(directory)?,
            columns: Columns::default(),
            ids: Names::default(),
            seqs: Vec::new(),
            first: None,
            last: None,
            file: None,
            done: Vec::new(),
        })
    }

    /// Whether rows are in order, and come after all that were written.
    fn is_followed_by(&self, rows: &Recorded<'_>) -> bool {
        let keys = (0..rows.seq.len()).map(|at| rows.key(at));
        let last = self.last.as_ref().map(|last| (&*last.capture_id, last.seq));
        last.into_iter().chain(keys).is_sorted()
    }

    /// Adds a row, as it would be recorded. The frames are room for those of one.
    pub(crate) fn push<'a>(
        &mut self,
        rows: &Recorded<'a>,
        at: usize,
        room: &mut Vec<&'a [u8]>,
    ) -> Result<(), CaptureError> {
        let (id, seq) = rows.key(at);
        if let Some(last) = &self.last {
            let is_other = *last.capture_id != *id;
            if (id, seq) < (&*last.capture_id, last.seq) || (is_other && !self.is_shared()) {
                self.close()?;
            }
        }
        let header = rows.header;
        room.clear();
        room.extend(frames(rows.envelope, at));
        room.extend(header.is_valid(at).then(|| header.value(at)));
        room.extend(frames(rows.payload, at));
        let text = |column: &'a StringArray| column.is_valid(at).then(|| column.value(at));
        let named = text(rows.protocol).unwrap_or_default();
        let framing = Framing::named(named).ok_or_else(|| self.refused(&format!("unknown protocol {named:?}")))?;
        let framing = framing.of(room);
        let named = text(rows.direction).unwrap_or_default();
        let direction = Direction::ALL.into_iter().find(|direction| direction.name() == named);
        let direction = direction.ok_or_else(|| self.refused(&format!("unknown direction {named:?}")))?;
        let noted = text(rows.error).map(|named| {
            let kind = ErrorKind::ALL.iter().find(|kind| kind.slug() == named);
            kind.map(|kind| kind.slug()).ok_or_else(|| self.refused(&format!("unknown error {named:?}")))
        });
        let noted = noted.transpose()?;
        let n_bytes = trunkline_wire::nbytes(room);
        if self.columns.rows() > 0 && self.columns.frame_bytes() + n_bytes > BATCH_BYTES {
            self.encode()?;
        }
        let row = Row {
            received_at_ns: rows.received_at_ns.value(at),
            framing,
            endpoint: text(rows.endpoint),
            peer: rows.peer.is_valid(at).then(|| rows.peer.value(at)),
            direction,
            topic: text(rows.topic),
            reply_to: text(rows.reply_to),
            frames: room,
            error: framing.fault(room).map(|error| error.kind.slug()).or(noted),
        };
        self.ids.push(self.columns.rows(), Some(id));
        self.seqs.push(seq);
        self.columns.push(&row, n_bytes);
        match &mut self.last {
            Some(last) if *last.capture_id == *id => last.seq = seq,
            last => *last = Some(Key { capture_id: id.to_owned(), seq }),
        }
        if self.first.is_none() {
            self.first.clone_from(&self.last);
        }
        if self.columns.is_full(BATCH_BYTES) { self.encode() } else { Ok(()) }
    }

    /// Whether rows of another capture may come behind the last one.
    fn is_shared(&self) -> bool {
        let (rows, bytes) = self.file.as_ref().map_or((0, 0), |file| (file.rows, file.frame_bytes));
        rows + (self.columns.rows() as u64) < SHARED_ROWS && bytes + self.columns.frame_bytes() < SHARED_BYTES
    }

    /// Ends the last file.
    pub(crate) fn finish(mut self) -> Result<Vec<Staged>, CaptureError> {
        self.close()?;
        Ok(self.done)
    }

    fn refused(&self, what: &str) -> CaptureError {
        CaptureError::new(CaptureErrorKind::Unwritable, &self.directory, what)
    }

    fn encode(&mut self) -> Result<(), CaptureError> {
        let rows = self.columns.rows();
        let (Some(first), Some(last)) = (self.first.take(), self.last.clone()) else { return Ok(()) };
        let failed = |error: &ArrowError| CaptureError::columns(&self.directory, error);
        let ids = self.ids.finish(rows).map_err(|error| failed(&error))?;
        let batch = self.columns.finish().map_err(|error| failed(&error))?;
        let seqs = Arc::new(Int64Array::from(mem::take(&mut self.seqs)));
        let most = self.segment_bytes.saturating_mul(COST_OF_BYTES);
        let is_full = self.file.as_ref().is_some_and(|file| {
            file.frame_bytes + batch.frame_bytes > self.segment_bytes || file.cost + batch.cost() > most
        });
        if is_full {
            // The file ends before these rows.
            let before = Key { capture_id: first.capture_id.clone(), seq: first.seq };
            self.end(before)?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let name = format!("{}-{:06}.parquet", self.prefix, self.done.len());
                let header = Header { capture_id: String::new(), segment: 0, first_seq: 0 };
                let writer = SegmentWriter::create(&*self.disk, self.directory.join(&name), header)?;
                none.insert(File { writer, name, first, rows: 0, frame_bytes: 0, cost: 0 })
            }
        };
        file.writer.append_as(&batch, ids, seqs)?;
        file.rows += batch.rows();
        file.frame_bytes += batch.frame_bytes;
        file.cost += batch.cost();
        self.last = Some(last);
        Ok(())
    }

    fn close(&mut self) -> Result<(), CaptureError> {
        self.encode()?;
        match self.last.take() {
            Some(last) => self.end(last),
            None => Ok(()),
        }
    }

    /// Ends a file, whose rows are not after this one.
    fn end(&mut self, last: Key) -> Result<(), CaptureError> {
        let Some(File { writer, name, first, .. }) = self.file.take() else { return Ok(()) };
        let Sum { bytes, crc, counts, .. } = writer.finish()?;
        let (rows, frame_bytes) = counts.unwrap_or_default();
        self.done.push(Staged { name, rows, frame_bytes, bytes, crc, first, last });
        Ok(())
    }
}
