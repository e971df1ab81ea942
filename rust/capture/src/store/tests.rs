//! A store on a disk that fails, stops and loses data.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use trunkline_wire::Framing;
use trunkline_wire::cdtp::{Run, RunBook};

use std::io;

use super::*;
use crate::CaptureErrorKind;
use crate::Keep;
use crate::columns::Columns;
use crate::disk::Files;
use crate::faults::{Fault, FaultyDisk, Loss};
use crate::retention::Now;
use crate::runs::{self, Maps};
use crate::source::Source;
use crate::{Direction, Row, Rows};

const DIRECTORY: &str = "capture";
/// The rows of [`record`].
const ROWS: u64 = 21;
const UNBOUNDED: u64 = u64::MAX;

/// The header of the row of this number: runs of four messages, with a number missing in each.
fn header(number: u64) -> Vec<u8> {
    let (kind, sequence) = [(1, 0), (0, 1), (0, 3), (2, 3)][usize::try_from(number % 4).unwrap()];
    [&b"\xa5CDTP\x01\xa1d"[..], &[kind, sequence, 0x80]].concat()
}

/// Rows that hold their number, so that each row read back can be identified.
fn batch(numbers: impl IntoIterator<Item = u64>) -> Batch {
    let mut columns = Columns::default();
    for number in numbers {
        let (header, number) = (header(number), number.to_le_bytes());
        let frames = [&header[..], &number];
        let row = Row {
            received_at_ns: 0,
            framing: Framing::Cdtp,
            endpoint: Some("tcp://127.0.0.1:1"),
            peer: None,
            direction: Direction::In,
            topic: None,
            reply_to: None,
            frames: &frames,
            error: None,
        };
        columns.push(&row, 14);
    }
    columns.finish().unwrap()
}

/// Rows of one message.
fn batch_of(frames: &[&[u8]], rows: usize) -> Batch {
    let mut columns = Columns::default();
    for _ in 0..rows {
        let row = Row {
            received_at_ns: 0,
            framing: Framing::Cdtp,
            endpoint: None,
            peer: None,
            direction: Direction::In,
            topic: None,
            reply_to: None,
            frames,
            error: None,
        };
        columns.push(&row, frames.iter().map(|frame| frame.len() as u64).sum());
    }
    columns.finish().unwrap()
}

/// A time at which neither clock has been set since 1970.
fn at(wall: SystemTime) -> Now {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(Instant::now);
    Now { wall, monotonic: *origin + wall.duration_since(UNIX_EPOCH).unwrap() }
}

fn open(disk: &FaultyDisk) -> Result<(Store, Recovery), CaptureError> {
    Store::open(Arc::new(disk.clone()), Path::new(DIRECTORY), &|| true)
}

/// A run with all operations, giving how many rows were reported durable before something failed.
fn record(disk: &FaultyDisk) -> (u64, Result<(), CaptureError>) {
    record_keeping(disk, Keep::default())
}

fn record_keeping(disk: &FaultyDisk, keep: Keep) -> (u64, Result<(), CaptureError>) {
    let mut durable = 0;
    let ended = (|| {
        let (mut store, _) = open(disk)?;
        let first = store.next_seq();
        let mut numbers = first..first;
        for step in 0..7 {
            numbers = numbers.end..numbers.end + 3;
            store.append(&batch(numbers.clone()), 140)?;
            durable = durable.max(store.durable_seq());
            match step {
                0 | 1 | 5 => store.sync()?,
                2 => store.publish()?,
                _ => {}
            }
            store.trim(keep, at(UNIX_EPOCH))?;
            durable = durable.max(store.durable_seq());
        }
        store.publish()?;
        durable = store.durable_seq();
        store.trim(keep, at(UNIX_EPOCH))?;
        Ok(())
    })();
    (durable, ended)
}

/// A disk with one segment of three rows.
fn second_run() -> FaultyDisk {
    let disk = FaultyDisk::default();
    let (mut store, _) = open(&disk).unwrap();
    store.append(&batch(0..3), UNBOUNDED).unwrap();
    store.publish().unwrap();
    disk
}

/// The calls that a run on such a disk makes.
fn calls_of_second_run() -> usize {
    let disk = second_run();
    disk.set_fault(usize::MAX, Fault::Stop);
    record(&disk).1.unwrap();
    disk.calls()
}

/// Reads what is published, checks that rows have no gap and no duplicate, and gives their number.
fn published_rows(disk: &FaultyDisk) -> u64 {
    published(disk, 0)
}

