//! The columns of tags and of other named values: one for each requested name, a VARIANT of the others.

use std::{mem, ops::Range, sync::Arc};

use arrow_array::{
    ArrayRef,
    builder::BooleanBuilder,
    new_null_array,
    types::{Float64Type, Int64Type, TimestampMicrosecondType},
};
use arrow_schema::{DataType, Field};
use trunkline_wire::{
    ErrorKind, Fault,
    msgpack::{Reader, Timestamp, Value},
};

use crate::{
    Asked, ColumnError, ColumnKind, Mode, RestType, TagType, Tags,
    item::{Fields, Item},
    json::JsonWriter,
    limits::{SECONDS, Unwritten},
    options::UTC,
    output::{Bytes, Numbers, Variants},
    variant::{VariantWriter, variant_field},
};

/// A value of tags that the decoder has already checked, so their text is valid.
type TagValue<'a> = Value<'a, &'a [u8]>;

/// The kind of a fault that cannot occur.
const FAULT: ErrorKind = ErrorKind::BadHeader;

/// Microseconds since 1970, rounded down, if a TIMESTAMP can hold them.
#[inline]
pub(crate) fn micros(timestamp: Timestamp) -> Option<i64> {
    let in_second = i64::from(timestamp.nanoseconds() / 1_000);
    SECONDS.contains(&timestamp.seconds()).then(|| timestamp.seconds() * 1_000_000 + in_second)
}

/// The fields of the columns; `one` is the prefix of each name and `all` the name of the others together.
pub(crate) fn fields(tags: &Tags, one: &str, all: &str) -> Vec<Field> {
    let typed =
        tags.typed().iter().map(|(name, tag_type)| Field::new(format!("{one}_{name}"), tag_type.data_type(), true));
    typed.chain(tags.rest().map(|rest| rest_field(rest, all))).collect()
}

/// The field of a column of maps.
pub(crate) fn rest_field(rest: RestType, name: &str) -> Field {
    match rest {
        RestType::Variant => variant_field(name),
        RestType::Json => Field::new(name, DataType::Utf8, true),
    }
}

/// The tags of a message, a map that the decoder has checked.
#[derive(Clone, Copy)]
pub(crate) struct TagMap<'a> {
    pub(crate) bytes: &'a [u8],
    /// Their offset in the header.
    pub(crate) start: usize,
    /// Whether a name occurs more than once.
    pub(crate) duplicates: bool,
}

impl<'a> TagMap<'a> {
    pub(crate) fn of(header: &'a [u8], range: &Range<usize>, duplicate_keys: usize) -> Self {
        Self { bytes: &header[range.clone()], start: range.start, duplicates: duplicate_keys > 0 }
    }
}

/// The columns, being built.
#[derive(Debug)]
pub(crate) struct TagColumns {
    typed: Vec<TypedColumn>,
    rest: Option<Rest>,
    /// The reason for those that a VARIANT cannot hold.
    exceeds: ColumnKind,
    /// What they are where none is asked for, and how many rows they have then.
    unread: Option<(Vec<Field>, usize)>,
}

/// The tags without their own column, or all of a map.
#[allow(clippy::large_enum_variant)] // there is one of them, or two
#[derive(Debug)]
pub(crate) enum Rest {
    Variant(VariantWriter, Variants),
    Json(JsonWriter, Bytes),
}

impl Rest {
    pub(crate) fn new(rest: RestType) -> Self {
        match rest {
            RestType::Variant => Self::Variant(VariantWriter::default(), Variants::default()),
            RestType::Json => Self::Json(JsonWriter::default(), Bytes::default()),
        }
    }

    /// Reads the tags of a message, except those whose value `claim` reads itself.
    fn read<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        pairs: u32,
        claim: impl FnMut(&[u8], &mut Reader<'a>) -> Result<bool, Fault>,
    ) -> Result<(), Unwritten> {
        match self {
            Self::Variant(writer, _) => {
                writer.clear();
                writer.tags(reader, pairs, claim)?;
                whole(writer)
            }
            Self::Json(writer, _) => {
                writer.clear();
                writer.tags(reader, pairs, claim)
            }
        }
    }

