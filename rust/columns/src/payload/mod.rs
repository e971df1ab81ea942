//! Payloads as columns: a layout says what the bytes of a message's payload are, and they become typed columns.
//!
//! A layout is read from text once, and compiled. Each row is checked before anything of it is appended, so that one
//! that is not of the layout leaves nothing but nulls.

mod avro;
mod column;
mod columns;
mod dtype;
mod layout;
mod maps;
mod packed;
mod parsing;
mod spark;
mod text;

use std::{fmt, sync::Arc};

use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::kinds;

use self::layout::{Kind, Map};
use crate::{
    RestType, TagType,
    output::list_type,
    tags::{self, rest_field},
};

pub(crate) use column::Column;
pub(crate) use columns::{PayloadColumns, PayloadFrames};
pub use text::LayoutError;

/// Before the name of each field.
const PREFIX: &str = "payload_";

/// The field of a payload that is one value.
const VALUE: &str = "value";

/// The field of what the other fields leave.
const REST: &str = "rest";

kinds! {
    /// Why a payload is not of its layout.
    PayloadKind:
    Short "payload_short" "fewer bytes than the fields of the layout need, or than a count announces",
    Long "payload_long" "bytes left over after the fields of the layout",
    Frames "payload_frames" "another number of frames than the layout has",
    MsgPack "payload_msgpack" "not one MessagePack object of the layout",
    Json "payload_json" "not one JSON text of the layout, or one of more than 1,000,000 values",
    Avro "payload_avro" "not the binary Avro of the layout's schema",
    Text "payload_text" "text that is not UTF-8",
    Dtype "payload_dtype" "no tag dtype with the name of a numeric type, or no whole number of its items",
}

/// Where a payload is not of its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: PayloadKind,
    /// The frame, counted from the first of the payload; in errors from that of the message.
    pub frame: usize,
    /// The byte of the frame.
    pub offset: usize,
}

/// What becomes of payloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// They have no column.
    #[default]
    None,
    /// Their frames are a column.
    Frames,
    /// Their bytes are columns of this layout.
    Layout(Layout),
}

impl Payload {
    /// The layout, if there is one.
    pub const fn layout(&self) -> Option<&Layout> {
        match self {
            Self::Layout(layout) => Some(layout),
            Self::None | Self::Frames => None,
        }
    }

    /// The columns; `frames` is that of the frames themselves.
    pub(crate) fn fields(&self, frames: impl FnOnce() -> Field) -> Fields {
        match self {
            Self::None => Fields::empty(),
            Self::Frames => vec![frames()].into(),
            Self::Layout(layout) => layout.columns(),
        }
    }
}

/// The types of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Types {
    /// Those of Arrow, exactly as in the layout.
    #[default]
    Arrow,
    /// Those that Spark has.
    Spark,
}

/// What the bytes of a payload are.
#[derive(Clone, Debug)]
pub struct Layout {
    kind: Arc<Kind>,
    text: Arc<str>,
    /// The columns that are kept, in the types of Arrow.
    columns: Fields,
    types: Types,
    compiled: Compiled,
}

/// A layout as it is decoded.
#[derive(Clone, Debug)]
enum Compiled {
    Packed(packed::Packed),
    Map {
        map: Map,
        is_json: bool,
    },
    /// With the names of the fields that are kept.
    Avro(Arc<[String]>),
    Utf8,
    Dtype,
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.types == other.types && self.columns == other.columns
    }
}

impl Eq for Layout {}

impl fmt::Display for Layout {
    /// In the one way of writing it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A field of a packed frame of fixed size, for `NumPy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedField {
    /// None for bytes that are no column.
    pub name: Option<String>,
    pub of: FixedType,
    /// How many items an array has.
    pub repeat: Option<usize>,
}

/// A type of fixed size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FixedType {
    /// By its name in layouts.
    Number(String),
    /// So many bytes, or bytes of text.
    Bytes(usize),
    Struct(Vec<FixedField>),
}

impl Layout {
    /// The layout that a text describes.
    pub fn parse(text: &str) -> Result<Self, LayoutError> {
        let kind = Arc::new(parsing::parse(text)?);
        let text = kind.to_string().into();
        Ok(Self::compile(kind, text, Types::default(), &|_| true))
    }

    /// With the columns of these names alone, after `payload_`.
    fn compile(kind: Arc<Kind>, text: Arc<str>, types: Types, is_kept: &dyn Fn(&str) -> bool) -> Self {
        let (columns, compiled) = match &*kind {
            Kind::Packed { frames, open } => {
                let fields = frames.iter().flatten().filter(|field| !field.of.is_pad() && is_kept(&field.name));
                let columns = fields.map(|field| Field::new(named(&field.name), packed::column_type(field), true));
                (columns.collect(), Compiled::Packed(packed::Packed::new(frames, *open, is_kept)))
            }
            Kind::MsgPack(map) => map_columns(map, false, is_kept),
            Kind::Json(map) => map_columns(map, true, is_kept),
            Kind::Avro(schema) => {
                let kept = schema.columns().filter(|(name, _)| is_kept(name));
                let columns: Fields = kept.map(|(name, of)| Field::new(named(name), of, true)).collect();
                let names = columns.iter().map(|column| column.name()[PREFIX.len()..].to_owned());
                let names = names.collect();
                (columns, Compiled::Avro(names))
            }
            Kind::Utf8 => (value(DataType::Utf8, is_kept), Compiled::Utf8),
            Kind::Dtype => (value(list_type(DataType::Float64), is_kept), Compiled::Dtype),
        };
        Self { kind, text, columns, types, compiled }
    }

