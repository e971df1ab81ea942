//! Columns in the types that Spark has: no unsigned numbers, none of half precision, no lists of fixed length.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::{DataType, FieldRef};

use crate::{ColumnError, variant::is_variant};

/// The digits of an unsigned number in 64 bits.
const DIGITS: u8 = 20;

/// The field of Spark's column.
pub(super) fn field(field: &FieldRef) -> FieldRef {
    let of = data_type(field.data_type());
    if of == *field.data_type() { field.clone() } else { Arc::new(field.as_ref().clone().with_data_type(of)) }
}

/// The type of Spark's column.
#[allow(clippy::wildcard_enum_match_arm)] // all others stay as they are
fn data_type(of: &DataType) -> DataType {
    match of {
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(DIGITS, 0),
        DataType::Float16 => DataType::Float32,
        DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::FixedSizeList(item, _) | DataType::List(item) => DataType::List(field(item)),
        DataType::Struct(fields) if !is_variant(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(field(entries), *is_sorted),
        other => other.clone(),
    }
}

/// A column in Spark's type.
pub(super) fn column(column: ArrayRef) -> Result<ArrayRef, ColumnError> {
    let of = data_type(column.data_type());
    if of == *column.data_type() { Ok(column) } else { Ok(cast(&column, &of)?) }
}