/// The same of rows from `first` on, giving the number after the last.
fn published(disk: &FaultyDisk, first: u64) -> u64 {
    let mut next = first;
    let mut ids = BTreeSet::new();
    for span in Listing::new(disk.list(Path::new(DIRECTORY)).unwrap()).segments {
        let file = disk.contents(&Path::new(DIRECTORY).join(span.file()));
        for batch in ParquetRecordBatchReader::try_new(Bytes::from(file), 100).unwrap() {
            let batch: RecordBatch = batch.unwrap();
            let rows = Rows::new(&batch);
            let seqs = batch["seq"].as_primitive::<Int64Type>();
            let segments = batch["segment"].as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                assert_eq!(seqs.value(row), i64::try_from(next).unwrap());
                assert!(span.contains(u64::try_from(segments.value(row)).unwrap()), "{span}");
                let frames: Vec<&[u8]> = rows.frames(row).collect();
                assert_eq!(frames, [&header(next)[..], &next.to_le_bytes()]);
                next += 1;
            }
            ids.extend(batch["capture_id"].as_string::<i32>().iter().flatten().map(str::to_owned));
        }
    }
    assert!(ids.len() <= 1, "{ids:?}");
    next
}

/// Compares what is written down of the runs with the published rows.
fn runs_are_those_of_the_rows(disk: &FaultyDisk) {
    let directory = Path::new(DIRECTORY);
    let mut expected = RunBook::default();
    for span in Listing::new(disk.list(directory).unwrap()).segments {
        let path = directory.join(span.file());
        let file = Source::from(Bytes::from(disk.contents(&path)));
        record_segments(&mut expected, span, None, &path, &file).unwrap();
    }
    let (mut over, mut latest, mut maps) = (vec![], RunBook::default(), Maps::new());
    for number in list_notes(disk, directory).unwrap() {
        let path = directory.join(files::notes(number));
        let file = disk.contents(&path);
        let (_, lines) = notes::from_text(&path, unseal(&path, &file).unwrap()).unwrap();
        let (more, book) = runs::from_lines(&path, lines, &mut maps).unwrap();
        over.extend(more);
        latest = book;
    }
    let summary = |sender: &str, run: &Run| {
        (sender.to_owned(), run.ordinal, run.first_seq, run.messages, run.missed, run.bytes, run.end.clone())
    };
    let expected_over: Vec<_> = expected.closed().iter().map(|run| summary(&run.sender, &run.run)).collect();
    assert_eq!(over.iter().map(|(sender, run)| summary(sender, run)).collect::<Vec<_>>(), expected_over);
    let [latest, expected] = [&latest, &expected]
        .map(|book| book.latest().map(|(sender, run)| (sender.to_owned(), run.clone())).collect::<Vec<_>>());
    assert_eq!(latest, expected);
}

/// Starts again after a crash: what was durable is there, and the next run goes on where the rows end.
fn holds_after_restart(disk: &FaultyDisk, durable: u64) {
    let (mut store, _) = open(disk).unwrap();
    let rows = store.next_seq();
    assert!(rows >= durable, "{rows} rows of {durable} durable ones");
    store.append(&batch(rows..rows + 2), UNBOUNDED).unwrap();
    store.publish().unwrap();
    assert_eq!(published_rows(disk), rows + 2);
    runs_are_those_of_the_rows(disk);
    let listing = Listing::new(disk.list(Path::new(DIRECTORY)).unwrap());
    assert!(listing.journals.is_empty() && listing.partials.is_empty(), "{listing:?}");
}

#[test]
fn a_run_and_the_next() {
    let disk = FaultyDisk::default();
    for run in 1..=2 {
        let (durable, ended) = record(&disk);
        ended.unwrap();
        assert_eq!((durable, published_rows(&disk)), (ROWS * run, ROWS * run));
        runs_are_those_of_the_rows(&disk);
    }
}

#[test]
fn segments_without_notes_are_summed_as_long_as_that_goes_on() {
    let disk = FaultyDisk::default();
    record(&disk).1.unwrap();
    let directory = Path::new(DIRECTORY);
    for number in list_notes(&disk, directory).unwrap() {
        disk.remove(&directory.join(files::notes(number))).unwrap();
    }
    let opened = Store::open(Arc::new(disk.clone()), directory, &|| false);
    assert_eq!(opened.err().map(|error| error.kind()), Some(CaptureErrorKind::Unreadable));
    open(&disk).unwrap();
    runs_are_those_of_the_rows(&disk);
}

#[test]
fn a_segment_stays_within_its_bound() {
    let disk = FaultyDisk::default();
    let (mut store, _) = open(&disk).unwrap();
    for number in 0..10 {
        store.append(&batch(number..=number), 30).unwrap();
    }
    assert_eq!(store.segments(), 4);
    store.append(&batch(10..20), 30).unwrap();
    store.append(&batch(20..21), 30).unwrap();
    assert_eq!(store.segments(), 6);
    store.publish().unwrap();
    assert_eq!(published_rows(&disk), 21);
}

