//! Columns being built.
//!
//! Arrow's own builders keep a bit for each row as it comes and panic beyond 2 GiB. These count runs of rows with and
//! without a value, of which most columns have only one, and return an error.

use std::{mem, ptr, sync::Arc};

use arrow_array::{
    ArrayRef, BinaryArray, ListArray, MapArray, PrimitiveArray, StringArray, StructArray, types::ArrowPrimitiveType,
};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields};

use crate::{
    ColumnError,
    variant::{VariantWriter, variant_fields},
};

/// Which rows have a value.
#[derive(Debug)]
pub(crate) struct Nulls {
    before: NullBufferBuilder,
    /// How many of the last rows have no value.
    absent: usize,
}

impl Default for Nulls {
    fn default() -> Self {
        Self { before: NullBufferBuilder::new(0), absent: 0 }
    }
}

impl Nulls {
    /// Appends the row `row`, the next.
    #[inline]
    pub(crate) fn push(&mut self, row: usize, valid: bool) {
        if !valid {
            self.absent += 1;
        } else if self.absent > 0 {
            self.settle(row);
        }
    }

    /// Fixes the rows up to `end`.
    #[inline(never)]
    fn settle(&mut self, end: usize) {
        self.before.append_n_non_nulls(end - self.absent - self.before.len());
        self.before.append_n_nulls(mem::take(&mut self.absent));
    }

    /// The nulls of a column of so many rows.
    pub(crate) fn finish(&mut self, rows: usize) -> Option<NullBuffer> {
        self.settle(rows);
        self.before.finish()
    }
}

/// A column of numbers. Rows without one are counted, and filled in before the next that has one.
#[derive(Debug)]
pub(crate) struct Numbers<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    nulls: Nulls,
    is_asked: bool,
}

impl<T: ArrowPrimitiveType> Default for Numbers<T> {
    fn default() -> Self {
        Self { values: Vec::new(), nulls: Nulls::default(), is_asked: true }
    }
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    /// A column of nulls alone unless it is asked for.
    pub(crate) fn asked(is_asked: bool) -> Self {
        Self { is_asked, ..Self::default() }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: Option<T::Native>) {
        let Some(value) = value.filter(|_| self.is_asked) else {
            self.nulls.absent += 1;
            return;
        };
        if self.nulls.absent > 0 {
            self.fill();
        }
        self.values.push(value);
    }

    /// Appends values, each in a row of its own.
    #[inline]
    pub(crate) fn extend(&mut self, values: impl Iterator<Item = T::Native>) {
        if self.nulls.absent > 0 {
            self.fill();
        }
        self.values.extend(values);
    }

    #[inline(never)]
    fn fill(&mut self) {
        let rows = self.values.len() + self.nulls.absent;
        self.nulls.settle(rows);
        self.values.resize(rows, T::Native::default());
    }

    /// The bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.values)
    }

    pub(crate) fn finish(&mut self) -> Result<PrimitiveArray<T>, ColumnError> {
        self.fill();
        let nulls = self.nulls.finish(self.values.len());
        Ok(PrimitiveArray::try_new(mem::take(&mut self.values).into(), nulls)?)
    }
}

/// A column of binaries, or of text that is checked as a whole at the end. Rows without a value are counted, and filled
/// in before the next that has one.
#[derive(Debug)]
pub(crate) struct Bytes {
    data: Vec<u8>,
    ends: Vec<i32>,
    nulls: Nulls,
    is_asked: bool,
}

impl Default for Bytes {
    fn default() -> Self {
        Self { data: Vec::new(), ends: vec![0], nulls: Nulls::default(), is_asked: true }
    }
}

impl Bytes {
    /// A column of nulls alone unless it is asked for.
    pub(crate) fn asked(is_asked: bool) -> Self {
        Self { is_asked, ..Self::default() }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: Option<&[u8]>) -> Result<(), ColumnError> {
        let Some(value) = value.filter(|_| self.is_asked) else {
            self.nulls.absent += 1;
            return Ok(());
        };
        if self.nulls.absent > 0 {
            self.fill()?;
        }
        self.data.extend_from_slice(value);
        self.ends.push(self.end()?);
        Ok(())
    }

    /// Appends text from bytes: invalid parts become U+FFFD.
    #[inline]
    pub(crate) fn push_text(&mut self, value: Option<&[u8]>) -> Result<(), ColumnError> {
        let value = value.filter(|_| self.is_asked);
        if value.is_none_or(|value| str::from_utf8(value).is_ok()) { self.push(value) } else { self.mend(value) }
    }

    /// Piece by piece, since an invalid byte becomes three.
    #[inline(never)]
    fn mend(&mut self, value: Option<&[u8]>) -> Result<(), ColumnError> {
        self.fill()?;
        for chunk in value.unwrap_or_default().utf8_chunks() {
            self.data.extend_from_slice(chunk.valid().as_bytes());
            if !chunk.invalid().is_empty() {
                self.data.extend_from_slice("\u{FFFD}".as_bytes());
            }
            self.end()?;
        }
        self.ends.push(self.end()?);
        Ok(())
    }

