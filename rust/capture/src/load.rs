//! How many rows of a row group are read at a time: their size in memory is known from the headers of its pages, before
//! any is allocated. A few hundred bytes may expand to gigabytes, as a value in a dictionary to which many rows point.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::Type;
use parquet::column::page::Page::DictionaryPage;
use parquet::column::page::PageReader as _;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use crate::CaptureError;
use crate::columns::MESSAGE_BYTES_MAX;
use crate::source::Source;
use crate::thrift::{Page, check_pages};

/// The most rows of a batch.
const ROWS_MAX: u64 = 8192;

/// The most bytes of the values of a batch, unless it is one row. Row groups are written with less.
pub(crate) const BATCH_BYTES: u64 = 256 << 20;

/// The most bytes of a row: its topic is in two columns.
const ROW_BYTES_MAX: u64 = 2 * MESSAGE_BYTES_MAX;

/// What a value takes besides its bytes.
const VALUE_BYTES: u64 = 8;

/// Parquet's numbers of encodings in which a value may take fewer bytes in the file than in memory.
const PLAIN_DICTIONARY: i64 = 2;
const DELTA_BYTE_ARRAY: i64 = 7;
const RLE_DICTIONARY: i64 = 8;

/// How many rows of a group may be read at a time for a batch of so many bytes, and whether a value may have more bytes than `most`.
///
/// # Errors
/// When one row may take more than a message can, or a value is larger than `most` and than a batch.
pub(crate) fn batch_rows(
    path: &Path,
    file: &Source,
    group: &RowGroupMetaData,
    (most, batch_bytes): (u64, u64),
    is_wanted: impl Fn(usize) -> bool,
) -> Result<(usize, bool), CaptureError> {
    let mut loads = Vec::new();
    for (_, column) in group.columns().iter().enumerate().filter(|(at, _)| is_wanted(*at)) {
        loads.push(Load::of(path, file, column)?);
    }
    let longest = loads.iter().map(|load| load.longest).max().unwrap_or_default();
    // A page counts as one value: values that fit a batch are checked once they are read.
    if longest > most.saturating_add(BATCH_BYTES) {
        return Err(CaptureError::too_large(path, longest, most));
    }
    let bytes = |rows: u64| loads.iter().fold(0_u64, |sum, load| sum.saturating_add(load.bytes(rows)));
    let mut rows = ROWS_MAX;
    while rows > 1 && bytes(rows) > batch_bytes {
        rows /= 2;
    }
    if bytes(rows) > BATCH_BYTES + ROW_BYTES_MAX {
        return Err(CaptureError::corrupt(path, "a row takes more memory than a message can"));
    }
    Ok((usize::try_from(rows).unwrap_or(1), longest > most))
}

/// The size of a column's values.
#[derive(Debug)]
struct Load {
    /// All of them.
    total: u64,
    /// The largest of them.
    longest: u64,
    /// A row may have any number of them.
    is_list: bool,
}

impl Load {
    fn of(path: &Path, file: &Source, column: &ColumnChunkMetaData) -> Result<Self, CaptureError> {
        let pages = check_pages(path, file, column)?;
        let descriptor = column.column_descr();
        // Nulls take the same room.
        let is_fixed = descriptor.physical_type() == Type::FIXED_LEN_BYTE_ARRAY;
        let fixed = if is_fixed { u64::try_from(descriptor.type_length()).unwrap_or_default() } else { 0 };
        let mut load = Self::with(&pages, fixed, |dictionary| dictionary.bytes, descriptor.max_rep_level() > 0);
        let mut dictionaries = pages.iter().filter(|page| page.is_dictionary);
        if let Some(dictionary) = dictionaries.next()
            && load.bytes(ROWS_MAX) > BATCH_BYTES / 16
        {
            if !pages[0].is_dictionary || dictionaries.next().is_some() {
                return Err(CaptureError::corrupt(path, "a column has a dictionary that does not come first"));
            }
            let longest = longest_name(file, column, dictionary.bytes).map_err(|error| file.failure(path, error))?;
            load = Self::with(&pages, fixed, |dictionary| longest.unwrap_or(dictionary.bytes), load.is_list);
        }
        Ok(load)
    }

    fn with(pages: &[Page], fixed: u64, longest_of: impl Fn(&Page) -> u64, is_list: bool) -> Self {
        let named = pages.iter().filter(|page| page.is_dictionary).map(longest_of).max().unwrap_or_default();
        let (mut total, mut longest) = (0_u64, 0);
        for page in pages.iter().filter(|page| !page.is_dictionary) {
            let (all, one) = match page.encoding {
                PLAIN_DICTIONARY | RLE_DICTIONARY => (page.values.saturating_mul(named), named),
                DELTA_BYTE_ARRAY => (page.values.saturating_mul(page.bytes), page.bytes),
                _ => (page.bytes, page.bytes),
            };
            let beside = page.values.saturating_mul(VALUE_BYTES + fixed);
            total = total.saturating_add(all).saturating_add(beside);
            longest = longest.max(one.saturating_add(VALUE_BYTES + fixed));
        }
        Self { total, longest, is_list }
    }

    /// The most bytes of so many rows.
    fn bytes(&self, rows: u64) -> u64 {
        if self.is_list { self.total } else { self.total.min(self.longest.saturating_mul(rows)) }
    }
}

/// The longest text of a column's dictionary; `None` if it has none, or the dictionary itself is large.
fn longest_name(file: &Source, column: &ColumnChunkMetaData, bytes: u64) -> ParquetResult<Option<u64>> {
    if bytes > BATCH_BYTES || column.column_descr().physical_type() != Type::BYTE_ARRAY {
        return Ok(None);
    }
    let values = usize::try_from(column.num_values()).unwrap_or_default();
    let page = SerializedPageReader::new(Arc::new(file.clone()), column, values, None)?.get_next_page()?;
    let Some(DictionaryPage { buf, .. }) = page else { return Ok(None) };
    let (mut rest, mut longest) = (&buf[..], 0);
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        longest = longest.max(length.into());
        rest = after.get(length as usize..).unwrap_or_default();
    }
    Ok(Some(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: u64, values: u64, encoding: i64, is_dictionary: bool) -> Page {
        Page { bytes, values, encoding, is_dictionary, ..Page::default() }
    }

    #[test]
    fn a_value_that_many_rows_point_to_counts_for_each_of_them() {
        let names = [page(1 << 20, 1, 0, true), page(100, 100_000, RLE_DICTIONARY, false)];
        let load = Load::with(&names, 0, |dictionary| dictionary.bytes, false);
        assert_eq!(load.bytes(64), 64 * ((1 << 20) + VALUE_BYTES));
        assert_eq!(load.bytes(u64::MAX), 100_000 * ((1 << 20) + VALUE_BYTES));
        let prefixed = Load::with(&[page(1 << 20, 1000, DELTA_BYTE_ARRAY, false)], 0, |page| page.bytes, false);
        assert_eq!(prefixed.bytes(3), 3 * ((1 << 20) + VALUE_BYTES));
        let fixed = Load::with(&[page(0, 1000, 0, false)], 1 << 20, |page| page.bytes, false);
        assert_eq!(fixed.bytes(3), 3 * ((1 << 20) + VALUE_BYTES));
    }

    #[test]
    fn a_row_may_have_all_frames_of_a_group() {
        let frames = Load::with(&[page(4000, 1000, 0, false); 2], 0, |page| page.bytes, true);
        assert_eq!(frames.bytes(1), 2 * (4000 + 1000 * VALUE_BYTES));
    }
}
