//! VARIANTs shredded as Parquet specifies: fields of objects are columns, which a reader takes without the others.
//!
//! The same bytes can be put together again. A column with an object for which that is not so cannot be shredded: beside
//! others no object may stay whole.

mod fields;
mod joining;
mod object;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use arrow_array::{Array, ArrayRef, BinaryArray, StructArray, builder::BinaryBuilder};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::{DataType, Field, Fields};

use self::{fields::FieldBuilder, object::Names};
use super::{
    VariantWriter, parts,
    reading::{Value, Variant, alone},
};
use crate::ColumnError;

pub use joining::unshredded;

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
            let variant = Variant::at(metadata, value, row);
            let Some(members) = object::members(variant) else { continue };
            objects += 1;
            for (number, bytes) in members {
                if let Some(kind) = Kind::of(bytes) {
                    *counted.entry(variant.name(number)).or_default().entry(kind).or_default() += 1;
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
        fields.sort_by_key(|(count, ..)| Reverse(*count));
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
            objects.append(is_object);
            if is_object {
                let Some(rest) = shredder.shred(variant, &self.0, &mut fields) else { return Ok(None) };
                wholes.append_option((!rest.is_empty()).then_some(rest));
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

/// Divides one object after another, in memory that it keeps.
#[derive(Default)]
struct Shredder {
    names: Names,
    writer: VariantWriter,
    bytes: Vec<u8>,
}

impl Shredder {
    /// Adds the fields of an object to columns. Gives an object of those without one, nothing if there are none; None if it
    /// could not be put together again.
    fn shred(&mut self, variant: Variant<'_>, named: &[(String, Kind)], columns: &mut [FieldBuilder]) -> Option<&[u8]> {
        let mut members = object::members(variant)?;
        let Self { names, writer, bytes } = self;
        names.list(variant, named.iter().map(|(name, _)| name.as_str()));
        if names.is_repeated {
            return None;
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
            return None;
        }
        for (column, bytes) in columns.iter_mut().zip(found) {
            column.push(bytes, writer);
        }
        bytes.clear();
        if !rest.is_empty() {
            names.put_object(&mut rest, bytes);
        }
        Some(bytes)
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
