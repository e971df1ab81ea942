//! The columns that folds read, of the types they need.

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Int32Array, Int64Array, ListArray, RecordBatch,
    StringArray,
    cast::AsArray,
    types::{Decimal128Type, Int32Type, Int64Type},
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use trunkline_columns::ColumnError;

/// The column that marks selected rows; without it all are.
pub(crate) const CHOSEN: &str = "chosen";

fn column(batch: &RecordBatch, name: &str, data_type: &DataType) -> Result<ArrayRef, ColumnError> {
    let column = batch.column_by_name(name).ok_or_else(|| ColumnError::Input(format!("no column {name}")))?;
    Ok(if column.data_type() == data_type { column.clone() } else { cast(column, data_type)? })
}

pub(crate) fn text(batch: &RecordBatch, name: &str) -> Result<StringArray, ColumnError> {
    Ok(column(batch, name, &DataType::Utf8)?.as_string().clone())
}

pub(crate) fn binary(batch: &RecordBatch, name: &str) -> Result<BinaryArray, ColumnError> {
    Ok(column(batch, name, &DataType::Binary)?.as_binary().clone())
}

pub(crate) fn numbers(batch: &RecordBatch, name: &str) -> Result<Int64Array, ColumnError> {
    Ok(column(batch, name, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

pub(crate) fn small(batch: &RecordBatch, name: &str) -> Result<Int32Array, ColumnError> {
    Ok(column(batch, name, &DataType::Int32)?.as_primitive::<Int32Type>().clone())
}

pub(crate) fn flags(batch: &RecordBatch, name: &str) -> Result<BooleanArray, ColumnError> {
    Ok(column(batch, name, &DataType::Boolean)?.as_boolean().clone())
}

/// A column of numbers that have no sign.
pub(crate) fn decimals(batch: &RecordBatch, name: &str) -> Result<Decimal128Array, ColumnError> {
    Ok(column(batch, name, &DataType::Decimal128(20, 0))?.as_primitive::<Decimal128Type>().clone())
}

/// A column of lists of binaries.
pub(crate) fn lists(batch: &RecordBatch, name: &str) -> Result<ListArray, ColumnError> {
    let list = DataType::List(Field::new("element", DataType::Binary, true).into());
    Ok(column(batch, name, &list)?.as_list::<i32>().clone())
}

/// Which rows are selected.
pub(crate) struct Chosen(Option<BooleanArray>);

impl Chosen {
    pub(crate) fn of(batch: &RecordBatch) -> Result<Self, ColumnError> {
        batch.column_by_name(CHOSEN).map(|_| flags(batch, CHOSEN)).transpose().map(Self)
    }

    pub(crate) fn has(&self, row: usize) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen.is_valid(row) && chosen.value(row))
    }
}

/// A cell of binaries, if it has a value.
pub(crate) fn bytes_at(column: &BinaryArray, row: usize) -> Option<&[u8]> {
    column.is_valid(row).then(|| column.value(row))
}

/// A cell of text, if it has a value.
pub(crate) fn text_at(column: &StringArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row))
}

/// A cell of numbers, if it has a value.
pub(crate) fn number_at(column: &Int64Array, row: usize) -> Option<i64> {
    column.is_valid(row).then(|| column.value(row))
}

/// A cell of numbers that have no sign, if it has a value.
pub(crate) fn decimal_at(column: &Decimal128Array, row: usize) -> Option<u64> {
    column.is_valid(row).then(|| u64::try_from(column.value(row)).unwrap_or(u64::MAX))
}

/// Whether a cell is true.
pub(crate) fn flag_at(column: &BooleanArray, row: usize) -> bool {
    column.is_valid(row) && column.value(row)
}

/// A cell with a number of bytes; zero if it is null.
pub(crate) fn size_at(column: &Int64Array, row: usize) -> u64 {
    number_at(column, row).and_then(|size| u64::try_from(size).ok()).unwrap_or_default()
}