#[test]
fn stopping_before_any_call_loses_nothing_durable() {
    let calls = calls_of_second_run();
    assert!(calls > 60, "{calls}");
    for call in 0..calls {
        for loss in Loss::ALL {
            let disk = second_run();
            disk.set_fault(call, Fault::Stop);
            let (durable, ended) = record(&disk);
            assert!(ended.is_err());
            holds_after_restart(&disk.after(loss), durable.max(3));
        }
    }
}

/// The disk as an earlier version would have left it.
fn unsealed(disk: &FaultyDisk) -> FaultyDisk {
    let directory = Path::new(DIRECTORY);
    let runs = list_notes(disk, directory).unwrap();
    let names = runs.into_iter().map(|number| (files::notes(number), files::plain_notes(number)));
    for (sealed, plain) in names.chain([(files::MANIFEST.into(), files::PLAIN_MANIFEST.into())]) {
        let [sealed, plain] = [sealed, plain].map(|name: String| directory.join(name));
        let file = disk.contents(&sealed);
        disk.remove(&sealed).unwrap();
        disk.create(&plain).unwrap();
        disk.set_contents(&plain, unseal(&sealed, &file).unwrap().to_vec());
    }
    disk.after(Loss::Process)
}

fn plain_names(disk: &FaultyDisk) -> Vec<String> {
    let names = disk.list(Path::new(DIRECTORY)).unwrap().into_iter();
    names.filter(|name| name == files::PLAIN_MANIFEST || name.starts_with(files::PLAIN_NOTES)).collect()
}

#[test]
fn a_capture_of_an_earlier_version_is_taken_over_whatever_comes_between() {
    let before = second_run();
    let (runs, known) =
        (list_notes(&before, Path::new(DIRECTORY)).unwrap(), read_manifest(&before, Path::new(DIRECTORY)));
    assert!(!runs.is_empty());
    let taken_over = unsealed(&before);
    assert_eq!(read_manifest(&taken_over, Path::new(DIRECTORY)).unwrap(), known.unwrap());
    open(&taken_over).unwrap();
    assert_eq!(plain_names(&taken_over), Vec::<String>::new());
    let calls = taken_over.calls();
    for call in 0..calls {
        for loss in Loss::ALL {
            let disk = unsealed(&second_run());
            disk.set_fault(call, Fault::Stop);
            assert!(open(&disk).is_err(), "call {call}");
            let disk = disk.after(loss);
            assert_eq!(list_notes(&disk, Path::new(DIRECTORY)).unwrap().first(), runs.first(), "call {call}, {loss:?}");
            holds_after_restart(&disk, 3);
            assert_eq!(plain_names(&disk), Vec::<String>::new(), "call {call}, {loss:?}");
        }
    }
}

fn segments(disk: &FaultyDisk) -> Vec<u64> {
    let spans = Listing::new(disk.list(Path::new(DIRECTORY)).unwrap()).segments;
    spans.into_iter().flat_map(|span| span.first..=span.last).collect()
}

/// A disk with the segments of rows 0 to 2, 3 to 5 and so on; runs begin in rows 0, 4, 8 and end in 3, 7, 11.
fn rows_by_threes(rows: u64) -> (FaultyDisk, Store) {
    let disk = FaultyDisk::default();
    let (mut store, _) = open(&disk).unwrap();
    for start in (0..rows).step_by(3) {
        store.append(&batch(start..rows.min(start + 3)), UNBOUNDED).unwrap();
        store.publish().unwrap();
    }
    (disk, store)
}

#[test]
fn the_oldest_segments_go_and_the_latest_stays() {
    let (disk, mut store) = rows_by_threes(12);
    let facts =
        |disk: &FaultyDisk, number| disk.size_and_time(&Path::new(DIRECTORY).join(files::segment(number))).unwrap();
    let [first, second, third, fourth] = [0, 1, 2, 3].map(|number| facts(&disk, number).0);
    let all = first + second + third + fourth + notes_bytes(&disk);
    for (bytes, left) in [(all, 0..4), (all - 1, 1..4), (all - first, 1..4), (0, 3..4)] {
        store.trim(Keep { bytes: Some(bytes), age: None }, at(UNIX_EPOCH)).unwrap();
        assert_eq!(segments(&disk), left.collect::<Vec<_>>(), "{bytes} bytes");
    }
    assert_eq!(store.deleted(), 3);
    assert_eq!(published(&disk, 9), 12);

    let (disk, _) = rows_by_threes(12);
    let (mut store, _) = open(&disk).unwrap();
    let keep = Keep { bytes: None, age: Some(Duration::from_secs(60)) };
    let published = facts(&disk, 1).1;
    store.trim(keep, at(published + Duration::from_secs(60))).unwrap();
    assert_eq!(segments(&disk), [1, 2, 3]);
    store.trim(keep, at(UNIX_EPOCH)).unwrap();
    assert_eq!(segments(&disk), [1, 2, 3]);
}

