//! Runs, counted from hand-written headers.

use std::collections::BTreeSet;

use proptest::prelude::*;
use trunkline_wire::cdtp::{Boundary, Condition, Run, RunBook, RunRow, Unfollowed};

const DAT: u8 = 0;
const BOR: u8 = 1;
const EOR: u8 = 2;

fn header(sender: &str, kind: u8, sequence: u64) -> Vec<u8> {
    let mut header = b"\xa5CDTP\x01".to_vec();
    header.push(0xa0 | u8::try_from(sender.len()).expect("a short name"));
    header.extend_from_slice(sender.as_bytes());
    header.extend_from_slice(&[kind, 0xcf]);
    header.extend_from_slice(&sequence.to_be_bytes());
    header.push(0x80);
    header
}

/// A CDTP2 message of records without payload, each a sequence number below 128 and its tags.
fn batch(kind: u8, records: &[(u8, &[u8])]) -> Vec<u8> {
    let mut header = b"\xa5CDTP\x02\xa1d".to_vec();
    header.extend_from_slice(&[kind, 0x90 | u8::try_from(records.len()).expect("few records")]);
    for (sequence, tags) in records {
        header.extend_from_slice(&[0x93, *sequence]);
        header.extend_from_slice(tags);
        header.push(0x90);
    }
    header
}

/// A book whose rows are numbered and timed in order, ten to a segment.
#[derive(Default)]
struct Book {
    book: RunBook,
    rows: u64,
}

impl Book {
    fn take(&mut self, header: &[u8], payload: Option<&[u8]>) {
        self.book.record(&RunRow {
            segment: self.rows / 10,
            seq: self.rows,
            received_at_ns: i64::try_from(self.rows).expect("few rows") * 1000,
            n_bytes: (header.len() + payload.map_or(0, <[u8]>::len)) as u64,
            n_frames: 1 + usize::from(payload.is_some()),
            header,
            payload,
        });
        self.rows += 1;
    }

    fn take_b(&mut self, sender: &str, kind: u8, sequence: u64) {
        self.take(&header(sender, kind, sequence), Some(b"\x80"));
    }

    /// Every run, closed ones first.
    fn runs(&self) -> Vec<(String, Run)> {
        let closed = self.book.closed().iter().map(|closed| (closed.sender.to_string(), closed.run.clone()));
        let latest = self.book.latest().map(|(sender, run)| (sender.to_owned(), run.clone()));
        closed.chain(latest).collect()
    }

    fn only(&self) -> Run {
        let [(_, run)] = &self.runs()[..] else { panic!("{:?}", self.runs()) };
        run.clone()
    }
}

fn stream(steps: &[(u8, u64)]) -> Book {
    let mut book = Book::default();
    for (kind, sequence) in steps {
        book.take_b("d", *kind, *sequence);
    }
    book
}

