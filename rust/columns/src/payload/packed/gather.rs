//! Columns of what the steps have collected.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, ListArray, PrimitiveArray,
    StringArray, StructArray,
    types::{
        ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};

use super::{
    super::layout::{Number, Scalar},
    block::Rows,
    plan::{Block, Fixed, Node, arrow_size, item_field},
    walk::Store,
};
use crate::{ColumnError, output::Bytes};

/// What has been collected, complete.
pub(super) struct Collected<'a> {
    plan: &'a [Block],
    blocks: Vec<Buffer>,
    lists: Vec<Vec<i32>>,
    bytes: Vec<Bytes>,
}

impl<'a> Collected<'a> {
    pub(super) fn new(plan: &'a [Block], store: Store) -> Self {
        let blocks = store.blocks.into_iter().map(Rows::finish).collect();
        Self { plan, blocks, lists: store.lists, bytes: store.bytes }
    }

    /// The column of a node.
    pub(super) fn column(&mut self, node: &Node, nulls: Option<NullBuffer>) -> Result<ArrayRef, ColumnError> {
        Ok(match node {
            Node::Fixed { block, offset, of } => {
                let Block { start, size } = self.plan[*block];
                Strided { data: self.blocks[*block].clone(), stride: size, offset: offset - start }.column(of, nulls)?
            }
            Node::Bytes { column, is_text } => {
                let (ends, data, _) = self.bytes[*column].take()?;
                if *is_text {
                    Arc::new(StringArray::try_new(ends, data, nulls)?)
                } else {
                    Arc::new(BinaryArray::try_new(ends, data, nulls)?)
                }
            }
            Node::List { list, item } => {
                let items = self.column(item, None)?;
                let ends = OffsetBuffer::new(std::mem::take(&mut self.lists[*list]).into());
                Arc::new(ListArray::try_new(item_field(items.data_type()), ends, items, nulls)?)
            }
            Node::Array { count, item } => {
                let items = self.column(item, None)?;
                let field = item_field(items.data_type());
                Arc::new(FixedSizeListArray::try_new(field, arrow_size(*count), items, nulls)?)
            }
            Node::Struct(fields, nodes) => {
                let members = nodes.iter().map(|node| self.column(node, None)).collect::<Result<_, _>>()?;
                Arc::new(StructArray::try_new(fields.clone(), members, nulls)?)
            }
        })
    }
}

/// Values of fixed size, each at this offset of so many bytes.
struct Strided {
    data: Buffer,
    stride: usize,
    offset: usize,
}

impl Strided {
    /// The values of this type.
    fn column(&self, of: &Fixed, nulls: Option<NullBuffer>) -> Result<ArrayRef, ColumnError> {
        Ok(match of {
            Fixed::Number(number) => return self.numbers(*number, nulls),
            Fixed::Bytes(size) => {
                Arc::new(FixedSizeBinaryArray::try_new(arrow_size(*size), self.packed(*size), nulls)?)
            }
            Fixed::Text(size) => {
                let mut texts = Bytes::default();
                for row in self.rows() {
                    let text = &row[self.offset..self.offset + size];
                    let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                    texts.push(Some(&text[..end]))?;
                }
                let (ends, data, _) = texts.take()?;
                Arc::new(StringArray::try_new(ends, data, nulls)?)
            }
            Fixed::Array(count, item) => {
                let data = self.packed(count * item.size());
                let items = Self { data, stride: item.size(), offset: 0 }.column(item, None)?;
                let field = item_field(items.data_type());
                Arc::new(FixedSizeListArray::try_new(field, arrow_size(*count), items, nulls)?)
            }
            Fixed::Struct(fields, members, _) => {
                let member = |(offset, of): &(usize, Fixed)| {
                    let data = self.data.clone();
                    Self { data, stride: self.stride, offset: self.offset + offset }.column(of, None)
                };
                let members = members.iter().map(member).collect::<Result<_, _>>()?;
                Arc::new(StructArray::try_new(fields.clone(), members, nulls)?)
            }
        })
    }

    fn rows(&self) -> std::slice::ChunksExact<'_, u8> {
        self.data.chunks_exact(self.stride)
    }

    /// The values alone, of so many bytes each; as they are if nothing is between them.
    fn packed(&self, size: usize) -> Buffer {
        if size == self.stride {
            return self.data.clone();
        }
        let mut packed = arrow_buffer::MutableBuffer::new(self.data.len() / self.stride * size);
        self.rows().for_each(|row| packed.extend_from_slice(&row[self.offset..self.offset + size]));
        packed.into()
    }

    fn numbers(&self, number: Number, nulls: Option<NullBuffer>) -> Result<ArrayRef, ColumnError> {
        match number.scalar {
            Scalar::I8 => self.primitive::<Int8Type>(number, nulls),
            Scalar::I16 => self.primitive::<Int16Type>(number, nulls),
            Scalar::I32 => self.primitive::<Int32Type>(number, nulls),
            Scalar::I64 => self.primitive::<Int64Type>(number, nulls),
            Scalar::U8 => self.primitive::<UInt8Type>(number, nulls),
            Scalar::U16 => self.primitive::<UInt16Type>(number, nulls),
            Scalar::U32 => self.primitive::<UInt32Type>(number, nulls),
            Scalar::U64 => self.primitive::<UInt64Type>(number, nulls),
            Scalar::F16 => self.primitive::<Float16Type>(number, nulls),
            Scalar::F32 => self.primitive::<Float32Type>(number, nulls),
            Scalar::F64 => self.primitive::<Float64Type>(number, nulls),
            Scalar::Bool => {
                let (data, stride) = (self.data.as_slice(), self.stride);
                let is_true = |row: usize| data[row * stride + self.offset] != 0;
                let values = BooleanBuffer::collect_bool(data.len() / stride, is_true);
                Ok(Arc::new(BooleanArray::new(values, nulls)))
            }
        }
    }

    fn primitive<T: ArrowPrimitiveType>(
        &self,
        number: Number,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ColumnError> {
        let rows = self.data.len() / self.stride;
        let values = match (number.scalar.width(), number.is_big) {
            (width, is_big) if width == self.stride && (!is_big || width == 1) => aligned::<T::Native>(&self.data),
            (1, _) => self.each(|[byte]: [u8; 1]| byte),
            (2, false) => self.each(u16::from_le_bytes),
            (2, true) => self.each(u16::from_be_bytes),
            (4, false) => self.each(u32::from_le_bytes),
            (4, true) => self.each(u32::from_be_bytes),
            (_, false) => self.each(u64::from_le_bytes),
            (_, true) => self.each(u64::from_be_bytes),
        };
        Ok(Arc::new(PrimitiveArray::<T>::try_new(ScalarBuffer::new(values, 0, rows), nulls)?))
    }

    /// The values of so many bytes each.
    fn each<const N: usize, V: arrow_buffer::ArrowNativeType>(&self, value: impl Fn([u8; N]) -> V) -> Buffer {
        let at = |row: &[u8]| value(row[self.offset..].first_chunk().copied().unwrap_or([0; N]));
        Buffer::from_vec(self.rows().map(at).collect::<Vec<V>>())
    }
}

/// The same bytes where values of this type may be: whatever has allocated them, they mostly are.
fn aligned<T>(data: &Buffer) -> Buffer {
    let is_aligned = data.as_ptr().align_offset(align_of::<T>()) == 0;
    if is_aligned { data.clone() } else { Buffer::from_slice_ref(data.as_slice()) }
}
