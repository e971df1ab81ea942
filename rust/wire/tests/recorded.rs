//! Traffic recorded from released senders.
#![allow(clippy::unwrap_used)] // a file that is not as recorded fails the test

use std::{collections::BTreeMap, fs, io::Read, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::read::GzDecoder;
use serde_json::Value as Json;
use trunkline_wire::cdtp::{Layout, Settings, Variant, decode, encode_batch, encode_header};

fn messages(release: &str) -> Vec<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let mut text = String::new();
    GzDecoder::new(&fs::read(folder.join(release)).unwrap()[..]).read_to_string(&mut text).unwrap();
    text.lines()
        .map(|line| {
            let message: Json = serde_json::from_str(line).unwrap();
            let frames = message["frames"].as_array().unwrap();
            frames.iter().map(|frame| BASE64_STANDARD.decode(frame.as_str().unwrap()).unwrap()).collect()
        })
        .collect()
}

/// Decodes all messages, encodes them again, and counts them by sender.
fn follow(release: &str, variant: Variant) -> BTreeMap<String, usize> {
    let mut senders = BTreeMap::new();
    for frames in messages(release) {
        let header = &frames[0];
        let layout = decode(&frames, &Settings::default()).unwrap();
        assert_eq!(layout.variant(), variant);
        let sender = str::from_utf8(&header[layout.sender()]).unwrap();
        *senders.entry(sender.to_owned()).or_default() += layout.messages();
        let again = match &layout {
            Layout::Single(head) => {
                let mut out = Vec::new();
                let timestamp = head.timestamp.unwrap_or_default();
                let (kind, sequence) = (head.message_type.unwrap(), head.sequence.unwrap());
                let tags = &header[head.tags.clone()];
                encode_header(&mut out, variant, sender, timestamp, kind, sequence, tags).unwrap();
                out
            }
            Layout::Batch(batch) => {
                let blocks = batch.records.iter().map(|record| record.blocks(header).map(|block| &header[block]));
                let blocks: Vec<Vec<_>> = blocks.map(Iterator::collect).collect();
                let records = batch.records.iter().zip(&blocks);
                let records: Vec<_> = records
                    .map(|(record, blocks)| (record.sequence, &header[record.tags.clone()], &blocks[..]))
                    .collect();
                encode_batch(sender, batch.message_type, &records).unwrap()
            }
        };
        assert_eq!(&again, header);
    }
    senders
}

#[test] // req: CDTP-23
fn release_0_3_decodes_and_is_written_the_same() {
    let senders = follow("cdtp1-release-0.3.jsonl.gz", Variant::A);
    assert_eq!(senders.values().sum::<usize>(), 2124);
}

#[test] // req: CDTP-23
fn release_0_5_1_decodes_and_is_written_the_same() {
    let senders = follow("cdtp1-release-0.5.1.jsonl.gz", Variant::B);
    assert_eq!(senders.values().sum::<usize>(), 2124);
}

#[test] // req: CDTP-22 CDTP-23
fn release_1_0_2_decodes_and_is_written_the_same() {
    let senders = follow("cdtp2-release-1.0.2.jsonl.gz", Variant::Two);
    assert!(senders.values().sum::<usize>() > 1000, "{senders:?}");
}
