//! Any text for what a capture knows of itself, and a recorder that goes on from there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_capture::{Direction, Row, Settings, Writer};
use trunkline_fuzz::captures::{directory, put, read};
use trunkline_wire::Framing;

const NAMES: [&str; 4] =
    ["_capture.json", "_runs/0000000000.jsonl", "_capture/manifest.parquet", "_capture/0000000000.parquet"];

fuzz_target!(|input: &[u8]| {
    let Some((name, text)) = input.split_first() else { return };
    let name = NAMES[usize::from(*name) % NAMES.len()];
    let directory = directory();
    put(directory.path(), name, text);
    if name != NAMES[0] && name != NAMES[2] {
        put(directory.path(), NAMES[0], br#"{"version":1,"capture_id":"id","next_segment":1,"next_seq":9}"#);
    }
    read(directory.path());
    let Ok(mut writer) = Writer::open(directory.path(), Settings::default(), || {}) else { return };
    let header = b"\xa5CDTP\x01\xa1d\x01\x00\x80".as_slice();
    writer.append(&Row {
        received_at_ns: 0,
        framing: Framing::Cdtp,
        endpoint: None,
        peer: None,
        direction: Direction::In,
        topic: None,
        reply_to: None,
        frames: &[header, b"\x80"],
        error: None,
    });
    writer.close().expect("whoever may begin may go on");
    read(directory.path());
});
