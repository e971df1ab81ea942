//! The state of a fold as bytes: its name and version, then its fields by name in MessagePack, compressed.
//!
//! Spark copies a state several times with each micro-batch, and writes it to the checkpoint: names and what items have in
//! common would be most of it.
//!
//! A field that is added later has a default, so that states of the version before are read: `tests/data/states` has one
//! of each. A version that is not known is refused.

use std::{
    error::Error,
    fmt,
    io::{self, BufReader, BufWriter, Read, Write},
    num::NonZeroU32,
    ops::RangeInclusive,
};

use rmp_serde::decode;
use serde::{Serialize, de::DeserializeOwned};
use zstd::stream::read::Decoder;
use zstd::stream::write::Encoder;

/// The first bytes of every state.
const MAGIC: &[u8; 4] = b"TLAS";

/// The first bytes of what is compressed, which MessagePack never begins with here. Folds were not before version 8.
const COMPRESSED: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The level of compression: higher ones take longer and gain little.
const LEVEL: i32 = 1;

/// A state is at most so many bytes, or so many times what it is compressed: damaged ones do not fill the memory.
const MOST: (u64, u64) = (1 << 28, 1 << 8);

/// Why bytes are no state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// They do not begin as a state does.
    NoState,
    /// They are the state of something else.
    Another(String),
    /// Their version is unknown.
    UnknownVersion(u16),
    /// They are of a stream that has so many buckets, numbered by its partitions or not.
    Buckets { number: Option<NonZeroU32>, is_spread: bool },
    /// What follows is damaged.
    Damaged(String),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoState => f.write_str("these bytes are no state of an analysis"),
            Self::Another(name) => write!(f, "this is the state of {name}"),
            Self::UnknownVersion(version) => write!(f, "version {version} of this state is not known here"),
            Self::Damaged(reason) => write!(f, "the state is damaged: {reason}"),
            Self::Buckets { number: None, .. } => f.write_str("this state is of a whole table"),
            Self::Buckets { number: Some(number), is_spread } => {
                let partitions = if *is_spread { ", one for each partition" } else { "" };
                write!(f, "this state is of one of {number} buckets{partitions}")
            }
        }
    }
}

impl Error for StateError {}

/// The bytes of a state.
pub(crate) fn save(name: &str, version: u16, state: &impl Serialize) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    bytes.extend(name.as_bytes());
    bytes.extend(version.to_be_bytes());
    // A state holds numbers, bytes, lists and maps, which always fit MessagePack, and memory takes any bytes.
    compressed(&mut bytes, state).unwrap_or_default();
    bytes
}

fn compressed(bytes: &mut Vec<u8>, state: &impl Serialize) -> io::Result<()> {
    let mut packed = BufWriter::with_capacity(1 << 16, Encoder::new(bytes, LEVEL)?);
    rmp_serde::encode::write_named(&mut packed, state).map_err(io::Error::other)?;
    packed.flush()?;
    packed.get_mut().do_finish()
}

fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, decode::Error> {
    if !bytes.starts_with(COMPRESSED) {
        return rmp_serde::from_slice(bytes);
    }
    let most = u64::try_from(bytes.len()).unwrap_or(u64::MAX).saturating_mul(MOST.1).max(MOST.0);
    let packed = Decoder::with_buffer(bytes).map_err(decode::Error::InvalidMarkerRead)?.take(most);
    // As it is decompressed: all of it would take as much memory as what is made of it.
    rmp_serde::from_read(BufReader::with_capacity(1 << 16, packed))
}

/// Reads a state of one of these versions from bytes.
pub(crate) fn load<T: DeserializeOwned>(
    name: &str,
    versions: RangeInclusive<u16>,
    bytes: &[u8],
) -> Result<T, StateError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(StateError::NoState)?;
    let (&length, rest) = rest.split_first().ok_or(StateError::NoState)?;
    let (found, rest) = rest.split_at_checked(length.into()).ok_or(StateError::NoState)?;
    if found != name.as_bytes() {
        return Err(StateError::Another(String::from_utf8_lossy(found).into_owned()));
    }
    let (number, rest) = rest.split_first_chunk::<2>().ok_or(StateError::NoState)?;
    let number = u16::from_be_bytes(*number);
    if !versions.contains(&number) {
        return Err(StateError::UnknownVersion(number));
    }
    unpacked(rest).map_err(|error| StateError::Damaged(error.to_string()))
}
