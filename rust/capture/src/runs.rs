//! The runs of a capture, written down as JSON lines.
//!
//! They hold the state when a segment was published: the runs that ended in it and the maps of its BORs and EORs,
//! neither of which a later file repeats, and the latest run of each sender. They are written before the segment has
//! its name, so every published segment is covered by a file of its number or a later one; rows after the last file are
//! counted from the rows themselves.

use std::collections::HashMap;
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
use trunkline_wire::cdtp::{Boundary, Cdtp, Closed, Condition, MAP_BYTES, Run, RunBook, RunRow, SENDERS, Unfollowed};

use crate::CaptureError;
use crate::account::Account;
use crate::rows::texts;

/// The most gaps of all senders that are written down together.
const GAPS_MAX: usize = 1 << 16;

/// How often files may be replaced while runs are read from them.
pub(crate) const RUN_TRIES: usize = 100;

/// The columns that runs are counted from.
pub(crate) const RUN_COLUMNS: [&str; 7] =
    ["seq", "received_at_ns", "protocol", "header", "payload", "n_frames", "n_bytes"];

/// A run of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    pub capture_id: String,
    pub sender: String,
    pub run: Run,
    /// Whether it goes on, as far as is known.
    pub is_in_progress: bool,
}

/// The runs of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// In the order they began.
    pub runs: Vec<RunRecord>,
    /// What is missing among them.
    pub unfollowed: Unfollowed,
}

impl Account for RunBook {
    fn record(&mut self, segment: u64, first_seq: u64, batch: &RecordBatch) {
        record(self, segment, first_seq, batch);
    }

    fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes()
    }

    fn forget_written(&mut self) {
        self.forget_written();
    }

    fn open_segments(&self, from: u64) -> Vec<u64> {
        self.open_segments(from).collect()
    }

    fn let_go(&self) -> u64 {
        self.unfollowed().senders
    }

    fn to_lines(&self) -> Vec<u8> {
        to_lines(self)
    }

    fn go_on_from(&mut self, path: &Path, lines: &[u8]) -> Result<bool, CaptureError> {
        let mut maps = Maps::new();
        let (over, book) = from_lines(path, lines, &mut maps)?;
        *self = book;
        // What is written down once stays in that file.
        self.forget_written();
        Ok(!over.is_empty() || !maps.is_empty())
    }

    fn copy(&self) -> Box<dyn Account> {
        Box::new(self.clone())
    }
}

/// Adds the rows of a batch to a book.
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
    let (keys, names) = texts(protocol);
    let is_cdtp: Vec<bool> = names.iter().map(|name| name == Some(Cdtp::NAME)).collect();
    move |row| is_cdtp[keys.as_ref().map_or(row, |keys| keys[row])]
}

/// The maps of BORs and EORs by the `seq` of their rows: each is in one file, that of the segment with the row.
pub(crate) type Maps = HashMap<u64, Bytes>;

