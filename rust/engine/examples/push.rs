//! Load for the benches: sends CDTP messages as fast as libzmq takes them, or receives as fast as it gives them.
//!
//! `push send ENDPOINT COUNT PAYLOAD_BYTES` or `push receive ENDPOINT COUNT`; `TRUNKLINE_LIBZMQ` names the library.

mod zmq;

use std::time::{Duration, Instant};

use zmq::{PULL, PUSH, Zmq};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, endpoint, count, rest @ ..] = &arguments[..] else { panic!("usage: push send|receive ENDPOINT COUNT") };
    let count: u64 = count.parse().expect("a count");
    if role == "send" {
        send(endpoint, count, rest[0].parse().expect("a size"));
    } else {
        receive(endpoint, count);
    }
}

/// Headers of 64 bytes with three tags, and a payload.
fn send(endpoint: &str, count: u64, bytes: usize) {
    let mut zmq = Zmq::new();
    let socket = zmq.open(PUSH, None);
    zmq.connect(socket, endpoint);
    let mut header = b"\xa5CDTP\x01\xacDetector.one\xd7\xff\x1d\x6f\x34\x54\x65\x53\xf1\x00\x83".to_vec();
    header.extend_from_slice(b"\xa3run\x07\xa5dtype\xa5uint8\xa5event\xcf");
    let event = header.len();
    header.extend_from_slice(&[0; 8]);
    let payload = vec![0x55; bytes];
    for sequence in 0..count {
        header[event..].copy_from_slice(&sequence.to_be_bytes());
        zmq.send(socket, &[&header, &payload]);
    }
    zmq.close(Duration::from_secs(60));
}

/// Receives and does nothing else: what no receiver on libzmq can pass. Prints the endpoint, then wall and CPU seconds.
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

/// What this process has taken so far, all threads.
fn cpu() -> Duration {
    let mut taken = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock writes to the place it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut taken) };
    Duration::new(taken.tv_sec.unsigned_abs(), u32::try_from(taken.tv_nsec).expect("below a second"))
}
