//! The input columns, of any width.

use std::ops::Range;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, Int64Array, LargeBinaryArray, LargeListArray, ListArray,
    StringArray, UInt32Array, cast::AsArray, types::Int64Type,
};
use arrow_buffer::Buffer;
use arrow_cast::cast;
use arrow_schema::DataType;
use arrow_select::take::take;

use crate::ColumnError;

/// A column that decoding takes, by its name in a capture. The numbers of frames and bytes, and the topic, may always be
/// missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name: that of a field of [`Parts`].
    pub name: &'static str,
    pub need: Need,
}

/// The purpose of an input column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need<C = &'static [&'static str]> {
    /// To decide what is a message.
    Always,
    /// Only for these decoded columns.
    For(C),
    /// To decide what is a message, which needs only the frames before the body; the body is for these columns.
    HeadUnless(C),
}

impl Need {
    /// The same for more columns.
    pub(crate) fn with<'a>(self, more: impl IntoIterator<Item = &'a str>) -> Need<Vec<String>> {
        let all = |columns: &[&'static str]| columns.iter().copied().chain(more).map(str::to_owned).collect();
        match self {
            Self::Always => Need::Always,
            Self::For(columns) => Need::For(all(columns)),
            Self::HeadUnless(columns) => Need::HeadUnless(all(columns)),
        }
    }
}

/// The most bytes that a list takes for each frame in it.
const FRAME: usize = 8;

/// The columns of a batch that hold the frames of its messages, as a capture splits them, and count them. All have one
/// row for each message.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The frames before the header: a list of any kind of binary.
    pub envelope: Option<ArrayRef>,
    /// The header frames: binary, large binary or binary view. A message that ends before it has none.
    pub header: Option<ArrayRef>,
    /// The frames after the header. Some at the end may be missing, but the numbers count them.
    pub payload: Option<ArrayRef>,
    /// The number of frames of each message.
    pub n_frames: Option<ArrayRef>,
    /// The bytes of all frames of each message.
    pub n_bytes: Option<ArrayRef>,
    /// The topic of each message in the recording: text.
    pub topic: Option<ArrayRef>,
    /// The protocol of each message, if there are several: text.
    pub protocol: Option<ArrayRef>,
}

impl Parts {
    /// The parts of these rows.
    pub(crate) fn taken(&self, rows: &UInt32Array) -> Result<Self, ColumnError> {
        let all = rows.len() == self.protocol.as_ref().map_or(0, Array::len);
        let of = |column: &Option<ArrayRef>| {
            let column = column.as_ref();
            column.map(|column| if all { Ok(column.clone()) } else { take(column, rows, None) }).transpose()
        };
        Ok(Self {
            envelope: of(&self.envelope)?,
            header: of(&self.header)?,
            payload: of(&self.payload)?,
            n_frames: of(&self.n_frames)?,
            n_bytes: of(&self.n_bytes)?,
            topic: of(&self.topic)?,
            protocol: None,
        })
    }

    pub(crate) fn read(&self, inputs: &[Input]) -> Result<Inputs<'_>, ColumnError> {
        let Self { envelope, header, payload, n_frames, n_bytes, topic, .. } = self;
        let frames = [("header", header), ("envelope", envelope), ("payload", payload)];
        let is_looked_into =
            |name: &str| inputs.iter().any(|input| input.name == name && !matches!(input.need, Need::For(_)));
        if let Some((name, _)) = frames.iter().find(|(name, column)| column.is_none() && is_looked_into(name)) {
            return Err(ColumnError::Input(format!("no column {name}")));
        }
        let beside = [("n_frames", n_frames), ("n_bytes", n_bytes), ("topic", topic)];
        let mut lengths =
            frames.iter().chain(&beside).filter_map(|(name, column)| Some((name, column.as_ref()?.len())));
        let (first, rows) = lengths.next().unwrap_or((&"header", 0));
        if let Some((name, length)) = lengths.find(|(_, length)| *length != rows) {
            return Err(ColumnError::Input(format!("{name} has {length} rows, {first} has {rows}")));
        }
        Ok(Inputs {
            rows,
            envelope: envelope.as_ref().map(|column| Lists::of("envelope", column)).transpose()?,
            header: header.as_ref().map(|column| Binaries::of("header", column)).transpose()?,
            payload: payload.as_ref().map(|column| Lists::of("payload", column)).transpose()?,
            payload_is_looked_into: is_looked_into("payload"),
            n_frames: n_frames.as_ref().map(|column| integers("n_frames", column)).transpose()?,
            n_bytes: n_bytes.as_ref().map(|column| integers("n_bytes", column)).transpose()?,
            topic: topic.as_ref().map(|column| texts("topic", column)).transpose()?,
        })
    }
}

