//! Divides decoded rows so that related rows stay together.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, ListArray, RecordBatch, StringArray, UInt32Array};
use arrow_schema::DataType;
use arrow_select::take::take_record_batch;
use foldhash::fast::FixedState;
use trunkline_columns::ColumnError;

use crate::rows::{binary, bytes_at, lists, text, text_at};

/// Every process must divide in the same way.
const SEED: u64 = 0x6469_7669_6465;

/// What related rows have in common: a value for each part.
pub type Key = &'static [Part];

/// The value of the first of these columns that has one.
pub type Part = &'static [Choice];

/// A column, of the rows in which others have these values, or any for `None`.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Text, bytes, or a list of bytes.
    pub column: &'static str,
    /// The others, which are text, or may be bytes for any value.
    pub when: &'static [(&'static str, Option<&'static str>)],
}

impl Choice {
    /// A column of every row.
    pub(crate) const fn always(column: &'static str) -> Self {
        Self { column, when: &[] }
    }
}

/// Divides the rows of a batch into so many parts; gives those that are not empty, each with its number. Related rows are
/// in one part, and keep their order.
pub fn divide(key: Key, batch: &RecordBatch, parts: u32) -> Result<Vec<(u64, RecordBatch)>, ColumnError> {
    let mut divided: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (row, hash) in (0..).zip(hashes(key, batch)?) {
        divided.entry(hash % u64::from(parts.max(1))).or_default().push(row);
    }
    divided
        .into_iter()
        .map(|(part, rows)| {
            if rows.len() == batch.num_rows() {
                return Ok((part, batch.clone()));
            }
            Ok((part, take_record_batch(batch, &UInt32Array::from(rows))?))
        })
        .collect()
}

/// A number for each row: equal ones for related rows.
fn hashes(key: Key, batch: &RecordBatch) -> Result<Vec<u64>, ColumnError> {
    let parts = key.iter().map(|part| part.iter().map(|choice| InBatch::of(batch, choice)).collect());
    let parts = parts.collect::<Result<Vec<Vec<_>>, _>>()?;
    Ok((0..batch.num_rows()).map(|row| hash(&parts, row)).collect())
}

fn hash(parts: &[Vec<InBatch>], row: usize) -> u64 {
    let mut hasher = FixedState::with_seed(SEED).build_hasher();
    for part in parts {
        let chosen = part.iter().find(|choice| choice.holds(row));
        match chosen.map(|choice| &choice.column) {
            Some(Column::Lists(lists)) => {
                let frames = lists.values().as_binary::<i32>();
                let offsets = &lists.value_offsets()[row..row + 2];
                for at in offsets[0]..offsets[1] {
                    write(&mut hasher, bytes_at(frames, usize::try_from(at).unwrap_or_default()));
                }
            }
            Some(Column::Text(text)) => write(&mut hasher, text_at(text, row).map(str::as_bytes)),
            Some(Column::Bytes(bytes)) => write(&mut hasher, bytes_at(bytes, row)),
            // As an empty list.
            None if part.iter().any(|choice| matches!(choice.column, Column::Lists(_))) => {}
            None => write(&mut hasher, None),
        }
    }
    hasher.finish()
}

fn write(hasher: &mut impl Hasher, value: Option<&[u8]>) {
    hasher.write_usize(value.map_or(usize::MAX, <[u8]>::len));
    hasher.write(value.unwrap_or_default());
}

/// A [`Choice`] in a batch.
struct InBatch {
    column: Column,
    when: Vec<(Column, Option<&'static str>)>,
}

impl InBatch {
    fn of(batch: &RecordBatch, choice: &Choice) -> Result<Self, ColumnError> {
        let when = choice.when.iter().map(|(name, value)| Ok((Column::of(batch, name)?, *value)));
        Ok(Self { column: Column::of(batch, choice.column)?, when: when.collect::<Result<_, ColumnError>>()? })
    }

    /// Whether it has a value in this row.
    fn holds(&self, row: usize) -> bool {
        let is = |(column, value): &(Column, Option<&str>)| match (column, value) {
            (Column::Text(text), Some(value)) => text_at(text, row) == Some(value),
            (_, Some(_)) => false,
            (column, None) => column.has(row),
        };
        self.column.has(row) && self.when.iter().all(is)
    }
}

enum Column {
    Text(StringArray),
    Bytes(BinaryArray),
    Lists(ListArray),
}

impl Column {
    fn of(batch: &RecordBatch, name: &str) -> Result<Self, ColumnError> {
        match batch.column_by_name(name).map(Array::data_type) {
            Some(DataType::List(_) | DataType::LargeList(_)) => lists(batch, name).map(Self::Lists),
            Some(DataType::Binary | DataType::LargeBinary | DataType::BinaryView) => {
                binary(batch, name).map(Self::Bytes)
            }
            _ => text(batch, name).map(Self::Text),
        }
    }

    fn has(&self, row: usize) -> bool {
        match self {
            Self::Text(text) => text.is_valid(row),
            Self::Bytes(bytes) => bytes.is_valid(row),
            Self::Lists(lists) => lists.is_valid(row),
        }
    }
}
