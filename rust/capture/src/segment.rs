//! A Parquet segment, encoded batch by batch while the journal grows.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{ArrayRef, DictionaryArray, Int8Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
#[cfg(not(test))]
use parquet::basic::ZstdLevel;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::columns::Batch;
use crate::disk::{Disk, DiskFile};
use crate::files::Span;
use crate::guard::guarded;
use crate::journal::Header;
use crate::manifest::capture_id;
use crate::names::{NamesOfGroups, PROGRAM};
use crate::notes::Sum;
use crate::schema::{journal_schema, schema};
use crate::source::Source;
use crate::thrift::check_footer;
use crate::{CaptureError, files};

/// A row group ends when its rows take this much before encoding.
const ROW_GROUP_BYTES: u64 = 60 << 20;

/// About what a row takes besides its frames.
const ROW_BYTES: u64 = 48;

/// What a frame in a list takes besides its bytes, so that empty ones count for readers.
const LISTED_BYTES: u64 = 12;

/// Small enough that a page and its compressed form stay in the cache, and that the allocator reuses their memory: for
/// larger ones it asks the system each time.
const PAGE_BYTES: usize = 64 << 10;

const CAPTURE_ID: &str = "trunkline.capture_id";
const FIRST_SEQ: &str = "trunkline.first_seq";

/// The segment being encoded into its dot-file.
pub(crate) struct SegmentWriter {
    path: PathBuf,
    parquet: ArrowWriter<WatchedFile>,
    /// The disk's error, which a Parquet error may hold only as text.
    disk_error: Arc<Mutex<Option<io::Error>>>,
    header: Header,
    capture_id: ArrayRef,
    next_seq: u64,
    row_group_bytes: u64,
    frame_bytes: u64,
    names: NamesOfGroups,
}

impl SegmentWriter {
    pub(crate) fn create(disk: &dyn Disk, path: PathBuf, header: Header) -> Result<Self, CaptureError> {
        let file = disk.create(&path).map_err(|error| CaptureError::writing(&path, error))?;
        let disk_error = Arc::default();
        let file = WatchedFile { file, bytes: 0, crc: crc32fast::Hasher::new(), error: Arc::clone(&disk_error) };
        // Readers must see the plain types, not the dictionaries that rows come in.
        let options = ArrowWriterOptions::new().with_properties(properties(&header)).with_skip_arrow_metadata(true);
        let parquet = ArrowWriter::try_new_with_options(file, schema(), options)
            .map_err(|error| failure(&path, &disk_error, &error))?;
        let capture_id = Arc::new(StringArray::from_iter_values([&header.capture_id]));
        Ok(Self {
            path,
            parquet,
            disk_error,
            next_seq: header.first_seq,
            header,
            capture_id,
            row_group_bytes: 0,
            frame_bytes: 0,
            names: NamesOfGroups::default(),
        })
    }

    pub(crate) fn append(&mut self, batch: &Batch) -> Result<(), CaptureError> {
        let rows = self.encodable(&batch.columns);
        self.write(batch, &rows.map_err(|error| CaptureError::columns(&self.path, &error))?)
    }

    fn write(&mut self, batch: &Batch, rows: &RecordBatch) -> Result<(), CaptureError> {
        let bytes = batch.frame_bytes + ROW_BYTES * batch.rows() + LISTED_BYTES * batch.listed();
        self.write_rows(rows, bytes)?;
        self.frame_bytes += batch.frame_bytes;
        self.next_seq += batch.rows();
        Ok(())
    }

    /// Writes rows that take so many bytes before encoding, in a row group that has room for them.
    fn write_rows(&mut self, rows: &RecordBatch, bytes: u64) -> Result<(), CaptureError> {
        let written = (|| {
            if self.row_group_bytes.saturating_add(bytes) > ROW_GROUP_BYTES && self.row_group_bytes > 0 {
                self.parquet.flush()?;
                self.names.end_group();
                self.row_group_bytes = 0;
            }
            self.row_group_bytes = self.row_group_bytes.saturating_add(bytes);
            self.names.add(rows);
            self.parquet.write(rows)
        })();
        written.map_err(|error: ParquetError| failure(&self.path, &self.disk_error, &error))
    }

