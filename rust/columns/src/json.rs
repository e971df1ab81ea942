//! MessagePack, field tables and JSON as JSON text: equal to Spark's `to_json` of the VARIANT of the same value, with
//! its fields in their original order.

use std::str;

use arrow_array::temporal_conversions::{timestamp_s_to_datetime, timestamp_us_to_datetime};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use trunkline_wire::{
    ErrorKind, Fault,
    msgpack::{Reader, Value},
};

use crate::{
    item::{Decimal, Fields, Item},
    limits::{MAX_BYTES, Unwritten},
    variant::reading::Value as Variant,
};

/// Writes one text after another.
#[derive(Debug, Default)]
pub(crate) struct JsonWriter {
    text: Vec<u8>,
}

impl JsonWriter {
    /// The text written since the last [`clear`](Self::clear).
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
    }

    /// Writes an object of the `pairs` that `reader` points to, except those whose value `claim` reads itself.
    pub(crate) fn tags<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        pairs: u32,
        mut claim: impl FnMut(&[u8], &mut Reader<'a>) -> Result<bool, Fault>,
    ) -> Result<(), Unwritten> {
        let repeated = repeated(&string_keys(reader.clone(), pairs)?.unwrap_or_default());
        self.text.push(b'{');
        for at in 0..pairs as usize {
            let name = reader.string_bytes(ErrorKind::BadMapKey)?;
            if claim(name, reader)? {
                continue;
            }
            // Of equal names the last is used.
            if repeated.get(at).copied().unwrap_or(false) {
                reader.pass()?;
                continue;
            }
            self.next();
            self.string(name)?;
            self.text.push(b':');
            self.value(reader)?;
        }
        self.text.push(b'}');
        Ok(())
    }

    /// Writes an object of these fields, except those that `claim` keeps.
    pub(crate) fn fields<'a>(
        &mut self,
        fields: Fields<'a>,
        mut claim: impl FnMut(&str, Item<'a>) -> Option<Item<'a>>,
    ) -> Result<(), Unwritten> {
        self.text.push(b'{');
        for (name, item) in fields {
            if let Some(item) = claim(name, item) {
                self.next();
                self.plain(&name);
                self.text.push(b':');
                self.item(item)?;
            }
        }
        self.text.push(b'}');
        Ok(())
    }

    pub(crate) fn item(&mut self, item: Item<'_>) -> Result<(), Unwritten> {
        match item {
            Item::Null => self.text.extend_from_slice(b"null"),
            Item::Boolean(value) => self.plain(&value),
            Item::Signed(value) => self.plain(&value),
            Item::Unsigned(value) => self.plain(&value),
            Item::Double(value) if value.is_finite() => self.plain(&value),
            Item::Double(value) => self.not_finite(value),
            Item::Decimal(value) => self.places(value),
            Item::Text(value) => self.plain(&value),
            Item::Binary(value) => self.base64(value),
            Item::Timestamp(seconds) => {
                let moment = timestamp_s_to_datetime(seconds).map(|moment| format!("{moment}+00:00"));
                self.plain(&moment);
            }
            Item::Array(items) => {
                self.text.push(b'[');
                for item in items {
                    self.next();
                    self.item(item)?;
                }
                self.text.push(b']');
            }
            Item::Object(fields) => self.fields(fields, |_, item| Some(item))?,
        }
        if self.text.len() > MAX_BYTES { Err(Unwritten::TooLarge) } else { Ok(()) }
    }

    /// The same of a VARIANT.
    pub(crate) fn variant(&mut self, value: &Variant<'_>) -> Result<(), Unwritten> {
        match value {
            Variant::Null => self.text.extend_from_slice(b"null"),
            Variant::Boolean(value) => self.plain(value),
            Variant::Signed(value) => self.plain(value),
            Variant::Decimal(digits, places) => self.decimal(*digits, *places),
            Variant::Float(value) if value.is_finite() => self.plain(value),
            Variant::Float(value) => self.not_finite((*value).into()),
            Variant::Double(value) if value.is_finite() => self.plain(value),
            Variant::Double(value) => self.not_finite(*value),
            Variant::Timestamp(micros) => {
                self.plain(&timestamp_us_to_datetime(*micros).map(|moment| format!("{moment}+00:00")));
            }
            Variant::Text(value) => self.plain(value),
            Variant::Binary(value) => self.base64(value),
            Variant::Array(members) => {
                self.text.push(b'[');
                for member in members {
                    self.next();
                    self.variant(member)?;
                }
                self.text.push(b']');
            }
            Variant::Object(members) => {
                self.text.push(b'{');
                for (name, member) in members {
                    self.next();
                    self.plain(name);
                    self.text.push(b':');
                    self.variant(member)?;
                }
                self.text.push(b'}');
            }
        }
        if self.text.len() > MAX_BYTES { Err(Unwritten::TooLarge) } else { Ok(()) }
    }

    fn places(&mut self, Decimal { places, digits }: Decimal) {
        if places > 38 {
            return self.plain(&Decimal { places, digits }.to_double());
        }
        self.decimal(digits.into(), places);
    }

    /// A number with its decimal places, without zeros at its end.
    fn decimal(&mut self, mut digits: i128, mut places: u8) {
        while places > 0 && digits % 10 == 0 {
            (places, digits) = (places - 1, digits / 10);
        }
        let (places, all) = (usize::from(places), digits.unsigned_abs().to_string());
        let all = format!("{all:0>width$}", width = places + 1);
        let (whole, rest) = all.split_at(all.len() - places);
        let (sign, point) = (if digits < 0 { "-" } else { "" }, if places > 0 { "." } else { "" });
        self.text.extend_from_slice(format!("{sign}{whole}{point}{rest}").as_bytes());
    }

    pub(crate) fn value(&mut self, reader: &mut Reader<'_>) -> Result<(), Unwritten> {
        match value_of(reader)? {
            Value::Nil => self.text.extend_from_slice(b"null"),
            Value::Boolean(value) => self.plain(&value),
            Value::Signed(value) => self.plain(&value),
            Value::Unsigned(value) => self.plain(&value),
            Value::F32(value) if value.is_finite() => self.plain(&value),
            Value::F32(value) => self.not_finite(value.into()),
            Value::F64(value) if value.is_finite() => self.plain(&value),
            Value::F64(value) => self.not_finite(value),
            Value::String(value) => self.string(value)?,
            Value::Binary(value) => self.base64(value),
            Value::Timestamp(value) => self.plain(&value.nanos()),
            Value::Ext(code, data) => {
                self.text.extend_from_slice(br#"{"data":"#);
                self.base64(data);
                self.text.extend_from_slice(br#","ext":"#);
                self.plain(&code);
                self.text.push(b'}');
            }
            Value::Array(members) => {
                self.text.push(b'[');
                for _ in 0..members {
                    self.next();
                    self.value(reader)?;
                }
                self.text.push(b']');
            }
            Value::Map(pairs) => self.map(reader, pairs)?,
        }
        if self.text.len() > MAX_BYTES { Err(Unwritten::TooLarge) } else { Ok(()) }
    }

    /// An object, or an array of `{key, value}` if a key is no string.
    fn map(&mut self, reader: &mut Reader<'_>, pairs: u32) -> Result<(), Unwritten> {
        if string_keys(reader.clone(), pairs)?.is_some() {
            return self.tags(reader, pairs, |_, _| Ok(false));
        }
        self.text.push(b'[');
        for _ in 0..pairs {
            self.next();
            self.text.extend_from_slice(br#"{"key":"#);
            self.value(reader)?;
            self.text.extend_from_slice(br#","value":"#);
            self.value(reader)?;
            self.text.push(b'}');
        }
        self.text.push(b']');
        Ok(())
    }

    /// Separates the next item from those before it.
    fn next(&mut self) {
        if !matches!(self.text.last(), Some(b'{' | b'[')) {
            self.text.push(b',');
        }
    }

    fn plain(&mut self, value: &impl Serialize) {
        // Numbers and text can always be written to memory.
        let _ = serde_json::to_writer(&mut self.text, value);
    }

    fn string(&mut self, value: &[u8]) -> Result<(), Fault> {
        let text = str::from_utf8(value).map_err(|_| Fault { kind: ErrorKind::BadHeader, offset: 0 })?;
        self.plain(&text);
        Ok(())
    }

    fn base64(&mut self, value: &[u8]) {
        self.plain(&STANDARD.encode(value));
    }

    /// JSON has no such numbers.
    fn not_finite(&mut self, value: f64) {
        let name = if value.is_nan() { "NaN" } else { ["Infinity", "-Infinity"][usize::from(value < 0.0)] };
        self.plain(&name);
    }
}

#[inline(never)] // so that `value_bytes` stays inlined in its hotter callers
fn value_of<'a>(reader: &mut Reader<'a>) -> Result<Value<'a, &'a [u8]>, Fault> {
    reader.value_bytes()
}

/// The keys of a map, if they are all strings.
fn string_keys(mut reader: Reader<'_>, pairs: u32) -> Result<Option<Vec<&[u8]>>, Fault> {
    let mut keys = Vec::new();
    for _ in 0..pairs {
        let Ok(key) = reader.string_bytes(ErrorKind::BadMapKey) else { return Ok(None) };
        keys.push(key);
        reader.pass()?;
    }
    Ok(Some(keys))
}

/// Which keys are repeated later; empty if none is.
fn repeated(keys: &[&[u8]]) -> Vec<bool> {
    let mut ordered: Vec<_> = (0..keys.len()).collect();
    ordered.sort_unstable_by_key(|&at| (keys[at], at));
    let mut repeated = Vec::new();
    for pair in ordered.windows(2) {
        if keys[pair[0]] == keys[pair[1]] {
            repeated.resize(keys.len(), false);
            repeated[pair[0]] = true;
        }
    }
    repeated
}