#[test]
fn a_clock_that_is_set_makes_no_segment_old() {
    let (disk, _) = rows_by_threes(12);
    let (mut store, _) = open(&disk).unwrap();
    let keep = Keep { bytes: None, age: Some(Duration::from_secs(60)) };
    let (_, published) = disk.size_and_time(&Path::new(DIRECTORY).join(files::segment(3))).unwrap();
    let start = at(published);
    store.trim(keep, start).unwrap();
    let kept = segments(&disk);
    let mut trim = |wall, later| {
        store.append(&batch(12..13), UNBOUNDED).unwrap();
        store.publish().unwrap();
        store.trim(keep, Now { wall, monotonic: start.monotonic + Duration::from_secs(later) }).unwrap();
        segments(&disk)
    };
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    for (wall, latest) in [(published + year, 4), (published - Duration::from_secs(1), 5), (UNIX_EPOCH, 6)] {
        assert_eq!(trim(wall, 1), kept.iter().copied().chain(4..=latest).collect::<Vec<_>>());
    }
    // What is old by the monotonic clock is deleted, whatever the wall clock shows.
    assert_eq!(trim(UNIX_EPOCH, 61), [4, 5, 6, 7]);
}

/// The bytes of the notes beside the segments.
fn notes_bytes(disk: &FaultyDisk) -> u64 {
    let path = |number: &u64| Path::new(DIRECTORY).join(files::notes(*number));
    list_notes(disk, Path::new(DIRECTORY)).unwrap().iter().map(|number| disk.contents(&path(number)).len() as u64).sum()
}

#[test]
fn an_open_run_keeps_its_segments_for_a_tenth_of_the_bytes() {
    // The run of row 4 has not ended.
    let (disk, mut store) = rows_by_threes(7);
    let segment_bytes: u64 = [1, 2]
        .map(|number| disk.contents(&Path::new(DIRECTORY).join(files::segment(number))).len() as u64)
        .iter()
        .sum();
    let held = segment_bytes + notes_bytes(&disk);
    let trim = |store: &mut Store, bytes| store.trim(Keep { bytes: Some(bytes), age: None }, at(UNIX_EPOCH)).unwrap();
    trim(&mut store, held - held / 11);
    assert_eq!((segments(&disk), store.let_go()), (vec![1, 2], 0));
    // Also after a restart.
    let (mut store, _) = open(&disk).unwrap();
    trim(&mut store, held - held / 11);
    assert_eq!((segments(&disk), store.let_go()), (vec![1, 2], 0));
    trim(&mut store, held - held / 9);
    assert_eq!((segments(&disk), store.let_go()), (vec![2], 1));
}

#[test]
fn an_open_run_keeps_its_segments_for_a_day() {
    let (disk, _) = rows_by_threes(7);
    let (mut store, _) = open(&disk).unwrap();
    let (_, published) = disk.size_and_time(&Path::new(DIRECTORY).join(files::segment(1))).unwrap();
    let keep = Keep { bytes: None, age: Some(Duration::from_secs(60)) };
    let day = Duration::from_secs(24 * 60 * 60);
    store.trim(keep, at(published + keep.age.unwrap() + day)).unwrap();
    assert_eq!((segments(&disk), store.let_go()), (vec![1, 2], 0));
    store.trim(keep, at(published + keep.age.unwrap() + day + Duration::from_secs(1))).unwrap();
    assert_eq!((segments(&disk), store.let_go()), (vec![2], 1));
}

#[test]
fn the_end_of_a_run_sets_its_segments_free() {
    let (disk, mut store) = rows_by_threes(7);
    let keep = Keep { bytes: None, age: Some(Duration::ZERO) };
    let [soon, later] = [1000, 1001].map(|after| at(UNIX_EPOCH + Duration::from_secs(after)));
    store.trim(keep, soon).unwrap();
    store.trim(keep, later).unwrap();
    assert_eq!(segments(&disk), [1, 2]);
    store.append(&batch(7..8), UNBOUNDED).unwrap();
    store.publish().unwrap();
    store.trim(keep, later).unwrap();
    assert_eq!((segments(&disk), store.let_go()), (vec![3], 0));
}

#[test]
fn notes_on_deleted_segments_take_a_tenth_at_most() {
    let (disk, mut store) = rows_by_threes(120);
    let before = list_notes(&disk, Path::new(DIRECTORY)).unwrap().len();
    let bytes = 4 * notes_bytes(&disk) / before as u64;
    store.trim(Keep { bytes: Some(10 * bytes), age: None }, at(UNIX_EPOCH)).unwrap();
    let first = segments(&disk)[0];
    let on_deleted = list_notes(&disk, Path::new(DIRECTORY)).unwrap().into_iter().filter(|number| *number < first);
    assert!((2..=4).contains(&on_deleted.count()));
    // Only the latest is left.
    store.trim(Keep { bytes: Some(0), age: None }, at(UNIX_EPOCH)).unwrap();
    assert_eq!((segments(&disk), list_notes(&disk, Path::new(DIRECTORY)).unwrap()), (vec![39], vec![39]));
    let (mut store, _) = open(&disk).unwrap();
    store.append(&batch(120..122), UNBOUNDED).unwrap();
    store.publish().unwrap();
    assert_eq!(published(&disk, 117), 122);
}

