//! Bodies as numbers that are equal for equal bodies: folds need no more of them.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, cast::AsArray};
use arrow_schema::{DataType, Field, Schema};
use trunkline_columns::ColumnError;
use twox_hash::XxHash64;

use crate::rows::{binary, lists};

const BODY: &str = "body";

/// The seed of Spark's `xxhash64`. It and this module give equal bodies equal numbers.
const SEED: u64 = 42;

/// The rows with a number in place of each body, which is bytes or a list of frames. Numbers stay.
pub(crate) fn hashed(batch: RecordBatch) -> Result<RecordBatch, ColumnError> {
    let schema = batch.schema_ref();
    let raw = schema.column_with_name(BODY).filter(|(_, field)| *field.data_type() != DataType::Int64);
    let Some((at, field)) = raw else { return Ok(batch) };
    let hashes: Vec<u64> = if field.data_type().is_list() {
        let bodies = lists(&batch, BODY)?;
        bodies.iter().map(|frames| frames.map_or(SEED, |frames| of_frames(&frames))).collect()
    } else {
        let bodies = binary(&batch, BODY)?;
        bodies.iter().map(|body| body.map_or(SEED, |body| XxHash64::oneshot(SEED, body))).collect()
    };
    let hashes = Int64Array::from_iter_values(hashes.into_iter().map(u64::cast_signed));
    let mut fields = schema.fields().to_vec();
    fields[at] = Arc::new(Field::new(BODY, DataType::Int64, true));
    let mut columns = batch.columns().to_vec();
    columns[at] = Arc::new(hashes);
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// The hash of each frame is the seed of the next one.
fn of_frames(frames: &ArrayRef) -> u64 {
    frames.as_binary::<i32>().iter().flatten().fold(SEED, XxHash64::oneshot)
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        BinaryArray,
        builder::{BinaryBuilder, ListBuilder},
        types::Int64Type,
    };

    use super::*;

    fn numbers_of(bodies: ArrayRef) -> Vec<i64> {
        let batch = RecordBatch::try_from_iter_with_nullable([(BODY, bodies, true)]).unwrap();
        hashed(batch).unwrap().column(0).as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn numbers_are_those_of_spark() {
        let long: Vec<u8> = (0..100).collect();
        let bodies: Vec<Option<&[u8]>> = vec![Some(b""), Some(b"a"), Some(b"12345678"), Some(&long), None];
        let of_spark = [
            -7_444_071_767_201_028_348,
            -8_582_455_328_737_087_284,
            6_863_040_065_134_489_090,
            -9_107_075_101_236_275_961,
            42,
        ];
        assert_eq!(numbers_of(Arc::new(BinaryArray::from(bodies))), of_spark);
    }

    #[test]
    fn numbers_of_frames_are_those_of_spark() {
        let mut bodies = ListBuilder::new(BinaryBuilder::new());
        let frames: [&[Option<&[u8]>]; 4] =
            [&[], &[Some(b"a")], &[Some(b"a"), Some(b"bc")], &[None, Some(b"x"), Some(b"")]];
        for frames in frames {
            bodies.append_value(frames.iter().copied());
        }
        bodies.append_null();
        let of_spark = [42, -8_582_455_328_737_087_284, 714_843_003_905_237_701, -817_586_847_176_701_807, 42];
        assert_eq!(numbers_of(Arc::new(bodies.finish())), of_spark);
    }

    #[test]
    fn numbers_stay() {
        assert_eq!(numbers_of(Arc::new(Int64Array::from(vec![7, -1]))), [7, -1]);
    }
}
