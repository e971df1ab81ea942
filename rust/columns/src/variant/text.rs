//! VARIANTs as JSON text.

use arrow_array::{Array, StringArray, StructArray, cast::AsArray};

use super::reading::Variant;
use crate::{ColumnError, json::JsonWriter};

/// A column of VARIANTs as JSON, as a column of JSON has it but for the order of fields; null where there is none.
///
/// # Errors
/// If it is no column of VARIANTs, or one cannot be read.
pub fn variant_json(column: &StructArray) -> Result<StringArray, ColumnError> {
    let part = |name| {
        let part = column.column_by_name(name).and_then(|part| part.as_binary_opt::<i32>());
        part.ok_or_else(|| ColumnError::Input("not a column of VARIANTs".to_owned()))
    };
    let (value, metadata) = (part("value")?, part("metadata")?);
    let mut writer = JsonWriter::default();
    let text = |row| {
        if column.is_null(row) {
            return Ok(None);
        }
        writer.clear();
        let read = Variant::of(metadata.value(row), value.value(row)).read().map_err(ColumnError::Input)?;
        writer.variant(&read).map_err(|_| ColumnError::TooLarge)?;
        Ok(Some(String::from_utf8_lossy(writer.text()).into_owned()))
    };
    (0..column.len()).map(text).collect()
}
