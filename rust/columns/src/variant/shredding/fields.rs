//! The columns that fields become.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, StructArray,
    builder::{
        ArrayBuilder, BinaryBuilder, BooleanBuilder, Float32Builder, Float64Builder, Int64Builder, StringBuilder,
    },
};

use super::{Kind, pair};
use crate::variant::{
    VariantWriter,
    reading::{Value, alone},
};

/// The columns of a field.
pub(super) struct FieldBuilder {
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
    pub(super) fn new(kind: Kind) -> Self {
        let typed = match kind {
            Kind::Boolean => TypedBuilder::Boolean(BooleanBuilder::new()),
            Kind::Integer => TypedBuilder::Integer(Int64Builder::new()),
            Kind::Float => TypedBuilder::Float(Float32Builder::new()),
            Kind::Double => TypedBuilder::Double(Float64Builder::new()),
            Kind::Text => TypedBuilder::Text(StringBuilder::new()),
        };
        Self { value: BinaryBuilder::new(), typed }
    }

    pub(super) fn push_none(&mut self) {
        self.value.append_null();
        self.typed.push_null();
    }

    pub(super) fn push(&mut self, bytes: Option<&[u8]>, writer: &mut VariantWriter) {
        let Some(bytes) = bytes else { return self.push_none() };
        if self.typed.push(bytes, writer) {
            self.value.append_null();
        } else {
            self.typed.push_null();
            self.value.append_value(bytes);
        }
    }

    pub(super) fn finish(mut self, kind: Kind) -> ArrayRef {
        let typed = match &mut self.typed {
            TypedBuilder::Boolean(column) => ArrayBuilder::finish(column),
            TypedBuilder::Integer(column) => ArrayBuilder::finish(column),
            TypedBuilder::Float(column) => ArrayBuilder::finish(column),
            TypedBuilder::Double(column) => ArrayBuilder::finish(column),
            TypedBuilder::Text(column) => ArrayBuilder::finish(column),
        };
        Arc::new(StructArray::new(pair(kind), vec![Arc::new(self.value.finish()), typed], None))
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
