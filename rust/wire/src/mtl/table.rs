//! Field tables in `RabbitMQ`'s dialect of AMQP (MTL-60): every letter is read, few are written.
//!
//! Big-endian. A table is its length in 4 bytes, then names (a byte of length, text), each with a value: a letter and
//! its content. Offsets of faults are in the given bytes.

use std::collections::HashSet;

use bytes::{BufMut, BytesMut};
use smallvec::SmallVec;

use crate::{ErrorKind, Fault};

/// The depth of nested tables and arrays, the outermost table included.
pub const DEPTH: usize = 16;

/// The longest name, in bytes.
pub const NAME: usize = 128;

/// Values in a table, nested ones included: each becomes an object of some 60 bytes when read, even if it takes one
/// here.
pub const VALUES: usize = 1_000_000;

/// Up to this many names, each is compared with all others.
const FEW: usize = 16;

/// Bytes that most tables fit into.
const ROOM: usize = 256;

/// A value in a table.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `t`.
    Bool(bool),
    /// `b B s U u I i l L`.
    Int(i64),
    /// `f d`.
    Float(f64),
    /// `D`: the number of decimal places, and the digits.
    Decimal(u8, i32),
    /// `S`: text, but not always valid UTF-8.
    Text(&'a [u8]),
    /// `x`.
    Bytes(&'a [u8]),
    /// `T`: seconds since 1970.
    Time(u64),
    /// `V`.
    Void,
    /// `F`.
    Table(Table<'a>),
    /// `A`.
    Array(Array<'a>),
}

/// What a table or an array is read from.
#[derive(Clone, Debug)]
struct Source<'a> {
    left: &'a [u8],
    /// Where the remaining bytes end, in the given bytes.
    end: usize,
    depth: usize,
}

const fn bad<T>(offset: usize) -> Result<T, Fault> {
    Err(Fault { kind: ErrorKind::BadFieldTable, offset })
}

impl<'a> Source<'a> {
    /// Where the remaining bytes begin.
    #[inline]
    fn at(&self) -> usize {
        self.end - self.left.len()
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let Some((taken, left)) = self.left.split_at_checked(count) else { return bad(self.at()) };
        self.left = left;
        Ok(taken)
    }

    #[inline]
    fn number<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let Some((number, left)) = self.left.split_first_chunk() else { return bad(self.at()) };
        self.left = left;
        Ok(*number)
    }

    #[inline]
    fn long(&mut self) -> Result<&'a [u8], Fault> {
        let length = u32::from_be_bytes(self.number()?);
        self.take(length as usize)
    }

    /// The content, to be read later.
    #[inline]
    fn inner(&mut self, start: usize) -> Result<Self, Fault> {
        let depth = self.depth + 1;
        if depth > DEPTH {
            return bad(start);
        }
        Ok(Self { left: self.long()?, end: self.at(), depth })
    }

    #[allow(clippy::inline_always)] // passing a value on would cost more than reading it
    #[inline(always)]
    fn value(&mut self) -> Result<Value<'a>, Fault> {
        let start = self.at();
        let [letter] = self.number()?;
        Ok(match letter {
            b't' => match self.number()? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return bad(start + 1),
            },
            b'b' => Value::Int(i8::from_be_bytes(self.number()?).into()),
            b'B' => Value::Int(u8::from_be_bytes(self.number()?).into()),
            b's' | b'U' => Value::Int(i16::from_be_bytes(self.number()?).into()),
            b'u' => Value::Int(u16::from_be_bytes(self.number()?).into()),
            b'I' => Value::Int(i32::from_be_bytes(self.number()?).into()),
            b'i' => Value::Int(u32::from_be_bytes(self.number()?).into()),
            b'l' | b'L' => Value::Int(i64::from_be_bytes(self.number()?)),
            b'f' => Value::Float(f32::from_be_bytes(self.number()?).into()),
            b'd' => Value::Float(f64::from_be_bytes(self.number()?)),
            b'D' => {
                let [places] = self.number()?;
                Value::Decimal(places, i32::from_be_bytes(self.number()?))
            }
            b'S' => Value::Text(self.long()?),
            b'x' => Value::Bytes(self.long()?),
            b'T' => Value::Time(u64::from_be_bytes(self.number()?)),
            b'V' => Value::Void,
            b'F' => Value::Table(Table { source: self.inner(start)? }),
            b'A' => Value::Array(Array { source: self.inner(start)? }),
            _ => return bad(start),
        })
    }
}

/// The fields of a table, in their order.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    source: Source<'a>,
}

/// The values of an array, in their order.
#[derive(Clone, Debug)]
pub struct Array<'a> {
    source: Source<'a>,
}

