//! Objects that are compared: equal ones have equal bytes, whatever they are held in.

use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, builder::BinaryBuilder, cast::AsArray};
use serde_json::Value as Json;

use super::{
    parts,
    reading::{Value, Variant},
};
use crate::{ColumnError, input::texts};

/// Of each object in a column of VARIANTs or of JSON text: whether it has the member `flag`, and it is true, and bytes that
/// are equal for objects whose other members are; null where there is none.
///
/// # Errors
/// If the column is of another type, or a VARIANT cannot be read.
pub fn flagged_objects(name: &str, column: &ArrayRef, flag: &str) -> Result<(BooleanArray, BinaryArray), ColumnError> {
    let mut flags = Vec::with_capacity(column.len());
    let mut others = BinaryBuilder::new();
    let mut add = |value: Option<Value<'_>>| {
        let mut value = value;
        flags.push(value.as_mut().is_some_and(|value| take_flag(value, flag)));
        let mut bytes = Vec::new();
        if let Some(value) = &value {
            write(value, &mut bytes);
        }
        others.append_option(value.is_some().then_some(bytes));
    };
    if let Some(column) = column.as_struct_opt() {
        let (metadata, value) = parts(column)?;
        for row in 0..column.len() {
            let read = || Variant::at(metadata, value, row).read().map_err(ColumnError::Input);
            add(column.is_valid(row).then(read).transpose()?);
        }
    } else {
        for text in &texts(name, column)? {
            let json: Option<Json> = text.and_then(|text| serde_json::from_str(text).ok());
            // What is no JSON is a text like any other.
            add(json.as_ref().map(of_json).or_else(|| text.map(Value::Text)));
        }
    }
    Ok((flags.into(), others.finish()))
}

/// Takes a member out of an object; whether it is true.
fn take_flag(value: &mut Value<'_>, flag: &str) -> bool {
    let Value::Object(members) = value else { return false };
    let Some(at) = members.iter().position(|(name, _)| *name == flag) else { return false };
    matches!(members.remove(at).1, Value::Boolean(true) | Value::Text("true"))
}

fn of_json(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(is_true) => Value::Boolean(*is_true),
        Json::Number(number) => {
            number.as_i64().map_or_else(|| Value::Double(number.as_f64().unwrap_or(f64::NAN)), Value::Signed)
        }
        Json::String(text) => Value::Text(text),
        Json::Array(items) => Value::Array(items.iter().map(of_json).collect()),
        Json::Object(members) => {
            Value::Object(members.iter().map(|(name, member)| (name.as_str(), of_json(member))).collect())
        }
    }
}

/// Writes a value with its type, and members in the order of their names.
fn write(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0),
        Value::Boolean(is_true) => out.extend([1, u8::from(*is_true)]),
        Value::Signed(number) => fixed(2, &number.to_le_bytes(), out),
        Value::Decimal(digits, places) => {
            fixed(3, &digits.to_le_bytes(), out);
            out.push(*places);
        }
        Value::Float(number) => fixed(4, &number.to_le_bytes(), out),
        Value::Double(number) => fixed(5, &number.to_le_bytes(), out),
        Value::Timestamp(moment) => fixed(6, &moment.to_le_bytes(), out),
        Value::Text(text) => long(7, text.as_bytes(), out),
        Value::Binary(bytes) => long(8, bytes, out),
        Value::Array(items) => {
            fixed(9, &items.len().to_le_bytes(), out);
            for item in items {
                write(item, out);
            }
        }
        Value::Object(members) => {
            fixed(10, &members.len().to_le_bytes(), out);
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            for (name, member) in sorted {
                long(7, name.as_bytes(), out);
                write(member, out);
            }
        }
    }
}

fn fixed(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(bytes);
}

fn long(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    fixed(kind, &bytes.len().to_le_bytes(), out);
    out.extend(bytes);
}