#[test]
fn a_map_is_written_down_once() {
    let disk = FaultyDisk::default();
    let (mut store, _) = open(&disk).unwrap();
    let map = [&b"\x81\xa1k\xc5\xf0\x00"[..], &vec![0; 0xf000]].concat();
    let write = |store: &mut Store, sender: &str, map: &[u8]| {
        let header = [b"\xa5CDTP\x01\xa4", sender.as_bytes(), &[1, 0, 0x80]].concat();
        store.append(&batch_of(&[&header, map], 1), UNBOUNDED).unwrap();
        store.publish().unwrap();
    };
    for sender in ["aaaa", "bbbb", "cccc"] {
        write(&mut store, sender, &map);
    }
    let before = notes_bytes(&disk);
    assert!(before > 3 * 0xf000);
    for _ in 0..5 {
        write(&mut store, "dddd", b"\x80");
    }
    assert!(notes_bytes(&disk) < before + 0xf000);
    let (mut store, _) = open(&disk).unwrap();
    write(&mut store, "dddd", b"\x80");
    assert!(notes_bytes(&disk) < before + 0xf000);
}

#[test]
fn rows_of_empty_frames_do_not_grow_a_segment_without_end() {
    let disk = FaultyDisk::default();
    let (mut store, _) = open(&disk).unwrap();
    let empty = vec![b"".as_slice(); 10_000];
    let rows = batch_of(&empty, 40);
    assert_eq!(rows.frame_bytes, 0);
    while store.segments() < 2 {
        store.append(&rows, 1).unwrap();
        assert!(store.next_seq() < 1000);
    }
}

#[test]
fn each_segment_has_the_sum_of_its_bytes_written_down() {
    let disk = FaultyDisk::default();
    record(&disk).1.unwrap();
    let (mut store, _) = open(&disk).unwrap();
    // Rows without an account: their notes are removed by the next.
    for _ in 0..3 {
        store.append(&batch_of(&[b"no header"], 1), UNBOUNDED).unwrap();
        store.publish().unwrap();
    }
    drop(store);
    let (_, recovery) = open(&disk).unwrap();
    assert_eq!(recovery, Recovery::default());
    let mut sums = Vec::new();
    for number in list_notes(&disk, Path::new(DIRECTORY)).unwrap() {
        let path = Path::new(DIRECTORY).join(files::notes(number));
        let file = disk.contents(&path);
        sums.extend(notes::from_text(&path, unseal(&path, &file).unwrap()).unwrap().0);
    }
    let expected: Vec<Sum> = segments(&disk)
        .into_iter()
        .map(|number| {
            let file = disk.contents(&Path::new(DIRECTORY).join(files::segment(number)));
            Sum { span: Span::one(number), bytes: file.len() as u64, crc: crc32fast::hash(&file), counts: None }
        })
        .collect();
    let of_bytes = sums.into_iter().map(|sum: Sum| Sum { counts: None, ..sum });
    assert_eq!(of_bytes.collect::<Vec<_>>(), expected);
}

#[test]
fn stopping_before_any_call_loses_nothing_that_is_kept() {
    let keep = Keep { bytes: Some(1), age: None };
    let counted = second_run();
    counted.set_fault(usize::MAX, Fault::Stop);
    record_keeping(&counted, keep).1.unwrap();
    let left = segments(&counted);
    assert_eq!(left, [left[0]]);
    for call in 0..counted.calls() {
        for loss in Loss::ALL {
            let disk = second_run();
            disk.set_fault(call, Fault::Stop);
            let (durable, ended) = record_keeping(&disk, keep);
            assert!(ended.is_err());
            let disk = disk.after(loss);
            let (mut store, _) = open(&disk).unwrap();
            let first = segments(&disk)[0];
            let summary = Bytes::from(disk.contents(&Path::new(DIRECTORY).join(files::segment(first))));
            let first_row = SegmentSummary::read(Path::new(""), &Source::from(summary)).unwrap().next_seq;
            let rows = store.next_seq();
            assert!(rows >= durable.max(3));
            assert!(store.account.open_segments(0).iter().all(|needed| *needed >= first));
            store.append(&batch(rows..rows + 2), UNBOUNDED).unwrap();
            store.publish().unwrap();
            // The oldest one left is removed, and the rest has no gap.
            disk.remove(&Path::new(DIRECTORY).join(files::segment(first))).unwrap();
            assert_eq!(published(&disk, first_row), rows + 2, "call {call}, {loss:?}");
        }
    }
}

