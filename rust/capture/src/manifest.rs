use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::{CaptureError, files};

/// The longest id of a capture, which each of its rows repeats: a UUID takes less.
const CAPTURE_ID_BYTES: usize = 64;

/// The manifest: the capture's id and the numbers of the next segment and row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) capture_id: String,
    pub(crate) next_segment: u64,
    pub(crate) next_seq: u64,
    /// Whether segments from the next one on are not published, though they have their names: those of a batch are
    /// published together, by the manifest.
    pub(crate) is_exact: bool,
    /// The latest batch that was published of each streaming query.
    pub(crate) batches: BTreeMap<String, u64>,
}

impl Manifest {
    pub(crate) fn new(capture_id: String) -> Self {
        Self { capture_id, next_segment: 0, next_seq: 0, is_exact: false, batches: BTreeMap::new() }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        let Self { capture_id, next_segment, next_seq, is_exact, batches } = self;
        let mut value =
            json!({"version": 1, "capture_id": capture_id, "next_segment": next_segment, "next_seq": next_seq});
        if *is_exact {
            value["exact"] = true.into();
        }
        if !batches.is_empty() {
            value["batches"] = json!(batches);
        }
        format!("{value}\n").into_bytes()
    }

    pub(crate) fn from_json(path: &Path, bytes: &[u8]) -> Result<Self, CaptureError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| CaptureError::corrupt(path, error))?;
        let version = value["version"].as_u64();
        if version.is_some_and(|version| version > 1) {
            return Err(CaptureError::newer(path));
        }
        let manifest = (|| {
            Some(Self {
                capture_id: capture_id(value["capture_id"].as_str()?)?,
                next_segment: counted(&value["next_segment"])?,
                next_seq: counted(&value["next_seq"])?,
                is_exact: value["exact"] == true,
                batches: batches(&value["batches"])?,
            })
        })();
        manifest
            .ok_or_else(|| CaptureError::corrupt(path, "capture_id, next_segment or next_seq is missing or invalid"))
    }
}

/// The latest batches of queries; earlier versions had none.
fn batches(value: &Value) -> Option<BTreeMap<String, u64>> {
    let given = value.as_object().into_iter().flatten();
    given.map(|(query, batch)| Some((query.clone(), counted(batch)?))).collect()
}

/// The id of a capture, if valid: it is shown to users as it is.
pub(crate) fn capture_id(id: &str) -> Option<String> {
    let is_id = id.len() <= CAPTURE_ID_BYTES && id.bytes().all(|letter| letter.is_ascii_graphic());
    is_id.then(|| id.to_owned())
}

/// A valid number of segments or rows.
pub(crate) fn counted(value: &Value) -> Option<u64> {
    value.as_u64().filter(|number| *number <= files::NUMBER_MAX)
}

/// A new capture's id: a random UUID.
pub(crate) fn random_id(directory: &Path) -> Result<String, CaptureError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| CaptureError::writing(directory, error.into()))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut id = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            id.push('-');
        }
        let _ = write!(id, "{byte:02x}");
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trip() {
        let capture_id = random_id(Path::new(".")).unwrap();
        let manifest = Manifest { next_segment: 3, next_seq: 1 << 60, ..Manifest::new(capture_id) };
        let batches = BTreeMap::from([("query".to_owned(), 7)]);
        for manifest in [Manifest { is_exact: true, batches, ..manifest.clone() }, manifest] {
            assert_eq!(Manifest::from_json(Path::new("m"), &manifest.to_json()).unwrap(), manifest);
        }
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        for bytes in ["", "{", "[]", "{}", r#"{"version":2,"capture_id":"x","next_segment":1,"next_seq":1}"#] {
            assert!(Manifest::from_json(Path::new("m"), bytes.as_bytes()).is_err(), "{bytes}");
        }
    }

    #[test]
    fn ids_are_random_uuids() {
        let id = random_id(Path::new(".")).unwrap();
        assert_eq!(id.len(), 36);
        assert_eq!(&id[14..15], "4");
        assert_ne!(id, random_id(Path::new(".")).unwrap());
    }
}