    /// Reads the fields of another map, except those that `claim` keeps.
    fn read_fields<'a>(
        &mut self,
        fields: Fields<'a>,
        claim: impl FnMut(&str, Item<'a>) -> Option<Item<'a>>,
    ) -> Result<(), Unwritten> {
        match self {
            Self::Variant(writer, _) => {
                writer.clear();
                writer.fields(fields, claim)?;
                whole(writer)
            }
            Self::Json(writer, _) => {
                writer.clear();
                writer.fields(fields, claim)
            }
        }
    }

    /// Appends what was read unless it was too large; gives whether it was appended.
    fn push(&mut self, is_whole: bool) -> Result<bool, ColumnError> {
        match self {
            Self::Variant(writer, column) if is_whole => column.push(Some(writer))?,
            Self::Variant(writer, column) => {
                // It has grown larger than other messages need.
                *writer = VariantWriter::default();
                column.push(None)?;
                return Ok(false);
            }
            Self::Json(writer, column) if is_whole => column.push(Some(writer.text()))?,
            Self::Json(..) => return Err(ColumnError::TooLarge),
        }
        Ok(true)
    }

    /// Appends a map that has been checked before; null if there is none, or no column can hold it.
    pub(crate) fn append(&mut self, map: Option<&[u8]>) -> Result<(), ColumnError> {
        let is_read = map.is_some_and(|map| {
            let mut reader = Reader::new(map, FAULT);
            reader.map(FAULT).is_ok_and(|pairs| self.read(&mut reader, pairs, |_, _| Ok(false)).is_ok())
        });
        if is_read { self.push(true).map(drop) } else { self.push_null() }
    }

    /// Appends any value that `reader` points to and that has been checked; gives whether it was not too large.
    pub(crate) fn append_object(&mut self, reader: &mut Reader<'_>) -> Result<bool, ColumnError> {
        let is_written = match self {
            Self::Variant(writer, _) => {
                writer.clear();
                writer.object(reader).is_ok() && writer.is_taken()
            }
            Self::Json(writer, _) => {
                writer.clear();
                writer.value(reader).is_ok()
            }
        };
        self.push(is_written)
    }

    /// Appends any other value; gives whether it was not too large.
    pub(crate) fn append_item(&mut self, item: Item<'_>) -> Result<bool, ColumnError> {
        let is_written = match self {
            Self::Variant(writer, _) => {
                writer.clear();
                writer.item(item).is_ok() && writer.is_taken()
            }
            Self::Json(writer, _) => {
                writer.clear();
                writer.item(item).is_ok()
            }
        };
        self.push(is_written)
    }

    pub(crate) fn push_null(&mut self) -> Result<(), ColumnError> {
        match self {
            Self::Variant(_, column) => column.push(None),
            Self::Json(_, column) => column.push(None),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Variant(_, column) => column.bytes(),
            Self::Json(_, column) => column.bytes(),
        }
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ColumnError> {
        match self {
            Self::Variant(_, column) => column.finish(),
            Self::Json(_, column) => Ok(Arc::new(column.finish_text()?)),
        }
    }
}

/// A column of MessagePack maps that a decoder has checked, being built.
#[derive(Debug)]
pub struct Maps(Rest);

impl Maps {
    pub fn new(rest: RestType) -> Self {
        Self(Rest::new(rest))
    }

    pub fn field(rest: RestType, name: &str) -> Field {
        rest_field(rest, name)
    }

    /// Appends a map; null if there is none, or no column can hold it.
    pub fn append(&mut self, map: Option<&[u8]>) -> Result<(), ColumnError> {
        self.0.append(map)
    }

    /// The bytes it takes so far.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    pub fn finish(mut self) -> Result<ArrayRef, ColumnError> {
        self.0.finish()
    }
}

