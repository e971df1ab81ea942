//! The columns that come in, of whatever width their owner chose.

use std::ops::Range;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, Int64Array, LargeBinaryArray, LargeListArray, ListArray,
    cast::AsArray, types::Int64Type,
};
use arrow_cast::cast;
use arrow_schema::DataType;

use crate::ColumnError;

/// The columns of a batch that say something of its messages. All have one row a message.
#[derive(Clone, Debug)]
pub struct Headers {
    /// The header frames: binary, large binary or binary view.
    pub header: ArrayRef,
    /// The number of frames of each message.
    pub n_frames: Option<ArrayRef>,
    /// The bytes of all frames of each message.
    pub n_bytes: Option<ArrayRef>,
    /// The payload frames of each message: a list of any kind of binary. It goes before the numbers.
    pub payload: Option<ArrayRef>,
}

impl Headers {
    pub(crate) fn read(&self) -> Result<Inputs<'_>, ColumnError> {
        let rows = self.header.len();
        let others = [("n_frames", &self.n_frames), ("n_bytes", &self.n_bytes), ("payload", &self.payload)];
        check_rows(rows, others.map(|(name, column)| (name, column.as_ref())))?;
        Ok(Inputs {
            rows,
            header: Binaries::of("header", self.header.as_ref())?,
            n_frames: self.n_frames.as_ref().map(|column| integers("n_frames", column)).transpose()?,
            n_bytes: self.n_bytes.as_ref().map(|column| integers("n_bytes", column)).transpose()?,
            payload: self.payload.as_ref().map(|column| Lists::of("payload", column.as_ref())).transpose()?,
        })
    }
}

/// The columns of a batch that hold the frames of its messages, as a capture splits them. All have one row a message.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The frames before the header: a list of any kind of binary.
    pub envelope: ArrayRef,
    /// The header frames: binary, large binary or binary view. A message that ends before it has none.
    pub header: ArrayRef,
    /// The frames after the header. It may leave out data at the end where `n_frames` and `n_bytes` count that.
    pub payload: ArrayRef,
    /// The number of frames of each message.
    pub n_frames: Option<ArrayRef>,
    /// The bytes of all frames of each message.
    pub n_bytes: Option<ArrayRef>,
}

impl Parts {
    pub(crate) fn read(&self) -> Result<PartInputs<'_>, ColumnError> {
        let rows = self.header.len();
        let others = [
            ("envelope", Some(&self.envelope)),
            ("payload", Some(&self.payload)),
            ("n_frames", self.n_frames.as_ref()),
            ("n_bytes", self.n_bytes.as_ref()),
        ];
        check_rows(rows, others)?;
        Ok(PartInputs {
            rows,
            envelope: Lists::of("envelope", self.envelope.as_ref())?,
            header: Binaries::of("header", self.header.as_ref())?,
            payload: Lists::of("payload", self.payload.as_ref())?,
            n_frames: self.n_frames.as_ref().map(|column| integers("n_frames", column)).transpose()?,
            n_bytes: self.n_bytes.as_ref().map(|column| integers("n_bytes", column)).transpose()?,
        })
    }
}

/// The same, looked into.
pub(crate) struct PartInputs<'a> {
    pub(crate) rows: usize,
    envelope: Lists<'a>,
    header: Binaries<'a>,
    payload: Lists<'a>,
    n_frames: Option<Int64Array>,
    n_bytes: Option<Int64Array>,
}

impl<'a> PartInputs<'a> {
    /// Puts the frames of a message into `frames`, in place of those there. Gives false where there is no message.
    #[inline]
    pub(crate) fn gather(&self, row: usize, frames: &mut Vec<&'a [u8]>) -> bool {
        frames.clear();
        let (envelope, header, payload) = (self.envelope.get(row), self.header.get(row), self.payload.get(row));
        let is_there = envelope.is_some() || header.is_some() || payload.is_some();
        frames.extend(envelope.iter().flat_map(ListedFrames::iter));
        frames.extend(header);
        frames.extend(payload.iter().flat_map(ListedFrames::iter));
        is_there
    }

