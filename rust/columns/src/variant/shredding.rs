//! VARIANTs shredded as Parquet specifies: fields of objects are columns, which a reader takes without the others.
//!
//! The same bytes can be put together again. A column with an object for which that is not so cannot be shredded: beside
//! others no object may stay whole.

use std::{
    collections::{BTreeMap, HashSet},
    mem,
    sync::Arc,
};

use arrow_array::{
    Array, ArrayRef, BinaryArray, StructArray,
    builder::{
        ArrayBuilder, BinaryBuilder, BooleanBuilder, Float32Builder, Float64Builder, Int64Builder, StringBuilder,
    },
    cast::AsArray,
    types::{Float32Type, Float64Type, Int64Type},
};
use arrow_buffer::{NullBuffer, NullBufferBuilder};
use arrow_schema::{DataType, Field, Fields};

use super::{
    Member, VariantWriter, low, parts, put_object_header,
    reading::{Value, Variant, alone},
    variant_fields,
};
use crate::{ColumnError, input::Binaries};

/// The most fields that become columns: those of most objects.
const FIELDS: usize = 64;

/// A field becomes a column if one of so many objects has it.
const SHARE: usize = 10;

const TYPED: &str = "typed_value";

/// Which fields of a column of VARIANTs become columns, and of which types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shredding(Vec<(String, Kind)>);

impl Shredding {
    /// Those that objects in these rows often have, each of the type that most of its values have; None if there are none.
    ///
    /// # Errors
    /// If the column is none of VARIANTs.
    pub fn of(column: &StructArray) -> Result<Option<Self>, ColumnError> {
        let (metadata, value) = parts(column)?;
        let mut objects = 0;
        let mut counted: BTreeMap<&[u8], BTreeMap<Kind, usize>> = BTreeMap::new();
        for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
            let Some(fields) = Object::of(Variant::at(metadata, value, row)) else { continue };
            objects += 1;
            for (number, bytes) in fields.members {
                if let Some(kind) = Kind::of(bytes) {
                    *counted.entry(fields.of.name(number)).or_default().entry(kind).or_default() += 1;
                }
            }
        }
        let mut fields: Vec<_> = counted
            .into_iter()
            .filter_map(|(name, kinds)| {
                let (kind, count) = kinds.into_iter().max_by_key(|(_, count)| *count)?;
                (count * SHARE >= objects).then_some((count, str::from_utf8(name).ok()?.to_owned(), kind))
            })
            .collect();
        fields.sort_by_key(|(count, ..)| usize::MAX - count);
        // Readers tell columns apart in any case, want them to have a name, and some end it at a NUL.
        let mut names = HashSet::from([String::new()]);
        fields.retain(|(_, name, _)| !name.contains('\0') && names.insert(name.to_lowercase()));
        fields.truncate(FIELDS);
        let mut fields: Vec<_> = fields.into_iter().map(|(_, name, kind)| (name, kind)).collect();
        fields.sort_unstable();
        Ok((!fields.is_empty()).then_some(Self(fields)))
    }

    /// The column with its fields as columns; None if it has an object that could not be put together again.
    ///
    /// # Errors
    /// If it is none of VARIANTs.
    pub fn shredded(&self, column: &StructArray) -> Result<Option<StructArray>, ColumnError> {
        let (metadata, value) = parts(column)?;
        let mut wholes = BinaryBuilder::new();
        let mut objects = NullBufferBuilder::new(column.len());
        let mut fields: Vec<_> = self.0.iter().map(|(_, kind)| FieldBuilder::new(*kind)).collect();
        let mut shredder = Shredder::default();
        for row in 0..column.len() {
            let variant = Variant::at(metadata, value, row);
            let is_object = column.is_valid(row) && variant.is_object();
            if is_object && !shredder.shred(variant, &self.0, &mut fields) {
                return Ok(None);
            }
            objects.append(is_object);
            if is_object {
                wholes.append_option(shredder.rest());
            } else {
                fields.iter_mut().for_each(FieldBuilder::push_none);
                wholes.append_option(column.is_valid(row).then_some(variant.bytes()));
            }
        }
        let kinds = self.0.iter().map(|(name, kind)| Field::new(name, DataType::Struct(pair(*kind)), false)).collect();
        let columns = self.0.iter().zip(fields).map(|((_, kind), field)| field.finish(*kind)).collect();
        let typed = StructArray::try_new(kinds, columns, objects.finish())?;
        let metadata: BinaryArray = (0..column.len()).map(|row| Some(metadata.get(row).unwrap_or_default())).collect();
        let parts = [
            Field::new("metadata", DataType::Binary, false),
            Field::new("value", DataType::Binary, true),
            Field::new(TYPED, typed.data_type().clone(), true),
        ];
        let columns: Vec<ArrayRef> = vec![Arc::new(metadata), Arc::new(wholes.finish()), Arc::new(typed)];
        Ok(Some(StructArray::try_new(parts.into_iter().collect(), columns, column.nulls().cloned())?))
    }
}

