//! Records of any bytes in a journal, each with its length and a CRC that is right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::captures::{directory, put, read};

fuzz_target!(|input: &[u8]| {
    let mut journal = Vec::new();
    let mut rest = input;
    // The input has two bytes of length before each record.
    while let Some((length, records)) = rest.split_first_chunk() {
        let (record, records) = records.split_at(usize::from(u16::from_le_bytes(*length)).min(records.len()));
        let length = u32::try_from(record.len()).expect("two bytes").to_le_bytes();
        let mut crc = crc32fast::Hasher::new();
        crc.update(&length);
        crc.update(record);
        journal.extend([&length, &crc.finalize().to_le_bytes(), record].concat());
        rest = records;
    }
    let directory = directory();
    put(directory.path(), ".0000000000.journal", &journal);
    read(directory.path());
});