    /// The number of frames of a message and their bytes, never fewer than the `frames` that are here.
    #[inline]
    pub(crate) fn sizes(&self, row: usize, frames: &[&[u8]]) -> (usize, usize) {
        let counted = |column| value(column, row).and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
        let bytes = frames.iter().map(|frame| frame.len()).sum();
        (counted(self.n_frames.as_ref()).max(frames.len()), counted(self.n_bytes.as_ref()).max(bytes))
    }
}

fn check_rows<'a>(
    rows: usize,
    others: impl IntoIterator<Item = (&'a str, Option<&'a ArrayRef>)>,
) -> Result<(), ColumnError> {
    let uneven =
        others.into_iter().find_map(|(name, column)| Some((name, column?.len())).filter(|&(_, length)| length != rows));
    match uneven {
        Some((name, length)) => Err(ColumnError::Input(format!("{name} has {length} rows, header has {rows}"))),
        None => Ok(()),
    }
}

/// The columns of headers, looked into.
pub(crate) struct Inputs<'a> {
    pub(crate) rows: usize,
    pub(crate) header: Binaries<'a>,
    n_frames: Option<Int64Array>,
    n_bytes: Option<Int64Array>,
    payload: Option<Lists<'a>>,
}

/// What is known of the frames of one message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frames {
    /// How many there are, the header among them.
    pub(crate) frames: Option<usize>,
    /// The bytes of those after the header.
    pub(crate) payload_bytes: Option<i64>,
}

impl<'a> Inputs<'a> {
    #[inline]
    pub(crate) fn frames(&self, row: usize, header: &[u8]) -> Frames {
        if let Some(payload) = self.payload(row) {
            let bytes: usize = payload.iter().map(<[u8]>::len).sum();
            return Frames { frames: Some(1 + payload.len()), payload_bytes: i64::try_from(bytes).ok() };
        }
        // A count below nothing is as wrong as no frames at all.
        let frames = value(self.n_frames.as_ref(), row).map(|frames| usize::try_from(frames).unwrap_or(0));
        let bytes = value(self.n_bytes.as_ref(), row);
        let payload_bytes = bytes.and_then(|bytes| bytes.checked_sub_unsigned(header.len() as u64));
        Frames { frames, payload_bytes: payload_bytes.filter(|&bytes| bytes >= 0) }
    }

    /// The payload frames of a message.
    #[inline]
    pub(crate) fn payload(&self, row: usize) -> Option<ListedFrames<'a>> {
        self.payload.as_ref()?.get(row)
    }
}

/// The frames of one message in a list.
#[derive(Clone)]
pub(crate) struct ListedFrames<'a> {
    values: Binaries<'a>,
    range: Range<usize>,
}

impl<'a> ListedFrames<'a> {
    fn len(&self) -> usize {
        self.range.len()
    }

    /// The frames; what is null in the column is empty here.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let values = self.values;
        self.range.clone().map(move |at| values.get(at).unwrap_or_default())
    }
}

fn value(column: Option<&Int64Array>, row: usize) -> Option<i64> {
    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
}

fn integers(name: &str, column: &ArrayRef) -> Result<Int64Array, ColumnError> {
    if !column.data_type().is_integer() && *column.data_type() != DataType::Null {
        return Err(ColumnError::Input(format!("{name} is {}, it must be an integer column", column.data_type())));
    }
    Ok(cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// A column of bytes.
#[derive(Clone, Copy)]
pub(crate) enum Binaries<'a> {
    Binary(&'a BinaryArray),
    Large(&'a LargeBinaryArray),
    View(&'a BinaryViewArray),
}

impl<'a> Binaries<'a> {
    fn of(name: &str, column: &'a dyn Array) -> Result<Self, ColumnError> {
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
    fn of(name: &str, column: &'a dyn Array) -> Result<Self, ColumnError> {
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
