//! The account of runs, told of any rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Input, messages};
use trunkline_wire::cdtp::{RunBook, RunRow};

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let mut book = RunBook::default();
    let mut rows = 0;
    while let (Some(segment), Some(at), Some(n_bytes)) = (input.number(), input.number(), input.number()) {
        let Some(frames) = messages::cdtp(&mut input) else { break };
        book.record(&RunRow {
            segment,
            seq: rows,
            received_at_ns: at.cast_signed(),
            n_bytes,
            n_frames: frames.len(),
            header: &frames[0],
            payload: frames.get(1).map(|frame| &frame[..]),
        });
        rows += 1;
        if rows % 16 == 0 {
            book.forget_written();
        }
    }
    for (_, run) in book.latest() {
        let _ = (run.condition(), run.run_id(), run.is_open());
    }
    let _ = book.open_segments(0).count();
});
