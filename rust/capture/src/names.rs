//! The names in each row group of a segment, noted in its footer: a group that has none of those wanted is not read.
//!
//! Parquet's own statistics would compare every value, and say only which is the first and the last of them.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, BinaryArray, RecordBatch, StringArray};
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use serde_json::{Value, json};
use trunkline_wire::Framing;

use crate::rows::frames;

const KEY: &str = "trunkline.names";

/// How what is written here begins to name the program that wrote it.
const PROGRAM: &str = "trunkline ";

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
    names: BTreeSet<Option<Vec<u8>>>,
    bytes: usize,
    /// The last one, which is often the next one too.
    last: Option<Vec<u8>>,
    /// Whether there are too many, or some are unknown.
    is_unknown: bool,
}

impl Column {
    fn add(&mut self, name: Option<&[u8]>) {
        if self.is_unknown || self.last.as_deref() == name && !self.names.is_empty() {
            return;
        }
        self.last = name.map(<[u8]>::to_vec);
        if self.names.insert(self.last.clone()) {
            self.bytes = self.bytes.saturating_add(name.map_or(0, <[u8]>::len));
            self.is_unknown = self.names.len() > NAMES || self.bytes > NAMES_BYTES;
        }
    }

    /// None if a name is no text, or there are too many.
    fn to_json(&self) -> Option<Value> {
        let texts = self.names.iter().map(|name| name.as_deref().map(str::from_utf8).transpose().ok());
        let names = texts.collect::<Option<Vec<_>>>()?;
        (!self.is_unknown && !names.is_empty()).then(|| json!(names))
    }
}

/// Gathers the names of a segment that is being written.
#[derive(Debug, Default)]
pub(crate) struct NamesOfGroups {
    groups: Vec<Value>,
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
        let noted = columns.into_iter().filter_map(|(name, column)| Some((name.to_owned(), column.to_json()?)));
        self.groups.push(Value::Object(noted.collect()));
    }

    /// What to note in the footer.
    pub(crate) fn finish(mut self) -> Option<KeyValue> {
        self.end_group();
        let note = Value::Array(self.groups).to_string();
        (note.len() <= NOTE_BYTES).then(|| KeyValue::new(KEY.into(), note))
    }
}

/// The texts of a column, and which of them each row has, if that is not its own.
fn texts(column: &ArrayRef) -> (Option<Vec<usize>>, &StringArray) {
    match column.as_any_dictionary_opt() {
        Some(dictionary) if dictionary.values().is_empty() => (Some(Vec::new()), dictionary.values().as_string()),
        Some(dictionary) => (Some(dictionary.normalized_keys()), dictionary.values().as_string()),
        None => (None, column.as_string()),
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
pub(crate) struct Noted(Vec<BTreeMap<String, Vec<Option<String>>>>);

impl Noted {
    /// None of a file that another program wrote, which may have copied the note beside other rows.
    pub(crate) fn of(metadata: &ParquetMetaData) -> Self {
        let file = metadata.file_metadata();
        if !file.created_by().is_some_and(|program| program.starts_with(PROGRAM)) {
            return Self::default();
        }
        let noted = file.key_value_metadata().into_iter().flatten().find(|pair| is_note(pair));
        let text = noted.and_then(|pair| pair.value.as_deref()).filter(|text| text.len() <= NOTE_BYTES);
        let groups = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let groups = groups.as_ref().and_then(Value::as_array).map(|groups| groups.iter().map(names_of).collect());
        Self(groups.filter(|groups: &Vec<_>| groups.len() == metadata.num_row_groups()).unwrap_or_default())
    }

    /// Whether a row group may have a name that is wanted of each column.
    pub(crate) fn may_have(&self, group: usize, wanted: &[(String, Names)]) -> bool {
        let Some(noted) = self.0.get(group) else { return true };
        wanted.iter().all(|(column, wanted)| {
            noted.get(column).is_none_or(|names| names.iter().any(|name| wanted.has(name.as_deref())))
        })
    }
}

fn names_of(group: &Value) -> BTreeMap<String, Vec<Option<String>>> {
    let name = |name: &Value| if name.is_null() { Some(None) } else { Some(Some(name.as_str()?.to_owned())) };
    let column = |(column, names): (&String, &Value)| {
        Some((column.clone(), names.as_array()?.iter().map(name).collect::<Option<Vec<_>>>()?))
    };
    group.as_object().into_iter().flatten().filter_map(column).collect()
}