#[test]
fn stopping_a_recovery_loses_nothing_either() {
    for call in (0..calls_of_second_run()).step_by(3) {
        let disk = second_run();
        disk.set_fault(call, Fault::Stop);
        let (durable, _) = record(&disk);
        for again in 0.. {
            let disk = disk.after(Loss::DataAndNames);
            disk.set_fault(again, Fault::Stop);
            if open(&disk).is_ok() {
                break;
            }
            holds_after_restart(&disk.after(Loss::DataAndNames), durable.max(3));
        }
    }
}

#[test]
fn a_first_run_can_be_stopped_before_any_call() {
    let counted = FaultyDisk::default();
    record(&counted).1.unwrap();
    for call in 0..counted.calls() {
        for loss in Loss::ALL {
            let disk = FaultyDisk::default();
            disk.set_fault(call, Fault::Stop);
            let (durable, ended) = record(&disk);
            assert!(ended.is_err());
            holds_after_restart(&disk.after(loss), durable);
        }
    }
}

#[test]
fn any_call_that_fails_is_reported_and_final() {
    for (error, kind) in
        [(io::ErrorKind::StorageFull, CaptureErrorKind::Full), (io::ErrorKind::Other, CaptureErrorKind::Unwritable)]
    {
        for call in 0..calls_of_second_run() {
            let disk = second_run();
            disk.set_fault(call, Fault::Fail(error));
            let (durable, ended) = record(&disk);
            assert_eq!(ended.unwrap_err().kind(), kind, "call {call}");
            holds_after_restart(&disk.after(Loss::DataAndNames), durable.max(3));
        }
    }
}

#[test]
fn any_read_that_fails_is_reported_and_loses_nothing() {
    // Everything to read: the manifest, a journal that was left, and a segment that is not counted yet.
    let left = || {
        let disk = second_run();
        let (mut store, _) = open(&disk).unwrap();
        store.append(&batch(3..6), UNBOUNDED).unwrap();
        store.publish().unwrap();
        store.append(&batch(6..9), UNBOUNDED).unwrap();
        store.sync().unwrap();
        disk.remove(&Path::new(DIRECTORY).join(files::notes(1))).unwrap();
        disk.remove(&Path::new(DIRECTORY).join(files::MANIFEST)).unwrap();
        disk.after(Loss::Process)
    };
    let keep = Keep { bytes: Some(1 << 30), age: None };
    let counted = left();
    counted.set_read_fault(usize::MAX);
    record_keeping(&counted, keep).1.unwrap();
    for read in 0..counted.reads() {
        let disk = left();
        disk.set_read_fault(read);
        let (durable, ended) = record_keeping(&disk, keep);
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), CaptureErrorKind::Unreadable, "read {read}: {error}");
        holds_after_restart(&disk.after(Loss::DataAndNames), durable.max(9));
    }
}

#[test]
fn a_full_disk_gets_the_half_encoded_segment_back() {
    let disk = FaultyDisk::default();
    let (mut store, _) = open(&disk).unwrap();
    store.append(&batch(0..3), UNBOUNDED).unwrap();
    disk.set_fault(0, Fault::Fail(io::ErrorKind::StorageFull));
    store.append(&batch(3..6), UNBOUNDED).unwrap_err();
    store.abandon();
    let listing = Listing::new(disk.list(Path::new(DIRECTORY)).unwrap());
    assert_eq!((listing.partials, listing.journals), (vec![], vec![0]));
}

#[test]
fn a_journal_cut_or_bent_at_any_byte_gives_whole_batches() {
    let whole = FaultyDisk::default();
    let (mut store, _) = open(&whole).unwrap();
    let mut ends = vec![];
    let path = Path::new(DIRECTORY).join(files::journal(0));
    for numbers in [0..2, 2..3, 3..6] {
        store.append(&batch(numbers), UNBOUNDED).unwrap();
        ends.push(whole.contents(&path).len());
    }
    store.sync().unwrap();
    let journal = whole.contents(&path);
    let batch_rows = [2, 1, 3];
    let rows_of = |bytes: usize| -> u64 {
        ends.iter().zip(batch_rows).filter(|(end, _)| **end <= bytes).map(|(_, rows)| rows).sum()
    };
    for at in 0..=journal.len() {
        let disk = whole.after(Loss::Process);
        disk.set_contents(&path, journal[..at].to_vec());
        let (_, recovery) = open(&disk).unwrap();
        assert_eq!(published_rows(&disk), rows_of(at), "cut at {at}");
        assert_eq!(recovery.rows, rows_of(at));
        let kept = ends.iter().filter(|end| **end <= at).max();
        let Some(kept) = kept else { continue };
        assert_eq!(recovery.cut_bytes, (at - kept) as u64);
    }
    for at in 0..journal.len() {
        let disk = whole.after(Loss::Process);
        let mut bent = journal.clone();
        bent[at] ^= 0x10;
        disk.set_contents(&path, bent);
        open(&disk).unwrap();
        assert_eq!(published_rows(&disk), rows_of(at), "bent at {at}");
    }
}

