//! Any frames to the codec of mc0, by length: what is read says what is there, and is written again as it was.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::Input;
use trunkline_wire::mc0::{Mc0, Settings, Verb, decode, encode, id};
use trunkline_wire::{Frames, Protocol as _};

const WORDS: &[&[u8]] = &[b"", b"ID", b"TOPIC", b"TTL", b"VERSION", b"MESSAGE", b"X-A", b"0.3", b"1000", b"1"];

/// A word that means something, or a few bytes.
fn frame(input: &mut Input<'_>) -> Option<Bytes> {
    match input.byte()? % 4 {
        0 => input.bytes(),
        1 => input.pick(&Verb::ALL).map(|verb| Bytes::from_static(verb.name().as_bytes())),
        _ => input.pick(WORDS).map(Bytes::from_static),
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(max_ttl_ms) = input.number() else { return };
    let frames: Frames = std::iter::from_fn(|| frame(&mut input)).collect();
    let split = Mc0::split(&frames);
    assert!(split.body <= frames.len());
    let found = id(&frames);
    assert!(found.is_none_or(|at| at < frames.len()));
    let layout = match decode(&frames, Settings { max_ttl_ms }) {
        Ok(layout) => layout,
        Err(error) => return assert!(error.frame <= frames.len()),
    };
    assert_eq!(layout.id, found);
    assert_eq!(Verb::from_frame(&frames[layout.at]), Some(layout.verb));
    let headers = layout.keys().map(|key| (frames[key].clone(), frames[key + 1].clone()));
    let mut again = encode(layout.verb, headers, &frames[layout.positional()]);
    if !layout.is_delimited() {
        again.remove(0);
    }
    // The empty frame before nothing may be there or not.
    let head = layout.at + 1 + 2 * layout.pairs;
    assert_eq!(frames[..head], again[..head]);
    assert_eq!(decode(&again, Settings { max_ttl_ms }).map(|again| again.pairs), Ok(layout.pairs));
    assert_eq!(frames[layout.positional()], again[again.len().min(head + 1)..]);
});
