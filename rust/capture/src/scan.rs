//! The rows of one segment.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, GenericByteArray, RecordBatch, new_null_array};
use arrow_schema::{FieldRef, Fields, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use crate::CaptureError;
use crate::account::Account;
use crate::columns::MESSAGE_BYTES_MAX;
use crate::files::Span;
use crate::guard::guarded;
use crate::load::{BATCH_BYTES, batch_rows};
use crate::names::Noted;
use crate::runs::RUN_COLUMNS;
use crate::schema::{N_HEAD, schema};
use crate::selection::Selection;
use crate::source::Source;
use crate::thrift::check_footer;

/// The batches of a segment, with some columns of [`schema`].
pub(crate) struct SegmentReader {
    path: PathBuf,
    file: Source,
    wanted: SchemaRef,
    metadata: ArrowReaderMetadata,
    columns: ProjectionMask,
    groups: vec::IntoIter<usize>,
    /// The batches of one row group, each with as many rows as fit into memory.
    batches: Option<ParquetRecordBatchReader>,
    /// The most bytes of a value, and whether one of this row group may have more.
    most: u64,
    is_doubtful: bool,
    /// The most bytes of the values of a batch.
    batch_bytes: u64,
}

impl SegmentReader {
    pub(crate) fn new(
        path: PathBuf,
        file: Source,
        wanted: SchemaRef,
        selection: &Selection,
        most: u64,
    ) -> Result<Self, CaptureError> {
        check_footer(&path, &file)?;
        let (metadata, columns, groups) = guarded(&path, || {
            let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::default());
            let metadata = metadata.map_err(|error| file.failure(&path, error))?;
            let names = wanted.fields().iter().map(|field| field.name().as_str());
            let columns = ProjectionMask::columns(metadata.parquet_schema(), names);
            let noted = Noted::of(metadata.metadata());
            let is_wanted = |group: &usize| selection.may_have(metadata.metadata(), &noted, *group);
            let groups: Vec<usize> = (0..metadata.metadata().num_row_groups()).filter(is_wanted).collect();
            Ok((metadata, columns, groups))
        })?;
        let groups = groups.into_iter();
        Ok(Self {
            path,
            file,
            wanted,
            metadata,
            columns,
            groups,
            batches: None,
            most,
            is_doubtful: false,
            batch_bytes: BATCH_BYTES,
        })
    }

    /// The same with batches of at most so many bytes, unless they are one row.
    pub(crate) fn of_batches(self, batch_bytes: u64) -> Self {
        Self { batch_bytes, ..self }
    }

    /// The next batch, until there is none.
    pub(crate) fn batch(&mut self) -> Result<Option<RecordBatch>, CaptureError> {
        let Self { path, file, wanted, metadata, columns, groups, batches, most, is_doubtful, batch_bytes } = self;
        guarded(path, || {
            let failed = |error: &dyn fmt::Display| file.failure(path, error);
            loop {
                if let Some(batch) = batches.as_mut().and_then(Iterator::next) {
                    let batch = with_schema(path, &batch.map_err(|error| failed(&error))?, wanted)?;
                    if *is_doubtful {
                        check_values(path, &batch, *most)?;
                    }
                    return Ok(Some(batch));
                }
                let Some(group) = groups.next() else { return Ok(None) };
                let described = metadata.metadata().row_group(group);
                let rows;
                (rows, *is_doubtful) =
                    batch_rows(path, file, described, (*most, *batch_bytes), |leaf| columns.leaf_included(leaf))?;
                let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone());
                let reader = reader.with_row_groups(vec![group]).with_projection(columns.clone()).with_batch_size(rows);
                *batches = Some(reader.build().map_err(|error| failed(&error))?);
            }
        })
    }
}

/// Counts the rows of the segments after one.
pub(crate) fn record_segments(
    account: &mut dyn Account,
    span: Span,
    after: Option<u64>,
    path: &Path,
    file: &Source,
) -> Result<(), CaptureError> {
    let number = |batch: &RecordBatch, name: &str, row: usize| {
        u64::try_from(batch[name].as_primitive::<Int64Type>().value(row)).unwrap_or_default()
    };
    let columns = some_columns(&[&RUN_COLUMNS[..], &["segment"]].concat());
    let selection = Selection::default();
    let mut segments = SegmentReader::new(path.to_owned(), file.clone(), columns, &selection, MESSAGE_BYTES_MAX)?;
    while let Some(batch) = segments.batch()? {
        let mut row = 0;
        while row < batch.num_rows() {
            // If it was not merged, its name gives the number.
            let numbered = |row| if span.is_merged() { number(&batch, "segment", row) } else { span.first };
            let segment = numbered(row);
            let rows = (row..batch.num_rows()).take_while(|row| numbered(*row) == segment).count();
            if after.is_none_or(|after| segment > after) {
                account.record(segment, number(&batch, "seq", row), &batch.slice(row, rows));
            }
            row += rows;
        }
    }
    Ok(())
}

/// Checks that no value of a batch has more bytes than that.
pub(crate) fn check_values(path: &Path, batch: &RecordBatch, most: u64) -> Result<(), CaptureError> {
    let bytes = batch.columns().iter().map(longest_value).max().unwrap_or_default();
    if bytes > most { Err(CaptureError::too_large(path, bytes, most)) } else { Ok(()) }
}

/// The bytes of a column's longest value; of a list, of its longest item.
fn longest_value(column: &ArrayRef) -> u64 {
    if let Some(lists) = column.as_list_opt::<i32>() {
        return longest_value(lists.values());
    }
    let bytes = column.as_binary_opt::<i32>().map(GenericByteArray::value_offsets);
    let offsets = bytes.or_else(|| column.as_string_opt::<i32>().map(GenericByteArray::value_offsets));
    let longest = offsets.and_then(|offsets| offsets.windows(2).map(|ends| ends[1] - ends[0]).max());
    u64::try_from(longest.unwrap_or_default()).unwrap_or_default()
}

/// Some columns of [`schema`], in its order.
pub(crate) fn some_columns(names: &[impl AsRef<str>]) -> SchemaRef {
    let is_wanted = |field: &&FieldRef| names.iter().any(|name| name.as_ref() == field.name());
    let fields: Fields = schema().fields().iter().filter(is_wanted).cloned().collect();
    Arc::new(Schema::new(fields))
}

/// The wanted columns of a batch, with the types and the nullability of [`schema`].
pub(crate) fn with_schema(path: &Path, batch: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch, CaptureError> {
    let failed = |error| CaptureError::columns(path, &error);
    let columns = wanted
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => arrow_cast::cast(column, field.data_type()).map_err(failed),
            None if field.name() == N_HEAD => Ok(new_null_array(field.data_type(), batch.num_rows())),
            None => {
                Err(CaptureError::corrupt(path, format!("is not a segment of a capture: {} is missing", field.name())))
            }
        })
        .collect::<Result<Vec<ArrayRef>, _>>()?;
    RecordBatch::try_new(Arc::clone(wanted), columns).map_err(failed)
}
