//! The owner of a directory, and files that are not accepted as a store.
#![allow(clippy::unwrap_used, reason = "what helps a test fails it")]
#![cfg(unix)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{batch, before, define, put, scratch};
use trunkline_store::{Store, StoreError};

const FILES: [&str; 4] = ["lock", "queues.sqlite", "queues.sqlite-shm", "queues.sqlite-wal"];

/// The error of opening it, which names the cause.
fn refused(directory: &Path, named: &str) -> StoreError {
    let error = Store::open(directory).unwrap_err();
    let path = if named.is_empty() { directory.to_owned() } else { directory.join(named) };
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    error
}

#[test]
fn a_directory_has_one_store_at_a_time() {
    let directory = scratch();
    let (store, _) = Store::open(directory.path()).unwrap();
    let path = directory.path().canonicalize().unwrap();
    assert_eq!(refused(directory.path(), ""), StoreError::InUse { path: path.clone() });
    // Removing the lock does not help another process either.
    fs::remove_file(path.join("lock")).unwrap();
    let other = child(&path);
    assert!(!other.wait_with_output().unwrap().status.success());
    store.close().unwrap();
    Store::open(directory.path()).unwrap();
}

#[test]
#[ignore = "is run by the others"]
fn a_child_that_waits() {
    let _store = Store::open(Path::new(&std::env::var("STORE").unwrap())).unwrap();
    writeln!(std::io::stdout(), "\nopen").unwrap();
    std::io::stdin().lines().for_each(drop);
}

fn child(directory: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_that_waits", "--ignored", "--nocapture"])
        .env("STORE", directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn what_a_killed_process_leaves_is_not_in_the_way() {
    let directory = scratch();
    let mut holder = child(directory.path());
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "open"));
    assert!(matches!(refused(directory.path(), ""), StoreError::InUse { .. }));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(directory.path().join("lock").exists());
    let (store, stored) = Store::open(directory.path()).unwrap();
    assert!(!stored.was_clean);
    store.close().unwrap();
}

#[test]
fn it_is_for_its_owner_alone() {
    let directory = scratch();
    let inner = directory.path().join("new/store");
    let (mut store, _) = Store::open(&inner).unwrap();
    store.commit(&batch(0)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&inner), 0o700);
    for file in FILES {
        assert_eq!(mode(&inner.join(file)), 0o600, "{file}");
    }
    assert_eq!(fs::read_dir(&inner).unwrap().count(), FILES.len());
}

#[test]
fn links_are_not_followed() {
    for file in FILES {
        let directory = scratch();
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, "mine").unwrap();
        let inner = directory.path().join("store");
        fs::create_dir(&inner).unwrap();
        symlink(&elsewhere, inner.join(file)).unwrap();
        assert!(matches!(refused(&inner, file), StoreError::Foreign { .. }), "{file}");
        assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
    }
    // The owner chooses where the directory is, links included.
    let directory = scratch();
    fs::create_dir(directory.path().join("store")).unwrap();
    symlink("store", directory.path().join("link")).unwrap();
    Store::open(&directory.path().join("link")).unwrap();
}

#[test]
fn what_is_no_file_is_refused() {
    for file in FILES {
        let directory = scratch();
        fs::create_dir(directory.path().join(file)).unwrap();
        assert!(matches!(refused(directory.path(), file), StoreError::Foreign { .. }), "{file}");
        fs::remove_dir(directory.path().join(file)).unwrap();
        nix::unistd::mkfifo(&directory.path().join(file), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(refused(directory.path(), file), StoreError::Foreign { .. }), "{file}");
    }
    let directory = scratch();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(refused(&file, ""), StoreError::Failed { .. }));
}

/// A store with this done to its file.
fn altered(how: impl FnOnce(&rusqlite::Connection)) -> tempfile::TempDir {
    let directory = scratch();
    Store::open(directory.path()).unwrap().0.close().unwrap();
    how(&rusqlite::Connection::open(directory.path().join("queues.sqlite")).unwrap());
    directory
}

