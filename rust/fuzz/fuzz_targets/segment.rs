//! Any bytes for a segment, which is a Parquet file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::captures::{directory, put, read};

fuzz_target!(|input: &[u8]| {
    let directory = directory();
    put(directory.path(), "0000000000.parquet", input);
    read(directory.path());
});
