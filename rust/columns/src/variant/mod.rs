//! Spark's VARIANT: MessagePack, field tables and JSON in the binary form that Parquet specifies under this name.
//!
//! A variant is two binaries. The metadata lists the names that occur; the value refers to them by number. Both begin
//! with a byte whose low bits give the type; all numbers are little-endian.

mod cells;
mod objects;
pub(crate) mod reading;
mod shredding;
mod text;

use std::{cmp::Ordering, sync::Arc};

use arrow_array::StructArray;
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::{
    ErrorKind, Fault,
    msgpack::{MAX_DEPTH, Reader, Timestamp, Value},
};

use self::reading::Value as Read;
use crate::{
    ColumnError,
    input::Binaries,
    item::{Decimal, Fields as ItemFields, Item},
    limits::Unwritten,
};

pub use objects::flagged_objects;
pub use shredding::{Shredding, unshredded};
pub use text::variant_json;

/// The most bytes of a variant that Spark accepts everywhere.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// How far back a name is searched for among those already listed; one that is farther back is listed again.
const LOOK_BACK: usize = 32;

/// The two low bits of a value's first byte.
const PRIMITIVE: u8 = 0;
const SHORT_STRING: u8 = 1;
const OBJECT: u8 = 2;
const ARRAY: u8 = 3;

/// The primitive types, in the six bits above.
const NULL: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const INT8: u8 = 3;
const INT16: u8 = 4;
const INT32: u8 = 5;
const INT64: u8 = 6;
const DOUBLE: u8 = 7;
const DECIMAL4: u8 = 8;
const DECIMAL8: u8 = 9;
const DECIMAL16: u8 = 10;
const TIMESTAMP: u8 = 12;
const FLOAT: u8 = 14;
const BINARY: u8 = 15;
const STRING: u8 = 16;

/// Strings up to this length have it in the first byte.
const SHORT: usize = 0x3f;

/// A column of variants, marked so that Spark and other readers of Arrow recognise it.
pub fn variant_field(name: &str) -> Field {
    let marked = [("ARROW:extension:name", "arrow.parquet.variant"), ("ARROW:extension:metadata", "")];
    let marked = marked.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Field::new(name, DataType::Struct(variant_fields()), true).with_metadata(marked)
}

pub(crate) fn variant_fields() -> Fields {
    let marked = [("variant".to_owned(), "true".to_owned())].into();
    let value = Field::new("value", DataType::Binary, false);
    let metadata = Field::new("metadata", DataType::Binary, false).with_metadata(marked);
    Fields::from(vec![Arc::new(value), Arc::new(metadata)])
}

pub(crate) fn is_variant(fields: &Fields) -> bool {
    fields.find("metadata").is_some_and(|(_, metadata)| metadata.metadata().contains_key("variant"))
}

/// The metadata and the values of a column of VARIANTs.
///
/// # Errors
/// If it is none.
pub(crate) fn parts(column: &StructArray) -> Result<(Binaries<'_>, Binaries<'_>), ColumnError> {
    let part = |name| column.column_by_name(name).and_then(|part| Binaries::of(name, part).ok());
    part("metadata").zip(part("value")).ok_or_else(|| ColumnError::Input("not a column of VARIANTs".to_owned()))
}

/// Writes one variant after another, keeping what the next probably shares.
#[derive(Debug, Default)]
pub(crate) struct VariantWriter {
    names: Names,
    value: Vec<u8>,
    /// The fields of all objects being written, the innermost last.
    fields: Vec<Member>,
    /// The header of an object or array, built before it is inserted in front of its members.
    header: Vec<u8>,
}

/// A member of an object or array being written.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// The number of its name; nothing in an array.
    name: u32,
    /// Where its value begins, and its length.
    start: u32,
    length: u32,
}

