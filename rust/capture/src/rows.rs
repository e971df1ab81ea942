//! The messages in rows of a capture.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, BinaryArray, ListArray, RecordBatch, StringArray};

/// The messages of a batch's rows.
#[derive(Debug)]
pub struct Rows<'a> {
    protocol: &'a StringArray,
    error: &'a StringArray,
    topic: &'a StringArray,
    envelope: &'a ListArray,
    header: &'a BinaryArray,
    payload: &'a ListArray,
}

impl<'a> Rows<'a> {
    /// The rows of a batch with the columns of [`schema`](crate::schema).
    pub fn new(batch: &'a RecordBatch) -> Self {
        Self {
            protocol: batch["protocol"].as_string(),
            error: batch["error"].as_string(),
            topic: batch["topic"].as_string(),
            envelope: batch["envelope"].as_list(),
            header: batch["header"].as_binary(),
            payload: batch["payload"].as_list(),
        }
    }

    /// The protocol of a message.
    pub fn protocol(&self, row: usize) -> &'a str {
        self.protocol.value(row)
    }

    /// Why a message does not decode; `None` for a valid one.
    pub fn error(&self, row: usize) -> Option<&'a str> {
        let error = self.error;
        error.is_valid(row).then(|| error.value(row))
    }

    /// The topic of a message, if known.
    pub fn topic(&self, row: usize) -> Option<&'a str> {
        let topic = self.topic;
        topic.is_valid(row).then(|| topic.value(row))
    }

    /// The frames of a message, as on the wire: envelope, header and payload.
    pub fn frames(&self, row: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let header = self.header;
        let header = header.is_valid(row).then(|| header.value(row));
        frames(self.envelope, row).chain(header).chain(frames(self.payload, row))
    }
}

/// The texts of a column, and which of them each row has, if that is not its own.
pub(crate) fn texts(column: &ArrayRef) -> (Option<Vec<usize>>, &StringArray) {
    match column.as_any_dictionary_opt() {
        Some(dictionary) if dictionary.values().is_empty() => (Some(Vec::new()), dictionary.values().as_string()),
        Some(dictionary) => (Some(dictionary.normalized_keys()), dictionary.values().as_string()),
        None => (None, column.as_string()),
    }
}

pub(crate) fn frames(lists: &ListArray, row: usize) -> impl Iterator<Item = &[u8]> {
    let frames: &BinaryArray = lists.values().as_binary();
    let ends = lists.value_offsets();
    let at = |end: i32| usize::try_from(end).unwrap_or_default();
    (at(ends[row])..at(ends[row + 1])).map(|frame| frames.value(frame))
}
