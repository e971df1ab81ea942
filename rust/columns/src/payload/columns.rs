//! The columns of a layout, being built.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;

use super::{
    Compiled, Fault, Layout, PREFIX, PayloadKind, Types, VALUE, avro, dtype,
    layout::{Kind, Number},
    maps, packed, spark,
};
use crate::{
    ColumnError, ColumnKind, Mode,
    output::{Bytes, Nulls},
    table::Mismatches,
    tags::TagMap,
};

/// The payload of a message: its frames, and the tags of its header.
#[derive(Clone, Copy)]
pub(crate) struct PayloadFrames<'a> {
    pub(crate) frames: &'a [&'a [u8]],
    pub(crate) tags: Option<TagMap<'a>>,
}

impl<'a> PayloadFrames<'a> {
    pub(crate) const fn of(frames: &'a [&'a [u8]]) -> Self {
        Self { frames, tags: None }
    }
}

/// The columns of payloads, being built.
#[derive(Debug)]
pub(crate) struct PayloadColumns {
    layout: Layout,
    of: Of,
    nulls: Nulls,
    rows: usize,
    mode: Mode,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there is one
enum Of {
    Packed(packed::Columns),
    Map(maps::Columns),
    Avro(avro::Columns),
    Utf8(Bytes),
    Dtype(dtype::Column),
}

/// What a check has found, for the row that follows.
enum Checked {
    Plain,
    Numbers(Number),
}

impl PayloadColumns {
    /// `payloads` are the bytes of all payloads, if they are in one buffer.
    pub(crate) fn new(layout: &Layout, mode: Mode, payloads: Option<&Buffer>) -> Self {
        let of = match (&layout.compiled, &*layout.kind) {
            (Compiled::Packed(packed), _) => Of::Packed(packed::Columns::new(packed, payloads)),
            (Compiled::Map { map, is_json }, _) => Of::Map(maps::Columns::new(map, *is_json)),
            (Compiled::Avro(kept), Kind::Avro(schema)) => {
                let kept: std::collections::HashSet<&str> = kept.iter().map(String::as_str).collect();
                Of::Avro(avro::Columns::new(schema, &|name| kept.contains(name)))
            }
            (Compiled::Dtype, _) => Of::Dtype(dtype::Column::default()),
            (Compiled::Utf8 | Compiled::Avro(_), _) => Of::Utf8(Bytes::default()),
        };
        Self { layout: layout.clone(), of, nulls: Nulls::default(), rows: 0, mode }
    }

    /// Whether a payload is of the layout.
    #[inline]
    pub(crate) fn check(&mut self, payload: PayloadFrames<'_>) -> Result<(), Fault> {
        self.checked(payload).map(drop)
    }

    #[inline]
    fn checked(&mut self, payload: PayloadFrames<'_>) -> Result<Checked, Fault> {
        if let Of::Packed(columns) = &mut self.of {
            columns.check(payload.frames)?;
            return Ok(Checked::Plain);
        }
        let [frame] = payload.frames else {
            return Err(Fault { kind: PayloadKind::Frames, frame: payload.frames.len().min(1), offset: 0 });
        };
        match &mut self.of {
            Of::Map(columns) => columns.check(frame)?,
            Of::Avro(columns) => columns.check(frame)?,
            Of::Dtype(_) => return dtype::Column::check(frame, payload.tags).map(Checked::Numbers),
            Of::Utf8(_) => {
                let is_text = str::from_utf8(frame).map(drop);
                let fault = |offset| Fault { kind: PayloadKind::Text, frame: 0, offset };
                is_text.map_err(|error| fault(error.valid_up_to()))?;
            }
            Of::Packed(_) => {}
        }
        Ok(Checked::Plain)
    }

    /// Appends the payload of a row, or null; gives why a payload has no value.
    #[inline]
    pub(crate) fn push(
        &mut self,
        row: usize,
        payload: Option<PayloadFrames<'_>>,
    ) -> Result<Option<&'static str>, ColumnError> {
        let Some(payload) = payload else {
            self.push_null()?;
            return Ok(None);
        };
        let checked = match self.checked(payload) {
            Ok(checked) => checked,
            Err(fault) => {
                self.push_null()?;
                return Ok(Some(fault.kind.slug()));
            }
        };
        self.nulls.push(self.rows, true);
        self.rows += 1;
        let frame = payload.frames.first().copied().unwrap_or_default();
        match (&mut self.of, checked) {
            (Of::Packed(columns), _) => columns.push(payload.frames)?,
            (Of::Map(columns), _) => return Ok(columns.push(row, frame, self.mode)?.map(ColumnKind::slug)),
            (Of::Avro(columns), _) => columns.push(frame)?,
            (Of::Dtype(column), Checked::Numbers(number)) => column.push(frame, number)?,
            (Of::Dtype(column), Checked::Plain) => column.push_null()?,
            (Of::Utf8(column), _) => column.push(Some(frame))?,
        }
        Ok(None)
    }

    /// Appends a row without a payload.
    pub(crate) fn push_null(&mut self) -> Result<(), ColumnError> {
        self.nulls.push(self.rows, false);
        self.rows += 1;
        match &mut self.of {
            Of::Packed(columns) => columns.push_null(),
            Of::Map(columns) => columns.push_null(),
            Of::Avro(columns) => columns.push_null(),
            Of::Dtype(column) => column.push_null(),
            Of::Utf8(column) => column.push(None),
        }
    }

    /// The bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = match &self.of {
            Of::Packed(columns) => columns.bytes(),
            Of::Map(columns) => columns.bytes(),
            Of::Avro(columns) => columns.bytes(),
            Of::Dtype(column) => column.bytes(),
            Of::Utf8(column) => column.bytes(),
        };
        // Unsigned numbers become twice as wide.
        if self.layout.types == Types::Spark { bytes.saturating_mul(2) } else { bytes }
    }

    /// How many values are null because they are not of the type asked for, by field.
    pub(crate) fn mismatches(&self) -> Mismatches {
        match &self.of {
            Of::Map(columns) => columns.mismatches(),
            Of::Dtype(column) if column.inexact() > 0 => [(format!("{PREFIX}{VALUE}"), column.inexact())].into(),
            Of::Dtype(_) | Of::Packed(_) | Of::Avro(_) | Of::Utf8(_) => Mismatches::new(),
        }
    }

    pub(crate) fn finish(&mut self) -> Result<Vec<ArrayRef>, ColumnError> {
        let columns: Vec<ArrayRef> = match &mut self.of {
            Of::Packed(columns) => columns.finish(self.nulls.finish(self.rows).as_ref())?,
            Of::Map(columns) => columns.finish()?,
            Of::Avro(columns) => columns.finish()?,
            Of::Dtype(column) => vec![column.finish()?],
            Of::Utf8(column) => vec![Arc::new(column.finish_text()?)],
        };
        // One value may not be asked for.
        let kept = columns.into_iter().take(self.layout.columns.len());
        match self.layout.types {
            Types::Arrow => Ok(kept.collect()),
            Types::Spark => kept.map(spark::column).collect(),
        }
    }
}