    /// Appends rows that keep the numbers they have in their captures.
    pub(crate) fn append_as(&mut self, batch: &Batch, ids: ArrayRef, seqs: ArrayRef) -> Result<(), CaptureError> {
        let segments = Int64Array::from_value(0, batch.columns.num_rows());
        let fields = ["capture_id", "segment", "seq"].into_iter().zip([ids, Arc::new(segments), seqs]);
        let columns = fields.chain(
            batch
                .columns
                .schema_ref()
                .fields()
                .iter()
                .map(|field| &**field.name())
                .zip(batch.columns.columns().iter().cloned()),
        );
        let keyed = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)));
        let keyed = keyed.map_err(|error| CaptureError::columns(&self.path, &error))?;
        self.write(batch, &keyed)
    }

    /// Appends rows that have the columns of segments already.
    pub(crate) fn append_rows(&mut self, rows: &RecordBatch) -> Result<(), CaptureError> {
        let n_bytes = rows["n_bytes"].as_primitive::<Int64Type>().values().iter();
        let frames = n_bytes.filter_map(|bytes| u64::try_from(*bytes).ok()).fold(0, u64::saturating_add);
        self.write_rows(rows, frames + ROW_BYTES * rows.num_rows() as u64)?;
        self.frame_bytes = self.frame_bytes.saturating_add(frames);
        self.next_seq += rows.num_rows() as u64;
        Ok(())
    }

    /// Writes the footer and syncs: from here on a rename makes it a segment. Gives the checksum of what was written.
    pub(crate) fn finish(self) -> Result<Sum, CaptureError> {
        let Self { path, mut parquet, disk_error, header, next_seq, frame_bytes, names, .. } = self;
        if let Some(names) = names.finish() {
            parquet.append_key_value_metadata(names);
        }
        let counts = Some((next_seq - header.first_seq, frame_bytes));
        let written = parquet.into_inner().map_err(|error| failure(&path, &disk_error, &error))?;
        let WatchedFile { mut file, bytes, crc, .. } = written;
        file.sync().map_err(|error| CaptureError::writing(&path, error))?;
        Ok(Sum { span: Span::one(header.segment), bytes, crc: crc.finalize(), counts })
    }

    /// The batch with the columns that its segment shares, names still as dictionaries.
    fn encodable(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
            let name = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
            let shared = [
                Arc::new(Field::new("capture_id", name, false)),
                Arc::new(Field::new("segment", DataType::Int64, false)),
                Arc::new(Field::new("seq", DataType::Int64, false)),
            ];
            Arc::new(Schema::new(
                shared.into_iter().chain(journal_schema().fields().iter().cloned()).collect::<Vec<_>>(),
            ))
        });
        let rows = batch.num_rows();
        let capture_id = DictionaryArray::<Int8Type>::try_new(Int8Array::from_value(0, rows), self.capture_id.clone())?;
        let mut columns: Vec<ArrayRef> = vec![Arc::new(capture_id)];
        columns.extend(self.header.numbers(rows, self.next_seq));
        columns.extend(batch.columns().iter().cloned());
        RecordBatch::try_new(Arc::clone(&SCHEMA), columns)
    }
}

/// A file that keeps its error, and the checksum of what was written to it.
struct WatchedFile {
    file: Box<dyn DiskFile>,
    bytes: u64,
    crc: crc32fast::Hasher,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl WatchedFile {
    fn watch<T>(&mut self, step: impl FnOnce(&mut dyn DiskFile) -> io::Result<T>) -> io::Result<T> {
        step(&mut *self.file).map_err(|error| {
            let kind = error.kind();
            if kind != io::ErrorKind::Interrupted {
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
            kind.into()
        })
    }
}

impl Write for WatchedFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.watch(|file| file.write(buffer))?;
        self.crc.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.watch(|file| file.flush())
    }
}

fn failure(path: &Path, disk_error: &Mutex<Option<io::Error>>, error: &ParquetError) -> CaptureError {
    match disk_error.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => CaptureError::writing(path, error),
        None => CaptureError::corrupt(path, error),
    }
}

pub(crate) fn properties(header: &Header) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_created_by(format!("{PROGRAM}{}", env!("CARGO_PKG_VERSION")))
        .set_compression(compression())
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(None)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_key_value_metadata(Some(vec![
            KeyValue::new(CAPTURE_ID.into(), header.capture_id.clone()),
            KeyValue::new(FIRST_SEQ.into(), header.first_seq.to_string()),
        ]));
    for name in ["capture_id", "protocol", "endpoint", "peer", "direction", "topic", "reply_to", "error"] {
        builder = builder.set_column_dictionary_enabled(ColumnPath::from(name), true);
    }
    // Encoded, these take almost no room, while each compressor takes time to set up.
    for name in ["capture_id", "segment", "seq", "protocol", "endpoint", "direction", "n_head", "n_frames", "error"] {
        builder = builder.set_column_compression(ColumnPath::from(name), Compression::UNCOMPRESSED);
    }
    for name in ["segment", "seq", "received_at_ns", "n_head", "n_frames", "n_bytes"] {
        builder = builder.set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
    }
    // Lengths between frames cost a compressor more than the frames: without them it finds repetitions sooner.
    for path in
        [ColumnPath::from("header"), ColumnPath::new(["payload", "list", "element"].map(str::to_owned).to_vec())]
    {
        builder = builder.set_column_encoding(path, Encoding::DELTA_LENGTH_BYTE_ARRAY);
    }
    for name in ["segment", "seq", "received_at_ns"] {
        builder = builder.set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Chunk);
    }
    builder.build()
}

/// At its default level, 1.
#[cfg(not(test))]
fn compression() -> Compression {
    Compression::ZSTD(ZstdLevel::default())
}

/// A compressor asks the processor for its features, which is slow on a virtual machine, and tests make thousands.
#[cfg(test)]
fn compression() -> Compression {
    Compression::UNCOMPRESSED
}

/// The metadata of a published segment about its rows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SegmentSummary {
    pub(crate) capture_id: String,
    pub(crate) next_seq: u64,
}

impl SegmentSummary {
    pub(crate) fn read(path: &Path, file: &Source) -> Result<Self, CaptureError> {
        check_footer(path, file)?;
        guarded(path, || {
            let metadata =
                ParquetMetaDataReader::new().parse_and_finish(file).map_err(|error| file.failure(path, error))?;
            Self::of(&metadata).ok_or_else(|| CaptureError::corrupt(path, "is not a segment of a capture"))
        })
    }

    fn of(metadata: &ParquetMetaData) -> Option<Self> {
        let file = metadata.file_metadata();
        let value = |key| file.key_value_metadata()?.iter().find(|pair| pair.key == key)?.value.as_deref();
        let first_seq: u64 = value(FIRST_SEQ)?.parse().ok()?;
        let rows = u64::try_from(file.num_rows()).ok()?;
        let next_seq = first_seq.checked_add(rows).filter(|next| *next <= files::NUMBER_MAX)?;
        Some(Self { capture_id: capture_id(value(CAPTURE_ID)?)?, next_seq })
    }
}