/// A line for each run, ended ones first.
fn to_lines(book: &RunBook) -> Vec<u8> {
    let mut lines = String::new();
    let closed = book.closed().iter().map(|Closed { sender, run }| to_json(sender, run, None));
    let gaps = GAPS_MAX / book.latest().count().max(1);
    for line in closed.chain(book.latest().map(|(sender, run)| to_json(sender, run, Some(gaps)))) {
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    let Unfollowed { senders, messages } = book.unfollowed();
    if senders > 0 || messages > 0 {
        lines.push_str(&json!({"unfollowed": {"senders": senders, "messages": messages}}).to_string());
        lines.push('\n');
    }
    lines.into_bytes()
}

/// The line of a run; for an open one with its highest gaps, up to this many.
fn to_json(sender: &str, run: &Run, gaps: Option<usize>) -> Value {
    let boundary = |boundary: &Option<Boundary>| {
        let Some(Boundary { segment, seq, map, is_map_written, said, run_id, data_records }) = boundary else {
            return Value::Null;
        };
        let (map, said) =
            (map.as_ref().map_or_else(|| json!(is_map_written), |map| STANDARD.encode(map).into()), said.code());
        json!({"segment": segment, "seq": seq, "map": map, "said": said, "run_id": run_id, "data_records": data_records})
    };
    let condition = run.condition();
    let mut value = json!({
        "sender": sender,
        "ordinal": run.ordinal,
        "over": gaps.is_none(),
        "condition": condition.to_string(),
        "condition_code": condition.code(),
        "first_seq": run.first_seq,
        "last_seq": run.last_seq,
        "bor": boundary(&run.begin),
        "eor": boundary(&run.end),
        "goes_on": run.goes_on,
        "messages": run.messages,
        "bytes": run.bytes,
        "missed": run.missed,
        "highest": run.highest,
        "duplicates": run.duplicates,
        "out_of_order": run.out_of_order,
        "first_received_at_ns": run.first_received_at_ns,
        "last_received_at_ns": run.last_received_at_ns,
    });
    if let Some(most) = gaps {
        value["gaps"] = json!(run.gaps[run.gaps.len().saturating_sub(most)..]);
    }
    value
}

/// The contents of a file: the ended runs, and a book that goes on from there. Its maps are added to the others.
pub(crate) fn from_lines(
    path: &Path,
    lines: &[u8],
    maps: &mut Maps,
) -> Result<(Vec<(String, Run)>, RunBook), CaptureError> {
    let mut over = Vec::new();
    let mut book = RunBook::default();
    for line in lines.lines() {
        let line = line.map_err(|error| CaptureError::corrupt(path, error))?;
        let line: Value = serde_json::from_str(&line).map_err(|error| CaptureError::corrupt(path, error))?;
        if let Some(unfollowed) = line.get("unfollowed") {
            let count = |name: &str| unfollowed[name].as_u64().unwrap_or_default();
            book.restore_unfollowed(Unfollowed { senders: count("senders"), messages: count("messages") });
            continue;
        }
        let run = from_json(&line).zip(line["sender"].as_str());
        let (run, sender) = run.ok_or_else(|| CaptureError::corrupt(path, "contains an invalid record of a run"))?;
        for boundary in [&run.begin, &run.end].into_iter().flatten() {
            if let Some(map) = &boundary.map {
                maps.insert(boundary.seq, map.clone());
            }
        }
        if line["over"] == true {
            over.push((sender.to_owned(), run));
        } else if book.latest().count() < SENDERS {
            book.restore(sender, run);
        } else {
            return Err(CaptureError::corrupt(path, "has more senders than can be followed"));
        }
    }
    Ok((over, book))
}

/// Restores the maps of a run, which are in other lines.
pub(crate) fn find_maps(run: &mut Run, maps: &Maps) {
    for boundary in [&mut run.begin, &mut run.end].into_iter().flatten() {
        if boundary.map.is_none() && boundary.is_map_written {
            boundary.map = maps.get(&boundary.seq).cloned();
        }
    }
}

fn from_json(value: &Value) -> Option<Run> {
    let number = |name: &str| value[name].as_u64();
    let gaps = value["gaps"].as_array().map_or(&[][..], Vec::as_slice);
    let gaps = Some(gaps).filter(|gaps| gaps.len() <= GAPS_MAX)?;
    Some(Run {
        ordinal: number("ordinal")?,
        first_seq: number("first_seq")?,
        // Missing in earlier versions.
        last_seq: number("last_seq").or_else(|| number("first_seq"))?,
        begin: boundary(&value["bor"])?,
        end: boundary(&value["eor"])?,
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

/// A BOR or EOR, or a missing one.
#[allow(clippy::option_option)]
fn boundary(value: &Value) -> Option<Option<Boundary>> {
    if value.is_null() {
        return Some(None);
    }
    let map = match value["map"].as_str() {
        Some(map) => Some(Bytes::from(STANDARD.decode(map).ok().filter(|map| map.len() as u64 <= MAP_BYTES)?)),
        None => None,
    };
    let mut boundary = Boundary::new(value["segment"].as_u64()?, value["seq"].as_u64()?, map);
    if boundary.map.is_none() {
        boundary.is_map_written = value["map"] == true;
        boundary.said = Condition::from_code(value["said"].as_i64().unwrap_or_default());
        boundary.run_id = value["run_id"].as_str().map(Into::into);
        boundary.data_records = value["data_records"].as_u64();
    }
    Some(Some(boundary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip() {
        let run = Run {
            ordinal: 3,
            first_seq: 17,
            last_seq: 41,
            begin: Some(Boundary::new(1, 17, Some(Bytes::from_static(b"\x81\xa6run_id\xa1r")))),
            end: Some(Boundary::new(2, 40, Some(Bytes::from_static(b"\x81\xacdata_records\x09")))),
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
        let lines = to_lines(&book);
        assert_eq!(lines.lines().count(), 2);
        let mut maps = Maps::new();
        let (over, mut again) = from_lines(Path::new("runs"), &lines, &mut maps).unwrap();
        assert!(over.is_empty());
        let senders = ["d\n\u{202e}", ""];
        assert_eq!(again.latest().collect::<Vec<_>>(), [(senders[0], &run), (senders[1], &Run::default())]);
        // The next file lacks the map, and is otherwise equal.
        again.forget_written();
        let (_, book) = from_lines(Path::new("runs"), &to_lines(&again), &mut maps).unwrap();
        let mut later = book.latest().next().unwrap().1.clone();
        assert_eq!((later.config(), later.run_id(), later.condition()), (None, Some("r"), run.condition()));
        assert_eq!(later.end.as_ref().unwrap().data_records, Some(9));
        find_maps(&mut later, &maps);
        assert_eq!(later.config(), run.config());
    }

    #[test]
    fn what_is_not_followed_is_written_down() {
        let mut book = RunBook::default();
        let unfollowed = Unfollowed { senders: 1, messages: 2 };
        book.restore_unfollowed(unfollowed);
        let (_, book) = from_lines(Path::new("runs"), &to_lines(&book), &mut Maps::new()).unwrap();
        assert_eq!(book.unfollowed(), unfollowed);
    }
}
