//! The values of maps other than MessagePack: of MTL's field tables, and of JSON.

use std::{slice, str};

use serde_json::{Value as Json, map};
use trunkline_wire::mtl::{
    control,
    table::{Array, Table, Value},
};

use crate::limits::SECONDS;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Item<'a> {
    Null,
    Boolean(bool),
    Signed(i64),
    Unsigned(u64),
    Double(f64),
    Decimal(Decimal),
    Text(&'a str),
    Binary(&'a [u8]),
    /// Seconds since 1970, of a year up to 9999.
    Timestamp(i64),
    Array(Items<'a>),
    Object(Fields<'a>),
}

/// Digits, and the number of decimal places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal {
    pub(crate) places: u8,
    pub(crate) digits: i32,
}

impl Decimal {
    /// The nearest double.
    pub(crate) fn to_double(self) -> f64 {
        // Division by an exact power of ten rounds once; parsing text works for all.
        format!("{}e-{}", self.digits, self.places).parse().unwrap_or(f64::NAN)
    }
}

/// The values of an array.
#[derive(Clone, Debug)]
pub(crate) enum Items<'a> {
    Table(Array<'a>),
    Json(slice::Iter<'a, Json>),
}

/// The fields of a map, with distinct names.
#[derive(Clone, Debug)]
pub(crate) enum Fields<'a> {
    Table(Table<'a>),
    Json(map::Iter<'a>),
}

impl<'a> Fields<'a> {
    /// The fields of a table that the codec has checked, so that it has no fault; None if it was not checked.
    pub(crate) fn of_table(bytes: &'a [u8]) -> Option<Self> {
        Table::new(bytes).ok().map(Self::Table)
    }

    pub(crate) fn of_json(object: &'a control::Json) -> Self {
        Self::Json(object.iter())
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, Item<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Table(table) => table.next_field().ok().flatten().map(|(name, value)| (name, Item::of_table(value))),
            Self::Json(fields) => fields.next().map(|(name, value)| (name.as_str(), Item::of_json(value))),
        }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Table(array) => array.next_value().ok().flatten().map(Item::of_table),
            Self::Json(values) => values.next().map(Item::of_json),
        }
    }
}

impl<'a> Item<'a> {
    #[inline]
    fn of_table(value: Value<'a>) -> Self {
        match value {
            Value::Bool(value) => Self::Boolean(value),
            Value::Int(value) => Self::Signed(value),
            Value::Float(value) => Self::Double(value),
            Value::Decimal(places, digits) => Self::Decimal(Decimal { places, digits }),
            // As in Python.
            Value::Text(text) => str::from_utf8(text).map_or(Self::Binary(text), Self::Text),
            Value::Bytes(bytes) => Self::Binary(bytes),
            Value::Time(seconds) => match i64::try_from(seconds) {
                Ok(seconds) if SECONDS.contains(&seconds) => Self::Timestamp(seconds),
                Ok(seconds) => Self::Signed(seconds),
                Err(_) => Self::Unsigned(seconds),
            },
            Value::Void => Self::Null,
            Value::Table(table) => Self::Object(Fields::Table(table)),
            Value::Array(array) => Self::Array(Items::Table(array)),
        }
    }

    #[inline]
    pub(crate) fn of_json(value: &'a Json) -> Self {
        match value {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Boolean(*value),
            Json::Number(value) => match (value.as_i64(), value.as_u64()) {
                (Some(value), _) => Self::Signed(value),
                (None, Some(value)) => Self::Unsigned(value),
                (None, None) => Self::Double(value.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(text),
            Json::Array(values) => Self::Array(Items::Json(values.iter())),
            Json::Object(fields) => Self::Object(Fields::of_json(fields)),
        }
    }
}
