//! Checks the Thrift in a Parquet file before its reader gets it: that one counts to the end of a list of booleans, or
//! of a map, whose items need not take a byte. Parquet has neither.

use std::ops::Range;
use std::path::Path;

use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader as _, Length as _};

use crate::CaptureError;
use crate::source::Source;

/// The end of the file after the footer: its length, and the magic.
const END: usize = 8;

/// The longest header of a page, mostly much shorter.
const PAGE_HEADERS: [usize; 3] = [1 << 10, 1 << 16, 1 << 22];

/// The fields of a page's header: its bytes once decompressed, the bytes that follow, and its contents by kind.
const UNCOMPRESSED_PAGE_SIZE: i64 = 2;
const COMPRESSED_PAGE_SIZE: i64 = 3;
const DATA_PAGE: i64 = 5;
const DICTIONARY_PAGE: i64 = 7;
const DATA_PAGE_2: i64 = 8;

/// The fields of its contents, by the kind of the page.
const VALUES: i64 = 1;
const ENCODING: i64 = 2;
const ENCODING_2: i64 = 4;

/// The deepest nesting of structs.
const DEPTH_MAX: usize = 32;

/// Checks the footer of a file against the format.
pub(crate) fn check_footer(path: &Path, file: &Source) -> Result<(), CaptureError> {
    let failed = |error| file.failure(path, error);
    let Some(end) = file.len().checked_sub(END as u64) else { return Ok(()) };
    let length = file.get_bytes(end, END).map_err(failed)?;
    let Some((length, _)) = length.split_first_chunk() else { return Ok(()) };
    let length = u32::from_le_bytes(*length);
    // Parquet's reader reports a file that is too short.
    let Some(start) = end.checked_sub(length.into()) else { return Ok(()) };
    let footer = file.get_bytes(start, length as usize).map_err(failed)?;
    match Walk::new(&footer).structure(DEPTH_MAX, None, &mut |_, _, _| {}) {
        Err(Halt::Endless) => Err(CaptureError::corrupt(path, "its footer contains more than a footer can")),
        Ok(()) | Err(Halt::End) => Ok(()),
    }
}

/// The header of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Its bytes once decompressed.
    pub(crate) bytes: u64,
    /// Its values, or those of a dictionary.
    pub(crate) values: u64,
    /// Their encoding, by Parquet's number.
    pub(crate) encoding: i64,
    pub(crate) is_dictionary: bool,
    /// The bytes that follow the header.
    pub(crate) stored_bytes: Option<i64>,
}

impl Page {
    fn set(&mut self, within: Option<i64>, field: i64, number: i64) {
        let size = u64::try_from(number).unwrap_or_default();
        match (within, field) {
            (None, UNCOMPRESSED_PAGE_SIZE) => self.bytes = size,
            (None, COMPRESSED_PAGE_SIZE) => self.stored_bytes = Some(number),
            (Some(DATA_PAGE | DATA_PAGE_2 | DICTIONARY_PAGE), VALUES) => {
                self.values = size;
                self.is_dictionary = within == Some(DICTIONARY_PAGE);
            }
            (Some(DATA_PAGE), ENCODING) | (Some(DATA_PAGE_2), ENCODING_2) => self.encoding = number,
            _ => {}
        }
    }
}

/// Checks the headers of all pages of a column, and gives their contents.
pub(crate) fn check_pages(path: &Path, file: &Source, column: &ColumnChunkMetaData) -> Result<Vec<Page>, CaptureError> {
    let (mut found, mut pages) = (Vec::new(), pages(column));
    while !pages.is_empty() {
        let Some((length, page)) = page(path, file, &pages)? else { break };
        found.push(page);
        pages.start = pages.start.saturating_add(length);
    }
    Ok(found)
}

fn pages(column: &ColumnChunkMetaData) -> Range<u64> {
    let (start, length) = column.byte_range();
    start..start.saturating_add(length)
}

/// The first of some pages, with the bytes it takes; `None` for what Parquet's reader reports.
fn page(path: &Path, file: &Source, pages: &Range<u64>) -> Result<Option<(u64, Page)>, CaptureError> {
    for most in PAGE_HEADERS {
        let there = file.len().min(pages.end).saturating_sub(pages.start);
        let length = most.min(usize::try_from(there).unwrap_or(usize::MAX));
        let header = file.get_bytes(pages.start, length).map_err(|error| file.failure(path, error))?;
        let mut walk = Walk::new(&header);
        match walk.page() {
            Ok(page) => {
                let header = (header.len() - walk.rest.len()) as u64;
                let stored = page.stored_bytes.and_then(|size| u64::try_from(size).ok());
                return Ok(stored.and_then(|stored| Some((header.checked_add(stored)?, page))));
            }
            Err(Halt::Endless) => {
                return Err(CaptureError::corrupt(path, "a page header contains more than a page header can"));
            }
            Err(Halt::End) => {}
        }
    }
    Ok(None)
}

