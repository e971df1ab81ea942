//! The states of folds, from any bytes.
#![no_main]

use std::num::NonZeroU32;

use libfuzzer_sys::fuzz_target;
use trunkline_analysis::{NAMES, Options, folding};

fuzz_target!(|input: &[u8]| {
    let Some((&which, rest)) = input.split_first() else { return };
    let name = NAMES[usize::from(which) % NAMES.len()];
    let buckets = NonZeroU32::new(u32::from(which >> 5) & 3);
    let options = Options { window_us: 1_000_000, json: which & 0x80 != 0, buckets, is_spread: false, bytes: None };
    let Some(mut fold) = folding(name, options) else { return };
    // What is looked at is what follows the head of a state.
    let mut state = fold.state()[..4 + 1 + name.len() + 2].to_vec();
    state.extend(rest);
    if fold.restore(&state).is_ok() {
        let again = fold.state();
        assert!(fold.restore(&again).is_ok());
        let _ = (fold.evicted(), fold.left_out());
        let _ = fold.emit_open();
        fold.forget(1_000_000_000_000_000_000);
        if fold.emit_open().is_ok() {
            // What was given, and has not changed, is not given again.
            assert!(fold.emit_open().is_ok_and(|again| again.is_empty()));
        }
        let _ = fold.finish();
    }
});
