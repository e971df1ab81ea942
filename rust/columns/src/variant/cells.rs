//! The columns of a row in one VARIANT, including columns of variants.

use arrow_array::{
    Array, ArrayRef,
    cast::AsArray,
    types::{Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType},
};
use arrow_schema::DataType;

use super::{
    ARRAY, BINARY, FALSE, NULL, OBJECT, TIMESTAMP, TRUE, VariantWriter, is_variant,
    reading::{Variant, length},
};
use crate::limits::Unwritten;

impl VariantWriter {
    /// Writes an object of the columns that have a value in a row, by their names.
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
                    self.variant(Variant::of(metadata.value(row), value.value(row)))?;
                }
            }
            _ => self.primitive(NULL, []),
        }
        Ok(())
    }

    /// Writes another variant.
    fn variant(&mut self, other: Variant<'_>) -> Result<(), Unwritten> {
        let value = other.bytes();
        let kind = value.first().copied().unwrap_or_default() & 3;
        if !matches!(kind, OBJECT | ARRAY) {
            let whole = &value[..length(value).min(value.len())];
            if self.is_hopeless(whole.len()) {
                return Err(Unwritten::TooLarge);
            }
            self.value.extend_from_slice(whole);
            return Ok(());
        }
        let (open, start) = (self.fields.len(), self.value.len());
        for (name, member) in other.members() {
            match name {
                Some(name) => self.field(name, |this| this.variant(member))?,
                None => self.member(0, |this| this.variant(member))?,
            }
        }
        if kind == OBJECT {
            self.close_object(start, open);
        } else {
            self.close_array(start, open);
        }
        Ok(())
    }
}
