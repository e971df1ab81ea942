//! The runs of a capture, written down as JSON lines.
//!
//! `_capture/<segment>.parquet` has them sealed. It says how things stood when that segment was published: the runs that came to their end in it,
//! which no later file repeats, and the latest run of each sender. It is written before its segment has its name, so
//! every published segment is accounted for in a file of its number or a later one; rows after the last file are
//! counted anew from the rows themselves.

use std::io::BufRead as _;
use std::path::Path;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, BinaryArray, RecordBatch};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use trunkline_wire::Protocol as _;
use trunkline_wire::cdtp::{Boundary, Cdtp, Closed, Run, RunBook, RunRow};

use crate::CaptureError;
use crate::account::Account;

/// The columns that runs are counted from.
pub(crate) const RUN_COLUMNS: [&str; 7] =
    ["seq", "received_at_ns", "protocol", "header", "payload", "n_frames", "n_bytes"];

/// A run of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The capture's id.
    pub capture_id: String,
    /// The sender's name.
    pub sender: String,
    /// What came of it.
    pub run: Run,
}

impl Account for RunBook {
    fn record(&mut self, segment: u64, first_seq: u64, batch: &RecordBatch) {
        record(self, segment, first_seq, batch);
    }

    fn over(&self) -> usize {
        self.closed().len()
    }

    fn forget_over(&mut self) {
        self.forget_closed();
    }

    fn first_open_segment(&self) -> Option<u64> {
        self.first_open_segment()
    }

    fn to_file(&self, segment: u64) -> Vec<u8> {
        to_lines(segment, self)
    }

    fn go_on_from(&mut self, path: &Path, file: &[u8]) -> Result<usize, CaptureError> {
        let (over, book) = from_lines(path, file)?;
        *self = book;
        Ok(over.len())
    }

    fn copy(&self) -> Box<dyn Account> {
        Box::new(self.clone())
    }
}

/// Tells a book of the rows of a batch.
fn record(book: &mut RunBook, segment: u64, first_seq: u64, batch: &RecordBatch) {
    let is_cdtp = cdtp_rows(&batch["protocol"]);
    let received = batch["received_at_ns"].as_primitive::<Int64Type>();
    let n_bytes = batch["n_bytes"].as_primitive::<Int64Type>();
    let n_frames = batch["n_frames"].as_primitive::<Int32Type>();
    let header = batch["header"].as_binary::<i32>();
    let payload = batch["payload"].as_list::<i32>();
    let payload_frames: &BinaryArray = payload.values().as_binary();
    let at = |end: i32| usize::try_from(end).unwrap_or_default();
    for (row, seq) in (0..batch.num_rows()).zip(first_seq..) {
        if !is_cdtp(row) || header.is_null(row) {
            continue;
        }
        let [start, end] = [row, row + 1].map(|end| at(payload.value_offsets()[end]));
        book.record(&RunRow {
            segment,
            seq,
            received_at_ns: received.value(row),
            n_bytes: u64::try_from(n_bytes.value(row)).unwrap_or_default(),
            n_frames: usize::try_from(n_frames.value(row)).unwrap_or_default(),
            header: header.value(row),
            payload: (start < end).then(|| payload_frames.value(start)),
        });
    }
}

fn cdtp_rows(protocol: &ArrayRef) -> impl Fn(usize) -> bool {
    let (keys, names) = match protocol.as_any_dictionary_opt() {
        Some(dictionary) => (Some(dictionary.normalized_keys()), dictionary.values()),
        None => (None, protocol),
    };
    let is_cdtp: Vec<bool> = names.as_string::<i32>().iter().map(|name| name == Some(Cdtp::NAME)).collect();
    move |row| is_cdtp[keys.as_ref().map_or(row, |keys| keys[row])]
}

/// The file of a segment.
fn to_lines(segment: u64, book: &RunBook) -> Vec<u8> {
    let mut lines = json!({"version": 1, "segment": segment}).to_string();
    let closed = book.closed().iter().map(|Closed { sender, run }| (&**sender, run, true));
    for (sender, run, is_over) in closed.chain(book.latest().map(|(sender, run)| (sender, run, false))) {
        lines.push('\n');
        lines.push_str(&to_json(sender, run, is_over).to_string());
    }
    lines.push('\n');
    lines.into_bytes()
}

