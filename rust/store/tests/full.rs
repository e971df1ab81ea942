//! A full disk costs only the change it did not take.
#![allow(clippy::unwrap_used, reason = "what helps a test fails it")]
#![cfg(unix)]

mod common;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Model, define, put, remove, scratch};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use trunkline_store::{Store, StoreError};

const CONTENT: usize = 60_000;

fn place() -> PathBuf {
    std::env::var("STORE").unwrap().into()
}

/// Puts contents until one is refused; gives how many were taken.
fn fill(store: &mut Store, model: &mut Model, from: u64) -> (u64, StoreError) {
    for position in from..from + 1000 {
        let ops = [put(1, position, vec![1; CONTENT]), put(2, position, vec![2; 100])];
        match store.commit(&ops) {
            Ok(()) => assert!(model.commit(&ops)),
            Err(error) => return (position, error),
        }
    }
    panic!("the disk has room for ever");
}

fn check(store: Store, model: &Model) -> Store {
    store.close().unwrap();
    let (store, stored) = Store::open(&place()).unwrap();
    // A full disk may have no room for the mark that it was closed.
    assert!(stored == model.stored(stored.was_clean));
    store
}

#[test]
#[ignore = "is run by the next one"]
fn with_files_that_may_not_grow() {
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    let mut model = Model::default();
    let (mut store, _) = Store::open(&place()).unwrap();
    assert!(model.commit(&[define(1), define(2)]));
    store.commit(&[define(1), define(2)]).unwrap();
    let mut position = 0;
    // At the smallest not even the first content fits; others end in the middle of a page, or of what precedes it.
    for limit in [50_000, 100_000, 300_001, 1 << 20, (1 << 20) + 4000, 3 << 20] {
        setrlimit(Resource::RLIMIT_FSIZE, limit, hard).unwrap();
        let (reached, error) = fill(&mut store, &mut model, position);
        assert!(matches!(error, StoreError::Full { .. } | StoreError::Failed { .. }), "{error}");
        // And again, without harm.
        let (same, _) = fill(&mut store, &mut model, reached);
        position = same;
        setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
        let ops = [put(1, position, vec![3; CONTENT])];
        assert!(model.commit(&ops));
        store.commit(&ops).unwrap();
        position += 1;
        store = check(store, &model);
    }
    assert!(position > 40, "{position}");
}

#[test]
#[ignore = "is run by the next but one"]
fn with_a_disk_that_is_full() {
    let mut model = Model::default();
    let (mut store, _) = Store::open(&place()).unwrap();
    let ops: Vec<_> =
        [define(1), define(2)].into_iter().chain((0..20).map(|at| put(1, at, vec![0; CONTENT]))).collect();
    assert!(model.commit(&ops));
    store.commit(&ops).unwrap();
    let mut store = check(store, &model);
    let come_and_go = |store: &mut Store, times| {
        for _ in 0..times {
            store.commit(&[put(1, 100, vec![1; CONTENT])]).unwrap();
            store.commit(&[remove(1, 100)]).unwrap();
        }
    };
    let ops: Vec<_> = (0..10).map(|at| remove(1, at)).collect();
    assert!(model.commit(&ops));
    store.commit(&ops).unwrap();
    come_and_go(&mut store, 5);
    // Another file takes all the free space.
    let ballast = place().parent().unwrap().join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    // There is room for what has gone, many times over.
    come_and_go(&mut store, 100);
    let (position, error) = fill(&mut store, &mut model, 1000);
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    fs::remove_file(ballast).unwrap();
    let (further, _) = fill(&mut store, &mut model, position);
    assert!(further > position);
    let mut store = check(store, &model);
    let (further, error) = fill(&mut store, &mut model, further);
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    // As after the loss of power.
    drop(store);
    let (_, stored) = Store::open(&place()).unwrap();
    assert!(stored == model.stored(stored.was_clean), "{further}");
}

/// The final command of the shell.
const RUN: &str = "exec \"$0\" --exact \"$1\" --ignored --nocapture";

/// Runs a test in its own process.
fn run(mut shell: Command, test: &str, disk: &Path) {
    let shell = shell.arg(std::env::current_exe().unwrap()).arg(test);
    let ran = shell.env("STORE", disk.join("store")).env("DISK", disk).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_file_that_may_not_grow_costs_one_change() {
    let directory = scratch();
    let mut shell = Command::new("sh");
    // Else the system would end the process.
    shell.args(["-c", &format!("trap '' XFSZ; {RUN}")]);
    run(shell, "with_files_that_may_not_grow", directory.path());
}

#[test]
#[cfg(target_os = "linux")]
#[allow(clippy::print_stderr, reason = "a test that cannot be run says so")]
fn a_full_disk_costs_one_change() {
    // Any user may mount in an own namespace, unless that is forbidden.
    let unshare = |command: &str| {
        let mut program = Command::new("unshare");
        program.args(["--user", "--map-root-user", "--mount", "sh", "-c", command]);
        program
    };
    let directory = scratch();
    let mount = "mount -t tmpfs -o size=8m none \"$DISK\"";
    let may = unshare(mount).env("DISK", directory.path()).output();
    if !may.is_ok_and(|ran| ran.status.success()) {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    run(unshare(&format!("{mount} && {RUN}")), "with_a_disk_that_is_full", directory.path());
}
