//! Reads variants: our own, and those that Spark made.

use std::{cmp::Reverse, str};

use trunkline_wire::msgpack::MAX_DEPTH;

use crate::input::Binaries;

use super::{
    ARRAY, BINARY, DECIMAL4, DECIMAL8, DECIMAL16, DOUBLE, FALSE, FLOAT, INT8, INT16, INT32, INT64, NULL, OBJECT,
    SHORT_STRING, STRING, TIMESTAMP, TRUE,
};

/// The names of a variant, and one of its values.
#[derive(Clone, Copy)]
pub(crate) struct Variant<'a> {
    metadata: &'a [u8],
    value: &'a [u8],
}

/// A value of a map, in a VARIANT or in a column of its own.
pub(crate) enum Value<'a> {
    Null,
    Boolean(bool),
    Signed(i64),
    /// Digits, and the number of decimal places.
    Decimal(i128, u8),
    Float(f32),
    Double(f64),
    /// Microseconds since 1970.
    Timestamp(i64),
    Text(&'a str),
    Binary(&'a [u8]),
    Array(Vec<Self>),
    Object(Vec<(&'a str, Self)>),
}

impl<'a> Variant<'a> {
    pub(crate) const fn of(metadata: &'a [u8], value: &'a [u8]) -> Self {
        Self { metadata, value }
    }

    /// The one in a row of a column of these parts.
    pub(crate) fn at(metadata: Binaries<'a>, value: Binaries<'a>, row: usize) -> Self {
        Self::of(metadata.get(row).unwrap_or_default(), value.get(row).unwrap_or_default())
    }

    /// The value; null if damaged.
    ///
    /// # Errors
    /// If its kind is never written here, or it is nested too deep or refers to itself.
    pub(crate) fn read(self) -> Result<Value<'a>, String> {
        // Each value takes a byte at least, unless several references share it.
        self.within(0, &mut self.value.len().clone())
    }

    /// The same, `depth` values deep, of at most so many values.
    fn within(self, depth: usize, left: &mut usize) -> Result<Value<'a>, String> {
        if depth > MAX_DEPTH {
            return Err("a VARIANT is nested too deep".to_owned());
        }
        *left = left.checked_sub(1).ok_or("a VARIANT has values in several places")?;
        let (first, rest) = self.value.split_first().unwrap_or((&0, &[]));
        let kind = first >> 2;
        match first & 3 {
            SHORT_STRING => Ok(text(rest.get(..usize::from(kind)).unwrap_or_default())),
            OBJECT => {
                let named = |(name, member): (Option<&'a [u8]>, Self)| {
                    let name = str::from_utf8(name.unwrap_or_default()).map_err(|_| "a name is no text")?;
                    Ok((name, member.within(depth + 1, left)?))
                };
                let mut members: Vec<_> = self.members().collect();
                // They are listed by name, and their values lie in the order in which they were written. Each goes on to
                // the end of the whole.
                members.sort_by_key(|(_, member)| Reverse(member.value.len()));
                Ok(Value::Object(members.into_iter().map(named).collect::<Result<_, String>>()?))
            }
            ARRAY => {
                let members = self.members().map(|(_, member)| member.within(depth + 1, left));
                Ok(Value::Array(members.collect::<Result<_, _>>()?))
            }
            _ => primitive(kind, rest),
        }
    }

    /// The bytes of the value. Those of a member go on to the end of the whole: its length is in it.
    pub(super) const fn bytes(self) -> &'a [u8] {
        self.value
    }

    /// The members of an object, with their names, or of an array.
    pub(super) fn members(self) -> impl Iterator<Item = (Option<&'a [u8]>, Self)> {
        self.numbered().map(move |(number, member)| (number.map(|number| self.name(number)), member))
    }

    /// The same, with the numbers of the names.
    pub(super) fn numbered(self) -> impl Iterator<Item = (Option<usize>, Self)> {
        let value = self.value;
        let first = value.first().copied().unwrap_or_default();
        let is_object = first & 3 == OBJECT;
        let offsets = usize::from(first >> 2 & 3) + 1;
        let ids = if is_object { usize::from(first >> 4 & 3) + 1 } else { 0 };
        let is_large = first >> (if is_object { 6 } else { 4 }) & 1 == 1;
        let counted = if is_large { 4 } else { 1 };
        // Each takes a byte at least.
        let count = number(value, 1, counted).min(value.len());
        let at_offsets = 1 + counted + ids * count;
        let data = at_offsets + offsets * (count + 1);
        (0..count).map(move |at| {
            let name = is_object.then(|| number(value, 1 + counted + ids * at, ids));
            let start = data + number(value, at_offsets + offsets * at, offsets);
            (name, Self { metadata: self.metadata, value: value.get(start..).unwrap_or_default() })
        })
    }

    pub(super) fn is_object(self) -> bool {
        self.value.first().is_some_and(|first| first & 3 == OBJECT)
    }

    pub(super) const fn metadata(self) -> &'a [u8] {
        self.metadata
    }

    /// How many names there are; each takes a byte at least.
    pub(super) fn names(self) -> usize {
        number(self.metadata, 1, self.name_width()).min(self.metadata.len())
    }

    fn name_width(self) -> usize {
        usize::from(self.metadata.first().copied().unwrap_or_default() >> 6) + 1
    }

    /// The name with a number.
    pub(super) fn name(self, at: usize) -> &'a [u8] {
        let width = self.name_width();
        let count = number(self.metadata, 1, width);
        let offset = |at: usize| number(self.metadata, 1 + width * (1 + at), width);
        let text = 1 + width * (count + 2);
        self.metadata.get(text + offset(at)..text + offset(at + 1)).unwrap_or_default()
    }
}