#[test]
fn files_of_others_are_refused_and_stay_as_they_are() {
    let directory = scratch();
    let file = directory.path().join("queues.sqlite");
    for text in [vec![7; 9000], b"name,value\n".repeat(1000), b"SQLite format 3\0".repeat(600)] {
        fs::write(&file, &text).unwrap();
        let error = refused(directory.path(), "queues.sqlite");
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert_eq!(fs::read(&file).unwrap(), text);
    }
    for (statement, what) in [
        ("PRAGMA user_version = 2", "has version 2"),
        ("PRAGMA application_id = 7", "is a database of another program"),
        ("CREATE TABLE more (x)", "has unexpected tables"),
        ("CREATE TRIGGER t AFTER INSERT ON content BEGIN DELETE FROM queue; END", "has unexpected tables"),
        ("CREATE VIEW v AS SELECT 1", "has unexpected tables"),
        ("DROP TABLE ending; CREATE TABLE ending (was_clean)", "has unexpected tables"),
    ] {
        let directory = altered(|connection| connection.execute_batch(statement).unwrap());
        let file = directory.path().join("queues.sqlite");
        let text = fs::read(&file).unwrap();
        let error = refused(directory.path(), "queues.sqlite").to_string();
        assert!(error.contains(what), "{error}");
        assert!(fs::read(&file).unwrap() == text);
    }
    let directory = scratch();
    let other = rusqlite::Connection::open(directory.path().join("queues.sqlite")).unwrap();
    other.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(other);
    assert!(matches!(refused(directory.path(), "queues.sqlite"), StoreError::Foreign { .. }));
}

#[test]
fn what_a_file_says_moves_no_cursor() {
    let directory = altered(|connection| {
        // A schema that cannot be read, with control characters.
        let sql = "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('table', 'a' || char(27) || '[2J', 'b', 9, 'no')";
        connection.execute_batch(sql).unwrap();
    });
    let error = refused(directory.path(), "queues.sqlite").to_string();
    assert!(error.contains("[2J"), "{error}");
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn values_that_no_store_writes_are_damage() {
    let directory = altered(|connection| {
        connection
            .execute_batch("INSERT INTO queue VALUES (1, x''); INSERT INTO content VALUES (1, 1, -1, NULL, x'', x'')")
            .unwrap();
    });
    assert!(refused(directory.path(), "queues.sqlite").to_string().contains("is damaged"));
}

#[test]
fn a_damaged_file_is_an_error_or_opens_and_never_more() {
    let directory = scratch();
    let (mut store, _) = Store::open(directory.path()).unwrap();
    for number in 0..12 {
        store.commit(&batch(number)).unwrap();
    }
    store.close().unwrap();
    let file = directory.path().join("queues.sqlite");
    let whole = fs::read(&file).unwrap();
    let mut seen = [0, 0];
    for round in 0..200_usize {
        let mut damaged = whole.clone();
        for hit in 0..8 {
            let place = (round * 7919 + hit * 104_729) % if round % 2 == 0 { 4 * 8192 } else { whole.len() };
            damaged[place] ^= u8::try_from(1 + round % 255).unwrap();
        }
        fs::write(&file, damaged).unwrap();
        match Store::open(directory.path()) {
            Ok((mut store, _)) => {
                seen[0] += 1;
                let _ = store.commit(&[define(1), put(1, 1, "after")]);
            }
            Err(error) => {
                seen[1] += 1;
                assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
            }
        }
        let _ = fs::remove_file(directory.path().join("queues.sqlite-wal"));
    }
    assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(refused(directory.path(), "queues.sqlite"), StoreError::Foreign { .. }));
}

#[test]
fn a_log_of_something_else_is_no_part_of_it() {
    let directory = scratch();
    let (mut store, _) = Store::open(directory.path()).unwrap();
    store.commit(&batch(0)).unwrap();
    store.close().unwrap();
    let mut log = fs::File::create(directory.path().join("queues.sqlite-wal")).unwrap();
    log.write_all(&[7; 9000]).unwrap();
    log.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(Store::open(directory.path()).unwrap().1, before(1).stored(true));
}
