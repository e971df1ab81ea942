//! Load for the benches: sends CDTP messages as fast as libzmq takes them, or receives as fast as it gives them.
//!
//! `push send ENDPOINT COUNT PAYLOAD_BYTES` or `push receive ENDPOINT COUNT`; `TRUNKLINE_LIBZMQ` names the library.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::smallvec;
use trunkline_engine::libzmq::{Context, LibzmqTransport, load};
use trunkline_engine::{Interest, Signal, Taken, Transport};
use trunkline_wire::{Frames, SocketKind, SocketOptions};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, endpoint, count, rest @ ..] = &arguments[..] else { panic!("usage: push send|receive ENDPOINT COUNT") };
    let count: u64 = count.parse().expect("a count");
    let library = std::env::var_os("TRUNKLINE_LIBZMQ").expect("TRUNKLINE_LIBZMQ is set");
    let zmq = load(&PathBuf::from(library)).expect("libzmq");
    let transport = LibzmqTransport::new(zmq, Context::private(zmq).expect("a context"), vec![]).expect("a transport");
    if role == "send" {
        send(transport, endpoint, count, rest[0].parse().expect("a size"));
    } else {
        receive(transport, endpoint, count);
    }
}

/// A header of 64 bytes with three tags, and a payload.
fn message(sequence: u64, payload: &Bytes) -> Frames {
    let mut header = b"\xa5CDTP\x01\xacDetector.one\xd7\xff\x1d\x6f\x34\x54\x65\x53\xf1\x00\x83".to_vec();
    header.extend_from_slice(b"\xa3run\x07\xa5dtype\xa5uint8\xa5event\xcf");
    header.extend_from_slice(&sequence.to_be_bytes());
    smallvec![header.into(), payload.clone()]
}

fn send(mut transport: LibzmqTransport, endpoint: &str, count: u64, bytes: usize) {
    let options = SocketOptions { immediate: true, ..SocketOptions::default() };
    let mut socket = transport.open(SocketKind::Push, &options).expect("a socket");
    transport.connect(&mut socket, endpoint).expect("connected");
    let never = Signal::new().expect("a signal");
    let payload = Bytes::from(vec![0x55; bytes]);
    for sequence in 0..count {
        let frames = message(sequence, &payload);
        while transport.send(&mut socket, None, &frames).expect("sent") == Taken::Full {
            let mut interests = [Interest {
                socket: &mut socket,
                read: false,
                write: true,
                readable: false,
                writable: false,
                monitored: false,
            }];
            transport
                .wait(&mut interests, &[std::os::fd::AsFd::as_fd(&never)], Some(Duration::from_millis(100)))
                .expect("waited");
        }
    }
    transport.close(socket, Duration::from_secs(60));
}

/// Receives and does nothing else: what no receiver on libzmq can pass.
#[allow(clippy::print_stdout)] // the result
fn receive(mut transport: LibzmqTransport, endpoint: &str, count: u64) {
    let mut socket = transport.open(SocketKind::Pull, &SocketOptions::default()).expect("a socket");
    let real = transport.bind(&mut socket, endpoint).expect("bound");
    println!("{real}");
    let never = Signal::new().expect("a signal");
    let (mut seen, mut start) = (0, Instant::now());
    while seen < count {
        let mut interests = [Interest {
            socket: &mut socket,
            read: true,
            write: false,
            readable: false,
            writable: false,
            monitored: false,
        }];
        transport.wait(&mut interests, &[std::os::fd::AsFd::as_fd(&never)], None).expect("waited");
        while transport.receive(&mut socket).expect("received").is_some() {
            if seen == 0 {
                start = Instant::now();
            }
            seen += 1;
        }
    }
    println!("{}", start.elapsed().as_secs_f64());
    transport.close(socket, Duration::ZERO);
}
