//! Binary Avro, value by value.

use super::schema::{Item, Of};

/// A position in a frame.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes[self.at..].get(..length)?;
        self.at += length;
        Some(taken)
    }

    #[inline]
    pub(super) fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.first_chunk().copied()
    }

    /// An integer, of seven bits a byte, the lowest first; and its sign in the lowest bit.
    #[inline]
    pub(super) fn long(&mut self) -> Option<i64> {
        let mut value = 0_u64;
        for place in 0..10 {
            let [byte] = self.chunk()?;
            // The tenth byte has the last bit alone.
            if place == 9 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        None
    }

    #[inline]
    pub(super) fn int(&mut self) -> Option<i32> {
        self.long().and_then(|value| i32::try_from(value).ok())
    }

    /// Bytes after their number.
    #[inline]
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.long()?).ok()?;
        self.take(length)
    }

    /// How many items the next block has, of at least so many bytes each; none follow the last, which has none.
    pub(super) fn block(&mut self, least: usize) -> Option<usize> {
        let count = self.long()?;
        if count < 0 {
            // The bytes of the block, to skip it.
            usize::try_from(self.long()?).ok().filter(|bytes| *bytes <= self.left())?;
        }
        let count = usize::try_from(count.unsigned_abs()).ok()?;
        (count <= self.left() / least.max(1)).then_some(count)
    }

    /// Whether the branch of a union that is next is null.
    #[inline]
    pub(super) fn is_null(&mut self, null: u64) -> Option<bool> {
        let branch = self.long()?.cast_unsigned();
        (branch < 2).then_some(branch == null)
    }

    /// Moves over a value; fails where it is not one of this type.
    pub(super) fn skip(&mut self, item: &Item) -> Option<()> {
        if let Some(null) = item.null
            && self.is_null(null)?
        {
            return Some(());
        }
        match &item.of {
            Of::Null => {}
            Of::Boolean => return self.chunk().filter(|[byte]: &[u8; 1]| *byte < 2).map(drop),
            Of::Int | Of::Date => return self.int().map(drop),
            Of::Long | Of::Micros => return self.long().map(drop),
            Of::Millis => return self.long()?.checked_mul(1000).map(drop),
            Of::Float => return self.take(4).map(drop),
            Of::Double => return self.take(8).map(drop),
            Of::Bytes => return self.bytes().map(drop),
            Of::String => return self.text().map(drop),
            Of::Fixed(size) => return self.take(*size).map(drop),
            Of::Enum(symbols) => {
                return usize::try_from(self.int()?).ok().filter(|symbol| *symbol < symbols.len()).map(drop);
            }
            Of::Array(item) => loop {
                match self.block(item.least())? {
                    0 => break,
                    count => (0..count).try_for_each(|_| self.skip(item))?,
                }
            },
            Of::Map(item) => loop {
                match self.block(1 + item.least())? {
                    0 => break,
                    count => (0..count).try_for_each(|_| {
                        self.text()?;
                        self.skip(item)
                    })?,
                }
            },
            Of::Record(fields) => return fields.iter().try_for_each(|(_, item)| self.skip(item)),
        }
        Some(())
    }

    fn text(&mut self) -> Option<&'a str> {
        let start = self.at;
        let text = str::from_utf8(self.bytes()?).ok();
        if text.is_none() {
            self.at = start;
        }
        text
    }
}