/// The names already seen in a table.
#[derive(Default)]
struct Names<'a> {
    few: SmallVec<[&'a str; FEW]>,
    many: Option<HashSet<&'a str>>,
}

impl<'a> Names<'a> {
    fn is_new(&mut self, name: &'a str) -> bool {
        if self.few.len() < FEW {
            let is_new = !self.few.contains(&name);
            self.few.push(name);
            return is_new;
        }
        self.many.get_or_insert_with(|| self.few.iter().copied().collect()).insert(name)
    }
}

impl<'a> Table<'a> {
    /// The table that takes up all of these bytes.
    ///
    /// # Errors
    /// If their number is not its length.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut source = Source { left: bytes, end: bytes.len(), depth: 0 };
        let inside = source.inner(0)?;
        if inside.end < bytes.len() {
            return bad(inside.end);
        }
        Ok(Self { source: inside })
    }

    /// The next field; only [`check`] finds repeated names.
    ///
    /// # Errors
    /// If it is invalid.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<(&'a str, Value<'a>)>, Fault> {
        self.next_named(|_| true)
    }

    /// The next field; only [`check`] finds repeated names and names that are not text.
    ///
    /// # Errors
    /// If it is invalid.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    pub fn next_raw_field(&mut self) -> Result<Option<(&'a [u8], Value<'a>)>, Fault> {
        let Some(name) = self.next_name()? else { return Ok(None) };
        Ok(Some((name, self.source.value()?)))
    }

    /// The next field; its name must not have occurred before.
    #[inline]
    fn next_new_field(&mut self, names: &mut Names<'a>) -> Result<Option<(&'a str, Value<'a>)>, Fault> {
        self.next_named(|name| names.is_new(name))
    }

    #[inline]
    fn next_named(&mut self, is_good: impl FnOnce(&'a str) -> bool) -> Result<Option<(&'a str, Value<'a>)>, Fault> {
        let start = self.at();
        let Some(name) = self.next_name()? else { return Ok(None) };
        match std::str::from_utf8(name) {
            Ok(name) if is_good(name) => Ok(Some((name, self.source.value()?))),
            _ => bad(start),
        }
    }

    #[inline]
    fn next_name(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        if self.source.left.is_empty() {
            return Ok(None);
        }
        let start = self.at();
        let [length] = self.source.number()?;
        let name = self.source.take(length.into())?;
        if name.len() > NAME { bad(start) } else { Ok(Some(name)) }
    }

    /// Where the next field begins.
    fn at(&self) -> usize {
        self.source.at()
    }
}

impl<'a> Array<'a> {
    /// The next value.
    ///
    /// # Errors
    /// If it is invalid.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    pub fn next_value(&mut self) -> Result<Option<Value<'a>>, Fault> {
        if self.source.left.is_empty() {
            return Ok(None);
        }
        self.source.value().map(Some)
    }
}

/// Whether these bytes are a valid table, nested values included.
///
/// # Errors
/// Where they are not.
#[inline]
pub fn check(bytes: &[u8]) -> Result<(), Fault> {
    // Most tables are empty.
    if bytes == [0; 4] {
        return Ok(());
    }
    check_table(Table::new(bytes)?, &mut 0)
}

fn check_table(mut table: Table<'_>, count: &mut usize) -> Result<(), Fault> {
    let mut names = Names::default();
    loop {
        let start = table.at();
        let Some((_, value)) = table.next_new_field(&mut names)? else { return Ok(()) };
        check_value(value, start, count)?;
    }
}

fn check_value(value: Value<'_>, start: usize, count: &mut usize) -> Result<(), Fault> {
    *count += 1;
    if *count > VALUES {
        return bad(start);
    }
    match value {
        Value::Table(table) => check_table(table, count),
        Value::Array(mut array) => loop {
            let start = array.source.at();
            let Some(value) = array.next_value()? else { return Ok(()) };
            check_value(value, start, count)?;
        },
        Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Decimal(..)
        | Value::Text(_)
        | Value::Bytes(_)
        | Value::Time(_)
        | Value::Void => Ok(()),
    }
}

/// Writes a table, field by field.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    open: SmallVec<[usize; DEPTH]>,
}

/// What cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritable {
    /// A name of more than [`NAME`] bytes.
    LongName,
    /// More than [`DEPTH`] tables and arrays inside each other.
    TooDeep,
    /// 4 GiB or more.
    TooLong,
    /// More than [`VALUES`] values.
    TooMany,
}

impl Writer {
    /// A table without fields so far.
    pub fn new() -> Self {
        let mut writer = Self { bytes: Vec::with_capacity(ROOM), open: SmallVec::new() };
        writer.open.push(0);
        writer.bytes.extend([0; 4]);
        writer
    }

