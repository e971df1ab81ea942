//! The vectors in `tests/vectors`, which Python reads too.
#![allow(dead_code, clippy::unwrap_used)] // each file of tests uses a part; a wrong vector fails it

use std::{fs, path::Path};

use bytes::Bytes;
use serde_json::{Map, Value as Json};
use trunkline_wire::Frames;

pub(crate) type Vector = Map<String, Json>;

/// The vectors of a folder, file by file.
pub(crate) fn vectors(protocol: &str) -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors").join(protocol);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().flat_map(|file| serde_json::from_slice::<Vec<Vector>>(&fs::read(file).unwrap()).unwrap()).collect()
}

pub(crate) fn unhex(hex: &Json) -> Bytes {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

pub(crate) fn frames(vector: &Vector) -> Frames {
    vector["frames"].as_array().unwrap().iter().map(unhex).collect()
}
