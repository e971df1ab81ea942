//! Tables being built, a row of cells at a time.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, RecordBatch, StructArray,
    builder::{
        BinaryBuilder, BooleanBuilder, Decimal128Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder,
        TimestampMicrosecondBuilder,
    },
};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use serde_bytes::ByteBuf;
use trunkline_columns::{BATCH_BYTES, ColumnError, Maps, RestType};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bytes,
    /// Lists of bytes.
    Frames,
    /// Numbers of 64 bits.
    Number,
    /// Numbers of 32 bits.
    Small,
    /// Numbers of up to 20 decimal digits.
    Decimal,
    Flag,
    /// Moments in UTC, to the microsecond.
    Moment,
    /// From one moment until another.
    Window,
    /// Maps of MessagePack, as VARIANTs.
    Variant,
    /// The same as JSON text.
    Json,
}

impl Kind {
    fn field(self, name: &str) -> Field {
        // The field of a VARIANT is marked as one.
        self.maps().map_or_else(|| Field::new(name, self.data_type(), true), |maps| Maps::field(maps, name))
    }

    /// The form of maps of MessagePack, if it holds them.
    fn maps(self) -> Option<RestType> {
        if self == Self::Variant {
            return Some(RestType::Variant);
        }
        (self == Self::Json).then_some(RestType::Json)
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Text | Self::Json => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::Frames => DataType::List(element()),
            Self::Number => DataType::Int64,
            Self::Small => DataType::Int32,
            Self::Decimal => DataType::Decimal128(20, 0),
            Self::Flag => DataType::Boolean,
            Self::Moment => moment(),
            Self::Window => DataType::Struct(window()),
            Self::Variant => Maps::field(RestType::Variant, "").data_type().clone(),
        }
    }
}

fn element() -> FieldRef {
    Arc::new(Field::new("element", DataType::Binary, true))
}

fn moment() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn window() -> Fields {
    Fields::from(vec![Field::new("start", moment(), true), Field::new("end", moment(), true)])
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum Cell {
    Null,
    Text(String),
    /// Text that other rows have too.
    Shared(Arc<str>),
    /// One of a few words.
    Word(&'static str),
    Bytes(Vec<u8>),
    /// Several of them.
    Frames(Vec<Vec<u8>>),
    Number(i64),
    /// A number that has no sign.
    Decimal(u64),
    Flag(bool),
    /// Microseconds since 1970.
    Moment(i64),
    /// From one moment until another.
    Window(i64, i64),
    /// Bytes that other rows have too.
    SharedBytes(Arc<ByteBuf>),
    /// A fingerprint, as bytes.
    Fingerprint(u128),
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Arc<str>> for Cell {
    fn from(value: Arc<str>) -> Self {
        Self::Shared(value)
    }
}

impl From<Arc<ByteBuf>> for Cell {
    fn from(value: Arc<ByteBuf>) -> Self {
        Self::SharedBytes(value)
    }
}

impl From<Vec<u8>> for Cell {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Number(value)
    }
}

impl Cell {
    fn weight(&self) -> usize {
        8 + match self {
            Self::Text(text) => text.len(),
            Self::Shared(text) => text.len(),
            Self::Word(word) => word.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::SharedBytes(bytes) => bytes.len(),
            Self::Fingerprint(_) => size_of::<u128>(),
            Self::Frames(frames) => frames.iter().map(|frame| 8 + frame.len()).sum(),
            Self::Null | Self::Number(_) | Self::Decimal(_) | Self::Flag(_) | Self::Moment(_) | Self::Window(..) => 8,
        }
    }
}

/// The columns of a table: their names and types.
pub(crate) type Columns = &'static [(&'static str, Kind)];

/// Their fields.
pub(crate) fn fields(columns: Columns) -> Fields {
    columns.iter().map(|(name, kind)| kind.field(name)).collect()
}

enum Builder {
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Frames(ListBuilder<BinaryBuilder>),
    Number(Int64Builder),
    Small(Int32Builder),
    Decimal(Decimal128Builder),
    Flag(BooleanBuilder),
    Moment(TimestampMicrosecondBuilder),
    Window(TimestampMicrosecondBuilder, TimestampMicrosecondBuilder),
    Maps(Box<Maps>),
}