/// A column of VARIANTs that was shredded, put together again; any other as it is.
///
/// # Errors
/// If it is none of VARIANTs.
pub fn unshredded(column: &StructArray) -> Result<StructArray, ColumnError> {
    let Some(typed) = column.column_by_name(TYPED) else { return Ok(column.clone()) };
    let typed = typed.as_struct_opt().ok_or_else(refused)?;
    let (metadata, value) = parts(column)?;
    let fields: Vec<_> =
        typed.column_names().into_iter().zip(typed.columns()).map(Part::of).collect::<Result<_, _>>()?;
    let (mut values, mut metadatas) = (BinaryBuilder::new(), BinaryBuilder::new());
    let mut joiner = Joiner::default();
    for row in 0..column.len() {
        let whole = Variant::at(metadata, value, row);
        metadatas.append_value(metadata.get(row).unwrap_or_default());
        if column.is_valid(row) && typed.is_valid(row) {
            values.append_value(joiner.join(whole, &fields, row)?);
        } else {
            values.append_value(whole.bytes());
        }
    }
    let columns: Vec<ArrayRef> = vec![Arc::new(values.finish()), Arc::new(metadatas.finish())];
    Ok(StructArray::try_new(variant_fields(), columns, column.nulls().cloned())?)
}

/// Puts one object after another together, in memory that it keeps.
#[derive(Default)]
struct Joiner {
    names: Names,
    writer: VariantWriter,
    /// Where the typed value of each field ends in what is written.
    ends: Vec<Option<usize>>,
    bytes: Vec<u8>,
}

impl Joiner {
    /// The object of a row; `rest` has the fields without a column.
    fn join(&mut self, rest: Variant<'_>, fields: &[Part<'_>], row: usize) -> Result<&[u8], ColumnError> {
        let Self { names, writer, ends, bytes } = self;
        names.list(rest, fields.iter().map(|field| field.name));
        writer.clear();
        ends.clear();
        for field in fields {
            let is_typed = field.write(row, writer);
            ends.push(is_typed.then(|| writer.value().len()));
        }
        let mut members = Vec::with_capacity(fields.len());
        let mut start = 0;
        for ((field, end), number) in fields.iter().zip(ends).zip(&names.numbers) {
            let typed = end.map(|end| &writer.value()[mem::replace(&mut start, end)..end]);
            let Some(bytes) = typed.or_else(|| field.value.get(row)) else { continue };
            members.push((number.ok_or_else(refused)?, bytes));
        }
        if let Some(rest) = Object::of(rest) {
            members.extend(rest.members);
        }
        bytes.clear();
        names.put_object(&mut members, bytes);
        Ok(bytes)
    }
}

fn refused() -> ColumnError {
    ColumnError::Input("not a column of VARIANTs".to_owned())
}

/// An object whose values lie one after another in the order in which its names were listed, as they are written here.
struct Object<'a> {
    of: Variant<'a>,
    /// The numbers of names, and values.
    members: Vec<(usize, &'a [u8])>,
}

impl<'a> Object<'a> {
    /// None of a value of another kind, or of another order.
    fn of(variant: Variant<'a>) -> Option<Self> {
        if !variant.is_object() {
            return None;
        }
        let mut members: Vec<_> =
            variant.numbered().map(|(number, member)| Some((number?, member.bytes()))).collect::<Option<_>>()?;
        members.sort_unstable_by_key(|(number, _)| *number);
        let mut end = 0;
        for (_, bytes) in members.iter_mut().rev() {
            let length = bytes.len().checked_sub(end)?;
            end = bytes.len();
            *bytes = &bytes[..length];
        }
        Some(Self { of: variant, members })
    }
}

/// The names that a metadata lists: the next row probably has the same.
#[derive(Default)]
struct Names {
    metadata: Vec<u8>,
    /// Where each is in the order of the names.
    ranks: Vec<usize>,
    /// Whether one is listed twice.
    is_repeated: bool,
    /// The number of each column's name, if it is listed.
    numbers: Vec<Option<usize>>,
    fields: Vec<Member>,
}

