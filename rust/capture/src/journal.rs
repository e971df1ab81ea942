//! The dot-file that makes rows durable: records of Arrow IPC, each with its length and a CRC.
//!
//! The first record is the header, as JSON; each later one is an IPC stream of one batch, readable by itself. Reading
//! ends at the first incomplete record: what follows was never reported durable.

use std::io::{self, IoSlice, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, BinaryArray, Int64Array, ListArray, RecordBatch, StringArray, new_null_array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_schema::ArrowError;
use serde_json::{Value, json};

use crate::columns::Batch;
use crate::disk::{Disk, DiskFile};
use crate::guard::guarded;
use crate::manifest::{capture_id, counted};
use crate::schema::{HEADER_COLUMNS, frame_field, journal_schema, schema};
use crate::{CaptureError, ipc};

/// Length and CRC before each record, little-endian.
const PREFIX: usize = 8;

/// What all rows of a journal share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) capture_id: String,
    pub(crate) segment: u64,
    pub(crate) first_seq: u64,
}

impl Header {
    fn to_json(&self) -> Vec<u8> {
        let Self { capture_id, segment, first_seq } = self;
        json!({"version": 1, "capture_id": capture_id, "segment": segment, "first_seq": first_seq})
            .to_string()
            .into_bytes()
    }

    fn from_json(path: &Path, bytes: &[u8]) -> Result<Self, CaptureError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| CaptureError::corrupt(path, error))?;
        if value["version"] != 1 {
            return Err(CaptureError::newer(path));
        }
        let header = (|| {
            Some(Self {
                capture_id: capture_id(value["capture_id"].as_str()?)?,
                segment: counted(&value["segment"])?,
                first_seq: counted(&value["first_seq"])?,
            })
        })();
        header.ok_or_else(|| CaptureError::corrupt(path, "capture_id, segment or first_seq is missing or invalid"))
    }

    /// The columns of a batch, preceded by those that all rows of a segment share, and `seq` from `first_seq` on.
    pub(crate) fn with_row_columns(&self, batch: &RecordBatch, first_seq: u64) -> Result<Vec<ArrayRef>, ArrowError> {
        let rows = batch.num_rows();
        let capture_ids = StringArray::from_iter_values(std::iter::repeat_n(&self.capture_id, rows));
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(HEADER_COLUMNS + batch.num_columns());
        columns.push(Arc::new(capture_ids));
        columns.extend(self.numbers(rows, first_seq));
        for column in batch.columns() {
            columns.push(match column.as_any_dictionary_opt() {
                Some(names) => arrow_select::take::take(names.values(), names.keys(), None)?,
                None => Arc::clone(column),
            });
        }
        Ok(columns)
    }

    /// The `segment` and `seq` columns.
    pub(crate) fn numbers(&self, rows: usize, first_seq: u64) -> [ArrayRef; 2] {
        let first_seq = column_value(first_seq);
        let segment = Int64Array::from_value(column_value(self.segment), rows);
        let seq = Int64Array::from_iter_values(first_seq..first_seq + i64::try_from(rows).unwrap_or(i64::MAX));
        [Arc::new(segment), Arc::new(seq)]
    }
}

/// A number of rows or segments as a column holds it; 2⁶³ of either cannot be reached.
pub(crate) fn column_value(number: u64) -> i64 {
    i64::try_from(number).expect("a capture numbers fewer than 2^63 rows")
}

/// The journal being written.
pub(crate) struct Journal {
    path: PathBuf,
    file: Box<dyn DiskFile>,
}

impl Journal {
    pub(crate) fn create(disk: &dyn Disk, path: PathBuf, header: &Header) -> Result<Self, CaptureError> {
        let file = disk.create(&path).map_err(|error| CaptureError::writing(&path, error))?;
        let mut journal = Self { path, file };
        journal.append_record(&[header.to_json().as_slice()])?;
        Ok(journal)
    }

    /// Appends a batch, giving the bytes it took.
    pub(crate) fn append(&mut self, batch: &Batch) -> Result<u64, CaptureError> {
        let encoded = encode(&batch.columns).map_err(|error| CaptureError::columns(&self.path, &error))?;
        self.append_record(&encoded.iter().map(Buffer::as_slice).collect::<Vec<_>>())
    }

