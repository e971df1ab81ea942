//! The cost of recording a message: CPU of the appending thread and of all threads, and the bytes on disk.
//!
//! `cargo bench -p trunkline-capture [-- MESSAGES [DIRECTORY]]`
#![allow(clippy::print_stdout, reason = "a report is what it is for")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use trunkline_capture::{Direction, Row, Settings, Writer};
use trunkline_wire::Framing;

const HEADER: &[u8; 60] =
    b"\xa5CDTP\x01\xaeDetector.one.1\xd7\xff\0\0\0\0\0\0\0\0\x83\xa3run\xce\0\0\0\x07\xa5event\xce\0\0\0\0\xa4tick\xcd\0\x01";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let messages: i64 = arguments.next().map_or(Ok(200_000), |count| count.parse())?;
    let scratch = tempfile::tempdir()?;
    let directory = arguments.next().map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    println!("payload  ns/message: appending   all  (user + system)   M/s  bytes/message on disk");
    for (name, payload) in [("zeros", zeros as fn(i64, usize) -> _), ("samples", samples), ("noise", noise)] {
        for (size, messages) in [(104, messages), (4096, messages / 8)] {
            let directory = directory.join(format!("{name}-{size}"));
            let payloads: Vec<_> = (0..4096).map(|seed| payload(seed, size)).collect();
            record(&directory, &format!("{size} B of {name}"), messages, &payloads)?;
        }
    }
    Ok(())
}

fn record(directory: &Path, name: &str, messages: i64, payloads: &[Vec<u8>]) -> Result<(), Box<dyn Error>> {
    let (wake, woken) = sync_channel(1);
    let mut writer = Writer::open(directory, Settings::default(), move || {
        let _ = wake.try_send(());
    })?;
    let started = Instant::now();
    let [process, thread] = usage()?;
    append(&mut writer, messages, payloads, &woken)?;
    let [_, appended] = usage()?;
    writer.close()?;
    let elapsed = started.elapsed().as_secs_f64();
    let [closed, _] = usage()?;
    let mut on_disk = 0;
    for entry in directory.read_dir()? {
        on_disk += entry?.metadata()?.len();
    }
    let each = |from: (i64, i64), to: (i64, i64)| ((to.0 - from.0) / messages, (to.1 - from.1) / messages);
    let (user, system) = each(process, closed);
    let appending = each(thread, appended);
    println!(
        "{name:17} {:>12} {:>5}  ({user:>4} + {system:>4})     {:>5.2}  {:>5.1}",
        appending.0 + appending.1,
        user + system,
        1e-6 * f64::from(i32::try_from(messages)?) / elapsed,
        f64::from(u32::try_from(on_disk / 1024)?) * 1024.0 / f64::from(i32::try_from(messages)?),
    );
    Ok(())
}

fn append(
    writer: &mut Writer,
    messages: i64,
    payloads: &[Vec<u8>],
    woken: &Receiver<()>,
) -> Result<(), Box<dyn Error>> {
    for at in 0..messages {
        let mut header = *HEADER;
        header[23..31].copy_from_slice(&(at << 10).to_be_bytes());
        header[48..52].copy_from_slice(&at.to_be_bytes()[4..]);
        let frames = [header.as_slice(), &payloads[usize::try_from(at)? % payloads.len()]];
        while at % 256 == 0 && !writer.has_room() {
            if let Some(failure) = writer.progress().failure {
                return Err(failure.into());
            }
            woken.recv()?;
        }
        writer.append(&Row {
            received_at_ns: 1_795_251_125_874_512_487 + at * 997,
            framing: Framing::Cdtp,
            endpoint: Some("tcp://127.0.0.1:23999"),
            peer: None,
            direction: Direction::In,
            topic: None,
            reply_to: None,
            frames: &frames,
            error: None,
        });
    }
    Ok(())
}

/// If the system cannot measure one thread, the appending thread is charged with all.
#[cfg(not(target_os = "linux"))]
const THREAD: UsageWho = UsageWho::RUSAGE_SELF;
#[cfg(target_os = "linux")]
const THREAD: UsageWho = UsageWho::RUSAGE_THREAD;

/// User and system time in nanoseconds, of the process and of this thread.
fn usage() -> Result<[(i64, i64); 2], nix::Error> {
    let mut times = [(0, 0); 2];
    for (times, who) in times.iter_mut().zip([UsageWho::RUSAGE_SELF, THREAD]) {
        let usage = getrusage(who)?;
        *times = (usage.user_time().num_nanoseconds(), usage.system_time().num_nanoseconds());
    }
    Ok(times)
}

fn zeros(_: i64, size: usize) -> Vec<u8> {
    vec![0; size]
}

/// Sixteen-bit samples with a few bits of noise, as a digitiser makes them.
fn samples(seed: i64, size: usize) -> Vec<u8> {
    let mut bytes = noise(seed, size);
    for sample in bytes.chunks_exact_mut(2) {
        sample[0] &= 0x1f;
        sample[1] = 0;
    }
    bytes
}

/// Bytes that do not compress.
fn noise(seed: i64, size: usize) -> Vec<u8> {
    let mut state = seed.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; size];
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_be_bytes());
    }
    bytes
}
