//! Load for the benches: sends CDTP messages as fast as libzmq takes them, or receives as fast as it gives them.
//!
//! `push send|pour ENDPOINT COUNT PAYLOAD_BYTES` or `push receive ENDPOINT COUNT`; `TRUNKLINE_LIBZMQ` names the
//! library. `pour` writes to TCP itself, at a tenth of libzmq's cost.

mod wire;
mod zmq;

use std::io::Read as _;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use wire::{Wire, zmtp};
use zmq::{PULL, PUSH, Zmq};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, endpoint, count, rest @ ..] = &arguments[..] else { panic!("see the top of this file") };
    let count: u64 = count.parse().expect("a count");
    match role.as_str() {
        "receive" => receive(endpoint, count),
        "pour" => pour(endpoint, count, rest[0].parse().expect("a size")),
        _ => send(endpoint, count, rest[0].parse().expect("a size")),
    }
}

fn send(endpoint: &str, count: u64, bytes: usize) {
    let mut zmq = Zmq::new();
    let socket = zmq.open(PUSH, None);
    zmq.connect(socket, endpoint);
    messages(count, bytes, |frames| zmq.send(socket, frames));
    zmq.close(Duration::from_secs(60));
}

fn pour(endpoint: &str, count: u64, bytes: usize) {
    let mut wire = Wire::open(endpoint);
    wire.out = zmtp::handshake("PUSH");
    wire.flush();
    zmtp::skip_greeting(&mut wire);
    messages(count, bytes, |frames| {
        zmtp::message(&mut wire.out, frames);
        wire.flush_if_full();
    });
    wire.flush();
    // A stream closed before the peer has hung up loses what the peer has not read.
    wire.stream.shutdown(Shutdown::Write).expect("a stream");
    while wire.stream.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
}

/// Headers of 64 bytes with three tags, and a payload.
fn messages(count: u64, bytes: usize, mut send: impl FnMut(&[&[u8]])) {
    let mut header = b"\xa5CDTP\x01\xacDetector.one\xd7\xff\x1d\x6f\x34\x54\x65\x53\xf1\x00\x83".to_vec();
    header.extend_from_slice(b"\xa3run\x07\xa5dtype\xa5uint8\xa5event\xcf");
    let event = header.len();
    header.extend_from_slice(&[0; 8]);
    let payload = vec![0x55; bytes];
    for sequence in 0..count {
        header[event..].copy_from_slice(&sequence.to_be_bytes());
        send(&[&header, &payload]);
    }
}

/// Receives and does nothing else: the upper bound of a receiver on libzmq. Prints the endpoint, then wall and CPU
/// seconds.
#[allow(clippy::print_stdout)] // the result
fn receive(endpoint: &str, count: u64) {
    let mut zmq = Zmq::new();
    let socket = zmq.open(PULL, None);
    println!("{}", zmq.bind(socket, endpoint));
    zmq.receive(socket, true);
    let (start, before) = (Instant::now(), cpu());
    for _ in 1..count {
        zmq.receive(socket, true);
    }
    println!("{} {}", start.elapsed().as_secs_f64(), cpu().saturating_sub(before).as_secs_f64());
    zmq.close(Duration::ZERO);
}

/// CPU time of this process so far, all threads.
fn cpu() -> Duration {
    let mut taken = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock writes to the place it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut taken) };
    Duration::new(taken.tv_sec.unsigned_abs(), u32::try_from(taken.tv_nsec).expect("below a second"))
}