    pub(crate) fn sync(&mut self) -> Result<(), CaptureError> {
        self.file.sync().map_err(|error| CaptureError::writing(&self.path, error))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn append_record(&mut self, parts: &[&[u8]]) -> Result<u64, CaptureError> {
        let failed = |error| CaptureError::writing(&self.path, error);
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&length.to_le_bytes());
        for part in parts {
            crc.update(part);
        }
        let mut prefix = [0; PREFIX];
        prefix[..4].copy_from_slice(&length.to_le_bytes());
        prefix[4..].copy_from_slice(&crc.finalize().to_le_bytes());
        let slices = std::iter::once(prefix.as_slice()).chain(parts.iter().copied());
        write_all(&mut *self.file, slices).map_err(failed)?;
        Ok(u64::from(length) + PREFIX as u64)
    }
}

fn write_all<'a>(file: &mut dyn DiskFile, slices: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = slices.filter(|slice| !slice.is_empty()).map(IoSlice::new).collect();
    let mut slices = slices.as_mut_slice();
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn encode(batch: &RecordBatch) -> Result<Vec<Buffer>, ArrowError> {
    let columns = without_empty(batch)?;
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?;
    let mut encoder = StreamEncoder::try_new_with_options(&columns.schema(), options)?;
    let mut stream = encoder.encode(&columns)?;
    stream.extend(encoder.finish()?);
    Ok(stream)
}

/// The columns that a record holds: those with a value in some row.
fn without_empty(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let has_something = |column: &ArrayRef| match column.as_list_opt::<i32>() {
        Some(lists) => !lists.values().is_empty(),
        None => column.null_count() < column.len(),
    };
    let columns = batch.columns().iter().enumerate();
    let kept: Vec<usize> = columns.filter(|(_, column)| has_something(column)).map(|(at, _)| at).collect();
    batch.project(&kept)
}

/// All columns of a journal, from those that a record holds.
fn with_empty(record: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let rows = record.num_rows();
    let mut columns = Vec::new();
    for field in journal_schema().fields() {
        columns.push(match record.column_by_name(field.name()) {
            Some(column) => Arc::clone(column),
            None if field.is_nullable() => new_null_array(field.data_type(), rows),
            None => {
                let no_frames = Arc::new(BinaryArray::from_iter_values::<&[u8], _>([]));
                Arc::new(ListArray::try_new(frame_field(), OffsetBuffer::new_zeroed(rows), no_frames, None)?)
            }
        });
    }
    RecordBatch::try_new(journal_schema(), columns)
}

/// The complete records of a journal, and then how many bytes after them are cut.
pub(crate) struct JournalReader<R> {
    path: PathBuf,
    file: R,
    header: Option<Header>,
    next_seq: u64,
    cut_bytes: Option<u64>,
}

impl<R: Read> JournalReader<R> {
    /// Reads the header, which a journal torn at its start lacks.
    pub(crate) fn new(path: PathBuf, file: R) -> Result<Self, CaptureError> {
        let mut reader = Self { path, file, header: None, next_seq: 0, cut_bytes: None };
        if let Some(record) = reader.record()? {
            let header = Header::from_json(&reader.path, &record)?;
            reader.next_seq = header.first_seq;
            reader.header = Some(header);
        }
        Ok(reader)
    }

    pub(crate) fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// The `seq` after the rows read so far.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The bytes after the last complete record, known when there is no further batch.
    pub(crate) fn cut_bytes(&self) -> u64 {
        self.cut_bytes.unwrap_or(0)
    }