    #[inline(never)]
    fn fill(&mut self) -> Result<(), ColumnError> {
        let rows = self.rows();
        self.nulls.settle(rows);
        self.ends.resize(1 + rows, self.end()?);
        Ok(())
    }

    /// The end of what has been appended.
    #[inline]
    fn end(&self) -> Result<i32, ColumnError> {
        i32::try_from(self.data.len()).map_err(|_| ColumnError::TooLarge)
    }

    /// Appends the same value in `rows` rows.
    fn push_run(&mut self, value: Option<&str>, rows: usize) -> Result<(), ColumnError> {
        let Some(value) = value else {
            self.nulls.absent += rows;
            return Ok(());
        };
        self.fill()?;
        let start = self.data.len();
        if rows > (i32::MAX as usize - start) / value.len().max(1) {
            return Err(ColumnError::TooLarge);
        }
        self.data.extend_from_slice(value.repeat(rows).as_bytes());
        let ends = (1..=rows).map(|row| start + row * value.len());
        self.ends.extend(ends.map(|end| i32::try_from(end).unwrap_or(i32::MAX)));
        Ok(())
    }

    pub(crate) const fn rows(&self) -> usize {
        self.ends.len() - 1 + self.nulls.absent
    }

    /// The bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() + size_of_val(&*self.ends)
    }

    pub(crate) fn finish(&mut self) -> Result<BinaryArray, ColumnError> {
        let (ends, data, nulls) = self.take()?;
        Ok(BinaryArray::try_new(ends, data, nulls)?)
    }

    pub(crate) fn finish_text(&mut self) -> Result<StringArray, ColumnError> {
        let (ends, data, nulls) = self.take()?;
        Ok(StringArray::try_new(ends, data, nulls)?)
    }

    pub(crate) fn take(&mut self) -> Result<(OffsetBuffer<i32>, Buffer, Option<NullBuffer>), ColumnError> {
        self.fill()?;
        let nulls = self.nulls.finish(self.rows());
        let Self { data, ends, .. } = mem::take(self);
        Ok((OffsetBuffer::new(ends.into()), data.into(), nulls))
    }
}

/// A column of few names, which come in runs.
#[derive(Debug)]
pub(crate) struct Slugs {
    runs: Vec<(Option<&'static str>, usize)>,
    is_asked: bool,
}

impl Slugs {
    /// A column of nulls alone unless it is asked for.
    pub(crate) const fn asked(is_asked: bool) -> Self {
        Self { runs: Vec::new(), is_asked }
    }

    #[inline]
    pub(crate) fn push(&mut self, slug: Option<&'static str>) {
        let slug = slug.filter(|_| self.is_asked);
        match self.runs.last_mut() {
            Some((last, rows)) if same(*last, slug) => *rows += 1,
            _ => self.runs.push((slug, 1)),
        }
    }

    /// The bytes it will take.
    pub(crate) fn bytes(&self) -> usize {
        self.runs.iter().map(|(slug, rows)| rows * (4 + slug.map_or(0, str::len))).sum()
    }

    pub(crate) fn finish(&mut self) -> Result<StringArray, ColumnError> {
        let mut column = Bytes::default();
        self.runs.drain(..).try_for_each(|(slug, rows)| column.push_run(slug, rows))?;
        column.finish_text()
    }
}

/// Whether both are the same constant; equal ones at different addresses only make a run shorter.
#[inline]
fn same(a: Option<&'static str>, b: Option<&'static str>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => ptr::eq(a, b),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// A column of variants.
#[derive(Debug, Default)]
pub(crate) struct Variants {
    value: Bytes,
    metadata: Bytes,
    nulls: Nulls,
}

impl Variants {
    #[inline]
    pub(crate) fn push(&mut self, variant: Option<&mut VariantWriter>) -> Result<(), ColumnError> {
        self.nulls.push(self.value.rows(), variant.is_some());
        if let Some(variant) = variant {
            self.value.push(Some(variant.value()))?;
            self.metadata.push(Some(variant.metadata()))
        } else {
            // The two are never null, so that Spark recognises the column.
            self.value.push(Some(&[]))?;
            self.metadata.push(Some(&[]))
        }
    }

    /// The bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.value.bytes() + self.metadata.bytes()
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ColumnError> {
        let nulls = self.nulls.finish(self.value.rows());
        let columns: Vec<ArrayRef> = vec![Arc::new(self.value.finish()?), Arc::new(self.metadata.finish()?)];
        Ok(Arc::new(StructArray::try_new(variant_fields(), columns, nulls)?))
    }
}

/// The type of a list of `element`, with Spark's name for its items.
pub(crate) fn list_type(element: DataType) -> DataType {
    DataType::List(element_field(element))
}

pub(crate) fn element_field(element: DataType) -> FieldRef {
    Arc::new(Field::new("element", element, true))
}

/// A column of lists, whose elements another column holds.
#[derive(Debug)]
pub(crate) struct Lists {
    ends: Vec<i32>,
    nulls: Nulls,
}

impl Default for Lists {
    fn default() -> Self {
        Self { ends: vec![0], nulls: Nulls::default() }
    }
}

impl Lists {
    /// Appends a list that ends at this element, or null.
    #[inline]
    pub(crate) fn push(&mut self, end: Option<usize>) -> Result<(), ColumnError> {
        self.nulls.push(self.ends.len() - 1, end.is_some());
        let before = self.ends.last().copied().unwrap_or(0);
        self.ends.push(end.map_or(Ok(before), i32::try_from).map_err(|_| ColumnError::TooLarge)?);
        Ok(())
    }

    /// The bytes it takes, without its elements.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.ends)
    }

    pub(crate) fn finish(&mut self, elements: ArrayRef) -> Result<ArrayRef, ColumnError> {
        let (ends, nulls) = self.take();
        let field = element_field(elements.data_type().clone());
        Ok(Arc::new(ListArray::try_new(field, ends, elements, nulls)?))
    }

    pub(crate) fn take(&mut self) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        let nulls = self.nulls.finish(self.ends.len() - 1);
        (OffsetBuffer::new(mem::take(self).ends.into()), nulls)
    }
}

