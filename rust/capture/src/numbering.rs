//! A staged file into a segment: what numbers its rows is written behind the rest, with a new footer.
//!
//! Of a Parquet file only its footer says where a column is. So nothing else is read or copied, and what is written is
//! small: consecutive numbers and a single id take a few bytes for thousands of rows.

use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray};
use arrow_schema::Schema;
use bytes::Bytes;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData,
};

use crate::CaptureError;
use crate::disk::Files;
use crate::files::Span;
use crate::journal::Header;
use crate::layout::open;
use crate::names;
use crate::notes::Sum;
use crate::schema::{HEADER_COLUMNS, schema};
use crate::segment::properties;
use crate::staged::Staged;

/// The first bytes of a Parquet file, before its columns.
const MAGIC_BYTES: usize = 4;

/// The most rows that are numbered at a time.
const ROWS: usize = 1 << 16;

/// Numbers the rows of a staged file. Can be repeated.
pub(crate) fn number(
    disk: &dyn Files,
    directory: &Path,
    staged: &Staged,
    header: &Header,
) -> Result<Sum, CaptureError> {
    let path = &directory.join(&staged.name);
    let writing = |error| CaptureError::writing(path, error);
    let mut file = OpenOptions::new().write(true).open(path).map_err(writing)?;
    file.set_len(staged.bytes).map_err(writing)?;
    let source = open(disk, path)?;
    let failed = |error: ParquetError| source.failure(path, error);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&source).map_err(failed)?;
    let (columns, footer) = numbered(&metadata, staged, header).map_err(failed)?;
    let mut crc = crc32fast::Hasher::new_with_initial_len(staged.crc, staged.bytes);
    let mut bytes = staged.bytes;
    let written = (|| -> io::Result<()> {
        file.seek(SeekFrom::Start(staged.bytes))?;
        for part in [&columns[..], &footer] {
            file.write_all(part)?;
            crc.update(part);
            bytes += part.len() as u64;
        }
        file.sync_all()
    })();
    written.map_err(writing)?;
    let counts = Some((staged.rows, staged.frame_bytes));
    Ok(Sum { span: Span::one(header.segment), bytes, crc: crc.finalize(), counts })
}

/// What is to be written behind a file.
fn numbered(metadata: &ParquetMetaData, staged: &Staged, header: &Header) -> Result<(Bytes, Vec<u8>), ParquetError> {
    let properties = properties(header);
    let columns = columns(metadata, header)?;
    let numbers = ParquetMetaDataReader::new().parse_and_finish(&columns)?;
    let ends = numbers.row_groups().iter().flat_map(RowGroupMetaData::columns).map(|column| {
        let (start, length) = column.byte_range();
        start + length
    });
    let end = ends.max().and_then(|end| usize::try_from(end).ok()).unwrap_or(MAGIC_BYTES);
    let moved = i64::try_from(staged.bytes).unwrap_or(i64::MAX) - i64::try_from(MAGIC_BYTES).unwrap_or_default();
    let groups = metadata.row_groups().iter().zip(numbers.row_groups()).map(|(rows, numbers)| {
        let numbers = numbers.columns().iter().map(|column| {
            let dictionary = column.dictionary_page_offset().map(|offset| offset + moved);
            let builder = column.clone().into_builder().set_data_page_offset(column.data_page_offset() + moved);
            builder.set_dictionary_page_offset(dictionary).build()
        });
        let rest = rows.columns()[HEADER_COLUMNS..].iter().map(|column| {
            // Without those of the other columns, the indexes of pages are of no use.
            column.clone().into_builder().set_offset_index_offset(None).set_offset_index_length(None).build()
        });
        let columns = numbers.chain(rest).collect::<Result<Vec<ColumnChunkMetaData>, _>>()?;
        let bytes = columns.iter().map(ColumnChunkMetaData::uncompressed_size).sum();
        rows.clone().into_builder().set_column_metadata(columns).set_total_byte_size(bytes).build()
    });
    let groups = groups.collect::<Result<Vec<RowGroupMetaData>, _>>()?;
    let file = metadata.file_metadata();
    // What is noted of rows stays.
    let numbered = properties.key_value_metadata().into_iter().flatten().cloned();
    let noted = file.key_value_metadata().into_iter().flatten().filter(|pair| names::is_note(pair)).cloned();
    let described = numbered.chain(noted).collect();
    let file = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_owned),
        Some(described),
        file.schema_descr_ptr(),
        file.column_orders().cloned(),
    );
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, &ParquetMetaData::new(file, groups)).finish()?;
    Ok((columns.slice(MAGIC_BYTES..end), footer))
}

/// A file with the columns that number the rows of another.
fn columns(metadata: &ParquetMetaData, header: &Header) -> Result<Bytes, ParquetError> {
    let fields: Vec<_> = schema().fields().iter().take(HEADER_COLUMNS).cloned().collect();
    let schema = Arc::new(Schema::new(fields));
    let options = ArrowWriterOptions::new().with_properties(properties(header)).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(&schema), options)?;
    let mut seq = header.first_seq;
    for group in metadata.row_groups() {
        let mut left = usize::try_from(group.num_rows()).unwrap_or_default();
        while left > 0 {
            let rows = left.min(ROWS);
            let id = StringArray::from_iter_values([&header.capture_id]);
            let ids = DictionaryArray::<Int8Type>::try_new(Int8Array::from_value(0, rows), Arc::new(id))?;
            let [segments, seqs] = header.numbers(rows, seq);
            let columns: [ArrayRef; HEADER_COLUMNS] = [Arc::new(ids), segments, seqs];
            let names = schema.fields().iter().map(|field| field.name());
            writer.write(&RecordBatch::try_from_iter(names.zip(columns))?)?;
            seq += rows as u64;
            left -= rows;
        }
        writer.flush()?;
    }
    writer.into_inner().map(Bytes::from)
}