impl Names {
    /// Those of a variant, and of these columns.
    fn list<'a>(&mut self, of: Variant<'_>, columns: impl Iterator<Item = &'a str>) {
        if self.metadata == of.metadata() && !self.metadata.is_empty() {
            return;
        }
        self.metadata.clear();
        self.metadata.extend_from_slice(of.metadata());
        let mut ordered: Vec<_> = (0..of.names()).collect();
        ordered.sort_by_key(|number| of.name(*number));
        self.ranks.clear();
        self.ranks.resize(ordered.len(), 0);
        for (rank, number) in ordered.iter().enumerate() {
            self.ranks[*number] = rank;
        }
        self.is_repeated = ordered.windows(2).any(|pair| of.name(pair[0]) == of.name(pair[1]));
        self.numbers.clear();
        self.numbers.extend(columns.map(|column| {
            let at = ordered.partition_point(|number| of.name(*number) < column.as_bytes());
            ordered.get(at).copied().filter(|number| of.name(*number) == column.as_bytes())
        }));
    }

    /// Writes an object of members in any order, the names of which are listed.
    fn put_object(&mut self, members: &mut [(usize, &[u8])], out: &mut Vec<u8>) {
        members.sort_unstable_by_key(|(number, _)| *number);
        let mut end = 0;
        self.fields.clear();
        self.fields.extend(members.iter().map(|(number, bytes)| {
            let start = end;
            end += bytes.len();
            Member { name: low(*number), start: low(start), length: low(bytes.len()) }
        }));
        self.fields.sort_by_key(|field| self.ranks.get(field.name as usize));
        put_object_header(&self.fields, 0, end, out);
        for (_, bytes) in members {
            out.extend_from_slice(bytes);
        }
    }
}

/// Divides one object after another, in memory that it keeps.
#[derive(Default)]
struct Shredder {
    names: Names,
    writer: VariantWriter,
    bytes: Vec<u8>,
    has_rest: bool,
}

impl Shredder {
    /// Adds the fields of an object to columns, if it can be put together again; whether it was.
    fn shred(&mut self, variant: Variant<'_>, named: &[(String, Kind)], columns: &mut [FieldBuilder]) -> bool {
        let Some(Object { mut members, .. }) = Object::of(variant) else { return false };
        let Self { names, bytes, .. } = self;
        names.list(variant, named.iter().map(|(name, _)| name.as_str()));
        if names.is_repeated {
            return false;
        }
        let column_of = |number: usize| names.numbers.iter().position(|of| *of == Some(number));
        let (mut found, mut rest) = (vec![None; named.len()], Vec::new());
        for (number, bytes) in &members {
            match column_of(*number) {
                Some(at) => found[at] = Some(*bytes),
                None => rest.push((*number, *bytes)),
            }
        }
        bytes.clear();
        names.put_object(&mut members, bytes);
        if *bytes != variant.bytes() {
            return false;
        }
        for (column, bytes) in columns.iter_mut().zip(found) {
            column.push(bytes, &mut self.writer);
        }
        self.has_rest = !rest.is_empty();
        bytes.clear();
        names.put_object(&mut rest, bytes);
        true
    }

    /// The fields of the last object that have no column.
    fn rest(&self) -> Option<&[u8]> {
        self.has_rest.then_some(&self.bytes)
    }
}

/// The type of a column that a field becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Boolean,
    Integer,
    Float,
    Double,
    Text,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Boolean, Self::Integer, Self::Float, Self::Double, Self::Text];

    const fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Text => DataType::Utf8,
        }
    }

    /// That of a column with this value.
    fn of(bytes: &[u8]) -> Option<Self> {
        match alone(bytes)? {
            Value::Boolean(_) => Some(Self::Boolean),
            Value::Signed(_) => Some(Self::Integer),
            Value::Float(_) => Some(Self::Float),
            Value::Double(_) => Some(Self::Double),
            Value::Text(_) => Some(Self::Text),
            Value::Null
            | Value::Decimal(..)
            | Value::Timestamp(_)
            | Value::Binary(_)
            | Value::Array(_)
            | Value::Object(_) => None,
        }
    }
}

/// A field is a value of the type of its column, or else a VARIANT.
fn pair(kind: Kind) -> Fields {
    Fields::from(vec![Field::new("value", DataType::Binary, true), Field::new(TYPED, kind.data_type(), true)])
}