/// The value of these bytes, which has no members.
pub(super) fn alone(bytes: &[u8]) -> Option<Value<'_>> {
    let (first, rest) = bytes.split_first()?;
    match first & 3 {
        SHORT_STRING => Some(text(rest)),
        OBJECT | ARRAY => None,
        _ => primitive(first >> 2, rest).ok(),
    }
}

fn primitive(kind: u8, rest: &[u8]) -> Result<Value<'_>, String> {
    let signed = |width| Value::Signed(i64::try_from(integer(rest, width)).unwrap_or_default());
    let decimal = |width| {
        let (places, digits) = rest.split_first().unwrap_or((&0, &[]));
        Value::Decimal(integer(digits, width), *places)
    };
    Ok(match kind {
        NULL => Value::Null,
        TRUE => Value::Boolean(true),
        FALSE => Value::Boolean(false),
        INT8 => signed(1),
        INT16 => signed(2),
        INT32 => signed(4),
        INT64 => signed(8),
        FLOAT => Value::Float(f32::from_le_bytes(bytes_of(rest))),
        DOUBLE => Value::Double(f64::from_le_bytes(bytes_of(rest))),
        TIMESTAMP => Value::Timestamp(i64::from_le_bytes(bytes_of(rest))),
        DECIMAL4 => decimal(4),
        DECIMAL8 => decimal(8),
        DECIMAL16 => decimal(16),
        BINARY => Value::Binary(long(rest)),
        STRING => text(long(rest)),
        _ => return Err("a VARIANT has a value, such as a date, that no message has a place for".to_owned()),
    })
}

/// An integer of so many bytes, with its sign.
fn integer(rest: &[u8], width: usize) -> i128 {
    let mut bytes = [0; 16];
    let found = rest.get(..width).unwrap_or_default();
    bytes[..found.len()].copy_from_slice(found);
    let shift = 8 * (16 - width);
    i128::from_le_bytes(bytes) << shift >> shift
}

/// Text, if it is valid.
fn text(bytes: &[u8]) -> Value<'_> {
    str::from_utf8(bytes).map_or(Value::Binary(bytes), Value::Text)
}

fn bytes_of<const N: usize>(rest: &[u8]) -> [u8; N] {
    rest.first_chunk().copied().unwrap_or([0; N])
}

fn long(rest: &[u8]) -> &[u8] {
    rest.get(4..).and_then(|bytes| bytes.get(..number(rest, 0, 4))).unwrap_or_default()
}

/// The length of a value without members.
pub(super) fn length(value: &[u8]) -> usize {
    let first = value.first().copied().unwrap_or_default();
    if first & 3 == SHORT_STRING {
        return 1 + usize::from(first >> 2);
    }
    1 + match first >> 2 {
        INT8 => 1,
        INT16 => 2,
        INT32 | FLOAT => 4,
        INT64 | DOUBLE | TIMESTAMP => 8,
        DECIMAL4 => 5,
        DECIMAL8 => 9,
        DECIMAL16 => 17,
        BINARY | STRING => 4 + number(value, 1, 4),
        _ => 0,
    }
}

/// A number of so many bytes; nothing beyond the end.
fn number(bytes: &[u8], at: usize, width: usize) -> usize {
    let found = bytes.get(at..at + width).unwrap_or_default();
    found.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}