    /// The next complete batch as it was appended.
    pub(crate) fn batch(&mut self) -> Result<Option<Batch>, CaptureError> {
        let Some(record) = self.record()? else { return Ok(None) };
        let columns = |error| CaptureError::columns(&self.path, &error);
        let batch = guarded(&self.path, || decode(&record).map_err(columns))?;
        self.next_seq += batch.rows();
        Ok(Some(batch))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next complete batch with the columns of a capture.
    pub(crate) fn capture_batch(&mut self) -> Result<Option<RecordBatch>, CaptureError> {
        let first_seq = self.next_seq;
        let Some(batch) = self.batch()? else { return Ok(None) };
        let Some(header) = &self.header else { return Ok(None) };
        let failed = |error| CaptureError::columns(&self.path, &error);
        guarded(&self.path, || {
            let columns = header.with_row_columns(&batch.columns, first_seq).map_err(failed)?;
            RecordBatch::try_new(schema(), columns).map(Some).map_err(failed)
        })
    }

    fn record(&mut self) -> Result<Option<Vec<u8>>, CaptureError> {
        if self.cut_bytes.is_some() {
            return Ok(None);
        }
        let reading = |error| CaptureError::reading(&self.path, error);
        let mut prefix = Vec::with_capacity(PREFIX);
        (&mut self.file).take(PREFIX as u64).read_to_end(&mut prefix).map_err(reading)?;
        let mut record = Vec::new();
        if let Ok([l0, l1, l2, l3, c0, c1, c2, c3]) = <[u8; PREFIX]>::try_from(prefix.as_slice()) {
            let length = [l0, l1, l2, l3];
            // Grows with the bytes that exist, not with what a torn prefix claims.
            let claimed = u64::from(u32::from_le_bytes(length));
            (&mut self.file).take(claimed).read_to_end(&mut record).map_err(reading)?;
            let mut crc = crc32fast::Hasher::new();
            crc.update(&length);
            crc.update(&record);
            if record.len() as u64 == claimed && crc.finalize() == u32::from_le_bytes([c0, c1, c2, c3]) {
                return Ok(Some(record));
            }
        }
        let rest = io::copy(&mut self.file, &mut io::sink()).map_err(reading)?;
        self.cut_bytes = Some((prefix.len() + record.len()) as u64 + rest);
        Ok(None)
    }
}

/// The batch of a record, which is not trusted: it need not be written by a writer of ours.
fn decode(record: &[u8]) -> Result<Batch, ArrowError> {
    ipc::check(record)?;
    let mut stream = StreamReader::try_new(record, None)?;
    let columns = stream.next().ok_or_else(|| ArrowError::IpcError("a record without a batch".into()))??;
    ipc::check_rows(&columns)?;
    let columns = with_empty(&columns)?;
    let n_bytes = columns["n_bytes"].as_primitive::<Int64Type>();
    let n_bytes = n_bytes.values().iter().filter_map(|n_bytes| u64::try_from(*n_bytes).ok());
    // A message too large for the columns has no frames.
    let frame_bytes = n_bytes.fold(0, u64::saturating_add).min(record.len() as u64);
    Ok(Batch { columns, frame_bytes })
}

#[cfg(test)]
mod tests {
    use trunkline_wire::Framing;

    use super::*;
    use crate::columns::Columns;
    use crate::{Direction, Row};

    #[test]
    fn a_record_is_the_batch_whatever_is_empty_in_it() {
        let row = Row {
            received_at_ns: 1,
            framing: Framing::Dcp,
            endpoint: Some("tcp://127.0.0.1:1"),
            peer: Some(b"peer"),
            direction: Direction::Out,
            topic: Some("topic"),
            reply_to: Some("reply"),
            frames: &[b"".as_slice(), b"DGBX\x01", b"\x02"],
            error: Some("bad_type"),
        };
        let bare = Row { endpoint: None, peer: None, topic: None, reply_to: None, frames: &[], error: None, ..row };
        for rows in [vec![row], vec![bare], vec![row, bare, row], vec![bare; 3]] {
            let mut columns = Columns::default();
            for row in &rows {
                columns.push(row, trunkline_wire::nbytes(row.frames));
            }
            let batch = columns.finish().unwrap();
            let encoded: Vec<u8> = encode(&batch.columns).unwrap().iter().flat_map(|part| part.to_vec()).collect();
            let decoded = decode(&encoded).unwrap();
            assert_eq!(decoded.columns, batch.columns);
            assert_eq!(decoded.frame_bytes, batch.frame_bytes);
        }
    }
}
