//! Divides decoded rows so that related rows stay together.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use foldhash::fast::FixedState;
use trunkline_columns::ColumnError;

use crate::rows::{binary, bytes_at, lists, text, text_at};

/// Every process must divide in the same way.
const SEED: u64 = 0x6469_7669_6465;

/// Divides the rows of a batch into so many parts; gives those that are not empty, each with its number. Rows of a
/// protocol that any fold or summary takes together are in one part, and keep their order.
/// summary takes together are of one part, and keep their order.
pub fn divide(protocol: &str, batch: &RecordBatch, parts: u32) -> Result<Vec<(u64, RecordBatch)>, ColumnError> {
    let mut divided: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (row, hash) in (0..).zip(hashes(protocol, batch)?) {
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
fn hashes(protocol: &str, batch: &RecordBatch) -> Result<Vec<u64>, ColumnError> {
    let rows = 0..batch.num_rows();
    let texts = |names: &[&str]| -> Result<Vec<u64>, ColumnError> {
        let columns = names.iter().map(|name| text(batch, name)).collect::<Result<Vec<_>, _>>()?;
        let parts = |row| columns.iter().map(move |column| text_at(column, row).map(str::as_bytes));
        Ok(rows.clone().map(|row| hash(parts(row))).collect())
    };
    match protocol {
        "cdtp" => texts(&["capture_id", "sender"]),
        "mc0" => texts(&["topic"]),
        // A dead letter is a content of another connection.
        "mtl" => texts(&["capture_id"]),
        "cdt" => texts(&["app_version_name", "endpoint_id"]),
        "dcp" => calls(batch),
        _ => Err(ColumnError::Input(format!("no protocol {protocol}"))),
    }
}

/// The calls of DCP: the client's address, which only a broker's rows have, and the metadata.
fn calls(batch: &RecordBatch) -> Result<Vec<u64>, ColumnError> {
    let (capture_id, direction, kind) = (text(batch, "capture_id")?, text(batch, "direction")?, text(batch, "type")?);
    let (peer, client, metadata) = (binary(batch, "peer")?, binary(batch, "client")?, lists(batch, "metadata")?);
    let frames = metadata.values().as_binary::<i32>();
    let of_row = |row| {
        let asks = text_at(&direction, row) == Some("in") && text_at(&kind, row) == Some("request");
        let client = bytes_at(&client, row);
        let address = bytes_at(&peer, row).and_then(|peer| if asks { client.or(Some(peer)) } else { client });
        let offsets = &metadata.value_offsets()[row..row + 2];
        let length = if metadata.is_valid(row) { offsets[0]..offsets[1] } else { 0..0 };
        let copied = length.map(|at| bytes_at(frames, usize::try_from(at).unwrap_or_default()));
        hash([text_at(&capture_id, row).map(str::as_bytes), address].into_iter().chain(copied))
    };
    Ok((0..batch.num_rows()).map(of_row).collect())
}

fn hash<'a>(parts: impl Iterator<Item = Option<&'a [u8]>>) -> u64 {
    let mut hasher = FixedState::with_seed(SEED).build_hasher();
    for part in parts {
        hasher.write_usize(part.map_or(usize::MAX, <[u8]>::len));
        hasher.write(part.unwrap_or_default());
    }
    hasher.finish()
}