/// A column of lists of binaries, or of text that is checked as a whole at the end.
#[derive(Debug, Default)]
pub(crate) struct BytesLists {
    lists: Lists,
    elements: Bytes,
}

impl BytesLists {
    /// A column of nulls alone unless it is asked for.
    pub(crate) fn asked(is_asked: bool) -> Self {
        Self { elements: Bytes::asked(is_asked), ..Self::default() }
    }

    #[inline]
    pub(crate) fn push<'a>(&mut self, list: impl IntoIterator<Item = &'a [u8]>) -> Result<(), ColumnError> {
        if !self.elements.is_asked {
            return self.push_null();
        }
        list.into_iter().try_for_each(|element| self.elements.push(Some(element)))?;
        self.lists.push(Some(self.elements.rows()))
    }

    /// Appends a list of text from bytes: invalid parts become U+FFFD.
    #[inline]
    pub(crate) fn push_text<'a>(&mut self, list: impl IntoIterator<Item = &'a [u8]>) -> Result<(), ColumnError> {
        if !self.elements.is_asked {
            return self.push_null();
        }
        list.into_iter().try_for_each(|element| self.elements.push_text(Some(element)))?;
        self.lists.push(Some(self.elements.rows()))
    }

    #[inline]
    pub(crate) fn push_null(&mut self) -> Result<(), ColumnError> {
        self.lists.push(None)
    }

    /// The bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.lists.bytes() + self.elements.bytes()
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ColumnError> {
        let elements = Arc::new(self.elements.finish()?);
        self.lists.finish(elements)
    }

    pub(crate) fn finish_text(&mut self) -> Result<ArrayRef, ColumnError> {
        let elements = Arc::new(self.elements.finish_text()?);
        self.lists.finish(elements)
    }
}

/// The type of a map of text to text, with Spark's names for its parts.
pub(crate) fn map_type() -> DataType {
    DataType::Map(entries(), false)
}

fn entries() -> FieldRef {
    Arc::new(Field::new("entries", DataType::Struct(pair()), false))
}

fn pair() -> Fields {
    vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)].into()
}

/// A column of maps of text to text.
#[derive(Debug, Default)]
pub(crate) struct TextMaps {
    maps: Lists,
    keys: Bytes,
    values: Bytes,
}

impl TextMaps {
    /// A column of nulls alone unless it is asked for.
    pub(crate) fn asked(is_asked: bool) -> Self {
        Self { keys: Bytes::asked(is_asked), ..Self::default() }
    }

    /// Appends a map of pairs from bytes: invalid parts become U+FFFD.
    #[inline]
    pub(crate) fn push<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), ColumnError> {
        if !self.keys.is_asked {
            return self.push_null();
        }
        for (key, value) in pairs {
            self.keys.push_text(Some(key))?;
            self.values.push_text(Some(value))?;
        }
        self.maps.push(Some(self.keys.rows()))
    }

    #[inline]
    pub(crate) fn push_null(&mut self) -> Result<(), ColumnError> {
        self.maps.push(None)
    }

    /// The bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.maps.bytes() + self.keys.bytes() + self.values.bytes()
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ColumnError> {
        let columns: Vec<ArrayRef> = vec![Arc::new(self.keys.finish_text()?), Arc::new(self.values.finish_text()?)];
        let (ends, nulls) = self.maps.take();
        let pairs = StructArray::try_new(pair(), columns, None)?;
        Ok(Arc::new(MapArray::try_new(entries(), ends, pairs, nulls, false)?))
    }
}
