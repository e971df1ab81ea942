//! The cost of keeping contents: commits of a thousand, alone and while others are removed, and the opening of many.
//!
//! `cargo bench -p trunkline-store [-- CONTENTS [DIRECTORY]]`
#![allow(clippy::print_stdout, reason = "a report is what it is for")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use trunkline_store::{Op, Store};

/// Contents of one commit.
const BATCH: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let contents: u64 = arguments.next().map_or(Ok(1_000_000), |count| count.parse())?;
    let scratch = tempfile::tempdir()?;
    let directory = arguments.next().map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    println!("body    a commit of {BATCH}: median   p99    contents/s");
    for bytes in [32, 1024] {
        for (what, kept) in [("put", u64::MAX), ("put and remove", 20)] {
            commit(&directory.join(format!("{what} {bytes}")), what, bytes, kept)?;
        }
    }
    one(&directory.join("one"))?;
    open(&directory.join("many"), contents)
}

fn puts(batch: u64, body: &Bytes) -> impl Iterator<Item = Op> {
    (batch * BATCH..).take(1000).map(|position| Op::Put {
        queue: position % 4,
        position,
        attempts: 0,
        expires_at_ms: None,
        properties: Bytes::from_static(b"\0\0\0\0"),
        body: body.clone(),
    })
}

fn removes(batch: u64) -> impl Iterator<Item = Op> {
    (batch * BATCH..).take(1000).map(|position| Op::Remove { queue: position % 4, position })
}

fn opened(directory: &Path) -> Result<Store, Box<dyn Error>> {
    let (mut store, _) = Store::open(directory)?;
    let queues: Vec<_> = (0..4).map(|queue| Op::Define { queue, description: b"a queue".into() }).collect();
    store.commit(&queues)?;
    Ok(store)
}

fn commit(directory: &Path, what: &str, bytes: usize, kept: u64) -> Result<(), Box<dyn Error>> {
    let mut store = opened(directory)?;
    let body = Bytes::from(vec![7; bytes]);
    let mut took = Vec::new();
    for batch in 0..200 {
        let mut ops: Vec<_> = puts(batch, &body).collect();
        ops.extend(batch.checked_sub(kept).into_iter().flat_map(removes));
        let started = Instant::now();
        store.commit(&ops)?;
        took.push(started.elapsed());
    }
    store.close()?;
    let all: Duration = took.iter().sum();
    took.sort_unstable();
    println!(
        "{bytes:4} B  {what:14} {:>8.2?} {:>8.2?} {:>9.0}",
        took[took.len() / 2],
        took[took.len() * 99 / 100],
        200_000.0 / all.as_secs_f64(),
    );
    Ok(())
}

fn one(directory: &Path) -> Result<(), Box<dyn Error>> {
    let mut store = opened(directory)?;
    let body = Bytes::from_static(&[7; 32]);
    let ops: Vec<_> = puts(0, &body).take(200).collect();
    let started = Instant::now();
    for op in &ops {
        store.commit(std::slice::from_ref(op))?;
    }
    println!("  32 B  one by one     {:>8.2?}", started.elapsed() / 200);
    Ok(store.close()?)
}

fn open(directory: &Path, contents: u64) -> Result<(), Box<dyn Error>> {
    let mut store = opened(directory)?;
    let body = Bytes::from_static(&[7; 32]);
    for batch in 0..contents / BATCH {
        let ops: Vec<_> = puts(batch, &body).collect();
        store.commit(&ops)?;
    }
    store.close()?;
    let started = Instant::now();
    let (store, stored) = Store::open(directory)?;
    let mebibytes = fs::metadata(directory.join("queues.sqlite"))?.len() >> 20;
    println!("{} contents of 32 B in {mebibytes} MiB opened in {:.2?}", stored.contents.len(), started.elapsed());
    Ok(store.close()?)
}