/// Whether Spark accepts the variant that was written.
#[inline]
fn whole(writer: &mut VariantWriter) -> Result<(), Unwritten> {
    if writer.is_taken() { Ok(()) } else { Err(Unwritten::TooLarge) }
}

impl TagColumns {
    /// `exceeds` is the reason for those that a VARIANT cannot hold.
    pub(crate) fn new(tags: &Tags, exceeds: ColumnKind) -> Self {
        let typed = tags.typed().iter().map(TypedColumn::new).collect();
        Self { typed, rest: tags.rest().map(Rest::new), exceeds, unread: None }
    }

    /// Those of [`fields`] of these names; of nulls alone where none is asked for.
    pub(crate) fn asked((tags, one, all): (&Tags, &str, &str), exceeds: ColumnKind, mode: Mode, asked: &Asked) -> Self {
        let fields = fields(tags, one, all);
        if asked.has_any(fields.iter().map(Field::name), mode) {
            Self::new(tags, exceeds)
        } else {
            Self { unread: Some((fields, 0)), ..Self::new(&Tags::NONE, exceeds) }
        }
    }

    /// Appends the tags of a message. With `strict` a tag of another type than requested is an error.
    #[inline]
    pub(crate) fn push(
        &mut self,
        row: usize,
        tags: TagMap<'_>,
        strict: bool,
    ) -> Result<Option<ColumnKind>, ColumnError> {
        if self.typed.is_empty() && self.rest.is_none() {
            return self.push_null().map(|()| None);
        }
        let is_whole = match self.read(tags) {
            Ok(()) => true,
            Err(Unwritten::Fault(fault)) => return Err(at_row(row, fault)),
            Err(Unwritten::TooLarge) => {
                self.find(tags).map_err(|fault| at_row(row, fault))?;
                false
            }
        };
        self.push_found(row, tags, strict)?;
        self.end(is_whole)
    }

    /// Appends the values that were found last.
    #[inline]
    fn push_found(&mut self, row: usize, tags: TagMap<'_>, strict: bool) -> Result<(), ColumnError> {
        for column in &mut self.typed {
            let found = mem::take(&mut column.found);
            if found != 0 && matches!(column.builder, Builder::Json(..)) {
                column.push_json(row, |writer| writer.value(&mut Reader::new(&tags.bytes[found..], FAULT)))?;
                continue;
            }
            let value = match found {
                0 => None,
                at => {
                    let value = Reader::new(&tags.bytes[at..], FAULT).value_bytes();
                    Some(value.map_err(|fault| at_row(row, fault))?)
                }
            };
            if !column.push(value.map_or(Cell::Null, Cell::of_tag))? && strict {
                return Err(column.mismatch(row, tags.start + found));
            }
        }
        Ok(())
    }

    /// Whether values of a map can be found while it is checked: none of it goes elsewhere.
    pub(crate) fn is_found_checked(&self) -> bool {
        self.rest.is_none() && !self.typed.is_empty()
    }

    /// Checks a map that has names for keys, and finds the values that have a column; of equal names the last.
    pub(crate) fn find_checked(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        for column in &mut self.typed {
            column.found = 0;
        }
        let pairs = reader.map(FAULT)?;
        // Mostly they come in the order of the columns.
        let mut next = 0;
        for _ in 0..pairs {
            let name = reader.string_checked(FAULT)?;
            let position = reader.position();
            reader.skip(1)?;
            let (before, after) = self.typed.split_at_mut(next);
            let mut later = after.iter_mut().chain(before).enumerate();
            if let Some((skipped, column)) = later.find(|(_, column)| column.name.as_bytes() == name) {
                column.found = position;
                next = (next + skipped + 1) % self.typed.len();
            }
        }
        Ok(())
    }

