//! Checks a record of a journal before Arrow's reader gets it, which allocates whatever length it claims.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::{Message, MessageHeader, root_as_message};
use arrow_schema::{ArrowError, Schema};

use crate::schema::journal_schema;

/// Before the length of each message.
const MARK: [u8; 4] = [0xff; 4];

/// The most rows of a record: a writer appends fewer at a time.
const ROWS_MAX: usize = 1 << 16;

/// The most that the names of a record take when each row has its own.
const NAME_BYTES_MAX: usize = 256 << 20;

/// Checks that a record has the columns of a journal, and no length beyond the record.
pub(crate) fn check(mut record: &[u8]) -> Result<(), ArrowError> {
    let mut has_schema = false;
    while let Some(metadata) = take_metadata(&mut record)? {
        let message = root_as_message(metadata).map_err(|error| fault(&error.to_string()))?;
        let body = usize::try_from(message.bodyLength()).ok().filter(|body| *body <= record.len());
        let body = body.ok_or_else(|| fault("a record is shorter than its header says"))?;
        record = &record[body..];
        if has_schema {
            check_lengths(message, body)?;
        } else {
            let schema = message.header_as_schema().filter(|schema| schema.fields().is_some());
            check_columns(&fb_to_schema(schema.ok_or_else(|| fault("a record does not begin with its columns"))?))?;
            has_schema = true;
        }
    }
    Ok(())
}

/// Checks that the rows of a record fit a batch.
pub(crate) fn check_rows(batch: &RecordBatch) -> Result<(), ArrowError> {
    let rows = batch.num_rows();
    let mut name_bytes = 0_usize;
    for names in batch.columns().iter().filter_map(|column| column.as_any_dictionary_opt()) {
        let longest = names.values().as_string::<i32>().iter().flatten().map(str::len).max().unwrap_or_default();
        name_bytes = name_bytes.saturating_add(longest.saturating_mul(rows));
    }
    if rows > ROWS_MAX || name_bytes > NAME_BYTES_MAX {
        return Err(fault("a record is larger than any writer appends"));
    }
    Ok(())
}

/// The metadata of the next message; none at the end.
fn take_metadata<'a>(record: &mut &'a [u8]) -> Result<Option<&'a [u8]>, ArrowError> {
    if record.is_empty() {
        return Ok(None);
    }
    let metadata = (|| {
        let (length, rest) = record.strip_prefix(&MARK)?.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        rest.split_at_checked(length)
    })();
    let (metadata, rest) = metadata.ok_or_else(|| fault("a record is shorter than its header says"))?;
    *record = rest;
    // An empty message is the last.
    Ok((!metadata.is_empty()).then_some(metadata))
}

fn check_columns(columns: &Schema) -> Result<(), ArrowError> {
    let known = journal_schema();
    let mut seen = Vec::new();
    for column in columns.fields() {
        let is_known = known.field_with_name(column.name()).is_ok_and(|known| known.data_type() == column.data_type());
        if !is_known || seen.contains(&column.name()) {
            return Err(fault(&format!("unexpected column in a journal: {} {}", column.name(), column.data_type())));
        }
        seen.push(column.name());
    }
    // Without a column that every row has, nothing bounds the rows it claims.
    match columns.column_with_name("received_at_ns") {
        Some(_) => Ok(()),
        None => Err(fault("a record without rows")),
    }
}

fn check_lengths(message: Message<'_>, body: usize) -> Result<(), ArrowError> {
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => {
            message.header_as_dictionary_batch().filter(|names| !names.isDelta()).and_then(|names| names.data())
        }
        _ => None,
    };
    let batch = batch.filter(|batch| batch.compression().is_none() && batch.variadicBufferCounts().is_none());
    let batch = batch.ok_or_else(|| fault("a record has a message of a kind no writer appends"))?;
    let fits = |number: i64| usize::try_from(number).ok().filter(|number| *number <= body);
    let rows = fits(batch.length());
    let nodes = batch.nodes().into_iter().flatten();
    let mut nodes = nodes.map(|node| fits(node.length()).zip(fits(node.null_count())));
    let buffers = batch.buffers().into_iter().flatten();
    let mut buffers =
        buffers.map(|buffer| fits(buffer.offset().checked_add(buffer.length())?).zip(fits(buffer.length())));
    let is_right = rows.is_some()
        && nodes.all(|node| node.is_some_and(|(length, nulls)| nulls <= length))
        && buffers.all(|buffer| buffer.is_some_and(|(end, length)| length <= end));
    if is_right { Ok(()) } else { Err(fault("a record has lengths beyond its end")) }
}

fn fault(what: &str) -> ArrowError {
    ArrowError::IpcError(what.to_owned())
}