#[test]
fn a_lost_manifest_is_made_again_from_the_last_segment() {
    let disk = FaultyDisk::default();
    record(&disk).1.unwrap();
    let (store, _) = open(&disk).unwrap();
    let before = store.manifest;
    disk.remove(&Path::new(DIRECTORY).join(files::MANIFEST)).unwrap();
    let (store, _) = open(&disk).unwrap();
    assert_eq!(store.manifest, before);
    assert_eq!(store.manifest.next_seq, ROWS);
}

#[test]
fn runs_are_counted_anew_where_they_are_not_written_down() {
    let disk = FaultyDisk::default();
    record(&disk).1.unwrap();
    let as_recorded = list_notes(&disk, Path::new(DIRECTORY)).unwrap();
    for number in &as_recorded {
        disk.remove(&Path::new(DIRECTORY).join(files::notes(*number))).unwrap();
    }
    let (store, _) = open(&disk).unwrap();
    let (_, book) = runs::from_lines(Path::new("runs"), &store.account.to_lines(), &mut Maps::new()).unwrap();
    assert_eq!(book.latest().map(|(_, run)| run.ordinal).collect::<Vec<_>>(), [ROWS.div_ceil(4)]);
    let again = list_notes(&disk, Path::new(DIRECTORY)).unwrap();
    assert_eq!(again, as_recorded);
    runs_are_those_of_the_rows(&disk);
}

#[test]
fn files_of_runs_without_an_end_do_not_pile_up() {
    let disk = FaultyDisk::default();
    let (mut store, _) = open(&disk).unwrap();
    for number in 0..10 {
        store.append(&batch(number..=number), UNBOUNDED).unwrap();
        store.publish().unwrap();
    }
    // Runs end where the next begins: in rows 4 and 8.
    assert_eq!(list_notes(&disk, Path::new(DIRECTORY)).unwrap(), [4, 8, 9]);
    runs_are_those_of_the_rows(&disk);
}

#[test]
fn runs_that_are_over_do_not_pile_up_in_memory() {
    let disk = FaultyDisk::default();
    let (mut store, _) = open(&disk).unwrap();
    // Each takes half a KiB.
    let runs = u64::try_from(UNWRITTEN_BYTES / 512).unwrap();
    for start in (0..=runs).step_by(8192) {
        // Each begins a run.
        store.append(&batch((start..start + 8192).map(|number| 4 * number)), UNBOUNDED).unwrap();
    }
    assert_eq!(store.segments(), 1);
    assert!(store.account.unwritten_bytes() < UNWRITTEN_BYTES);
}

#[test]
fn a_file_that_is_no_record_of_runs_is_reported() {
    let disk = FaultyDisk::default();
    record(&disk).1.unwrap();
    let last = *list_notes(&disk, Path::new(DIRECTORY)).unwrap().last().unwrap();
    let path = Path::new(DIRECTORY).join(files::notes(last));
    for contents in ["", "{}", "{\"version\":2}", "{\"version\":1}\n{}", "{\"version\":1}\n{", "\u{fffd}"] {
        for file in [contents.as_bytes().to_vec(), seal(&path, contents.as_bytes()).unwrap()] {
            disk.set_contents(&path, file);
            assert_eq!(open(&disk).err().unwrap().kind(), CaptureErrorKind::Corrupt, "{contents}");
        }
    }
}

#[test]
fn numbers_go_on_when_segments_are_gone() {
    let disk = FaultyDisk::default();
    record(&disk).1.unwrap();
    let segments = segments(&disk);
    for number in &segments {
        disk.remove(&Path::new(DIRECTORY).join(files::segment(*number))).unwrap();
    }
    let (store, _) = open(&disk).unwrap();
    let Manifest { next_segment, next_seq, .. } = store.manifest;
    assert_eq!((next_segment, next_seq), (segments.len() as u64, ROWS));
}

fn spans(disk: &FaultyDisk) -> Vec<(u64, u64)> {
    let segments = Listing::new(disk.list(Path::new(DIRECTORY)).unwrap()).segments;
    segments.into_iter().map(|span| (span.first, span.last)).collect()
}

/// Every row is published once, as noted, and no other file is left.
fn is_whole(disk: &FaultyDisk, rows: u64) {
    let directory = Path::new(DIRECTORY);
    let (store, _) = open(disk).unwrap();
    assert_eq!((published_rows(disk), store.next_seq()), (rows, rows));
    runs_are_those_of_the_rows(disk);
    assert_eq!(crate::verify::damaged(disk, directory, &|| true).unwrap(), Vec::<u64>::new());
    let listing = Listing::new(disk.list(directory).unwrap());
    assert_eq!((listing.covered, listing.partials, listing.journals), (vec![], vec![], vec![]));
    let merged = listing.segments.into_iter().filter(|span| span.is_merged()).collect::<Vec<_>>();
    assert_eq!(list_merged_notes(disk, directory).unwrap(), merged);
    assert!(!disk.list(&directory.join(files::META)).unwrap().iter().any(|name| files::NEXT_MERGED.ends_with(name)));
}