    /// Appends the values of a map that [`find_checked`](Self::find_checked) found last.
    pub(crate) fn push_checked(&mut self, row: usize, map: &[u8], strict: bool) -> Result<(), ColumnError> {
        self.push_found(row, TagMap { bytes: map, start: 0, duplicates: true }, strict)
    }

    /// Appends the fields of a map that is not MessagePack. With `strict` one of another type than requested is an
    /// error.
    pub(crate) fn push_fields(
        &mut self,
        row: usize,
        fields: &Fields<'_>,
        strict: bool,
    ) -> Result<Option<ColumnKind>, ColumnError> {
        if self.typed.is_empty() && self.rest.is_none() {
            return self.push_null().map(|()| None);
        }
        let mut found = vec![Item::Null; self.typed.len()];
        let mut claim = |name: &str, item| match self.typed.iter().position(|column| column.name == name) {
            Some(at) => {
                found[at] = item;
                None
            }
            None => Some(item),
        };
        let read = self.rest.as_mut().map(|rest| rest.read_fields(fields.clone(), &mut claim));
        if !matches!(read, Some(Ok(()))) {
            for (name, item) in fields.clone() {
                claim(name, item);
            }
        }
        for (column, item) in self.typed.iter_mut().zip(found) {
            if matches!(column.builder, Builder::Json(..)) {
                column.push_json(row, |writer| writer.item(item))?;
            } else if !column.push(Cell::of_item(&item))? && strict {
                return Err(column.mismatch(row, 0));
            }
        }
        self.end(matches!(read, Some(Ok(()))))
    }

    #[inline]
    fn end(&mut self, is_whole: bool) -> Result<Option<ColumnKind>, ColumnError> {
        let fits = self.rest.as_mut().map_or(Ok(true), |rest| rest.push(is_whole))?;
        Ok((!fits).then_some(self.exceeds))
    }

    /// Finds the tags that have a column, and writes the others.
    #[inline]
    fn read(&mut self, tags: TagMap<'_>) -> Result<(), Unwritten> {
        let Some(rest) = &mut self.rest else { return Ok(self.find(tags)?) };
        let mut reader = Reader::new(tags.bytes, FAULT);
        let pairs = reader.map(FAULT)?;
        rest.read(&mut reader, pairs, |name, reader| claim(&mut self.typed, name, reader))
    }

    /// Finds the tags that have a column.
    fn find(&mut self, tags: TagMap<'_>) -> Result<(), Fault> {
        let mut reader = Reader::new(tags.bytes, FAULT);
        let pairs = reader.map(FAULT)?;
        let mut missing = self.typed.len();
        // Mostly the tags come in the order of the columns.
        let mut next = 0;
        for _ in 0..pairs {
            if missing == 0 && !tags.duplicates {
                break;
            }
            let name = reader.string_bytes(FAULT)?;
            let count = self.typed.len();
            let (before, after) = self.typed.split_at_mut(next.min(count));
            if claim(after, name, &mut reader)? || claim(before, name, &mut reader)? {
                missing = missing.saturating_sub(1);
                next += 1;
            } else {
                reader.pass()?;
            }
        }
        Ok(())
    }

    pub(crate) fn push_null(&mut self) -> Result<(), ColumnError> {
        if let Some((_, rows)) = &mut self.unread {
            *rows += 1;
        }
        for column in &mut self.typed {
            column.push(Cell::Null)?;
        }
        self.rest.as_mut().map_or(Ok(()), Rest::push_null)
    }

    /// How many values of each name had another type than requested.
    pub(crate) fn mismatches(&self) -> impl Iterator<Item = (&str, u64)> {
        self.typed.iter().map(|column| (column.name.as_str(), column.mismatches)).filter(|(_, count)| *count > 0)
    }

