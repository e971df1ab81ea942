//! Shredded VARIANTs, put together again.

use std::{mem, sync::Arc};

use arrow_array::{
    Array, ArrayRef, StructArray,
    builder::BinaryBuilder,
    cast::AsArray,
    types::{Float32Type, Float64Type, Int64Type},
};

use super::{
    Kind, TYPED,
    object::{self, Names},
};
use crate::{
    ColumnError,
    input::Binaries,
    variant::{
        VariantWriter, parts,
        reading::{Value, Variant},
        variant_fields,
    },
};

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
        members.extend(object::members(rest).into_iter().flatten());
        bytes.clear();
        names.put_object(&mut members, bytes);
        Ok(bytes)
    }
}

fn refused() -> ColumnError {
    ColumnError::Input("not a column of VARIANTs".to_owned())
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
