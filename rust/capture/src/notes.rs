//! The notes of a capture on a segment, written before it has its name: JSON lines, sealed in
//! `_capture/<segment>.parquet`.
//!
//! The first line holds the checksum of the segment, and of earlier segments whose notes held nothing else and were
//! removed since; the other lines are the [account](crate::account) of the rows up to then.

use std::io::{self, Read};
use std::path::Path;

use serde_json::{Value, json};

use crate::CaptureError;
use crate::files::Span;
use crate::source::Source;

/// The most segments whose checksums a file has: a file with nothing else is removed when a later one repeats them.
pub(crate) const SUMS_MAX: usize = 1024;

/// Whether to continue what may take long; once false, it stays false.
pub(crate) type GoesOn<'a> = &'a dyn Fn() -> bool;

/// The checksum of a segment's bytes when it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) span: Span,
    pub(crate) bytes: u64,
    /// CRC-32, as in the journal's records: that of Ethernet and gzip.
    pub(crate) crc: u32,
    /// The rows and the bytes of their frames; earlier versions did not count them.
    pub(crate) counts: Option<(u64, u64)>,
}

impl Sum {
    /// Whether the bytes are the same.
    pub(crate) fn is_of_same_bytes(&self, other: &Self) -> bool {
        (self.span, self.bytes, self.crc) == (other.span, other.bytes, other.crc)
    }

    /// The checksum of the current bytes, which may take hours, unless `goes_on` returns false in between.
    pub(crate) fn of(span: Span, file: &Source, goes_on: GoesOn<'_>) -> io::Result<Self> {
        let mut reader = file.reader();
        let (mut crc, mut bytes) = (crc32fast::Hasher::new(), 0);
        let mut buffer = vec![0; 1 << 20];
        loop {
            if !goes_on() {
                return Err(io::Error::other("interrupted"));
            }
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(Self { span, bytes, crc: crc.finalize(), counts: None }),
                Ok(read) => {
                    crc.update(&buffer[..read]);
                    bytes += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let number = |at: usize| value.get(at)?.as_u64();
        let (first, last) = (number(0)?, value.get(3).map_or_else(|| number(0), Value::as_u64)?);
        let span = Span { first, last };
        Some(Self { span, bytes: number(1)?, crc: u32::try_from(number(2)?).ok()?, counts: number(4).zip(number(5)) })
    }

    /// The segment, its bytes and their CRC, the last segment in it if it is merged, its rows and their bytes.
    fn to_json(self) -> Value {
        let Self { span: Span { first, last }, bytes, crc, counts } = self;
        match counts {
            Some((rows, frame_bytes)) => json!([first, bytes, crc, last, rows, frame_bytes]),
            None if first == last => json!([first, bytes, crc]),
            None => json!([first, bytes, crc, last]),
        }
    }
}

/// The notes on a segment.
pub(crate) fn to_text(segment: u64, sums: &[Sum], account: &[u8]) -> Vec<u8> {
    let sums: Vec<_> = sums.iter().copied().map(Sum::to_json).collect();
    let head = json!({"version": 1, "segment": segment, "sums": sums}).to_string();
    [head.as_bytes(), b"\n", account].concat()
}

/// The checksums in a file, and the account. Files of earlier versions have no checksums.
pub(crate) fn from_text<'a>(path: &Path, text: &'a [u8]) -> Result<(Vec<Sum>, &'a [u8]), CaptureError> {
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let (head, account) = text.split_at(end);
    let head: Value = serde_json::from_slice(head).map_err(|error| CaptureError::corrupt(path, error))?;
    match head["version"].as_u64() {
        Some(1) => {}
        Some(_) => return Err(CaptureError::newer(path)),
        None => return Err(CaptureError::corrupt(path, "is not a record of runs")),
    }
    let sums = head["sums"].as_array().map_or(&[][..], Vec::as_slice);
    let sums: Option<Vec<Sum>> = sums.iter().map(Sum::from_json).collect();
    let sums = sums.ok_or_else(|| CaptureError::corrupt(path, "contains an invalid checksum of a segment"))?;
    Ok((sums, account.strip_prefix(b"\n").unwrap_or(account)))
}