/// The columns of a field.
struct FieldBuilder {
    value: BinaryBuilder,
    typed: TypedBuilder,
}

enum TypedBuilder {
    Boolean(BooleanBuilder),
    Integer(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Text(StringBuilder),
}

impl FieldBuilder {
    fn new(kind: Kind) -> Self {
        let typed = match kind {
            Kind::Boolean => TypedBuilder::Boolean(BooleanBuilder::new()),
            Kind::Integer => TypedBuilder::Integer(Int64Builder::new()),
            Kind::Float => TypedBuilder::Float(Float32Builder::new()),
            Kind::Double => TypedBuilder::Double(Float64Builder::new()),
            Kind::Text => TypedBuilder::Text(StringBuilder::new()),
        };
        Self { value: BinaryBuilder::new(), typed }
    }

    fn push_none(&mut self) {
        self.value.append_null();
        self.typed.push_null();
    }

    fn push(&mut self, bytes: Option<&[u8]>, writer: &mut VariantWriter) {
        let Some(bytes) = bytes else { return self.push_none() };
        if self.typed.push(bytes, writer) {
            self.value.append_null();
        } else {
            self.typed.push_null();
            self.value.append_value(bytes);
        }
    }

    fn finish(mut self, kind: Kind) -> ArrayRef {
        let typed = match &mut self.typed {
            TypedBuilder::Boolean(column) => ArrayBuilder::finish(column),
            TypedBuilder::Integer(column) => ArrayBuilder::finish(column),
            TypedBuilder::Float(column) => ArrayBuilder::finish(column),
            TypedBuilder::Double(column) => ArrayBuilder::finish(column),
            TypedBuilder::Text(column) => ArrayBuilder::finish(column),
        };
        Arc::new(StructArray::new(pair(kind), vec![Arc::new(self.value.finish()), typed], None::<NullBuffer>))
    }
}

impl TypedBuilder {
    /// Adds a value of this type, which is written as these bytes again; whether it was.
    fn push(&mut self, bytes: &[u8], writer: &mut VariantWriter) -> bool {
        let Some(value) = alone(bytes) else { return false };
        writer.clear();
        if !writer.typed(&value) || writer.value() != bytes {
            return false;
        }
        match (self, value) {
            (Self::Boolean(column), Value::Boolean(value)) => column.append_value(value),
            (Self::Integer(column), Value::Signed(value)) => column.append_value(value),
            (Self::Float(column), Value::Float(value)) => column.append_value(value),
            (Self::Double(column), Value::Double(value)) => column.append_value(value),
            (Self::Text(column), Value::Text(value)) => column.append_value(value),
            _ => return false,
        }
        true
    }

    fn push_null(&mut self) {
        match self {
            Self::Boolean(column) => column.append_null(),
            Self::Integer(column) => column.append_null(),
            Self::Float(column) => column.append_null(),
            Self::Double(column) => column.append_null(),
            Self::Text(column) => column.append_null(),
        }
    }
}

/// The columns of a field that are read.
struct Part<'a> {
    name: &'a str,
    value: Binaries<'a>,
    typed: &'a ArrayRef,
    kind: Kind,
}

impl<'a> Part<'a> {
    fn of((name, column): (&'a str, &'a ArrayRef)) -> Result<Self, ColumnError> {
        let column = column.as_struct_opt().ok_or_else(refused)?;
        let part = |part| column.column_by_name(part).ok_or_else(refused);
        let typed = part(TYPED)?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.data_type() == *typed.data_type()).ok_or_else(refused)?;
        Ok(Self { name, value: Binaries::of("value", part("value")?)?, typed, kind })
    }

    /// Writes the value of a row if it has one of the type; whether it has.
    fn write(&self, row: usize, writer: &mut VariantWriter) -> bool {
        let typed = self.typed;
        typed.is_valid(row)
            && writer.typed(&match self.kind {
                Kind::Boolean => Value::Boolean(typed.as_boolean().value(row)),
                Kind::Integer => Value::Signed(typed.as_primitive::<Int64Type>().value(row)),
                Kind::Float => Value::Float(typed.as_primitive::<Float32Type>().value(row)),
                Kind::Double => Value::Double(typed.as_primitive::<Float64Type>().value(row)),
                Kind::Text => Value::Text(typed.as_string::<i32>().value(row)),
            })
    }
}