/// A stream, and its `missed`, `duplicates`, `out_of_order` and condition.
type Case<'a> = (&'a [(u8, u64)], (u64, u64, u64, &'a str));

/// The largest number that runs can order.
const MOST: u64 = i64::MAX as u64;

// req: CDTP-21
#[test]
fn numbers_of_a_run() {
    let cases: &[Case<'_>] = &[
        (&[(BOR, 0), (DAT, 1), (DAT, 2), (EOR, 2)], (0, 0, 0, "GOOD")),
        (&[(BOR, 0), (DAT, 1), (DAT, 2), (EOR, 3)], (0, 0, 0, "GOOD")),
        (&[(BOR, 0), (EOR, 0)], (0, 0, 0, "GOOD")),
        (&[(BOR, 0), (DAT, 1), (DAT, 5), (EOR, 5)], (3, 0, 0, "INCOMPLETE")),
        (&[(BOR, 0), (DAT, 3), (EOR, 3)], (2, 0, 0, "INCOMPLETE")),
        (&[(BOR, 0), (DAT, 1), (EOR, 5)], (3, 0, 0, "INCOMPLETE")),
        (&[(BOR, 0), (DAT, 1), (DAT, 1), (DAT, 2), (EOR, 2)], (0, 1, 0, "GOOD")),
        (&[(BOR, 0), (DAT, 1), (DAT, 3), (DAT, 2), (DAT, 2), (EOR, 3)], (1, 1, 1, "INCOMPLETE")),
        (&[(BOR, 0), (DAT, 5), (DAT, 2), (DAT, 4), (DAT, 3), (DAT, 1), (DAT, 4)], (4, 1, 4, "INCOMPLETE|ABORTED")),
        (&[(BOR, 0), (DAT, 1)], (0, 0, 0, "ABORTED")),
        (&[(BOR, 0), (DAT, 1), (EOR, 1), (DAT, 2)], (0, 0, 0, "INCOMPLETE")),
        (&[(BOR, 0), (DAT, 1), (EOR, 2), (DAT, 2)], (0, 0, 1, "INCOMPLETE")),
        (&[(BOR, 0), (EOR, 0), (EOR, 0)], (0, 0, 0, "INCOMPLETE")),
        (&[(DAT, 7), (DAT, 9), (DAT, 3), (EOR, 9)], (1, 0, 1, "INCOMPLETE")),
        (&[(EOR, 9)], (0, 0, 0, "INCOMPLETE")),
        (&[(BOR, 0), (DAT, 1 << 63), (DAT, 1), (EOR, 1)], (MOST - 1, 0, 1, "INCOMPLETE")),
        (&[(BOR, 0), (DAT, 1), (DAT, 1 << 63), (DAT, u64::MAX), (EOR, u64::MAX)], (MOST - 2, 0, 0, "INCOMPLETE")),
        (&[(BOR, 0), (DAT, MOST), (DAT, MOST), (EOR, MOST)], (MOST - 1, 1, 0, "INCOMPLETE")),
    ];
    for (steps, expected) in cases {
        let run = stream(steps).only();
        let condition = run.condition().to_string();
        assert_eq!((run.missed, run.duplicates, run.out_of_order, &*condition), *expected, "{steps:?}");
    }
}

// req: CDTP-21
#[test]
fn a_second_bor_ends_the_run_before_it() {
    let book = stream(&[(DAT, 4), (BOR, 0), (DAT, 1), (BOR, 0), (DAT, 1), (DAT, 2), (EOR, 2), (BOR, 0)]);
    let seen: Vec<_> = book
        .runs()
        .iter()
        .map(|(_, run)| {
            let [begin, end] = [&run.begin, &run.end].map(|boundary| boundary.as_ref().map(|boundary| boundary.seq));
            (run.ordinal, run.messages, begin, end, run.condition().to_string())
        })
        .collect();
    assert_eq!(
        seen,
        [
            (0, 1, None, None, "INCOMPLETE|ABORTED".into()),
            (1, 1, Some(1), None, "ABORTED".into()),
            (2, 2, Some(3), Some(6), "GOOD".into()),
            (3, 0, Some(7), None, "ABORTED".into()),
        ]
    );
    assert_eq!(book.book.closed().len(), 3);
}

#[test]
fn runs_of_several_senders_do_not_meet() {
    let mut book = Book::default();
    for sequence in 0..10 {
        for sender in ["a", "b"] {
            let kind = [DAT, BOR, EOR][usize::from(sequence == 0) + 2 * usize::from(sequence == 9 && sender == "a")];
            book.take_b(sender, kind, sequence);
        }
    }
    let [(_, a), (_, b)] = &book.runs()[..] else { panic!("two runs") };
    assert_eq!((a.messages, b.messages, a.missed + b.missed), (8, 9, 0));
    assert_eq!((a.is_open(), b.is_open()), (false, true));
    assert_eq!((a.first_received_at_ns, a.last_received_at_ns), (0, 18_000));
    // Only b needs its first segment.
    assert_eq!(book.book.open_segments(0).min(), Some(0));
}

// req: CDTP-21
#[test]
fn what_the_sender_says_is_added() {
    let cases: &[(&[u8], &str, Option<&str>)] = &[
        (b"\x80", "INCOMPLETE", Some("conf")),
        (b"\x82\xa6run_id\xa2r7\xaecondition_code\x14", "INCOMPLETE|INTERRUPTED|DEGRADED", Some("r7")),
        (b"\x81\xa9condition\xb2TAINTED | DEGRADED", "TAINTED|INCOMPLETE|DEGRADED", Some("conf")),
        (b"\x81\xa9condition\xa4GOOD", "INCOMPLETE", Some("conf")),
        (b"\x82\xaecondition_code\x01\xaecondition_code\x04", "INCOMPLETE|INTERRUPTED", Some("conf")),
        // Values of another type, an invalid map, and a map whose keys are not names.
        (b"\x82\xa6run_id\x07\xaecondition_code\xa1x", "INCOMPLETE", Some("conf")),
        (b"\x81\xa6run_id", "INCOMPLETE", Some("conf")),
        (b"\x81\x01\x01", "INCOMPLETE", Some("conf")),
    ];
    for (metadata, condition, run_id) in cases {
        let mut book = Book::default();
        book.take(&header("d", BOR, 0), Some(b"\x81\xa6run_id\xa4conf"));
        book.take(&header("d", EOR, 4), Some(metadata));
        let run = book.only();
        assert_eq!((run.condition().to_string().as_str(), run.run_id()), (*condition, *run_id), "{metadata:x?}");
    }
    assert_eq!(Condition::GOOD.to_string(), "GOOD");
}

// req: CDTP-22
#[test]
fn what_the_sender_says_it_sent_is_held_against_what_came() {
    for (data_records, condition) in [(1, "GOOD"), (2, "GOOD"), (3, "INCOMPLETE")] {
        let mut book = Book::default();
        book.take(&batch(BOR, &[(0, b"\x80"), (1, b"\x80")]), None);
        book.take(&batch(DAT, &[(1, b"\x80"), (2, b"\x80")]), None);
        let metadata = [b"\x81\xacdata_records", &[data_records][..]].concat();
        book.take(&batch(EOR, &[(0, b"\x80"), (1, &metadata)]), None);
        assert_eq!(book.only().condition().to_string(), condition, "{data_records}");
    }
}

// req: CDTP-22
#[test]
fn cdtp2_has_its_map_in_the_second_record() {
    let mut book = Book::default();
    book.take(&batch(BOR, &[(0, b"\x81\xa6run_id\xa1u"), (1, b"\x81\xa1v\x05")]), None);
    book.take(&batch(DAT, &[(2, b"\x80"), (3, b"\x80")]), None);
    book.take(&batch(DAT, &[]), None);
    book.take(&batch(EOR, &[(0, b"\x80"), (1, b"\x81\xa6run_id\xa2r9")]), None);
    let run = book.only();
    // The number of the BOR's second record is not that of the first message.
    assert_eq!((run.messages, run.missed, run.duplicates), (2, 1, 0));
    assert_eq!((run.config(), run.run_id()), (Some(&b"\x81\xa1v\x05"[..]), Some("r9")));
}

#[test]
fn what_knows_no_runs_is_passed_over() {
    let mut book = Book::default();
    book.take(b"\xa5CDTP\x01\xa1d\xd6\xff\x00\x00\x00\x00\x80", Some(b"x"));
    book.take(b"junk", None);
    book.take(&header("d", BOR, 0), None); // a BOR has a payload
    assert_eq!(book.runs(), []);
}

#[test]
fn senders_and_streams_do_not_grow_the_book() {
    let mut book = Book::default();
    for number in 0..1000 {
        book.take_b(&format!("s{number}"), BOR, 0);
    }
    assert_eq!((book.runs().len(), book.book.unfollowed()), (1000, Unfollowed::default()));
    for number in 0..5000 {
        book.take_b("s0", DAT, number * 2);
    }
    let (_, run) = &book.runs()[0];
    assert_eq!((run.missed, run.gaps.len()), (4999, 1024));
    let large = [&b"\x81\xa1k\xc6\x00\x01\x00\x00"[..], &vec![0; 1 << 16]].concat();
    book.take(&header("s1", BOR, 0), Some(&large));
    assert_eq!(book.book.latest().nth(1).map(|(_, run)| (run.ordinal, run.config())), Some((2, None)));
}

#[test]
fn the_longest_silent_makes_way() {
    let mut book = Book::default();
    for number in 0..1000 {
        book.take_b(&format!("s{number}"), EOR, 0);
    }
    // All but the second have sent something since the first row.
    for number in (0..1000).filter(|number| *number != 1) {
        book.take_b(&format!("s{number}"), DAT, 1);
    }
    book.take_b("good", BOR, 0);
    book.take_b("good", EOR, 0);
    let runs = book.runs();
    assert_eq!(runs.len(), 1001);
    // The run that is over comes first.
    assert_eq!((&*runs[0].0, runs[0].1.condition()), ("s1", Condition::INCOMPLETE));
    let (_, good) = runs.iter().find(|(sender, _)| sender == "good").expect("a run");
    assert_eq!(good.condition(), Condition::GOOD);
    assert_eq!(book.book.unfollowed(), Unfollowed { senders: 1, messages: 0 });
    book.take_b("s1", DAT, 1);
    assert_eq!(book.book.unfollowed(), Unfollowed { senders: 2, messages: 0 });
    assert_eq!(book.book.latest().count(), 1000);
}

#[test]
fn a_name_too_long_is_counted_and_not_followed() {
    let mut book = Book::default();
    for length in [1024, 1025, 1025] {
        let name = "n".repeat(length);
        let header = [
            b"\xa5CDTP\x01\xda",
            &u16::try_from(length).expect("short").to_be_bytes()[..],
            name.as_bytes(),
            b"\x01\x00\x80",
        ];
        book.take(&header.concat(), Some(b"\x80"));
    }
    assert_eq!(book.runs().len(), 1);
    assert_eq!(book.book.unfollowed(), Unfollowed { senders: 0, messages: 2 });
}

#[test]
fn what_is_written_down_is_forgotten_and_still_known() {
    let mut book = Book::default();
    book.take(&header("d", BOR, 0), Some(b"\x81\xa6run_id\xa1r"));
    book.take(&header("d", EOR, 0), Some(b"\x81\xaecondition_code\x01"));
    assert!(book.book.unwritten_bytes() > 0);
    book.book.forget_written();
    assert_eq!(book.book.unwritten_bytes(), 0);
    let run = book.only();
    assert_eq!((run.config(), run.metadata()), (None, None));
    assert_eq!((run.run_id(), run.condition()), (Some("r"), Condition::TAINTED));
    book.take_b("d", BOR, 0);
    assert!(book.book.unwritten_bytes() > 0);
    assert_eq!(book.book.closed()[0].run, run);
}

proptest! {
    /// Whatever a BOR or an EOR has as its map, it is kept whole or not at all.
    #[test]
    fn any_bytes_may_stand_for_the_map(kind in 1u8..3, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut book = Book::default();
        book.take(&header("d", kind, 0), Some(&bytes));
        book.take(&bytes, Some(&bytes));
        let run = book.only();
        let _ = (run.condition(), run.run_id());
        prop_assert!([run.config(), run.metadata()].into_iter().flatten().all(|map| *map == bytes));
    }

    /// Compared with sets of all received numbers.
    #[test]
    fn counts_are_those_of_a_naive_count(
        steps in prop::collection::vec((prop_oneof![8 => Just(DAT), 1 => Just(BOR), 1 => Just(EOR)], 0u64..12), 0..80)
    ) {
        let mut expected: Vec<(u64, u64, u64, u64)> = vec![];
        let (mut seen, mut highest) = (BTreeSet::new(), None::<u64>);
        for (kind, sequence) in &steps {
            if *kind == BOR || expected.is_empty() {
                expected.push((0, 0, 0, 0));
                (seen, highest) = (BTreeSet::new(), None);
            }
            let Some((messages, missed, duplicates, out_of_order)) = expected.last_mut() else { unreachable!() };
            if let Some(highest) = highest {
                *missed += sequence.saturating_sub(highest + 1);
            }
            if *kind == DAT {
                *messages += 1;
                if seen.contains(sequence) {
                    *duplicates += 1;
                } else if highest.is_some_and(|highest| *sequence <= highest) {
                    *out_of_order += 1;
                }
            }
            if *kind != EOR {
                seen.insert(*sequence);
            }
            highest = highest.max(Some(*sequence));
        }
        let runs = stream(&steps).runs();
        let counted: Vec<_> =
            runs.iter().map(|(_, run)| (run.messages, run.missed, run.duplicates, run.out_of_order)).collect();
        prop_assert_eq!(counted, expected);
    }
}

/// Numbers at their limits, in any order, after a stored run with every counter at its maximum.
#[test] // req: CDTP-21
fn no_numbers_are_too_great() {
    const EXTREME: [u64; 7] = [0, 1, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
    let full = Run {
        ordinal: u64::MAX,
        messages: u64::MAX,
        bytes: u64::MAX,
        missed: u64::MAX,
        duplicates: u64::MAX,
        out_of_order: u64::MAX,
        highest: Some(u64::MAX),
        gaps: vec![(0, u64::MAX)],
        ..Run::default()
    };
    for restored in [None, Some(full)] {
        let mut book = Book::default();
        if let Some(run) = restored {
            book.book.restore("Det", run);
        }
        for kind in [DAT, EOR, BOR, DAT, EOR] {
            for first in EXTREME {
                for second in EXTREME {
                    book.take_b("Det", kind, first);
                    book.take_b("Det", DAT, second);
                }
            }
        }
        assert!(!book.runs().is_empty());
    }
}

#[test] // req: CDTP-21
fn a_run_goes_on_until_its_end_or_silence() {
    const SILENCE_NS: i64 = 600_000_000_000;
    let run = Run { last_received_at_ns: 1000, ..Run::default() };
    assert!(run.may_go_on(0) && run.may_go_on(999 + SILENCE_NS) && !run.may_go_on(1000 + SILENCE_NS));
    assert_eq!(run.said(true), ("IN_PROGRESS".to_owned(), None));
    assert_eq!(run.said(false), ("INCOMPLETE|ABORTED".to_owned(), Some(10)));
    let ended = Run { end: Some(Boundary::default()), ..run };
    assert!(!ended.may_go_on(0));
}
