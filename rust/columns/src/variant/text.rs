//! VARIANTs as JSON text.

use arrow_array::{Array, StringArray, StructArray};

use super::{parts, reading::Variant};
use crate::{ColumnError, json::JsonWriter};

/// A column of VARIANTs as JSON, as a column of JSON has it but for the order of fields; null where there is none.
///
/// # Errors
/// If it is no column of VARIANTs, or one cannot be read.
pub fn variant_json(column: &StructArray) -> Result<StringArray, ColumnError> {
    let (metadata, value) = parts(column)?;
    let mut writer = JsonWriter::default();
    let text = |row| {
        if column.is_null(row) {
            return Ok(None);
        }
        writer.clear();
        let read = Variant::at(metadata, value, row).read().map_err(ColumnError::Input)?;
        writer.variant(&read).map_err(|_| ColumnError::TooLarge)?;
        Ok(Some(String::from_utf8_lossy(writer.text()).into_owned()))
    };
    (0..column.len()).map(text).collect()
}