impl Builder {
    fn new(kind: Kind) -> Self {
        let moments = || TimestampMicrosecondBuilder::new().with_timezone("UTC");
        match kind {
            Kind::Text => Self::Text(StringBuilder::new()),
            Kind::Bytes => Self::Bytes(BinaryBuilder::new()),
            Kind::Frames => Self::Frames(ListBuilder::new(BinaryBuilder::new()).with_field(element())),
            Kind::Number => Self::Number(Int64Builder::new()),
            Kind::Small => Self::Small(Int32Builder::new()),
            Kind::Decimal => Self::Decimal(Decimal128Builder::new().with_data_type(DataType::Decimal128(20, 0))),
            Kind::Flag => Self::Flag(BooleanBuilder::new()),
            Kind::Moment => Self::Moment(moments()),
            Kind::Window => Self::Window(moments(), moments()),
            Kind::Variant => Self::Maps(Box::new(Maps::new(RestType::Variant))),
            Kind::Json => Self::Maps(Box::new(Maps::new(RestType::Json))),
        }
    }

    /// Appends a cell, giving its bytes; one of another type becomes null.
    fn push(&mut self, cell: Cell) -> Result<usize, ColumnError> {
        let weight = cell.weight();
        match (self, cell) {
            (Self::Maps(column), cell) => {
                let before = column.bytes();
                column.append(if let Cell::Bytes(map) = &cell { Some(map) } else { None })?;
                // A map takes several times its bytes there.
                return Ok(column.bytes().saturating_sub(before));
            }
            (Self::Text(column), Cell::Text(text)) => column.append_value(text),
            (Self::Text(column), Cell::Shared(text)) => column.append_value(text),
            (Self::Text(column), Cell::Word(word)) => column.append_value(word),
            (Self::Text(column), _) => column.append_null(),
            (Self::Bytes(column), Cell::Bytes(bytes)) => column.append_value(bytes),
            (Self::Bytes(column), Cell::SharedBytes(bytes)) => column.append_value(&**bytes),
            (Self::Bytes(column), Cell::Fingerprint(number)) => column.append_value(number.to_be_bytes()),
            (Self::Bytes(column), _) => column.append_null(),
            (Self::Frames(column), Cell::Frames(frames)) => {
                for frame in frames {
                    column.values().append_value(frame);
                }
                column.append(true);
            }
            (Self::Frames(column), _) => column.append(false),
            (Self::Number(column), Cell::Number(number)) => column.append_value(number),
            (Self::Number(column), _) => column.append_null(),
            (Self::Small(column), Cell::Number(number)) => {
                column.append_value(i32::try_from(number).unwrap_or(i32::MAX));
            }
            (Self::Small(column), _) => column.append_null(),
            (Self::Decimal(column), Cell::Decimal(number)) => column.append_value(number.into()),
            (Self::Decimal(column), _) => column.append_null(),
            (Self::Flag(column), Cell::Flag(flag)) => column.append_value(flag),
            (Self::Flag(column), _) => column.append_null(),
            (Self::Moment(column), Cell::Moment(moment)) => column.append_value(moment),
            (Self::Moment(column), _) => column.append_null(),
            (Self::Window(starts, ends), Cell::Window(start, end)) => {
                starts.append_value(start);
                ends.append_value(end);
            }
            (Self::Window(starts, ends), _) => {
                starts.append_null();
                ends.append_null();
            }
        }
        Ok(weight)
    }

    fn finish(self) -> Result<ArrayRef, ColumnError> {
        Ok(match self {
            Self::Text(mut column) => Arc::new(column.finish()),
            Self::Bytes(mut column) => Arc::new(column.finish()),
            Self::Frames(mut column) => Arc::new(column.finish()),
            Self::Number(mut column) => Arc::new(column.finish()),
            Self::Small(mut column) => Arc::new(column.finish()),
            Self::Decimal(mut column) => Arc::new(column.finish()),
            Self::Flag(mut column) => Arc::new(column.finish()),
            Self::Moment(mut column) => Arc::new(column.finish()),
            Self::Maps(column) => column.finish()?,
            Self::Window(mut starts, mut ends) => {
                let both: Vec<ArrayRef> = vec![Arc::new(starts.finish()), Arc::new(ends.finish())];
                Arc::new(StructArray::try_new(window(), both, None)?)
            }
        })
    }
}

/// A table being built, until it is full.
pub(crate) struct Table {
    columns: Columns,
    builders: Vec<Builder>,
    rows: usize,
    bytes: usize,
}

impl Table {
    pub(crate) fn new(columns: Columns) -> Self {
        let builders = columns.iter().map(|(_, kind)| Builder::new(*kind)).collect();
        Self { columns, builders, rows: 0, bytes: 0 }
    }

    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = Cell>) -> Result<(), ColumnError> {
        self.rows += 1;
        for (builder, cell) in self.builders.iter_mut().zip(cells) {
            self.bytes += builder.push(cell)?;
        }
        Ok(())
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub(crate) fn finish(self) -> Result<RecordBatch, ColumnError> {
        let columns = self.builders.into_iter().map(Builder::finish).collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields(self.columns))), columns)?)
    }
}