#[test]
fn merged_segments_have_all_rows_and_runs() {
    let (disk, store) = rows_by_threes(30);
    assert_eq!(spans(&disk).len(), 10);
    let size = |disk: &FaultyDisk, at: usize| {
        let segments = Listing::new(disk.list(Path::new(DIRECTORY)).unwrap()).segments;
        disk.contents(&Path::new(DIRECTORY).join(segments[at].file())).len() as u64
    };
    let all: u64 = (0..10).map(|at| size(&disk, at)).sum();
    let done = store.compact(size(&disk, 0) * 4, &|| true).unwrap();
    assert!(done.merged >= 2 && done.replaced >= 8 && done.bytes_before == all && done.bytes_after < all, "{done:?}");
    is_whole(&disk, 30);
    // What was merged can be merged again, and a writer goes on after it.
    let done = store.compact(u64::MAX, &|| true).unwrap();
    assert_eq!((spans(&disk), done.merged), (vec![(0, 9)], 1));
    is_whole(&disk, 30);
    assert_eq!(store.compact(u64::MAX, &|| true).unwrap().merged, 0);
    holds_after_restart(&disk, 30);
    assert_eq!(spans(&disk), [(0, 9), (10, 10)]);
}

#[test]
fn a_merge_that_is_stopped_or_fails_anywhere_loses_no_row() {
    let whole = rows_by_threes(12).0;
    let counted = whole.after(Loss::Process);
    let store = open(&counted).unwrap().0;
    counted.set_fault(usize::MAX, Fault::Stop);
    store.compact(u64::MAX, &|| true).unwrap();
    let calls = counted.calls();
    assert!(calls > 10, "{calls}");
    for call in 0..calls {
        for loss in Loss::ALL {
            for fault in [Fault::Stop, Fault::Fail(io::ErrorKind::StorageFull)] {
                let disk = whole.after(Loss::Process);
                let store = open(&disk).unwrap().0;
                disk.set_fault(call, fault);
                let done = store.compact(u64::MAX, &|| true);
                let disk = disk.after(loss);
                // Before any recovery too, each row is there once.
                assert_eq!(published_rows(&disk), 12, "call {call}, {loss:?}, {done:?}");
                is_whole(&disk, 12);
                open(&disk).unwrap().0.compact(u64::MAX, &|| true).unwrap();
                assert_eq!(spans(&disk), [(0, 3)], "call {call}, {loss:?}");
                is_whole(&disk, 12);
            }
        }
    }
}

#[test]
fn what_is_not_as_it_was_published_is_not_merged() {
    let (disk, store) = rows_by_threes(9);
    let path = Path::new(DIRECTORY).join(files::segment(1));
    let mut file = disk.contents(&path);
    file[40] ^= 1;
    disk.set_contents(&path, file);
    let error = store.compact(u64::MAX, &|| true).unwrap_err();
    assert!(error.to_string().contains("0000000001.parquet: is not as it was published"), "{error}");
    assert_eq!(spans(&disk), [(0, 0), (1, 1), (2, 2)]);
}

#[test]
fn a_merge_is_ended_where_it_stands() {
    let (disk, store) = rows_by_threes(9);
    let done = store.compact(u64::MAX, &|| false);
    // The checksum of the first segment is incomplete.
    assert!(done.is_err(), "{done:?}");
    let left = std::cell::Cell::new(2_u32);
    let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
    let _ = store.compact(u64::MAX, &goes_on);
    is_whole(&disk, 9);
    assert_eq!(spans(&disk).len(), 3);
}

#[test]
fn a_merged_segment_is_let_go_as_a_whole() {
    let (disk, store) = rows_by_threes(18);
    let first: u64 = disk.contents(&Path::new(DIRECTORY).join(files::segment(0))).len() as u64;
    store.compact(first * 5 / 2, &|| true).unwrap();
    let before = spans(&disk);
    assert!(before[0].0 < before[0].1 && before.len() > 1, "{before:?}");
    let (mut store, _) = open(&disk).unwrap();
    store.trim(Keep { bytes: Some(1), age: None }, Now::read()).unwrap();
    assert_eq!(spans(&disk), before[before.len() - 1..]);
    let directory = Path::new(DIRECTORY);
    let merged = list_merged_notes(&disk, directory).unwrap();
    assert!(merged.iter().all(|span| (span.first, span.last) == before[before.len() - 1]), "{merged:?}");
}
