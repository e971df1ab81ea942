//! Columns of records.

use std::{mem, sync::Arc};

use arrow_array::{
    Array, ArrayRef, ListArray, MapArray, NullArray, StructArray,
    builder::BooleanBuilder,
    types::{Date32Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType},
};
use arrow_schema::{DataType, Field, Fields};

use super::{
    super::{Fault, PayloadKind},
    reading::Reader,
    schema::{Item, Of, Schema, columns, item_field},
};
use crate::{
    ColumnError,
    options::UTC,
    output::{Bytes, Lists, Nulls, Numbers},
};

/// What cannot happen to bytes that have been checked.
const CHECKED: ColumnError = ColumnError::TooLarge;

/// The columns of the fields of records, being built.
#[derive(Debug)]
pub(in super::super) struct Columns {
    fields: Arc<Vec<(String, Item)>>,
    /// None for those that are not kept.
    columns: Vec<Option<Column>>,
}

impl Columns {
    /// Those of these names alone.
    pub(in super::super) fn new(schema: &Schema, is_kept: &dyn Fn(&str) -> bool) -> Self {
        let column = |(name, item): &(String, Item)| is_kept(name).then(|| Column::new(&item.of));
        Self { fields: schema.record.clone(), columns: schema.record.iter().map(column).collect() }
    }

    /// Whether a frame is one record.
    pub(in super::super) fn check(&self, frame: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(frame);
        let is_record = self.fields.iter().try_for_each(|(_, item)| reader.skip(item));
        let is_whole = is_record.is_some() && reader.left() == 0;
        if is_whole { Ok(()) } else { Err(Fault { kind: PayloadKind::Avro, frame: 0, offset: reader.at }) }
    }

    /// Appends a record that has been checked.
    pub(in super::super) fn push(&mut self, frame: &[u8]) -> Result<(), ColumnError> {
        let mut reader = Reader::new(frame);
        for ((_, item), column) in self.fields.iter().zip(&mut self.columns) {
            match column {
                Some(column) => column.read(&mut reader, item)?,
                None => reader.skip(item).ok_or(CHECKED)?,
            }
        }
        Ok(())
    }

    pub(in super::super) fn push_null(&mut self) -> Result<(), ColumnError> {
        self.columns.iter_mut().flatten().try_for_each(Column::push_null)
    }

    pub(in super::super) fn bytes(&self) -> usize {
        self.columns.iter().flatten().map(Column::bytes).sum()
    }

    pub(in super::super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ColumnError> {
        self.columns.iter_mut().flatten().map(Column::finish).collect()
    }
}

/// A column, being built.
#[derive(Debug)]
enum Column {
    Null(usize),
    Boolean(BooleanBuilder),
    Int(Numbers<Int32Type>),
    Date(Numbers<Date32Type>),
    Long(Numbers<Int64Type>),
    Time(Numbers<TimestampMicrosecondType>),
    Float(Numbers<Float32Type>),
    Double(Numbers<Float64Type>),
    Bytes(Bytes),
    Text(Bytes),
    List(Lists, usize, Box<Self>),
    Map(Lists, Bytes, Box<Self>),
    Record { fields: Fields, columns: Vec<Self>, nulls: Nulls, rows: usize },
}

impl Column {
    fn new(of: &Of) -> Self {
        match of {
            Of::Null => Self::Null(0),
            Of::Boolean => Self::Boolean(BooleanBuilder::new()),
            Of::Int => Self::Int(Numbers::default()),
            Of::Date => Self::Date(Numbers::default()),
            Of::Long => Self::Long(Numbers::default()),
            Of::Millis | Of::Micros => Self::Time(Numbers::default()),
            Of::Float => Self::Float(Numbers::default()),
            Of::Double => Self::Double(Numbers::default()),
            Of::Bytes | Of::Fixed(_) => Self::Bytes(Bytes::default()),
            Of::String | Of::Enum(_) => Self::Text(Bytes::default()),
            Of::Array(item) => Self::List(Lists::default(), 0, Box::new(Self::new(&item.of))),
            Of::Map(item) => Self::Map(Lists::default(), Bytes::default(), Box::new(Self::new(&item.of))),
            Of::Record(fields) => Self::Record {
                fields: columns(fields),
                columns: fields.iter().map(|(_, item)| Self::new(&item.of)).collect(),
                nulls: Nulls::default(),
                rows: 0,
            },
        }
    }

