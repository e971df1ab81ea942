//! Payloads of numbers whose type each message says, by one of `NumPy`'s names.

use std::sync::Arc;

use arrow_array::{ArrayRef, types::Float64Type};
use trunkline_wire::{
    ErrorKind,
    msgpack::{Reader, Value},
};

use super::{
    Fault, PayloadKind,
    layout::{Number, Scalar},
};
use crate::{
    ColumnError,
    output::{Lists, Numbers},
    tags::TagMap,
};

/// The tag that says it.
const TAG: &[u8] = b"dtype";

const FAULT: ErrorKind = ErrorKind::BadHeader;

/// The largest integer up to which doubles have all of them.
const EXACT: u64 = 1 << 53;

/// The column, being built: lists of doubles.
#[derive(Debug, Default)]
pub(super) struct Column {
    lists: Lists,
    values: Numbers<Float64Type>,
    count: usize,
    /// How many integers were too large for a double.
    inexact: u64,
}

impl Column {
    /// The type of a frame's items, if it consists of such.
    pub(super) fn check(frame: &[u8], tags: Option<TagMap<'_>>) -> Result<Number, Fault> {
        let fault = |offset| Fault { kind: PayloadKind::Dtype, frame: 0, offset };
        let number = tags.and_then(of_tags).ok_or_else(|| fault(0))?;
        let left = frame.len() % number.scalar.width();
        if left == 0 { Ok(number) } else { Err(fault(frame.len() - left)) }
    }

    #[allow(clippy::cast_precision_loss)] // up to 2^53 nothing is lost
    pub(super) fn push(&mut self, frame: &[u8], number: Number) -> Result<(), ColumnError> {
        self.count += frame.len() / number.scalar.width();
        let Number { scalar, is_big } = number;
        match scalar {
            Scalar::I8 => self.all(frame, is_big, i8::from_le_bytes, f64::from),
            Scalar::U8 => self.all(frame, is_big, u8::from_le_bytes, f64::from),
            Scalar::Bool => self.all(frame, is_big, |[byte]: [u8; 1]| byte != 0, f64::from),
            Scalar::I16 => self.all(frame, is_big, i16::from_le_bytes, f64::from),
            Scalar::U16 => self.all(frame, is_big, u16::from_le_bytes, f64::from),
            Scalar::I32 => self.all(frame, is_big, i32::from_le_bytes, f64::from),
            Scalar::U32 => self.all(frame, is_big, u32::from_le_bytes, f64::from),
            Scalar::F16 => self.all(frame, is_big, u16::from_le_bytes, half),
            Scalar::F32 => self.all(frame, is_big, f32::from_le_bytes, f64::from),
            Scalar::F64 => self.all(frame, is_big, f64::from_le_bytes, f64::from),
            Scalar::I64 => self.exact(frame, is_big, i64::from_le_bytes, i64::unsigned_abs, |value| value as f64),
            Scalar::U64 => self.exact(frame, is_big, u64::from_le_bytes, |value| value, |value| value as f64),
        }
        self.lists.push(Some(self.count))
    }

    /// Appends all values, each of which a double has.
    fn all<const N: usize, T>(
        &mut self,
        frame: &[u8],
        is_big: bool,
        value: impl Fn([u8; N]) -> T,
        double: impl Fn(T) -> f64,
    ) {
        self.values.extend(items(frame, is_big).map(|bytes| double(value(bytes))));
    }

    /// Appends integers, and null for those that doubles do not have.
    fn exact<T: Copy>(
        &mut self,
        frame: &[u8],
        is_big: bool,
        value: impl Fn([u8; 8]) -> T,
        size: impl Fn(T) -> u64,
        double: impl Fn(T) -> f64,
    ) {
        for bytes in items(frame, is_big) {
            let value = value(bytes);
            let is_exact = size(value) <= EXACT;
            self.inexact += u64::from(!is_exact);
            self.values.push(is_exact.then(|| double(value)));
        }
    }

    pub(super) fn push_null(&mut self) -> Result<(), ColumnError> {
        self.lists.push(None)
    }

    /// The bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.lists.bytes() + size_of::<f64>() * self.count
    }

    pub(super) const fn inexact(&self) -> u64 {
        self.inexact
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ColumnError> {
        let values = Arc::new(self.values.finish()?);
        self.lists.finish(values)
    }
}

/// The items of a frame, the least significant byte first.
fn items<const N: usize>(frame: &[u8], is_big: bool) -> impl Iterator<Item = [u8; N]> {
    let items = frame.chunks_exact(N).map(|item| item.first_chunk().copied().unwrap_or([0; N]));
    items.map(move |mut item: [u8; N]| {
        if is_big {
            item.reverse();
        }
        item
    })
}

/// A number of half precision.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    }
}

/// The type that the tags of a message say; of equal names the last.
fn of_tags(tags: TagMap<'_>) -> Option<Number> {
    let mut reader = Reader::new(tags.bytes, FAULT);
    let mut found = None;
    for _ in 0..reader.map(FAULT).ok()? {
        if reader.string_bytes(FAULT).ok()? == TAG {
            let here = reader.clone().value_bytes().ok()?;
            found = if let Value::String(name) = here { str::from_utf8(name).ok().and_then(number) } else { None };
        }
        reader.pass().ok()?;
    }
    found
}

/// The type with a name of `NumPy`'s: `<u2`, `uint16`, `float32`. A shape before it is left out.
pub(super) fn number(name: &str) -> Option<Number> {
    let name = name.trim();
    let name = name.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(name, |(_, name)| name);
    let is_big = name.starts_with(['>', '!']);
    let plain = name.trim_start_matches(['<', '>', '=', '|', '!']);
    let (kind, bits) = plain.split_at(plain.find(|c: char| c.is_ascii_digit()).unwrap_or(plain.len()));
    let scalar = match (kind, bits) {
        ("i", "1") | ("int", "8") | ("b" | "byte", "") => Scalar::I8,
        ("i", "2") | ("int", "16") | ("h" | "short", "") => Scalar::I16,
        ("i", "4") | ("int", "32") | ("i" | "intc", "") => Scalar::I32,
        ("i", "8") | ("int", "64") | ("int" | "l" | "q" | "long" | "longlong", "") => Scalar::I64,
        ("u", "1") | ("uint", "8") | ("B" | "ubyte", "") => Scalar::U8,
        ("u", "2") | ("uint", "16") | ("H" | "ushort", "") => Scalar::U16,
        ("u", "4") | ("uint", "32") | ("I" | "uintc", "") => Scalar::U32,
        ("u", "8") | ("uint", "64") | ("uint" | "L" | "Q" | "ulong" | "ulonglong", "") => Scalar::U64,
        ("f", "2") | ("float", "16") | ("e" | "half", "") => Scalar::F16,
        ("f", "4") | ("float", "32") | ("f" | "single", "") => Scalar::F32,
        ("f", "8") | ("float", "64") | ("d" | "double" | "float", "") => Scalar::F64,
        ("b", "1") | ("?" | "bool", "") => Scalar::Bool,
        _ => return None,
    };
    Some(Number { scalar, is_big })
}