/// Why a walk ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Halt {
    /// There is no more.
    End,
    /// There is no bound on the rest.
    Endless,
}

/// A position in Thrift's compact protocol.
struct Walk<'a> {
    rest: &'a [u8],
}

impl<'a> Walk<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Skips the header of a page.
    fn page(&mut self) -> Result<Page, Halt> {
        let mut page = Page::default();
        self.structure(DEPTH_MAX, None, &mut |within, field, number| page.set(within, field, number))?;
        Ok(page)
    }

    /// Skips a struct, giving its numbers: the field that it is `within`, their own field, and their value.
    fn structure(
        &mut self,
        depth: usize,
        within: Option<i64>,
        seen: &mut dyn FnMut(Option<i64>, i64, i64),
    ) -> Result<(), Halt> {
        let depth = depth.checked_sub(1).ok_or(Halt::Endless)?;
        let mut id = 0_i64;
        loop {
            let [field] = *self.take()?;
            if field == 0 {
                return Ok(());
            }
            id = if field >> 4 == 0 { self.number()? } else { id.wrapping_add(i64::from(field >> 4)) };
            match field & 0x0f {
                4..=6 => seen(within, id, self.number()?),
                // A boolean in a struct has its value in its type.
                1 | 2 => {}
                12 if within.is_none() => self.structure(depth, Some(id), seen)?,
                kind => self.value(kind, depth)?,
            }
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Result<(), Halt> {
        match kind {
            3 => self.take::<1>().map(drop),
            4..=6 => self.number().map(drop),
            7 => self.take::<8>().map(drop),
            8 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Halt::End)?;
                self.rest = self.rest.get(length..).ok_or(Halt::End)?;
                Ok(())
            }
            9 | 10 => {
                let depth = depth.checked_sub(1).ok_or(Halt::Endless)?;
                let [head] = *self.take()?;
                let length = if head >> 4 == 0x0f { self.varint()? } else { u64::from(head >> 4) };
                if matches!(head & 0x0f, 1 | 2) && length > 0 {
                    return Err(Halt::Endless);
                }
                // Each takes a byte at least.
                (0..length).try_for_each(|_| self.value(head & 0x0f, depth))
            }
            12 => self.structure(depth, None, &mut |_, _, _| {}),
            13 => self.take::<16>().map(drop),
            // A map, or an unknown type.
            _ => Err(Halt::Endless),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], Halt> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Halt::End)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Halt> {
        let mut number = 0;
        for at in 0..10 {
            let [byte] = *self.take()?;
            number |= u64::from(byte & 0x7f) << (7 * at).min(63);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Halt::Endless)
    }

    /// A signed number, with the sign in its lowest bit.
    fn number(&mut self) -> Result<i64, Halt> {
        let number = self.varint()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::CaptureErrorKind;

    #[test]
    fn what_takes_no_bytes_is_not_counted() {
        // Fields of the id 1: a list of 2^31 − 1 booleans, of as many structs, of three numbers, and a map.
        let many = [0xff, 0xff, 0xff, 0xff, 0x07];
        let of = |kind: u8, rest: &[u8]| [&[0x10 | kind], rest].concat();
        let walk = |bytes: &[u8]| Walk::new(bytes).page().map(|page| page.stored_bytes);
        assert_eq!(walk(&of(9, &[&[0xf1][..], &many].concat())), Err(Halt::Endless));
        assert_eq!(walk(&of(9, &[&[0xfc][..], &many].concat())), Err(Halt::End));
        assert_eq!(walk(&of(9, &[0x35, 1, 2, 3, 0])), Ok(None));
        assert_eq!(walk(&of(11, &[&many[..], &[0x11]].concat())), Err(Halt::Endless));
        assert_eq!(walk(&[0x1c].repeat(40)), Err(Halt::Endless));
        assert_eq!(walk(&[0x35, 0x08, 0x11, 0]), Ok(Some(4)));
    }

    #[test]
    fn a_footer_that_says_more_than_a_footer_is_refused() {
        let file = |footer: &[u8]| {
            let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
            Source::from(Bytes::from([b"PAR1", footer, &length, b"PAR1"].concat()))
        };
        let path = Path::new("segment");
        check_footer(path, &file(&[0x15, 0x02, 0])).unwrap();
        let endless = check_footer(path, &file(&[0x19, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07, 0])).unwrap_err();
        assert_eq!(endless.kind(), CaptureErrorKind::Corrupt);
    }
}
