//! What was committed survives the end of the process and the loss of power, once, and whole.
#![allow(clippy::unwrap_used, reason = "what helps a test fails it")]
#![cfg(unix)]

mod common;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{batch, before, copy, scratch};
use trunkline_store::{Restored, Store};

fn stored(directory: &Path) -> Restored {
    Store::open(directory).unwrap().1
}

/// Commits batch after batch and reports each, until it is killed.
#[test]
#[ignore = "is run by the next one"]
fn a_child_that_commits() {
    let (mut store, _) = Store::open(Path::new(&std::env::var("STORE").unwrap())).unwrap();
    let first: u64 = std::env::var("FIRST").unwrap().parse().unwrap();
    let mut output = std::io::stdout().lock();
    for number in first.. {
        store.commit(&batch(number)).unwrap();
        writeln!(output, "\ncommitted {number}").unwrap();
    }
}

#[test]
fn a_process_that_is_killed_loses_nothing_it_committed() {
    let directory = scratch();
    let mut next = 0;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_child_that_commits", "--ignored", "--nocapture"])
            .env("STORE", directory.path())
            .env("FIRST", next.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut committed =
            lines.by_ref().filter_map(|line| line.unwrap().strip_prefix("committed ")?.parse::<u64>().ok());
        committed.nth(round % 5 * 7).unwrap();
        // In the middle of any operation.
        std::thread::sleep(Duration::from_micros(u64::try_from(round).unwrap() * 397));
        child.kill().unwrap();
        let last = committed.last();
        child.wait().unwrap();
        let found = stored(directory.path());
        // The last one may have been committed, but not yet reported.
        let at_least = last.map_or(next, |last| last + 1);
        next = (at_least..at_least + 40).find(|number| before(*number).stored(false) == found).expect("a whole state");
        assert!(last.is_none() || next <= at_least + 1, "{next} after {last:?}");
    }
    assert!(next > 100, "{next}");
}

#[test]
fn whatever_a_commit_has_returned_from_is_on_disk() {
    let directory = scratch();
    let (mut store, _) = Store::open(directory.path()).unwrap();
    // Enough for the log to be written back to the file several times.
    for number in 0..150 {
        store.commit(&batch(number)).unwrap();
        let copied = directory.path().with_extension(format!("copy{number}"));
        copy(directory.path(), &copied);
        assert!(stored(&copied) == before(number + 1).stored(false), "{number}");
        fs::remove_dir_all(copied).unwrap();
    }
}

#[test]
fn a_log_cut_anywhere_holds_what_was_committed_before() {
    const PAGE: u64 = 8192;
    const FRAME: u64 = 24 + PAGE;
    const HEAD: u64 = 32;
    let directory = scratch();
    let opened = directory.path().join("opened");
    Store::open(&opened).unwrap().0.close().unwrap();
    let (mut store, _) = Store::open(&opened).unwrap();
    let log = |directory: &Path| directory.join("queues.sqlite-wal");
    let length = || fs::metadata(log(&opened)).unwrap().len();
    let mut ends = vec![length()];
    for number in 0..8 {
        store.commit(&batch(number)).unwrap();
        ends.push(length());
    }
    let all = length();
    assert_eq!((all - HEAD) % FRAME, 0);
    // A commit is whole with its first commit frame; SQLite repeats that one up to the end of a sector.
    let bytes = fs::read(log(&opened)).unwrap();
    let commits = (HEAD..all).step_by(usize::try_from(FRAME).unwrap()).filter(|at| {
        let at = usize::try_from(*at).unwrap();
        bytes[at + 4..at + 8] != [0; 4]
    });
    let mut wholes = Vec::new();
    for commit in commits.map(|at| at + FRAME) {
        if wholes.last().is_none_or(|last| ends[wholes.len() - 1] >= *last && commit > ends[wholes.len() - 1]) {
            wholes.push(commit);
        }
    }
    assert_eq!(wholes.len(), ends.len());
    let frames = (0..=(all - HEAD) / FRAME).map(|frame| HEAD + frame * FRAME);
    let around = frames.flat_map(|end| [end.saturating_sub(1), end, end + 1, end + 24, end + 25, end + PAGE / 2]);
    let cuts: Vec<_> = (0..HEAD + 2).chain(around).filter(|cut| *cut <= all).collect();
    assert!(cuts.len() > 200, "{}", cuts.len());
    let copied = directory.path().join("copied");
    for (is_torn, cut) in cuts.into_iter().flat_map(|cut| [(false, cut), (true, cut)]) {
        copy(&opened, &copied);
        let file = OpenOptions::new().write(true).open(log(&copied)).unwrap();
        file.set_len(cut).unwrap();
        if is_torn {
            // As long as it should be, with other bytes from there on.
            file.write_all_at(&vec![0xa5; usize::try_from(all - cut).unwrap()], cut).unwrap();
        }
        // How many batches had been committed by then.
        let whole = u64::try_from(wholes.iter().filter(|end| **end <= cut).count()).unwrap().saturating_sub(1);
        let was_clean = cut < wholes[0];
        assert!(stored(&copied) == before(whole).stored(was_clean), "{cut} of {ends:?}");
        fs::remove_dir_all(&copied).unwrap();
    }
}