    /// The bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        let typed: usize = self.typed.iter().map(|column| column.builder.bytes()).sum();
        typed + self.rest.as_ref().map_or(0, Rest::bytes)
    }

    pub(crate) fn finish(&mut self) -> Result<Vec<ArrayRef>, ColumnError> {
        if let Some((fields, rows)) = &self.unread {
            return Ok(fields.iter().map(|field| new_null_array(field.data_type(), *rows)).collect());
        }
        let typed = self.typed.iter_mut().map(|column| column.builder.finish());
        typed.chain(self.rest.as_mut().map(Rest::finish)).collect()
    }
}

/// The error of a value, where the decoder has let none pass.
fn at_row(row: usize, fault: Fault) -> ColumnError {
    ColumnError::Decode { row, error: fault.in_frame(0) }
}

/// Skips the value of a tag that has a column, and keeps its offset; of equal names the last.
#[inline]
fn claim(columns: &mut [TypedColumn], name: &[u8], reader: &mut Reader<'_>) -> Result<bool, Fault> {
    let Some(column) = columns.iter_mut().find(|column| column.name.as_bytes() == name) else { return Ok(false) };
    column.found = reader.position();
    reader.pass()?;
    Ok(true)
}

/// The column of one tag.
#[derive(Debug)]
struct TypedColumn {
    name: String,
    builder: Builder,
    /// The offset of its value in the tags; at 0, where the map begins, there is none.
    found: usize,
    /// How many values had another type.
    mismatches: u64,
}

#[derive(Debug)]
enum Builder {
    BigInt(Numbers<Int64Type>),
    Double(Numbers<Float64Type>),
    String(Bytes),
    Boolean(BooleanBuilder),
    Binary(Bytes),
    Timestamp(Numbers<TimestampMicrosecondType>),
    Json(JsonWriter, Bytes),
}

impl TypedColumn {
    fn new((name, tag_type): &(String, TagType)) -> Self {
        let builder = match tag_type {
            TagType::BigInt => Builder::BigInt(Numbers::default()),
            TagType::Double => Builder::Double(Numbers::default()),
            TagType::String => Builder::String(Bytes::default()),
            TagType::Boolean => Builder::Boolean(BooleanBuilder::new()),
            TagType::Binary => Builder::Binary(Bytes::default()),
            TagType::Timestamp => Builder::Timestamp(Numbers::default()),
            TagType::Json => Builder::Json(JsonWriter::default(), Bytes::default()),
        };
        Self { name: name.clone(), builder, found: 0, mismatches: 0 }
    }

    /// The error for a value of another type, in a header of one frame or a payload.
    fn mismatch(&self, row: usize, offset: usize) -> ColumnError {
        ColumnError::TagType { row, tag: self.name.clone(), frame: 0, offset }
    }

    /// Appends a value, or null if it has another type; gives whether it fits.
    #[inline]
    fn push(&mut self, value: Cell<'_>) -> Result<bool, ColumnError> {
        let absent = matches!(value, Cell::Null);
        let pushed = match &mut self.builder {
            Builder::BigInt(column) => {
                let value = if let Cell::Signed(value) = value { Some(value) } else { None };
                column.push(value);
                value.is_some()
            }
            Builder::Double(column) => {
                let value = double(value);
                column.push(value);
                value.is_some()
            }
            Builder::String(column) => {
                let value = if let Cell::Text(value) = value { Some(value) } else { None };
                column.push(value)?;
                value.is_some()
            }
            Builder::Boolean(column) => {
                let value = if let Cell::Boolean(value) = value { Some(value) } else { None };
                column.append_option(value);
                value.is_some()
            }
            Builder::Binary(column) => {
                let value = if let Cell::Binary(value) = value { Some(value) } else { None };
                column.push(value)?;
                value.is_some()
            }
            Builder::Timestamp(column) => {
                let value = if let Cell::Timestamp(value) = value { Some(value) } else { None };
                column.push(value);
                value.is_some()
            }
            // Values come to it by `push_json`.
            Builder::Json(_, column) => {
                column.push(None)?;
                false
            }
        };
        let fits = pushed || absent;
        self.mismatches += u64::from(!fits);
        Ok(fits)
    }

