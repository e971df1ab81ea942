//! Payloads that are one MessagePack object or one JSON text.

use arrow_array::ArrayRef;
use serde_json::Value as Json;
use trunkline_wire::{
    ErrorKind, Fault as WireFault,
    msgpack::{Head, Reader},
    mtl::control::{beyond, offset_of},
};

use super::{Fault, PayloadKind, layout::Map};
use crate::{
    ColumnError, ColumnKind, Mode,
    item::{Fields, Item},
    table::Mismatches,
    tags::{Rest, TagColumns, TagMap},
};

/// The kind of a fault that is not looked at.
const FAULT: ErrorKind = ErrorKind::BadHeader;

/// The columns, being built.
#[derive(Debug)]
pub(super) struct Columns {
    of: Of,
    is_json: bool,
    /// The JSON that has been checked last.
    json: Json,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there is one
enum Of {
    Whole(Rest),
    Fields(TagColumns),
}

impl Columns {
    pub(super) fn new(map: &Map, is_json: bool) -> Self {
        let of = match map {
            Map::Whole(rest) => Of::Whole(Rest::new(*rest)),
            Map::Fields(tags) => Of::Fields(TagColumns::new(tags, ColumnKind::PayloadExceedsVariant)),
        };
        Self { of, is_json, json: Json::Null }
    }

    /// Whether a frame is of the layout.
    pub(super) fn check(&mut self, frame: &[u8]) -> Result<(), Fault> {
        let is_map = matches!(self.of, Of::Fields(_));
        if self.is_json {
            self.check_json(frame, is_map).map_err(|offset| Fault { kind: PayloadKind::Json, frame: 0, offset })
        } else {
            self.check_msgpack(frame).map_err(|offset| Fault { kind: PayloadKind::MsgPack, frame: 0, offset })
        }
    }

    /// Whether a frame is one object, or one map of texts; else where it is not.
    fn check_msgpack(&mut self, frame: &[u8]) -> Result<(), usize> {
        let mut reader = Reader::new(frame, FAULT);
        let checked = match &mut self.of {
            Of::Whole(_) => reader.skip(0),
            Of::Fields(_) if !matches!(reader.peek(), Some(Head::Map(_))) => return Err(0),
            Of::Fields(columns) if columns.is_found_checked() => columns.find_checked(&mut reader),
            Of::Fields(_) => check_map(&mut reader),
        };
        checked.map_err(|fault| fault.offset)?;
        if reader.rest().is_empty() { Ok(()) } else { Err(reader.position()) }
    }

    fn check_json(&mut self, frame: &[u8], is_map: bool) -> Result<(), usize> {
        if let Some(at) = beyond(frame) {
            return Err(at);
        }
        self.json = serde_json::from_slice(frame).map_err(|error| offset_of(frame, &error))?;
        if is_map && !self.json.is_object() { Err(0) } else { Ok(()) }
    }

    /// Appends a row of a frame that has been checked last.
    pub(super) fn push(&mut self, row: usize, frame: &[u8], mode: Mode) -> Result<Option<ColumnKind>, ColumnError> {
        let strict = mode == Mode::FailFast;
        match (&mut self.of, &self.json) {
            (Of::Fields(columns), Json::Object(object)) if self.is_json => {
                columns.push_fields(row, &Fields::of_json(object), strict)
            }
            (Of::Fields(columns), _) if columns.is_found_checked() => {
                columns.push_checked(row, frame, strict).map(|()| None)
            }
            (Of::Fields(columns), _) => {
                // All of it is looked at, so that of equal names the last counts.
                columns.push(row, TagMap { bytes: frame, start: 0, duplicates: true }, strict)
            }
            (Of::Whole(rest), json) => {
                let is_whole = if self.is_json {
                    rest.append_item(Item::of_json(json))?
                } else {
                    rest.append_object(&mut Reader::new(frame, FAULT))?
                };
                Ok((!is_whole).then_some(ColumnKind::PayloadExceedsVariant))
            }
        }
    }

    pub(super) fn push_null(&mut self) -> Result<(), ColumnError> {
        match &mut self.of {
            Of::Whole(rest) => rest.push_null(),
            Of::Fields(columns) => columns.push_null(),
        }
    }

    /// The bytes they take.
    pub(super) fn bytes(&self) -> usize {
        match &self.of {
            Of::Whole(rest) => rest.bytes(),
            Of::Fields(columns) => columns.bytes(),
        }
    }

    pub(super) fn mismatches(&self) -> Mismatches {
        match &self.of {
            Of::Whole(_) => Mismatches::new(),
            Of::Fields(columns) => columns.mismatches().map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }

    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ColumnError> {
        match &mut self.of {
            Of::Whole(rest) => Ok(vec![rest.finish()?]),
            Of::Fields(columns) => columns.finish(),
        }
    }
}

/// Checks a map of texts.
fn check_map(reader: &mut Reader<'_>) -> Result<(), WireFault> {
    let pairs = reader.map(FAULT)?;
    for _ in 0..pairs {
        reader.string_checked(FAULT)?;
        reader.skip(1)?;
    }
    Ok(())
}
