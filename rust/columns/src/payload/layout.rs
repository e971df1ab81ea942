//! What a layout says: its kind, and the fields of packed frames.

use std::fmt;

use super::{avro::Schema, text::quoted};
use crate::{RestType, TagType, Tags};

/// How deep structs may be nested.
pub(super) const MAX_DEPTH: usize = 8;

/// The most bytes of a fixed layout, and the most items of a fixed array: a row of nulls takes as many, twice as many in
/// the types of Spark, and must leave room in a column.
pub(super) const MAX_SIZE: usize = 1 << 29;

/// What a payload consists of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Packed fields.
    Packed {
        /// The fields of each frame.
        frames: Vec<Vec<Field>>,
        /// Whether further frames are ignored.
        open: bool,
    },
    /// One MessagePack object.
    MsgPack(Map),
    /// One JSON text.
    Json(Map),
    /// A record in binary Avro.
    Avro(Schema),
    /// A frame of text.
    Utf8,
    /// A frame of numbers, whose type a tag of the message says.
    Dtype,
}

/// The columns of a map.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Map {
    /// All of it, which need not be a map then.
    Whole(RestType),
    Fields(Tags),
}

/// A field of a frame, or of a struct.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    /// Empty for padding without one.
    pub(super) name: String,
    pub(super) of: Type,
    pub(super) repeat: Repeat,
}

/// The type of a field, or of each item of an array.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Number(Number),
    /// Bytes, or text of UTF-8.
    Bytes {
        length: Repeat,
        is_text: bool,
    },
    /// Bytes that are no column.
    Pad(Repeat),
    Struct(Vec<Field>),
}

/// How many items an array has, or how many bytes a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Repeat {
    /// No array.
    Once,
    Fixed(usize),
    /// As many as the field of this name says.
    Counted(String),
    /// What is left of the frame.
    Rest,
}

/// A type of number, in one of both orders of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) scalar: Scalar,
    /// Whether the most significant byte is first.
    pub(super) is_big: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
    Bool,
}

impl Scalar {
    pub(super) const ALL: [Self; 12] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bool,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bool => "bool",
        }
    }

    /// Its bytes.
    pub(super) const fn width(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    pub(super) const fn is_integer(self) -> bool {
        !matches!(self, Self::F16 | Self::F32 | Self::F64 | Self::Bool)
    }

    const fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }
}

impl Number {
    /// The integer in these bytes; none if it is below zero.
    pub(super) fn count(self, bytes: &[u8]) -> Option<u64> {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        if self.is_big {
            whole[..bytes.len()].reverse();
        }
        let value = u64::from_le_bytes(whole);
        let is_negative = self.scalar.is_signed() && value >> (8 * bytes.len() - 1) & 1 == 1;
        (!is_negative).then_some(value)
    }
}

impl Repeat {
    /// How many there are, if that is fixed.
    pub(super) const fn fixed(&self) -> Option<usize> {
        match self {
            Self::Once => Some(1),
            Self::Fixed(count) => Some(*count),
            Self::Counted(_) | Self::Rest => None,
        }
    }
}

impl Type {
    /// Whether it is padding, which has no column.
    pub(super) const fn is_pad(&self) -> bool {
        matches!(self, Self::Pad(_))
    }

    /// The fewest bytes it takes; beyond `usize` as many as that has.
    pub(super) fn least(&self) -> usize {
        match self {
            Self::Number(number) => number.scalar.width(),
            Self::Bytes { length, .. } | Self::Pad(length) => length.fixed().unwrap_or(0),
            Self::Struct(fields) => least(fields),
        }
    }

    /// Its bytes, if they are always as many.
    pub(super) fn size(&self) -> Option<usize> {
        match self {
            Self::Number(number) => Some(number.scalar.width()),
            Self::Bytes { length, .. } | Self::Pad(length) => length.fixed(),
            Self::Struct(fields) => size(fields),
        }
    }
}

impl Field {
    fn least(&self) -> usize {
        self.of.least().saturating_mul(self.repeat.fixed().unwrap_or(0))
    }

    pub(super) fn size(&self) -> Option<usize> {
        Some(self.of.size()?.saturating_mul(self.repeat.fixed()?))
    }
}

/// The fewest bytes that these fields take.
pub(super) fn least(fields: &[Field]) -> usize {
    fields.iter().fold(0, |least, field| least.saturating_add(field.least()))
}

/// The bytes of these fields, if they are always as many.
pub(super) fn size(fields: &[Field]) -> Option<usize> {
    fields.iter().try_fold(0_usize, |size, field| Some(size.saturating_add(field.size()?)))
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.scalar.name(), if self.is_big { "be" } else { "" })
    }
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Once => Ok(()),
            Self::Fixed(count) => write!(f, "[{count}]"),
            Self::Counted(name) => write!(f, "[{}]", quoted(name)),
            Self::Rest => f.write_str("[]"),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = |length: &Repeat| if *length == Repeat::Rest { String::new() } else { length.to_string() };
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Bytes { length, is_text } => write!(f, "{}{}", if *is_text { "utf8" } else { "bytes" }, rest(length)),
            Self::Pad(length) => write!(f, "pad{}", rest(length)),
            Self::Struct(fields) => {
                f.write_str("(")?;
                write_fields(f, fields)?;
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.of.is_pad() {
            write!(f, "{} ", quoted(&self.name))?;
        }
        write!(f, "{}{}", self.of, self.repeat)
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[Field]) -> fmt::Result {
    for (at, field) in fields.iter().enumerate() {
        write!(f, "{}{field}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(rest) => f.write_str(rest.name()),
            Self::Fields(tags) => {
                let typed = tags.typed().iter().map(|(name, of)| format!("{} {}", quoted(name), type_name(*of)));
                let rest = tags.rest().map(|rest| format!("* {}", rest.name()));
                f.write_str(&typed.chain(rest).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

const fn type_name(tag_type: TagType) -> &'static str {
    match tag_type {
        TagType::BigInt => "bigint",
        TagType::Double => "double",
        TagType::String => "string",
        TagType::Boolean => "boolean",
        TagType::Binary => "binary",
        TagType::Timestamp => "timestamp",
        TagType::Json => "json",
    }
}

impl fmt::Display for Kind {
    /// The layout in the one way of writing it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packed { frames, open } => {
                for (at, fields) in frames.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { "; " })?;
                    write_fields(f, fields)?;
                }
                f.write_str(if *open { "; …" } else { "" })
            }
            Self::MsgPack(map) => write!(f, "msgpack: {map}"),
            Self::Json(map) => write!(f, "json: {map}"),
            Self::Avro(schema) => write!(f, "avro: {}", schema.text()),
            Self::Utf8 => f.write_str("utf8"),
            Self::Dtype => f.write_str("dtype"),
        }
    }
}
