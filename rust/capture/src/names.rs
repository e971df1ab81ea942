//! The names in each row group of a segment, noted in its footer: a group that has none of those wanted is not read.
//!
//! Parquet's own statistics would compare every value, and say only which is the first and the last of them.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, BinaryArray, RecordBatch};
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use trunkline_wire::Framing;

use crate::rows::{frames, texts};

const KEY: &str = "trunkline.names";

/// The program that writes segments, before its version.
pub(crate) const PROGRAM: &str = "trunkline ";

/// The topics of rows, and what messages name: senders, services, topics and resources.
pub(crate) const SUBJECT: &str = "subject";

/// The columns of rows with few names.
const COLUMNS: [&str; 3] = ["protocol", "endpoint", "direction"];

/// With more names in a row group, or more bytes in them, nothing is noted of a column.
const NAMES: usize = 128;
const NAMES_BYTES: usize = 8 << 10;

/// With more bytes, none are noted of a segment: each reader of it reads the footer.
const NOTE_BYTES: usize = 1 << 20;

/// Some names, or all others; None stands for no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub names: Vec<Option<String>>,
    pub is_others: bool,
}

impl Names {
    fn has(&self, name: Option<&str>) -> bool {
        self.names.iter().any(|wanted| wanted.as_deref() == name) != self.is_others
    }
}

/// The names of one column in a row group.
#[derive(Debug, Default)]
struct Column {
    names: BTreeSet<Vec<u8>>,
    bytes: usize,
    /// Whether some rows have none.
    has_none: bool,
    /// Whether there are too many, or some are unknown.
    is_unknown: bool,
}

impl Column {
    fn add(&mut self, name: Option<&[u8]>) {
        let Some(name) = name else {
            self.has_none = true;
            return;
        };
        if !self.is_unknown && !self.names.contains(name) {
            self.names.insert(name.to_vec());
            self.bytes = self.bytes.saturating_add(name.len());
            self.is_unknown = self.names.len() > NAMES || self.bytes > NAMES_BYTES;
        }
    }

    /// None if a name is no text, or there are too many.
    fn texts(self) -> Option<Vec<Option<String>>> {
        let names = self.names.into_iter().map(|name| String::from_utf8(name).ok().map(Some));
        let names = self.has_none.then_some(Some(None)).into_iter().chain(names).collect::<Option<Vec<_>>>()?;
        (!self.is_unknown && !names.is_empty()).then_some(names)
    }
}

/// The names that are noted of a row group, by column.
type Group = BTreeMap<String, Vec<Option<String>>>;

/// Gathers the names of a segment that is being written.
#[derive(Debug, Default)]
pub(crate) struct NamesOfGroups {
    groups: Vec<Group>,
    columns: BTreeMap<&'static str, Column>,
}

impl NamesOfGroups {
    /// Rows are written to the current row group.
    pub(crate) fn add(&mut self, rows: &RecordBatch) {
        for name in COLUMNS {
            let Some(column) = rows.column_by_name(name) else { continue };
            let noted = self.columns.entry(name).or_default();
            let (keys, names) = texts(column);
            let mut is_used = vec![keys.is_none(); names.len()];
            keys.into_iter().flatten().for_each(|key| is_used[key] = true);
            for (name, _) in names.iter().zip(is_used).filter(|(_, is_used)| *is_used) {
                noted.add(name.map(str::as_bytes));
            }
            if column.null_count() > 0 {
                noted.add(None);
            }
        }
        let subjects = self.columns.entry(SUBJECT).or_default();
        if !subjects.is_unknown {
            add_subjects(subjects, rows);
        }
    }

    /// The current row group ends.
    pub(crate) fn end_group(&mut self) {
        let columns = std::mem::take(&mut self.columns);
        let noted = columns.into_iter().filter_map(|(name, column)| Some((name.to_owned(), column.texts()?)));
        self.groups.push(noted.collect());
    }

    /// What to note in the footer.
    pub(crate) fn finish(mut self) -> Option<KeyValue> {
        self.end_group();
        let note = serde_json::to_string(&self.groups).ok().filter(|note| note.len() <= NOTE_BYTES);
        note.map(|note| KeyValue::new(KEY.into(), note))
    }
}

fn add_subjects(subjects: &mut Column, rows: &RecordBatch) {
    let (keys, names) = texts(&rows["protocol"]);
    let framings: Vec<_> = names.iter().map(|name| name.and_then(Framing::named)).collect();
    let topics = rows["topic"].as_string::<i32>();
    let (envelope, payload) = (rows["envelope"].as_list::<i32>(), rows["payload"].as_list::<i32>());
    let header: &BinaryArray = rows["header"].as_binary();
    let mut message: Vec<&[u8]> = Vec::new();
    // The beginning of a header up to its subject: one that begins so has the same.
    let mut same: Option<(Framing, &[u8])> = None;
    for row in 0..rows.num_rows() {
        let topic = topics.is_valid(row).then(|| topics.value(row));
        if let Some(topic) = topic {
            subjects.add(Some(topic.as_bytes()));
        }
        let Some(framing) = framings[keys.as_ref().map_or(row, |keys| keys[row])] else { continue };
        if let Some((of, begin)) = same
            && of == framing
            && header.is_valid(row)
            && header.value(row).starts_with(begin)
        {
            continue;
        }
        message.clear();
        message.extend(frames(envelope, row));
        message.extend(header.is_valid(row).then(|| header.value(row)));
        message.extend(frames(payload, row));
        match framing.of(&message).subject(&message) {
            Ok(Some(subject)) => {
                subjects.add(Some(subject));
                same =
                    header.is_valid(row).then(|| up_to(header.value(row), subject)).flatten().map(|up| (framing, up));
            }
            Ok(None) => subjects.add(None),
            Err(_) => subjects.is_unknown = true,
        }
        if subjects.is_unknown {
            return;
        }
    }
}

/// Whether it holds the names of a segment.
pub(crate) fn is_note(pair: &KeyValue) -> bool {
    pair.key == KEY
}

/// The bytes up to the end of some of them; None if these are no part of them.
fn up_to<'a>(bytes: &'a [u8], part: &[u8]) -> Option<&'a [u8]> {
    let end = part.as_ptr_range().end.addr().checked_sub(bytes.as_ptr().addr())?;
    (bytes.as_ptr() <= part.as_ptr()).then(|| bytes.get(..end)).flatten()
}

/// The names noted in a segment, by row group.
#[derive(Debug, Default)]
pub(crate) struct Noted(Vec<Group>);

impl Noted {
    /// None of a file that another program wrote, which may have copied the note beside other rows.
    pub(crate) fn of(metadata: &ParquetMetaData) -> Self {
        let file = metadata.file_metadata();
        if !file.created_by().is_some_and(|program| program.starts_with(PROGRAM)) {
            return Self::default();
        }
        let noted = file.key_value_metadata().into_iter().flatten().find(|pair| is_note(pair));
        let text = noted.and_then(|pair| pair.value.as_deref()).filter(|text| text.len() <= NOTE_BYTES);
        let groups = text.and_then(|text| serde_json::from_str::<Vec<Group>>(text).ok());
        Self(groups.filter(|groups| groups.len() == metadata.num_row_groups()).unwrap_or_default())
    }

    /// Whether a row group may have a name that is wanted of each column.
    pub(crate) fn may_have(&self, group: usize, wanted: &[(String, Names)]) -> bool {
        let Some(noted) = self.0.get(group) else { return true };
        wanted.iter().all(|(column, wanted)| {
            noted.get(column).is_none_or(|names| names.iter().any(|name| wanted.has(name.as_deref())))
        })
    }
}
