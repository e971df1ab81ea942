//! Column types in Spark's DDL.

use std::fmt::Write;

use arrow_schema::{DataType, Fields};

use crate::variant::is_variant;

/// `fields` as a schema in Spark's DDL, as `StructType.fromDDL` and `mapInArrow` read it.
pub fn ddl(fields: &Fields) -> String {
    let mut out = String::new();
    write_fields(&mut out, fields, " ");
    out
}

fn write_fields(out: &mut String, fields: &Fields, between: &str) {
    for (at, field) in fields.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let name = field.name().replace('`', "``");
        // Writing to a string cannot fail.
        let _ = write!(out, "{comma}`{name}`{between}");
        write_type(out, field.data_type());
    }
}

#[allow(clippy::wildcard_enum_match_arm)] // Arrow has forty types, our columns fifteen
fn write_type(out: &mut String, data_type: &DataType) {
    match data_type {
        DataType::Struct(fields) if is_variant(fields) => out.push_str("VARIANT"),
        DataType::Struct(fields) => {
            out.push_str("STRUCT<");
            write_fields(out, fields, ": ");
            out.push('>');
        }
        DataType::List(element) => {
            out.push_str("ARRAY<");
            write_type(out, element.data_type());
            out.push('>');
        }
        // The keys and values of a map are the two fields of its list's items.
        DataType::Map(entries, _) => {
            out.push_str("MAP<");
            if let DataType::Struct(pair) = entries.data_type() {
                for (at, field) in pair.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { ", " });
                    write_type(out, field.data_type());
                }
            }
            out.push('>');
        }
        DataType::Boolean => out.push_str("BOOLEAN"),
        DataType::Int8 => out.push_str("TINYINT"),
        DataType::Int16 => out.push_str("SMALLINT"),
        DataType::Int32 => out.push_str("INT"),
        DataType::Int64 => out.push_str("BIGINT"),
        DataType::Float32 => out.push_str("FLOAT"),
        DataType::Float64 => out.push_str("DOUBLE"),
        DataType::Decimal128(precision, scale) => {
            let _ = write!(out, "DECIMAL({precision},{scale})");
        }
        DataType::Utf8 => out.push_str("STRING"),
        DataType::Binary => out.push_str("BINARY"),
        DataType::Date32 => out.push_str("DATE"),
        DataType::Null => out.push_str("VOID"),
        // What TIMESTAMP stands for is a setting of the session.
        DataType::Timestamp(..) => out.push_str("TIMESTAMP_LTZ"),
        // None of our columns; Spark reports what it cannot read.
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;
    use crate::{options::timestamp_type, variant::variant_field};

    #[test]
    fn types_are_written_as_spark_reads_them() {
        let inner = Fields::from(vec![Field::new("a`b", DataType::Int64, true)]);
        let list = DataType::List(Arc::new(Field::new("element", DataType::Struct(inner), true)));
        let fields = Fields::from(vec![
            Field::new("record", DataType::Int32, true),
            Field::new("timestamp", timestamp_type(), true),
            variant_field("tags"),
            Field::new("records", list, true),
        ]);
        assert_eq!(
            ddl(&fields),
            "`record` INT, `timestamp` TIMESTAMP_LTZ, `tags` VARIANT, `records` ARRAY<STRUCT<`a``b`: BIGINT>>"
        );
    }
}
