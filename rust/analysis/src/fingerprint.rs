//! Fingerprints of 128 bits: equal values have equal ones.

use std::hash::{BuildHasher, Hash, Hasher};

use arrow_array::{
    Array, ArrayRef, RecordBatch,
    cast::AsArray,
    types::{Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType},
};
use arrow_schema::{DataType, TimeUnit};
use foldhash::quality::FixedState;
use trunkline_columns::ColumnError;

/// The seeds of the two halves, the same everywhere: another process may read a state.
const SEEDS: [u64; 2] = [0x7472_756e_6b6c_696e, 0x616e_616c_7973_6973];

/// The fingerprint of what `write` writes.
pub(crate) fn fingerprint(write: impl Fn(&mut dyn Hasher)) -> u128 {
    let [high, low] = SEEDS.map(|seed| {
        let mut hasher = FixedState::with_seed(seed).build_hasher();
        write(&mut hasher);
        u128::from(hasher.finish())
    });
    high << 64 | low
}

/// The fingerprint of parts, of which some may be missing.
pub(crate) fn fingerprint_of(parts: &[Option<&[u8]>]) -> u128 {
    fingerprint(|hasher| {
        for part in parts {
            hasher.write_usize(part.map_or(usize::MAX, <[u8]>::len));
            hasher.write(part.unwrap_or_default());
        }
    })
}

/// The columns by which rows are compared.
pub(crate) struct Fingerprints(Vec<ArrayRef>);

impl Fingerprints {
    /// The columns of a batch that are `wanted`.
    pub(crate) fn of(batch: &RecordBatch, wanted: impl Fn(&str) -> bool) -> Self {
        let schema = batch.schema_ref();
        let columns = schema.fields().iter().zip(batch.columns());
        Self(columns.filter(|(field, _)| wanted(field.name())).map(|(_, column)| column.clone()).collect())
    }

    /// The fingerprint of a row's values in them.
    pub(crate) fn at(&self, row: usize) -> Result<u128, ColumnError> {
        if let Some(column) = self.0.iter().find(|column| !is_known(column.data_type())) {
            return Err(ColumnError::Input(format!("a column of {}", column.data_type())));
        }
        Ok(fingerprint(|mut hasher| self.0.iter().for_each(|column| write(column, row, &mut hasher))))
    }
}

#[allow(clippy::wildcard_enum_match_arm)] // Arrow has forty types
fn is_known(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|field| is_known(field.data_type())),
        DataType::List(field) | DataType::Map(field, _) => is_known(field.data_type()),
        DataType::Null
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::Boolean
        | DataType::Int32
        | DataType::Int64
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Timestamp(TimeUnit::Microsecond, _) => true,
        _ => false,
    }
}

#[allow(clippy::wildcard_enum_match_arm)] // others have been refused
fn write(column: &dyn Array, row: usize, hasher: &mut dyn Hasher) {
    column.is_valid(row).hash(&mut Erased(hasher));
    if column.is_null(row) {
        return;
    }
    let mut hasher = Erased(hasher);
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).hash(&mut hasher),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).hash(&mut hasher),
        DataType::Binary => column.as_binary::<i32>().value(row).hash(&mut hasher),
        DataType::LargeBinary => column.as_binary::<i64>().value(row).hash(&mut hasher),
        DataType::Boolean => column.as_boolean().value(row).hash(&mut hasher),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).hash(&mut hasher),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).hash(&mut hasher),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_bits().hash(&mut hasher),
        DataType::Decimal128(..) => column.as_primitive::<Decimal128Type>().value(row).hash(&mut hasher),
        DataType::Timestamp(..) => column.as_primitive::<TimestampMicrosecondType>().value(row).hash(&mut hasher),
        DataType::Struct(_) => {
            column.as_struct().columns().iter().for_each(|part| write(part, row, hasher.0));
        }
        DataType::List(_) => each(&column.as_list::<i32>().value(row), hasher.0),
        DataType::Map(..) => each(&column.as_map().value(row), hasher.0),
        _ => {}
    }
}

fn each(values: &dyn Array, hasher: &mut dyn Hasher) {
    hasher.write_usize(values.len());
    (0..values.len()).for_each(|at| write(values, at, hasher));
}

/// A hasher that `Hash` takes.
struct Erased<'a>(&'a mut dyn Hasher);

impl Hasher for Erased<'_> {
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}