/// The same, as typed arrays.
pub(crate) struct Inputs<'a> {
    pub(crate) rows: usize,
    envelope: Option<Lists<'a>>,
    header: Option<Binaries<'a>>,
    payload: Option<Lists<'a>>,
    /// Whether the payload decides what is a message, so that it alone may make one.
    payload_is_looked_into: bool,
    n_frames: Option<Int64Array>,
    n_bytes: Option<Int64Array>,
    topic: Option<StringArray>,
}

impl<'a> Inputs<'a> {
    /// The bytes of all payloads, if they are in one buffer.
    pub(crate) fn payloads(&self) -> Option<Buffer> {
        match self.payload.as_ref()?.values {
            Binaries::Binary(column) => Some(column.values().clone()),
            Binaries::Large(column) => Some(column.values().clone()),
            Binaries::View(_) => None,
        }
    }

    /// The message of a row, with its frames in `frames`, which is overwritten. None if there is no message.
    #[allow(clippy::inline_always)] // its only caller is the loop, where unused parts are optimized away
    #[inline(always)]
    pub(crate) fn message<'f>(&'f self, row: usize, frames: &'f mut Vec<&'a [u8]>) -> Option<Message<'f>> {
        frames.clear();
        let envelope = self.envelope.as_ref().and_then(|column| column.get(row));
        let header = self.header.and_then(|column| column.get(row));
        let payload = self.payload.as_ref().and_then(|column| column.get(row));
        let is_there = envelope.is_some() || header.is_some() || (payload.is_some() && self.payload_is_looked_into);
        if !is_there {
            return None;
        }
        let mut weight = 0;
        let mut gather = |frame: &'a [u8]| {
            weight += FRAME + frame.len();
            frames.push(frame);
        };
        if let Some(envelope) = &envelope {
            envelope.iter().for_each(&mut gather);
        }
        if let Some(header) = header {
            gather(header);
        }
        if let Some(payload) = &payload {
            payload.iter().for_each(&mut gather);
        }
        Some(Message {
            row,
            frames,
            weight,
            has_payload: payload.is_some(),
            n_frames: value(self.n_frames.as_ref(), row),
            n_bytes: value(self.n_bytes.as_ref(), row),
            topic: self.topic.as_ref().filter(|column| column.is_valid(row)).map(|column| column.value(row)),
        })
    }
}

/// The available parts of one message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its row in the batch.
    pub row: usize,
    /// Its frames, in order. Some at the end may be missing.
    pub frames: &'a [&'a [u8]],
    /// What keeping these takes: their bytes, and what a list takes for each.
    pub(crate) weight: usize,
    /// Whether those after the header are included.
    pub has_payload: bool,
    /// The number of its frames, if known.
    pub n_frames: Option<i64>,
    /// The bytes of all its frames, if known.
    pub n_bytes: Option<i64>,
    /// The topic in the recording.
    pub topic: Option<&'a str>,
}

impl Message<'_> {
    /// The number of its frames and their bytes, never fewer than are available.
    #[inline]
    pub fn sizes(&self) -> (usize, usize) {
        let counted = |number: Option<i64>| number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
        let bytes = self.weight - FRAME * self.frames.len();
        (counted(self.n_frames).max(self.frames.len()), counted(self.n_bytes).max(bytes))
    }
}

