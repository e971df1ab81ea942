//! Anything to what reads the messages of a NATS server: whatever is read lies within it, and none of it is read twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_wire::nats::{First, Head, first};

fuzz_target!(|input: &[u8]| {
    let mut left = input;
    loop {
        match first(left) {
            First::Message(delivery, length) => {
                let parts = [delivery.subject, delivery.reply_to, delivery.block, delivery.body];
                assert!(parts.iter().map(|part| part.len()).sum::<usize>() < length && length <= left.len());
                let _ = Head::new(delivery.subject, delivery.reply_to, delivery.body.len());
                left = &left[length..];
            }
            First::Part(least) => return assert!(least > left.len()),
            First::Other => return,
        }
    }
});