impl VariantWriter {
    /// The value written since the last [`clear`](Self::clear).
    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }

    /// The metadata of that value.
    pub(crate) fn metadata(&mut self) -> &[u8] {
        self.names.metadata()
    }

    pub(crate) fn clear(&mut self) {
        self.value.clear();
        self.fields.clear();
        self.names.begin();
    }

    /// Writes an object of the `pairs` that `reader` points to, except those whose value `claim` reads itself.
    pub(crate) fn tags<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        pairs: u32,
        mut claim: impl FnMut(&[u8], &mut Reader<'a>) -> Result<bool, Fault>,
    ) -> Result<(), Unwritten> {
        let (open, start) = (self.fields.len(), self.value.len());
        for _ in 0..pairs {
            let name = reader.string_bytes(ErrorKind::BadMapKey)?;
            if !claim(name, reader)? {
                self.field(name, |this| this.object(reader))?;
            }
        }
        self.close_object(start, open);
        Ok(())
    }

    /// Writes an object of these fields, except those that `claim` keeps.
    pub(crate) fn fields<'a>(
        &mut self,
        fields: ItemFields<'a>,
        mut claim: impl FnMut(&str, Item<'a>) -> Option<Item<'a>>,
    ) -> Result<(), Unwritten> {
        let (open, start) = (self.fields.len(), self.value.len());
        for (name, item) in fields {
            if let Some(item) = claim(name, item) {
                self.field(name.as_bytes(), |this| this.item(item))?;
            }
        }
        self.close_object(start, open);
        Ok(())
    }

    /// Whether Spark accepts what is written.
    pub(crate) fn is_taken(&mut self) -> bool {
        self.value.len().max(self.metadata().len()) <= MAX_BYTES
    }

    pub(crate) fn item(&mut self, item: Item<'_>) -> Result<(), Unwritten> {
        match item {
            Item::Null => self.primitive(NULL, []),
            Item::Boolean(value) => self.primitive(if value { TRUE } else { FALSE }, []),
            Item::Signed(value) => self.integer(value),
            Item::Unsigned(value) => self.decimal(value.into()),
            Item::Double(value) => self.primitive(DOUBLE, value.to_le_bytes()),
            Item::Decimal(value) => self.places(value),
            Item::Text(value) => self.string(value.as_bytes())?,
            Item::Binary(value) => self.bytes(BINARY, value)?,
            Item::Timestamp(seconds) => self.primitive(TIMESTAMP, (seconds * 1_000_000).to_le_bytes()),
            Item::Array(items) => {
                let (open, start) = (self.fields.len(), self.value.len());
                for item in items {
                    self.member(0, |this| this.item(item))?;
                }
                self.close_array(start, open);
            }
            Item::Object(fields) => self.fields(fields, |_, item| Some(item))?,
        }
        Ok(())
    }

    /// Writes a value of one of the types that shredded columns have; whether it is of one.
    fn typed(&mut self, value: &Read<'_>) -> bool {
        match value {
            Read::Boolean(value) => self.primitive(if *value { TRUE } else { FALSE }, []),
            Read::Signed(value) => self.integer(*value),
            Read::Float(value) => self.primitive(FLOAT, value.to_le_bytes()),
            Read::Double(value) => self.primitive(DOUBLE, value.to_le_bytes()),
            Read::Text(value) => return self.string(value.as_bytes()).is_ok(),
            Read::Null
            | Read::Decimal(..)
            | Read::Timestamp(_)
            | Read::Binary(_)
            | Read::Array(_)
            | Read::Object(_) => return false,
        }
        true
    }

    /// Writes any value.
    pub(crate) fn object(&mut self, reader: &mut Reader<'_>) -> Result<(), Unwritten> {
        match reader.value_here()? {
            Value::Nil => self.primitive(NULL, []),
            Value::Boolean(value) => self.primitive(if value { TRUE } else { FALSE }, []),
            Value::Signed(value) => self.integer(value),
            Value::Unsigned(value) => self.decimal(value.into()),
            Value::F32(value) => self.primitive(FLOAT, value.to_le_bytes()),
            Value::F64(value) => self.primitive(DOUBLE, value.to_le_bytes()),
            Value::String(value) => self.string(value)?,
            Value::Binary(value) => self.bytes(BINARY, value)?,
            Value::Timestamp(value) => self.timestamp(value),
            Value::Ext(code, data) => self.ext(code, data)?,
            Value::Array(members) => {
                let (open, start) = (self.fields.len(), self.value.len());
                for _ in 0..members {
                    self.member(0, |this| this.object(reader))?;
                }
                self.close_array(start, open);
            }
            Value::Map(pairs) => self.map(reader, pairs)?,
        }
        Ok(())
    }

    /// An object, or an array of `{key, value}` if a key is no string.
    fn map(&mut self, reader: &mut Reader<'_>, pairs: u32) -> Result<(), Unwritten> {
        if has_string_keys(reader.clone(), pairs)? {
            return self.tags(reader, pairs, |_, _| Ok(false));
        }
        let (open, start) = (self.fields.len(), self.value.len());
        for _ in 0..pairs {
            self.member(0, |this| {
                let (open, start) = (this.fields.len(), this.value.len());
                this.field(b"key", |this| this.object(reader))?;
                this.field(b"value", |this| this.object(reader))?;
                this.close_object(start, open);
                Ok(())
            })?;
        }
        self.close_array(start, open);
        Ok(())
    }

    fn ext(&mut self, code: i8, data: &[u8]) -> Result<(), Unwritten> {
        let (open, start) = (self.fields.len(), self.value.len());
        self.field(b"data", |this| this.bytes(BINARY, data))?;
        self.field(b"ext", |this| {
            this.integer(code.into());
            Ok(())
        })?;
        self.close_object(start, open);
        Ok(())
    }

    fn field(&mut self, name: &[u8], write: impl FnOnce(&mut Self) -> Result<(), Unwritten>) -> Result<(), Unwritten> {
        let name = self.names.number(name);
        self.member(name, write)
    }

    #[inline]
    fn member(&mut self, name: u32, write: impl FnOnce(&mut Self) -> Result<(), Unwritten>) -> Result<(), Unwritten> {
        let start = self.value.len();
        write(self)?;
        let length = low(self.value.len() - start);
        self.fields.push(Member { name, start: low(start), length });
        if self.is_hopeless(0) { Err(Unwritten::TooLarge) } else { Ok(()) }
    }

    /// Whether no variant can hold what is written and so many bytes more.
    #[inline]
    fn is_hopeless(&self, more: usize) -> bool {
        // A member and its name take four bytes at most besides their contents.
        let is_near = self.value.len().max(self.names.text.len()) + more > MAX_BYTES / 4;
        is_near && self.is_beyond(more)
    }

    #[inline(never)]
    fn is_beyond(&self, more: usize) -> bool {
        // Many members and names take three bytes each for their offset; few may take fewer.
        const FEW: usize = MAX_DEPTH << 16;
        let value = self.value.len() + 3 * self.fields.len().saturating_sub(FEW);
        value.max(self.names.bytes()) + more > MAX_BYTES
    }

    #[inline]
    fn primitive<const N: usize>(&mut self, kind: u8, bytes: [u8; N]) {
        self.value.push(kind << 2 | PRIMITIVE);
        self.value.extend_from_slice(&bytes);
    }

    #[inline]
    fn integer(&mut self, value: i64) {
        if let Ok(value) = i8::try_from(value) {
            self.primitive(INT8, value.to_le_bytes());
        } else if let Ok(value) = i16::try_from(value) {
            self.primitive(INT16, value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.primitive(INT32, value.to_le_bytes());
        } else {
            self.primitive(INT64, value.to_le_bytes());
        }
    }

    /// A decimal without decimal places.
    fn decimal(&mut self, value: i128) {
        self.primitive(DECIMAL16, [0]);
        self.value.extend_from_slice(&value.to_le_bytes());
    }

    /// A decimal in the fewest bytes with that many places; beyond 38 the nearest number, as there is no such decimal.
    fn places(&mut self, Decimal { places, digits }: Decimal) {
        match places {
            0..=9 if digits.unsigned_abs() < 1_000_000_000 => {
                self.primitive(DECIMAL4, [places]);
                self.value.extend_from_slice(&digits.to_le_bytes());
            }
            0..=18 => {
                self.primitive(DECIMAL8, [places]);
                self.value.extend_from_slice(&i64::from(digits).to_le_bytes());
            }
            19..=38 => {
                self.primitive(DECIMAL16, [places]);
                self.value.extend_from_slice(&i128::from(digits).to_le_bytes());
            }
            39.. => self.primitive(DOUBLE, Decimal { places, digits }.to_double().to_le_bytes()),
        }
    }

    /// Nanoseconds since 1970: Spark cannot read the variant's own timestamp of that precision.
    fn timestamp(&mut self, timestamp: Timestamp) {
        match timestamp.to_nanos() {
            Some(nanos) => self.integer(nanos),
            None => self.decimal(timestamp.nanos()),
        }
    }

    #[inline]
    fn string(&mut self, value: &[u8]) -> Result<(), Unwritten> {
        match u8::try_from(value.len()) {
            Ok(length) if value.len() <= SHORT => {
                self.value.push(length << 2 | SHORT_STRING);
                self.value.extend_from_slice(value);
                Ok(())
            }
            _ => self.bytes(STRING, value),
        }
    }

    fn bytes(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Unwritten> {
        if self.is_hopeless(bytes.len()) {
            return Err(Unwritten::TooLarge);
        }
        self.primitive(kind, low(bytes.len()).to_le_bytes());
        self.value.extend_from_slice(bytes);
        Ok(())
    }

    /// Inserts the header of an object in front of the fields written since `open`: ordered by name, of equal names the
    /// last.
    fn close_object(&mut self, start: usize, open: usize) {
        let mut fields = &mut self.fields[open..];
        let names = &self.names;
        let ordered = |a: &Member, b: &Member| names.compare(a.name, b.name);
        if !fields.is_sorted_by(|a, b| ordered(a, b).is_lt()) {
            // Stable, so that equal names keep their order.
            fields.sort_by(ordered);
            let kept = keep_last(fields, |a, b| ordered(a, b).is_eq());
            if kept < fields.len() {
                fields = &mut fields[..kept];
                close_gaps(&mut self.value, start, fields);
            }
        }
        let bytes = self.value.len() - start;
        self.header.clear();
        put_object_header(fields, start, bytes, &mut self.header);
        self.put_header(start, open);
    }

    /// Inserts the header of an array in front of the members written since `open`.
    fn close_array(&mut self, start: usize, open: usize) {
        let members = &self.fields[open..];
        let bytes = self.value.len() - start;
        let offsets = width(bytes);
        let large = members.len() > 0xff;
        self.header.clear();
        self.header.push(u8::from(large) << 4 | (offsets - 1) << 2 | ARRAY);
        push(&mut self.header, members.len(), if large { 4 } else { 1 });
        for member in members {
            push(&mut self.header, member.start as usize - start, offsets);
        }
        push(&mut self.header, bytes, offsets);
        self.put_header(start, open);
    }

    fn put_header(&mut self, start: usize, open: usize) {
        let (end, length) = (self.value.len(), self.header.len());
        self.value.extend_from_slice(&self.header);
        self.value.copy_within(start..end, start + length);
        self.value[start..start + length].copy_from_slice(&self.header);
        self.fields.truncate(open);
    }
}

/// Writes what an object has in front of the values of its fields, which begin at `start` and take so many bytes.
fn put_object_header(fields: &[Member], start: usize, bytes: usize, header: &mut Vec<u8>) {
    let ids = width(fields.iter().map(|field| field.name).max().unwrap_or(0) as usize);
    let offsets = width(bytes);
    let large = fields.len() > 0xff;
    header.push(u8::from(large) << 6 | (ids - 1) << 4 | (offsets - 1) << 2 | OBJECT);
    push(header, fields.len(), if large { 4 } else { 1 });
    for field in fields {
        push(header, field.name as usize, ids);
    }
    for field in fields {
        push(header, field.start as usize - start, offsets);
    }
    push(header, bytes, offsets);
}

/// Moves the last of each run of equal members to the front, and gives their number.
fn keep_last(members: &mut [Member], equal: impl Fn(&Member, &Member) -> bool) -> usize {
    let mut kept = 0;
    for at in 0..members.len() {
        if members.get(at + 1).is_none_or(|next| !equal(&members[at], next)) {
            members[kept] = members[at];
            kept += 1;
        }
    }
    kept
}

/// Removes the values that no member refers to any more.
fn close_gaps(value: &mut Vec<u8>, start: usize, members: &mut [Member]) {
    let old = value.split_off(start);
    for member in members {
        let from = member.start as usize - start;
        member.start = low(value.len());
        value.extend_from_slice(&old[from..from + member.length as usize]);
    }
}

fn has_string_keys(mut reader: Reader<'_>, pairs: u32) -> Result<bool, Fault> {
    for _ in 0..pairs {
        if reader.string_bytes(ErrorKind::BadMapKey).is_err() {
            return Ok(false);
        }
        reader.pass()?;
    }
    Ok(true)
}

/// How many bytes a number takes: one to four.
fn width(number: usize) -> u8 {
    match number {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xff_ffff => 3,
        _ => 4,
    }
}

#[inline]
fn push(out: &mut Vec<u8>, number: usize, width: u8) {
    let bytes = low(number).to_le_bytes();
    // Nearly always, and a copy of unknown length costs ten times as much.
    if width == 1 {
        out.push(bytes[0]);
    } else {
        out.extend_from_slice(&bytes[..width.into()]);
    }
}

/// A variant is never written so far that its numbers exceed 32 bits.
fn low(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The names of a variant, in their order. Those of the last one are kept: the next probably has the same in the same
/// order, and then the metadata and the known order of the names stay valid.
#[derive(Debug, Default)]
struct Names {
    text: Vec<u8>,
    /// Where each name ends in the text.
    ends: Vec<u32>,
    /// How many of them belong to the present variant.
    used: usize,
    metadata: Vec<u8>,
    /// How many names the metadata lists; nothing if it is invalid.
    listed: Option<usize>,
    /// The rank of each name, the same for equal ones; empty if it is invalid.
    ranks: Vec<u32>,
}

impl Names {
    fn begin(&mut self) {
        self.used = 0;
    }

    /// The bytes of the metadata at least.
    fn bytes(&self) -> usize {
        let text = self.used.checked_sub(1).map_or(0, |last| self.ends[last] as usize);
        text + 3 * self.used.saturating_sub(1 << 16)
    }

    fn get(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[number] as usize]
    }

    #[inline]
    fn compare(&self, a: u32, b: u32) -> Ordering {
        match (self.ranks.get(a as usize), self.ranks.get(b as usize)) {
            (Some(a), Some(b)) => a.cmp(b),
            _ => self.get(a).cmp(self.get(b)),
        }
    }

    #[inline]
    fn number(&mut self, name: &[u8]) -> u32 {
        if self.used < self.ends.len() && self.get(low(self.used)) == name {
            self.used += 1;
            return low(self.used - 1);
        }
        self.find_or_add(name)
    }

    fn find_or_add(&mut self, name: &[u8]) -> u32 {
        let recent = self.used.saturating_sub(LOOK_BACK)..self.used;
        if let Some(number) = recent.map(low).find(|&number| self.get(number) == name) {
            return number;
        }
        self.ends.truncate(self.used);
        self.text.truncate(self.ends.last().map_or(0, |&end| end as usize));
        self.text.extend_from_slice(name);
        self.ends.push(low(self.text.len()));
        self.used += 1;
        self.listed = None;
        self.ranks.clear();
        low(self.used - 1)
    }

    fn metadata(&mut self) -> &[u8] {
        if self.listed != Some(self.used) {
            self.list();
        } else if self.ranks.is_empty() {
            // They have come twice, so they may come again.
            self.rank();
        }
        &self.metadata
    }

    fn list(&mut self) {
        let ends = &self.ends[..self.used];
        let text = &self.text[..ends.last().map_or(0, |&end| end as usize)];
        let offsets = width(text.len().max(ends.len()));
        self.metadata.clear();
        self.metadata.push((offsets - 1) << 6 | 0x01);
        push(&mut self.metadata, ends.len(), offsets);
        push(&mut self.metadata, 0, offsets);
        for &end in ends {
            push(&mut self.metadata, end as usize, offsets);
        }
        self.metadata.extend_from_slice(text);
        self.listed = Some(self.used);
    }

    fn rank(&mut self) {
        let mut ordered: Vec<_> = (0..low(self.ends.len())).collect();
        ordered.sort_by_key(|&number| self.get(number));
        let mut ranks = vec![0; ordered.len()];
        let mut rank = 0;
        for (at, &number) in ordered.iter().enumerate() {
            rank += u32::from(at > 0 && self.get(ordered[at - 1]) != self.get(number));
            ranks[number as usize] = rank;
        }
        self.ranks = ranks;
    }
}