    /// Appends the JSON text that `write` makes of a value, or null.
    fn push_json(
        &mut self,
        row: usize,
        write: impl FnOnce(&mut JsonWriter) -> Result<(), Unwritten>,
    ) -> Result<(), ColumnError> {
        let Builder::Json(writer, column) = &mut self.builder else { return Ok(()) };
        writer.clear();
        write(writer).map_err(|unwritten| match unwritten {
            Unwritten::Fault(fault) => ColumnError::Decode { row, error: fault.in_frame(0) },
            Unwritten::TooLarge => ColumnError::TooLarge,
        })?;
        column.push(Some(writer.text()).filter(|text| *text != b"null"))
    }
}

impl Builder {
    fn bytes(&self) -> usize {
        match self {
            Self::BigInt(column) => column.bytes(),
            Self::Double(column) => column.bytes(),
            Self::String(column) | Self::Binary(column) | Self::Json(_, column) => column.bytes(),
            Self::Boolean(column) => column.values_slice().len(),
            Self::Timestamp(column) => column.bytes(),
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, ColumnError> {
        Ok(match self {
            Self::BigInt(column) => Arc::new(column.finish()?),
            Self::Double(column) => Arc::new(column.finish()?),
            Self::String(column) | Self::Json(_, column) => Arc::new(column.finish_text()?),
            Self::Boolean(column) => Arc::new(column.finish()),
            Self::Binary(column) => Arc::new(column.finish()?),
            Self::Timestamp(column) => Arc::new(column.finish()?.with_timezone(UTC)),
        })
    }
}

/// A value for its own column, whatever it was read from.
#[derive(Clone, Copy, Debug)]
enum Cell<'a> {
    Null,
    Boolean(bool),
    Signed(i64),
    Unsigned(u64),
    Double(f64),
    Text(&'a [u8]),
    Binary(&'a [u8]),
    /// Microseconds since 1970.
    Timestamp(i64),
    /// A value that fits no column.
    Other,
}

impl<'a> Cell<'a> {
    #[inline]
    fn of_tag(value: TagValue<'a>) -> Self {
        match value {
            Value::Nil => Self::Null,
            Value::Boolean(value) => Self::Boolean(value),
            Value::Signed(value) => Self::Signed(value),
            Value::Unsigned(value) => Self::Unsigned(value),
            Value::F32(value) => Self::Double(value.into()),
            Value::F64(value) => Self::Double(value),
            Value::String(value) => Self::Text(value),
            Value::Binary(value) => Self::Binary(value),
            Value::Timestamp(value) => micros(value).map_or(Self::Other, Self::Timestamp),
            Value::Array(_) | Value::Map(_) | Value::Ext(..) => Self::Other,
        }
    }

    fn of_item(item: &Item<'a>) -> Self {
        match item {
            Item::Null => Self::Null,
            Item::Boolean(value) => Self::Boolean(*value),
            Item::Signed(value) => Self::Signed(*value),
            Item::Unsigned(value) => Self::Unsigned(*value),
            Item::Double(value) => Self::Double(*value),
            Item::Decimal(value) => Self::Double(value.to_double()),
            Item::Text(value) => Self::Text(value.as_bytes()),
            Item::Binary(value) => Self::Binary(value),
            Item::Timestamp(seconds) => Self::Timestamp(seconds * 1_000_000),
            Item::Array(_) | Item::Object(_) => Self::Other,
        }
    }
}

/// The only widening: integers and decimals are numbers too, rounded to the nearest if they have more than 53 bits.
#[allow(clippy::cast_precision_loss)]
fn double(value: Cell<'_>) -> Option<f64> {
    match value {
        Cell::Double(value) => Some(value),
        Cell::Signed(value) => Some(value as f64),
        Cell::Unsigned(value) => Some(value as f64),
        Cell::Null | Cell::Boolean(_) | Cell::Text(_) | Cell::Binary(_) | Cell::Timestamp(_) | Cell::Other => None,
    }
}