    /// Names the value that is written next; those of an array have no names.
    ///
    /// # Errors
    /// When it is too long.
    pub fn name(&mut self, name: &str) -> Result<(), Unwritable> {
        if name.len() > NAME {
            return Err(Unwritable::LongName);
        }
        self.bytes.push(u8::try_from(name.len()).map_err(|_| Unwritable::LongName)?);
        self.bytes.extend_from_slice(name.as_bytes());
        Ok(())
    }

    /// Writes a truth value.
    pub fn boolean(&mut self, value: bool) {
        self.fixed(b't', [value.into()]);
    }

    /// Writes a number in 4 bytes where it fits, else in 8.
    pub fn int(&mut self, value: i64) {
        if let Ok(small) = i32::try_from(value) {
            self.fixed(b'I', small.to_be_bytes());
        } else {
            self.fixed(b'l', value.to_be_bytes());
        }
    }

    /// Writes a number with a fraction.
    pub fn float(&mut self, value: f64) {
        self.fixed(b'd', value.to_be_bytes());
    }

    /// Writes a number of so many decimal places.
    pub fn decimal(&mut self, places: u8, digits: i32) {
        self.fixed(b'D', [places]);
        self.bytes.extend(digits.to_be_bytes());
    }

    /// Writes seconds since 1970.
    pub fn time(&mut self, seconds: u64) {
        self.fixed(b'T', seconds.to_be_bytes());
    }

    /// Writes nothing, as a value.
    pub fn void(&mut self) {
        self.bytes.push(b'V');
    }

    /// Writes text.
    ///
    /// # Errors
    /// When it is too long.
    pub fn text(&mut self, value: &str) -> Result<(), Unwritable> {
        self.long(b'S', value.as_bytes())
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// When there are too many.
    pub fn bytes(&mut self, value: &[u8]) -> Result<(), Unwritable> {
        self.long(b'x', value)
    }

    /// A letter and a value of fixed size.
    fn fixed<const N: usize>(&mut self, letter: u8, value: [u8; N]) {
        self.bytes.push(letter);
        self.bytes.extend(value);
    }

    fn long(&mut self, letter: u8, value: &[u8]) -> Result<(), Unwritable> {
        let length = u32::try_from(value.len()).map_err(|_| Unwritable::TooLong)?;
        self.fixed(letter, length.to_be_bytes());
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Begins a table: its fields follow, up to [`end`](Self::end).
    ///
    /// # Errors
    /// When it is too deep.
    pub fn table(&mut self) -> Result<(), Unwritable> {
        self.begin(b'F')
    }

    /// Begins an array: its values follow, up to [`end`](Self::end).
    ///
    /// # Errors
    /// When it is too deep.
    pub fn array(&mut self) -> Result<(), Unwritable> {
        self.begin(b'A')
    }

    fn begin(&mut self, letter: u8) -> Result<(), Unwritable> {
        if self.open.len() == DEPTH {
            return Err(Unwritable::TooDeep);
        }
        self.open.push(self.bytes.len() + 1);
        self.fixed(letter, [0; 4]);
        Ok(())
    }

    /// Ends the table or array that was begun last.
    ///
    /// # Errors
    /// When it is too long.
    pub fn end(&mut self) -> Result<(), Unwritable> {
        if let Some(at) = self.open.pop() {
            let length = u32::try_from(self.bytes.len() - at - 4).map_err(|_| Unwritable::TooLong)?;
            self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
        Ok(())
    }

    /// The table, with its length.
    ///
    /// # Errors
    /// When it is too long, or has too many values.
    pub fn finish(mut self) -> Result<Vec<u8>, Unwritable> {
        while !self.open.is_empty() {
            self.end()?;
        }
        // Each takes at least a byte.
        if self.bytes.len() > VALUES && check(&self.bytes).is_err() {
            return Err(Unwritable::TooMany);
        }
        Ok(self.bytes)
    }
}

/// A valid table with `true` under a name of the protocol, in place of any field of that name; all else stays bit for
/// bit.
pub(crate) fn with_flag(table: &[u8], name: &'static str) -> bytes::Bytes {
    let mut kept = BytesMut::with_capacity(table.len() + name.len() + 3);
    kept.put_u32(0);
    if let Ok(mut fields) = Table::new(table) {
        let mut start = fields.at();
        while let Ok(Some((field, _))) = fields.next_field() {
            if field != name {
                kept.put_slice(&table[start..fields.at()]);
            }
            start = fields.at();
        }
    }
    kept.put_u8(u8::try_from(name.len()).expect("a short name"));
    kept.put_slice(name.as_bytes());
    kept.put_slice(b"t\x01");
    let length = u32::try_from(kept.len() - 4).unwrap_or(u32::MAX);
    kept[..4].copy_from_slice(&length.to_be_bytes());
    kept.freeze()
}
