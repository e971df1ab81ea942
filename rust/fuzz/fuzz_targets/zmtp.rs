//! Anything to a connection of ZMTP after any part of a good handshake: cuts make no difference, what is refused is refused
//! once, and nothing is held that did not come.
#![no_main]

use std::sync::{Arc, LazyLock};

use bytes::{BufMut, Bytes};
use libfuzzer_sys::fuzz_target;
use trunkline_wire::Nanos;
use trunkline_zmtp::{Connection, Event, Limits, Settings, Side, SocketType};

const LIMITS: Limits = Limits {
    handshake_time: std::time::Duration::from_secs(10),
    handshake_bytes: 4096,
    frame_bytes: 100_000,
    message_bytes: 100_000,
    message_frames: 20,
};

/// What a good peer says until both are ready.
static HANDSHAKE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let greeting = b"\xff\0\0\0\0\0\0\0\0\x7f\x03\x01NULL";
    let ready = b"\x04\x2b\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x02me";
    let bytes = [&greeting[..], &[0; 48], ready].concat();
    assert!(matches!(read(std::iter::once(&bytes[..])).0[..], [Event::Ready(_), Event::Failed(_)]));
    bytes
});

/// All that happens, and the answers to the handshake: how many PINGs one PONG answers does depend on the cuts.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Event>, Vec<u8>, Option<Nanos>) {
    let settings = Settings { limits: LIMITS, ..Settings::new(SocketType::Router, Bytes::new()) };
    let mut connection = Connection::new(Arc::new(settings), Side::Accepted, Nanos(0));
    let (mut events, mut answered) = (vec![], connection.chunks().collect::<Vec<_>>().concat());
    connection.handle_written(answered.len());
    for piece in pieces {
        let mut rest = piece;
        if let Some(mut landing) = connection.landing() {
            let (landed, more) = rest.split_at(landing.remaining_mut().min(rest.len()));
            landing.put_slice(landed);
            connection.handle_landed(Nanos(1));
            rest = more;
        }
        connection.receive(Nanos(1), Bytes::copy_from_slice(rest));
        events.extend(std::iter::from_fn(|| connection.poll_event()));
        answered.extend(connection.chunks().flatten());
        connection.handle_written(connection.backlog().bytes);
        connection.answer_ping();
        connection.handle_written(connection.backlog().bytes);
    }
    let due = connection.poll_timeout();
    connection.handle_eof();
    events.extend(std::iter::from_fn(|| connection.poll_event()));
    assert!(connection.is_over() && connection.poll_timeout().is_none());
    (events, answered, due)
}

fuzz_target!(|input: &[u8]| {
    let Some(([size, kept], input)) = input.split_first_chunk() else { return };
    let bytes = [&HANDSHAKE[..usize::from(*kept).min(HANDSHAKE.len())], input].concat();
    let whole = read(std::iter::once(&bytes[..]));
    let cut = read(bytes.chunks(usize::from(*size) + 1));
    assert!((&whole.0, whole.2) == (&cut.0, cut.2));
    // Who is given up gets no more answers: what was written before depends on the cuts.
    assert!(cut.1.starts_with(&whole.1) && (cut.1 == whole.1 || matches!(whole.0[..], [Event::Ready(_), ..])));
    let failures = whole.0.iter().filter(|event| matches!(event, Event::Failed(_))).count();
    assert_eq!(failures, 1);
    for event in &whole.0 {
        if let Event::Message(frames) = event {
            let bytes: usize = frames.iter().map(Bytes::len).sum();
            assert!(bytes as u64 <= LIMITS.message_bytes && frames.len() <= LIMITS.message_frames);
        }
    }
});
