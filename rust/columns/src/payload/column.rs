//! The columns of payloads in whichever way they were asked for, being built.

use std::sync::Arc;

use arrow_array::ArrayRef;

use super::{Fault, Payload, PayloadColumns, PayloadFrames};
use crate::{
    Asked, ColumnError, Mode,
    output::{Bytes, BytesLists},
    table::Mismatches,
};

/// A column of frames: of lists of them, or of the only one of a message.
pub(crate) trait Frames: Sized {
    /// A column of nulls alone unless it is asked for.
    fn asked(is_asked: bool) -> Self;
    fn push(&mut self, frames: Option<&[&[u8]]>) -> Result<(), ColumnError>;
    fn bytes(&self) -> usize;
    fn finish(&mut self) -> Result<ArrayRef, ColumnError>;
}

impl Frames for BytesLists {
    fn asked(is_asked: bool) -> Self {
        Self::asked(is_asked)
    }

    #[inline]
    fn push(&mut self, frames: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        match frames {
            Some(frames) => self.push(frames.iter().copied()),
            None => self.push_null(),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn finish(&mut self) -> Result<ArrayRef, ColumnError> {
        self.finish()
    }
}

impl Frames for Bytes {
    fn asked(is_asked: bool) -> Self {
        Self::asked(is_asked)
    }

    #[inline]
    fn push(&mut self, frames: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        self.push(frames.and_then(<[_]>::first).copied())
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn finish(&mut self) -> Result<ArrayRef, ColumnError> {
        Ok(Arc::new(self.finish()?))
    }
}

/// The columns.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there is one of them, or two
pub(crate) enum Column<F> {
    None,
    Frames(F),
    Layout(PayloadColumns),
}

impl<F: Frames> Column<F> {
    /// `name` is that of the column of frames.
    pub(crate) fn new(payload: &Payload, name: &str, mode: Mode, asked: &Asked) -> Self {
        match payload {
            Payload::None => Self::None,
            Payload::Frames => Self::Frames(F::asked(asked.has(name))),
            Payload::Layout(layout) => Self::Layout(PayloadColumns::new(layout, mode, asked.payloads())),
        }
    }

    /// Whether a payload is of the layout, whose first frame has this number in the message.
    pub(crate) fn check(&mut self, payload: Option<PayloadFrames<'_>>, first: usize) -> Result<(), Fault> {
        match (self, payload) {
            (Self::Layout(columns), Some(payload)) => {
                columns.check(payload).map_err(|fault| Fault { frame: fault.frame + first, ..fault })
            }
            _ => Ok(()),
        }
    }

    /// Appends the payload of a row: `frames` as far as there are any, from this one of the message on, of which those of
    /// a layout must be complete; gives why it is not of the layout.
    #[inline]
    pub(crate) fn push(
        &mut self,
        row: usize,
        frames: Option<&[&[u8]]>,
        first: usize,
        is_whole: bool,
    ) -> Result<Option<&'static str>, ColumnError> {
        match self {
            Self::None => Ok(None),
            Self::Frames(column) => column.push(frames).map(|()| None),
            Self::Layout(columns) => columns
                .push(row, frames.filter(|_| is_whole).map(PayloadFrames::of))
                .map_err(|error| error.at(|frame, offset| (frame + first, offset))),
        }
    }

    pub(crate) fn push_null(&mut self) -> Result<(), ColumnError> {
        match self {
            Self::None => Ok(()),
            Self::Frames(column) => column.push(None),
            Self::Layout(columns) => columns.push_null(),
        }
    }

    /// The bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Frames(column) => column.bytes(),
            Self::Layout(columns) => columns.bytes(),
        }
    }

    /// How many values are null because they are not of the type asked for, by field.
    pub(crate) fn mismatches(&self) -> Mismatches {
        match self {
            Self::None | Self::Frames(_) => Mismatches::new(),
            Self::Layout(columns) => columns.mismatches(),
        }
    }

    pub(crate) fn finish(&mut self) -> Result<Vec<ArrayRef>, ColumnError> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Frames(column) => Ok(vec![column.finish()?]),
            Self::Layout(columns) => columns.finish(),
        }
    }
}