/// The frames of one message in a list.
#[derive(Clone)]
pub(crate) struct ListedFrames<'a> {
    values: Binaries<'a>,
    range: Range<usize>,
}

impl<'a> ListedFrames<'a> {
    /// The frames; a null in the column is an empty frame.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let values = self.values;
        self.range.clone().map(move |at| values.get(at).unwrap_or_default())
    }
}

#[inline]
fn value(column: Option<&Int64Array>, row: usize) -> Option<i64> {
    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
}

fn integers(name: &str, column: &ArrayRef) -> Result<Int64Array, ColumnError> {
    if !column.data_type().is_integer() && *column.data_type() != DataType::Null {
        return Err(ColumnError::Input(format!("{name} is {}, it must be an integer column", column.data_type())));
    }
    Ok(cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// A column of text, whatever the width of its offsets.
pub(crate) fn texts(name: &str, column: &ArrayRef) -> Result<StringArray, ColumnError> {
    if !column.data_type().is_string() && *column.data_type() != DataType::Null {
        return Err(ColumnError::Input(format!("{name} is {}, it must be a string column", column.data_type())));
    }
    Ok(cast(column, &DataType::Utf8)?.as_string().clone())
}

/// A column of bytes.
#[derive(Clone, Copy)]
pub(crate) enum Binaries<'a> {
    Binary(&'a BinaryArray),
    Large(&'a LargeBinaryArray),
    View(&'a BinaryViewArray),
}

impl<'a> Binaries<'a> {
    pub(crate) fn of(name: &str, column: &'a dyn Array) -> Result<Self, ColumnError> {
        let data_type = column.data_type();
        column
            .as_binary_opt()
            .map(Self::Binary)
            .or_else(|| column.as_binary_opt().map(Self::Large))
            .or_else(|| column.as_binary_view_opt().map(Self::View))
            .ok_or_else(|| ColumnError::Input(format!("{name} is {data_type}, it must be a binary column")))
    }

    #[inline]
    pub(crate) fn get(self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Binary(column) => column.is_valid(row).then(|| column.value(row)),
            Self::Large(column) => column.is_valid(row).then(|| column.value(row)),
            Self::View(column) => column.is_valid(row).then(|| column.value(row)),
        }
    }
}

/// A column of lists of bytes.
struct Lists<'a> {
    lists: ListsOf<'a>,
    values: Binaries<'a>,
}

enum ListsOf<'a> {
    List(&'a ListArray),
    Large(&'a LargeListArray),
}

impl<'a> Lists<'a> {
    pub(crate) fn of(name: &str, column: &'a dyn Array) -> Result<Self, ColumnError> {
        let (lists, values) = if let Some(lists) = column.as_list_opt::<i32>() {
            (ListsOf::List(lists), lists.values())
        } else if let Some(lists) = column.as_list_opt::<i64>() {
            (ListsOf::Large(lists), lists.values())
        } else {
            let data_type = column.data_type();
            return Err(ColumnError::Input(format!("{name} is {data_type}, it must be a list of binaries")));
        };
        Ok(Self { lists, values: Binaries::of(name, values.as_ref())? })
    }

    #[inline]
    fn get(&self, row: usize) -> Option<ListedFrames<'a>> {
        Some(ListedFrames { values: self.values, range: self.range(row)? })
    }

    fn range(&self, row: usize) -> Option<Range<usize>> {
        match self.lists {
            ListsOf::List(lists) => lists.is_valid(row).then(|| {
                let offsets = lists.value_offsets();
                index(offsets[row].into())..index(offsets[row + 1].into())
            }),
            ListsOf::Large(lists) => lists.is_valid(row).then(|| {
                let offsets = lists.value_offsets();
                index(offsets[row])..index(offsets[row + 1])
            }),
        }
    }
}

/// Arrow's offsets are never negative.
fn index(offset: i64) -> usize {
    usize::try_from(offset).unwrap_or(0)
}
