//! Any frames to the codec of MTL, of both flows: what is read is written again as it was, or says the same.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::Input;
use trunkline_wire::mtl::data::{self, Kind, Layout};
use trunkline_wire::mtl::{Control, Data, Spoken, decode, table};
use trunkline_wire::{Frames, Protocol as _};

const WORDS: &[&[u8]] = &[
    b"",
    b"Connection.Open",
    b"A.",
    b"200",
    b"999",
    b"{}",
    b"{\"a\":1e308}",
    b"{\"a\":[-0.0,18446744073709551615]}",
    b"{\"\\ud83d\\ude00\":\"\\u0000\"}",
    b"\x08",
];

/// Pieces of headers and tables.
const PIECES: &[&[u8]] =
    &[b"\0\0\0\0", b"\0\0\0\x05", b"\x01k", b"\x01j", b"F", b"A", b"V", b"t\x01", b"S", b"I\0\0\0\0", b"\0", b"\x01"];

fn frame(input: &mut Input<'_>) -> Option<Bytes> {
    match input.byte()? % 4 {
        0 => input.pick(WORDS).map(Bytes::from_static),
        1 => Some(Bytes::copy_from_slice(std::mem::take(&mut input.0))),
        _ => {
            let mut header = vec![input.byte()? % 12];
            header.extend(input.number()?.to_be_bytes());
            while let Some(piece) = input.byte().filter(|byte| *byte < 0xf0) {
                header.extend(PIECES[usize::from(piece) % PIECES.len()]);
            }
            Some(header.into())
        }
    }
}

fn again(layout: &Layout, frames: &Frames) -> Frames {
    let Layout { kind, sequence, name, table, multiple, recycle, status } = layout.clone();
    let name = std::str::from_utf8(&frames[0][name]).expect("it was checked");
    match kind {
        Kind::Lease => data::lease(sequence, name),
        Kind::Response => data::response(sequence, status),
        Kind::Summon => data::summon(sequence, name),
        Kind::Dismiss => data::dismiss(sequence, name),
        Kind::Content => data::content(sequence, name, &frames[0][table], frames[1].clone()),
        Kind::Confirm => data::confirm(sequence, multiple),
        Kind::Reject => data::reject(sequence, multiple, recycle),
        Kind::Ping => data::ping(),
        Kind::Pong => data::pong(),
    }
}

fuzz_target!(|input: &[u8]| {
    if let Err(fault) = table::check(input) {
        assert!(fault.offset <= input.len());
    }
    let mut input = Input(input);
    let frames: Frames = std::iter::from_fn(|| frame(&mut input)).collect();
    let _ = (Control::decode(&frames, &()), Data::decode(&frames, &()));
    assert!(Control::split(&frames).body <= frames.len());
    match decode(&frames) {
        Err(error) => {
            assert!(error.frame <= frames.len());
            assert!(error.offset <= frames.get(error.frame).map_or(0, Bytes::len));
        }
        Ok(Spoken::Command(command)) => assert_eq!(decode(&command.frames()), Ok(Spoken::Command(command))),
        Ok(Spoken::Reply(reply)) => assert_eq!(decode(&reply.frames()), Ok(Spoken::Reply(reply))),
        Ok(Spoken::Data(layout)) => {
            let again = again(&layout, &frames);
            assert_eq!(frames[0], again[0]);
            assert_eq!(data::decode(&again), Ok(layout));
        }
    }
});