    /// The names of the columns that hold JSON as text.
    pub fn json_columns(&self) -> Vec<String> {
        let Compiled::Map { map, .. } = &self.compiled else { return Vec::new() };
        let is_json = |rest: Option<RestType>| rest == Some(RestType::Json);
        match map {
            Map::Whole(rest) => is_json(Some(*rest)).then(|| named(VALUE)).into_iter().collect(),
            Map::Fields(tags) => {
                let typed = tags.typed().iter().filter(|(_, of)| *of == TagType::Json).map(|(name, _)| named(name));
                typed.chain(is_json(tags.rest()).then(|| named(REST))).collect()
            }
        }
    }

    /// With columns of these types.
    #[must_use]
    pub fn with_types(self, types: Types) -> Self {
        Self { types, ..self }
    }

    /// With no columns but those of these names, and some that decoding needs.
    #[must_use]
    pub fn only(&self, is_kept: impl Fn(&str) -> bool) -> Self {
        let is_kept = |name: &str| is_kept(&named(name));
        Self::compile(self.kind.clone(), self.text.clone(), self.types, &is_kept)
    }

    /// The columns.
    pub fn columns(&self) -> Fields {
        match self.types {
            Types::Arrow => self.columns.clone(),
            Types::Spark => self.columns.iter().map(spark::field).collect(),
        }
    }

    /// The fields of each frame, if it is a packed layout of no more frames.
    fn frames(&self) -> Option<&[Vec<layout::Field>]> {
        if let Kind::Packed { frames, open: false } = &*self.kind { Some(frames) } else { None }
    }

    /// The bytes of all frames, if they are always as many.
    pub fn size(&self) -> Option<usize> {
        self.frames()?.iter().try_fold(0_usize, |all, fields| Some(all + layout::size(fields)?))
    }

    /// The fields of its only frame, if that is packed and of fixed size.
    pub fn fixed_fields(&self) -> Option<Vec<FixedField>> {
        let [fields] = self.frames()? else { return None };
        layout::size(fields).map(|_| fixed_fields(fields))
    }

    /// Whether it is of named values, any of which may be of another type than its column.
    pub(crate) const fn is_map(&self) -> bool {
        matches!(self.compiled, Compiled::Map { .. })
    }

    /// Whether a tag of each message says what its bytes are.
    pub fn needs_tags(&self) -> bool {
        *self.kind == Kind::Dtype
    }

    /// The most bytes that columns take for each byte of a payload.
    pub(crate) fn growth(&self) -> usize {
        // A cast makes numbers twice as wide.
        2 * match (&self.compiled, &*self.kind) {
            (Compiled::Packed(packed), _) => packed.growth(),
            (Compiled::Avro(_), Kind::Avro(schema)) => schema.growth(),
            (Compiled::Dtype, _) => size_of::<f64>(),
            _ => 0,
        }
    }

    /// The bytes that columns take for a row, whatever its payload.
    pub(crate) fn fixed(&self) -> usize {
        2 * match (&self.compiled, &*self.kind) {
            (Compiled::Packed(packed), _) => packed.null(),
            (Compiled::Avro(_), Kind::Avro(schema)) => schema.null(),
            _ => 0,
        }
    }
}

fn named(name: &str) -> String {
    format!("{PREFIX}{name}")
}

fn value(of: DataType, is_kept: &dyn Fn(&str) -> bool) -> Fields {
    is_kept(VALUE).then(|| Field::new(named(VALUE), of, true)).into_iter().collect()
}

fn map_columns(map: &Map, is_json: bool, is_kept: &dyn Fn(&str) -> bool) -> (Fields, Compiled) {
    let map = match map {
        Map::Whole(rest) => Map::Whole(*rest),
        // The others are what has no column, so all of these stay.
        Map::Fields(tags) if tags.rest().is_some() && is_kept(REST) => Map::Fields(tags.clone()),
        Map::Fields(tags) => Map::Fields(tags.only(is_kept)),
    };
    let columns: Fields = match &map {
        Map::Whole(rest) => vec![rest_field(*rest, &named(VALUE))].into(),
        Map::Fields(tags) => tags::fields(tags, "payload", &named(REST)).into(),
    };
    (columns, Compiled::Map { map, is_json })
}

fn fixed_fields(fields: &[layout::Field]) -> Vec<FixedField> {
    let of = |of: &layout::Type| match of {
        layout::Type::Number(number) => FixedType::Number(number.to_string()),
        layout::Type::Bytes { length, .. } | layout::Type::Pad(length) => {
            FixedType::Bytes(length.fixed().unwrap_or_default())
        }
        layout::Type::Struct(fields) => FixedType::Struct(fixed_fields(fields)),
    };
    let field = |field: &layout::Field| FixedField {
        name: (!field.of.is_pad()).then(|| field.name.clone()),
        of: of(&field.of),
        repeat: if let layout::Repeat::Fixed(count) = &field.repeat { Some(*count) } else { None },
    };
    fields.iter().map(field).collect()
}
