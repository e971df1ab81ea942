//! Any frames as a CDTP message. The first byte says how many payload frames there are and what is asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_wire::cdtp::{
    Accept, Layout, MessageType, Settings, Variant, decode, decode_header, encode_batch, encode_header,
};

fuzz_target!(|input: &[u8]| {
    let Some((&plan, header)) = input.split_first() else { return };
    let mut frames = vec![header];
    frames.resize(1 + usize::from(plan & 3), &[]);
    let settings = Settings { strict: plan & 4 == 0, accept: accept(plan) };
    let layout = match decode(&frames, &settings) {
        Ok(layout) => layout,
        Err(error) => {
            assert!(error.frame <= frames.len());
            assert!(error.offset <= frames.get(error.frame).map_or(0, |frame| frame.len()));
            return;
        }
    };
    assert_eq!(decode_header(header, None, &settings).as_ref(), Ok(&layout));
    assert!(settings.accept.contains(layout.variant()));

    let again = encode(&layout, header);
    let mut frames_again = frames.clone();
    frames_again[0] = &again;
    let second = decode(&frames_again, &settings).expect("what is written can be read");
    assert_eq!(say(&second, &again), say(&layout, header), "writing keeps what is said");
    assert_eq!(encode(&second, &again), again, "what was written is written the same");
});

fn accept(plan: u8) -> Accept {
    match plan >> 3 {
        0 => Accept::ALL,
        some => Variant::ALL.into_iter().filter(|variant| some >> *variant as u8 & 1 == 1).collect(),
    }
}

fn encode(layout: &Layout, header: &[u8]) -> Vec<u8> {
    let sender = str::from_utf8(&header[layout.sender()]).expect("checked");
    match layout {
        Layout::Single(head) => {
            let mut out = Vec::new();
            let tags = &header[head.tags.clone()];
            let kind = head.message_type.unwrap_or(MessageType::Dat);
            let timestamp = head.timestamp.unwrap_or_default();
            let sequence = head.sequence.unwrap_or(0);
            encode_header(&mut out, head.variant, sender, timestamp, kind, sequence, tags).expect("short");
            out
        }
        Layout::Batch(batch) => {
            let blocks: Vec<Vec<&[u8]>> = batch
                .records
                .iter()
                .map(|record| record.blocks(header).map(|block| &header[block]).collect())
                .collect();
            let records: Vec<_> = (batch.records.iter().zip(&blocks))
                .map(|(record, blocks)| (record.sequence, &header[record.tags.clone()], &blocks[..]))
                .collect();
            encode_batch(sender, batch.message_type, &records).expect("short")
        }
    }
}

/// All that a message says, wherever in its bytes.
fn say(layout: &Layout, header: &[u8]) -> String {
    let sender = &header[layout.sender()];
    match layout {
        Layout::Single(head) => format!(
            "{:?} {sender:?} {:?} {:?} {:?} {:?} {}",
            head.variant,
            head.timestamp,
            head.message_type,
            head.sequence,
            &header[head.tags.clone()],
            head.duplicate_keys
        ),
        Layout::Batch(batch) => {
            let mut out = format!("{sender:?} {:?}", batch.message_type);
            for record in &batch.records {
                let blocks: Vec<_> = record.blocks(header).map(|block| &header[block]).collect();
                assert_eq!(blocks.len(), record.blocks as usize);
                assert_eq!(blocks.iter().map(|block| block.len()).sum::<usize>(), record.block_bytes);
                out += &format!(" {} {:?} {blocks:?}", record.sequence, &header[record.tags.clone()]);
            }
            out
        }
    }
}
