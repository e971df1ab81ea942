//! The states of summaries, from any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_analysis::{Clock, Scope, summary};
use trunkline_columns::PROTOCOLS;

fuzz_target!(|input: &[u8]| {
    let Some((&which, rest)) = input.split_first() else { return };
    let name = PROTOCOLS[usize::from(which) % PROTOCOLS.len()].name();
    let clock = Clock { first_ns: 0, bucket_ns: 1_000 };
    let scope = Scope { clock, has_own: false, is_cut: false, has_records: false, has_sequences: true };
    let (Some(mut one), Some(mut other)) = (summary(name, scope), summary(name, scope)) else { return };
    // What is looked at is what follows the head of a state.
    let mut state = one.state()[..4 + 1 + name.len() + 2].to_vec();
    state.extend(rest);
    let _ = other.merge(&state);
    let _ = other.evaluate(120);
    if one.restore(&state).is_ok() {
        one.widen(1 << 40, 120);
        one.finish();
        let _ = one.evaluate(120);
        let again = one.state();
        assert!(other.restore(&again).is_ok());
    }
});
