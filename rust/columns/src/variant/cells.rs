//! Columns of a row in one VARIANT, those that hold variants among them.

use arrow_array::{
    Array, ArrayRef,
    cast::AsArray,
    types::{Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType},
};
use arrow_schema::DataType;

use super::{
    ARRAY, BINARY, DECIMAL4, DECIMAL8, DECIMAL16, DOUBLE, FALSE, FLOAT, INT8, INT16, INT32, INT64, NULL, OBJECT,
    SHORT_STRING, STRING, TIMESTAMP, TRUE, VariantWriter, is_variant,
};
use crate::limits::Unwritten;

impl VariantWriter {
    /// Writes an object of the columns that have something in a row, by their names.
    pub(crate) fn cells(&mut self, columns: &[(&str, &ArrayRef)], row: usize) -> Result<(), Unwritten> {
        let (open, start) = (self.fields.len(), self.value.len());
        for (name, column) in columns.iter().filter(|(_, column)| column.is_valid(row)) {
            self.field(name.as_bytes(), |this| this.cell(column, row))?;
        }
        self.close_object(start, open);
        Ok(())
    }

    #[allow(clippy::wildcard_enum_match_arm)] // no column that is decoded has another type
    fn cell(&mut self, column: &ArrayRef, row: usize) -> Result<(), Unwritten> {
        match column.data_type() {
            DataType::Boolean => self.primitive(if column.as_boolean().value(row) { TRUE } else { FALSE }, []),
            DataType::Int32 => self.integer(column.as_primitive::<Int32Type>().value(row).into()),
            DataType::Int64 => self.integer(column.as_primitive::<Int64Type>().value(row)),
            DataType::Decimal128(..) => self.decimal(column.as_primitive::<Decimal128Type>().value(row)),
            DataType::Timestamp(..) => {
                let micros = column.as_primitive::<TimestampMicrosecondType>().value(row);
                self.primitive(TIMESTAMP, micros.to_le_bytes());
            }
            DataType::Utf8 => self.string(column.as_string::<i32>().value(row).as_bytes())?,
            DataType::Binary => self.bytes(BINARY, column.as_binary::<i32>().value(row))?,
            DataType::List(_) => {
                let members = column.as_list::<i32>().value(row);
                let (open, start) = (self.fields.len(), self.value.len());
                for at in 0..members.len() {
                    self.member(0, |this| this.cell(&members, at))?;
                }
                self.close_array(start, open);
            }
            DataType::Map(..) => {
                let entries = column.as_map().value(row);
                let names = entries.column(0).as_string::<i32>();
                let (open, start) = (self.fields.len(), self.value.len());
                for at in 0..entries.len() {
                    self.field(names.value(at).as_bytes(), |this| this.cell(entries.column(1), at))?;
                }
                self.close_object(start, open);
            }
            DataType::Struct(fields) if is_variant(fields) => {
                let parts = column.as_struct();
                let [value, metadata] =
                    ["value", "metadata"].map(|name| parts.column_by_name(name).map(AsArray::as_binary::<i32>));
                if let (Some(value), Some(metadata)) = (value, metadata) {
                    self.variant(&Variant::of(metadata.value(row)), value.value(row))?;
                }
            }
            _ => self.primitive(NULL, []),
        }
        Ok(())
    }

    /// Writes the value of another variant.
    fn variant(&mut self, of: &Variant<'_>, value: &[u8]) -> Result<(), Unwritten> {
        let first = value.first().copied().unwrap_or_default();
        match first & 3 {
            OBJECT | ARRAY => {
                let (open, start) = (self.fields.len(), self.value.len());
                for (name, member) in of.members(value) {
                    match name {
                        Some(name) => self.field(name, |this| this.variant(of, member))?,
                        None => self.member(0, |this| this.variant(of, member))?,
                    }
                }
                if first & 3 == OBJECT { self.close_object(start, open) } else { self.close_array(start, open) }
            }
            _ => {
                let whole = &value[..length(value).min(value.len())];
                if self.is_hopeless(whole.len()) {
                    return Err(Unwritten::TooLarge);
                }
                self.value.extend_from_slice(whole);
            }
        }
        Ok(())
    }
}

/// A variant that was written here, being read.
struct Variant<'a> {
    metadata: &'a [u8],
}

impl<'a> Variant<'a> {
    const fn of(metadata: &'a [u8]) -> Self {
        Self { metadata }
    }

    /// The name of a number.
    fn name(&self, number: usize) -> &'a [u8] {
        let width = usize::from(self.metadata.first().copied().unwrap_or_default() >> 6) + 1;
        let count = read(self.metadata, 1, width);
        let offset = |at: usize| read(self.metadata, 1 + width * (1 + at), width);
        let text = 1 + width * (count + 2);
        self.metadata.get(text + offset(number)..text + offset(number + 1)).unwrap_or_default()
    }

    /// The members of an object, with their names, or of an array. A member goes on to the end of all: it says itself how long
    /// it is.
    fn members<'v>(&self, value: &'v [u8]) -> impl Iterator<Item = (Option<&'a [u8]>, &'v [u8])> {
        let first = value.first().copied().unwrap_or_default();
        let is_object = first & 3 == OBJECT;
        let offsets = usize::from(first >> 2 & 3) + 1;
        let ids = if is_object { usize::from(first >> 4 & 3) + 1 } else { 0 };
        let is_large = first >> (if is_object { 6 } else { 4 }) & 1 == 1;
        let counted = if is_large { 4 } else { 1 };
        let count = read(value, 1, counted);
        let at_offsets = 1 + counted + ids * count;
        let data = at_offsets + offsets * (count + 1);
        (0..count).map(move |at| {
            let name = is_object.then(|| self.name(read(value, 1 + counted + ids * at, ids)));
            let start = data + read(value, at_offsets + offsets * at, offsets);
            (name, value.get(start..).unwrap_or_default())
        })
    }
}

/// How long a value is that has no members.
fn length(value: &[u8]) -> usize {
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
        BINARY | STRING => 4 + read(value, 1, 4),
        _ => 0,
    }
}

/// A number of so many bytes; nothing beyond the end.
fn read(bytes: &[u8], at: usize, width: usize) -> usize {
    let found = bytes.get(at..at + width).unwrap_or_default();
    found.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}
