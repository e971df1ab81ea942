//! Anything to what reads the messages of a NATS server: whatever is read lies within it, and cuts make no difference.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_wire::nats::{Head, Inflow};

/// Everything that is handed over, one after the other.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(bool, Vec<u8>)> {
    let (mut inflow, mut read) = (Inflow::default(), vec![]);
    for piece in pieces {
        let fed = inflow.feed(piece, |delivery, whole, kept| {
            assert!(!whole.is_empty() && kept.is_none_or(|kept| kept == whole));
            if let Some(delivery) = delivery {
                let parts = [delivery.subject, delivery.reply_to, delivery.block, delivery.body];
                assert!(parts.iter().map(|part| part.len()).sum::<usize>() < whole.len());
                let _ = Head::new(delivery.subject, delivery.reply_to, delivery.body.len());
            }
            read.push((delivery.is_some(), whole.to_vec()));
        });
        if fed.is_err() {
            break;
        }
    }
    read
}

fuzz_target!(|input: &[u8]| {
    let Some((&size, input)) = input.split_first() else { return };
    let whole = read(std::iter::once(input));
    assert_eq!(whole, read(input.chunks(usize::from(size) + 1)));
    let all = whole.iter().flat_map(|(_, bytes)| bytes);
    assert!(input.iter().zip(all).all(|(given, taken)| given == taken));
});
