//! As much of ZMTP 3 as a load needs that must cost less than libzmq: no security, no commands.

use super::Wire;

const GREETING: usize = 64;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The greeting and READY of a socket of this type.
pub(crate) fn handshake(kind: &str) -> Vec<u8> {
    let mut bytes = vec![0; GREETING];
    (bytes[0], bytes[9], bytes[10]) = (0xff, 0x7f, 3);
    bytes[12..16].copy_from_slice(b"NULL");
    let length = u8::try_from(kind.len()).expect("it is short");
    frame(&mut bytes, COMMAND, &[b"\x05READY\x0bSocket-Type\0\0\0", &[length][..], kind.as_bytes()].concat());
    bytes
}

/// Waits for the peer's greeting, and skips it.
pub(crate) fn skip_greeting(wire: &mut Wire) {
    while wire.read.len() < GREETING {
        wire.fill();
    }
    wire.read.drain(..GREETING);
}

pub(crate) fn message(out: &mut Vec<u8>, frames: &[&[u8]]) {
    for (at, body) in frames.iter().enumerate() {
        frame(out, if at + 1 < frames.len() { MORE } else { 0 }, body);
    }
}

fn frame(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    if let Ok(length) = u8::try_from(body.len()) {
        out.extend_from_slice(&[flags, length]);
    } else {
        out.push(flags | LONG);
        out.extend_from_slice(&(body.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(body);
}

/// The first message: where its last frame is, unless it is a command, and where it ends.
pub(crate) fn last_frame(bytes: &[u8]) -> Option<(Option<(usize, usize)>, usize)> {
    let mut at = 0;
    loop {
        let flags = *bytes.get(at)?;
        let (start, length) = if flags & LONG == 0 {
            (at + 2, u64::from(*bytes.get(at + 1)?))
        } else {
            (at + 9, u64::from_be_bytes(*bytes.get(at + 1..)?.first_chunk()?))
        };
        let end = start + usize::try_from(length).ok()?;
        if bytes.len() < end {
            return None;
        }
        if flags & MORE == 0 {
            return Some(((flags & COMMAND == 0).then_some((start, end)), end));
        }
        at = end;
    }
}
