//! Anything to what reads the messages of a NATS server: whatever is read lies within it, and cuts make no difference.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_wire::nats::{Head, Inflow};

/// Everything that is handed over, one after the other.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(bool, Vec<u8>)> {
    let (mut inflow, mut read) = (Inflow::default(), vec![]);
    for piece in pieces {
        let mut sent = Bytes::copy_from_slice(piece);
        while let Ok(Some(whole)) = inflow.take(&mut sent) {
            assert!(!whole.bytes.is_empty());
            if let Some(message) = &whole.message {
                let parts = [&message.subject, &message.reply_to, &message.block, &message.body];
                assert!(parts.iter().map(|part| part.len()).sum::<usize>() < whole.bytes.len());
                let _ = Head::new(&message.subject, &message.reply_to, message.body.len());
            }
            read.push((whole.message.is_some(), whole.bytes.to_vec()));
        }
        if !sent.is_empty() {
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