fn to_json(sender: &str, run: &Run, is_over: bool) -> Value {
    let boundary = |boundary: &Option<Boundary>| {
        let Some(Boundary { segment, seq, map }) = boundary else { return Value::Null };
        json!({"segment": segment, "seq": seq, "map": map.as_ref().map(|map| STANDARD.encode(map))})
    };
    let condition = run.condition();
    let mut value = json!({
        "sender": sender,
        "ordinal": run.ordinal,
        "run_id": run.run_id(),
        "over": is_over,
        "condition": condition.to_string(),
        "condition_code": condition.code(),
        "first_seq": run.first_seq,
        "bor": boundary(&run.begin),
        "eor": boundary(&run.end),
        "goes_on": run.goes_on,
        "messages": run.messages,
        "bytes": run.bytes,
        "missed": run.missed,
        "duplicates": run.duplicates,
        "out_of_order": run.out_of_order,
        "first_received_at_ns": run.first_received_at_ns,
        "last_received_at_ns": run.last_received_at_ns,
    });
    if !is_over {
        value["highest"] = json!(run.highest);
        value["gaps"] = json!(run.gaps);
    }
    value
}

/// What a file holds: the runs that are over, and a book that goes on from there.
pub(crate) fn from_lines(path: &Path, bytes: &[u8]) -> Result<(Vec<(String, Run)>, RunBook), CaptureError> {
    let mut lines = bytes.lines().map(|line| {
        let line = line.map_err(|error| CaptureError::corrupt(path, error))?;
        serde_json::from_str::<Value>(&line).map_err(|error| CaptureError::corrupt(path, error))
    });
    let head = lines.next().transpose()?.unwrap_or_default();
    match head["version"].as_u64() {
        Some(1) => {}
        Some(_) => return Err(CaptureError::corrupt(path, "was written by a newer trunkline")),
        None => return Err(CaptureError::corrupt(path, "is no record of runs")),
    }
    let mut over = Vec::new();
    let mut book = RunBook::default();
    for line in lines {
        let line = line?;
        let run = from_json(&line).zip(line["sender"].as_str());
        let (run, sender) = run.ok_or_else(|| CaptureError::corrupt(path, "holds what is no record of a run"))?;
        if line["over"] == true {
            over.push((sender.to_owned(), run));
        } else {
            book.restore(sender, run);
        }
    }
    Ok((over, book))
}

fn from_json(value: &Value) -> Option<Run> {
    let number = |name: &str| value[name].as_u64();
    let boundary = |name: &str| {
        let boundary = &value[name];
        if boundary.is_null() {
            return Some(None);
        }
        let map = match boundary["map"].as_str() {
            Some(map) => Some(Bytes::from(STANDARD.decode(map).ok()?)),
            None => None,
        };
        Some(Some(Boundary { segment: boundary["segment"].as_u64()?, seq: boundary["seq"].as_u64()?, map }))
    };
    let gaps = value["gaps"].as_array().map_or(&[][..], Vec::as_slice);
    Some(Run {
        ordinal: number("ordinal")?,
        first_seq: number("first_seq")?,
        begin: boundary("bor")?,
        end: boundary("eor")?,
        goes_on: value["goes_on"].as_bool()?,
        messages: number("messages")?,
        bytes: number("bytes")?,
        missed: number("missed")?,
        duplicates: number("duplicates")?,
        out_of_order: number("out_of_order")?,
        first_received_at_ns: value["first_received_at_ns"].as_i64()?,
        last_received_at_ns: value["last_received_at_ns"].as_i64()?,
        highest: number("highest"),
        gaps: gaps.iter().map(|gap| gap[0].as_u64().zip(gap[1].as_u64())).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip() {
        let run = Run {
            ordinal: 3,
            first_seq: 17,
            begin: Some(Boundary { segment: 1, seq: 17, map: Some(Bytes::from_static(b"\x81\xa6run_id\xa1r")) }),
            end: Some(Boundary { segment: 2, seq: 40, map: None }),
            goes_on: true,
            messages: 1,
            bytes: 2,
            missed: 3,
            duplicates: 4,
            out_of_order: 5,
            first_received_at_ns: i64::MIN,
            last_received_at_ns: i64::MAX,
            highest: Some(7),
            gaps: vec![(1, 2), (5, 5)],
        };
        let mut book = RunBook::default();
        book.restore("d\n\u{202e}", run.clone());
        book.restore("", Run::default());
        let lines = to_lines(9, &book);
        assert_eq!(lines.lines().count(), 3);
        let (over, book) = from_lines(Path::new("runs"), &lines).unwrap();
        assert!(over.is_empty());
        assert_eq!(book.latest().collect::<Vec<_>>(), [("d\n\u{202e}", &run), ("", &Run::default())]);
    }
}
