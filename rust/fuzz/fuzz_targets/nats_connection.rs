//! Anything to a connection of NATS after any part of a good handshake: cuts make no difference, it is over once, and what
//! is answered is no more than what came.
#![no_main]

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_wire::Nanos;
use trunkline_wire::nats::{Connection, Event, Login, Settings};

const HANDSHAKE: &[u8] = b"INFO {\"headers\":true,\"max_payload\":1000}\r\nPONG\r\n";

/// All that happens, and all that is answered.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Event>, Vec<u8>) {
    let mut connection = Connection::new(Arc::new(Settings::default()), Login::default(), Nanos(0));
    let (mut events, mut answered) = (vec![], vec![]);
    for piece in pieces {
        connection.receive(Bytes::copy_from_slice(piece));
        while let Some(event) = connection.poll_event(Nanos(1)) {
            if event == Event::Ready {
                let _ = connection.barrier();
            }
            events.push(event);
        }
    }
    connection.handle_eof();
    connection.handle_encrypted();
    events.extend(std::iter::from_fn(|| connection.poll_event(Nanos(1))));
    assert!(connection.is_over() && connection.poll_timeout().is_none());
    let mut slices = [IoSlice::new(&[]); 64];
    let count = connection.slices(&mut slices);
    answered.extend(slices[..count].iter().flat_map(|slice| slice.iter().copied()));
    (events, answered)
}

fuzz_target!(|input: &[u8]| {
    let Some(([size, kept], input)) = input.split_first_chunk() else { return };
    let bytes = [&HANDSHAKE[..usize::from(*kept).min(HANDSHAKE.len())], input].concat();
    let whole = read(std::iter::once(&bytes[..]));
    assert!(whole == read(bytes.chunks(usize::from(*size) + 1)));
    assert_eq!(whole.0.iter().filter(|event| matches!(event, Event::Failed(_))).count(), 1);
    assert!(whole.1.len() <= bytes.len() + 1000);
    let parts = whole.0.iter().map(|event| match event {
        Event::Message(message) => {
            message.subject.len() + message.reply_to.len() + message.block.len() + message.body.len()
        }
        _ => 0,
    });
    assert!(parts.sum::<usize>() <= bytes.len());
});