    #[inline]
    fn read(&mut self, reader: &mut Reader<'_>, item: &Item) -> Result<(), ColumnError> {
        if let Some(null) = item.null
            && reader.is_null(null).ok_or(CHECKED)?
        {
            return self.push_null();
        }
        match (self, &item.of) {
            (Self::Null(rows), _) => *rows += 1,
            (Self::Boolean(column), _) => column.append_value(reader.chunk::<1>().ok_or(CHECKED)? == [1]),
            (Self::Int(column), _) => column.push(reader.int()),
            (Self::Date(column), _) => column.push(reader.int()),
            (Self::Long(column), _) => column.push(reader.long()),
            (Self::Time(column), Of::Millis) => column.push(reader.long().and_then(|millis| millis.checked_mul(1000))),
            (Self::Time(column), _) => column.push(reader.long()),
            (Self::Float(column), _) => column.push(reader.chunk().map(f32::from_le_bytes)),
            (Self::Double(column), _) => column.push(reader.chunk().map(f64::from_le_bytes)),
            (Self::Bytes(column), Of::Fixed(size)) => column.push(reader.take(*size))?,
            (Self::Text(column), Of::Enum(symbols)) => {
                let symbol = reader.int().and_then(|symbol| symbols.get(usize::try_from(symbol).ok()?));
                column.push(symbol.map(String::as_bytes))?;
            }
            (Self::Bytes(column) | Self::Text(column), _) => column.push(reader.bytes())?,
            (Self::List(lists, count, items), Of::Array(item)) => {
                loop {
                    let block = reader.block(item.least()).ok_or(CHECKED)?;
                    if block == 0 {
                        break;
                    }
                    (0..block).try_for_each(|_| items.read(reader, item))?;
                    *count += block;
                }
                lists.push(Some(*count))?;
            }
            (Self::Map(lists, keys, values), Of::Map(item)) => {
                loop {
                    let block = reader.block(1 + item.least()).ok_or(CHECKED)?;
                    if block == 0 {
                        break;
                    }
                    for _ in 0..block {
                        keys.push(Some(reader.bytes().ok_or(CHECKED)?))?;
                        values.read(reader, item)?;
                    }
                }
                lists.push(Some(keys.rows()))?;
            }
            (Self::Record { columns, nulls, rows, .. }, Of::Record(fields)) => {
                for (column, (_, item)) in columns.iter_mut().zip(&**fields) {
                    column.read(reader, item)?;
                }
                nulls.push(*rows, true);
                *rows += 1;
            }
            (Self::List(..) | Self::Map(..) | Self::Record { .. }, _) => return Err(CHECKED),
        }
        Ok(())
    }

    fn push_null(&mut self) -> Result<(), ColumnError> {
        match self {
            Self::Null(rows) => *rows += 1,
            Self::Boolean(column) => column.append_null(),
            Self::Int(column) => column.push(None),
            Self::Date(column) => column.push(None),
            Self::Long(column) => column.push(None),
            Self::Time(column) => column.push(None),
            Self::Float(column) => column.push(None),
            Self::Double(column) => column.push(None),
            Self::Bytes(column) | Self::Text(column) => column.push(None)?,
            Self::List(lists, ..) | Self::Map(lists, ..) => lists.push(None)?,
            Self::Record { columns, nulls, rows, .. } => {
                nulls.push(*rows, false);
                *rows += 1;
                columns.iter_mut().try_for_each(Self::push_null)?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Null(_) => 0,
            Self::Boolean(column) => column.values_slice().len(),
            Self::Int(column) => column.bytes(),
            Self::Date(column) => column.bytes(),
            Self::Long(column) => column.bytes(),
            Self::Time(column) => column.bytes(),
            Self::Float(column) => column.bytes(),
            Self::Double(column) => column.bytes(),
            Self::Bytes(column) | Self::Text(column) => column.bytes(),
            Self::List(lists, _, items) => lists.bytes() + items.bytes(),
            Self::Map(lists, keys, values) => lists.bytes() + keys.bytes() + values.bytes(),
            Self::Record { columns, .. } => columns.iter().map(Self::bytes).sum(),
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, ColumnError> {
        Ok(match self {
            Self::Null(rows) => Arc::new(NullArray::new(mem::take(rows))),
            Self::Boolean(column) => Arc::new(column.finish()),
            Self::Int(column) => Arc::new(column.finish()?),
            Self::Date(column) => Arc::new(column.finish()?),
            Self::Long(column) => Arc::new(column.finish()?),
            Self::Time(column) => Arc::new(column.finish()?.with_timezone(UTC)),
            Self::Float(column) => Arc::new(column.finish()?),
            Self::Double(column) => Arc::new(column.finish()?),
            Self::Bytes(column) => Arc::new(column.finish()?),
            Self::Text(column) => Arc::new(column.finish_text()?),
            Self::List(lists, _, items) => {
                let items = items.finish()?;
                let (ends, nulls) = lists.take();
                Arc::new(ListArray::try_new(item_field(items.data_type()), ends, items, nulls)?)
            }
            Self::Map(lists, keys, values) => {
                let (keys, values) = (keys.finish_text()?, values.finish()?);
                let pair: Fields = vec![
                    Field::new("key", DataType::Utf8, false),
                    Field::new("value", values.data_type().clone(), true),
                ]
                .into();
                let (ends, nulls) = lists.take();
                let pairs = StructArray::try_new(pair.clone(), vec![Arc::new(keys), values], None)?;
                let field = Arc::new(Field::new("entries", DataType::Struct(pair), false));
                Arc::new(MapArray::try_new(field, ends, pairs, nulls, false)?)
            }
            Self::Record { fields, columns, nulls, rows } => {
                let columns = columns.iter_mut().map(Self::finish).collect::<Result<_, _>>()?;
                let nulls = nulls.finish(*rows);
                Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, mem::take(rows))?)
            }
        })
    }
}
