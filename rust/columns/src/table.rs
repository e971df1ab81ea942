//! The columns of a protocol's messages, and the one loop that fills them: with a row a message, or a struct a message.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StructArray, UInt32Array};
use arrow_schema::{Fields, Schema};
use trunkline_wire::{DecodeError, ErrorKind, Protocol};

use crate::{
    ColumnError, ColumnKind, Message, Mode, Parts, PlanError, Setting,
    input::{Input, Inputs},
    output::Nulls,
};

/// The decoded messages of a batch, one a row.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The row of the batch each comes from. It never goes back.
    pub source: UInt32Array,
    /// What the messages say.
    pub columns: RecordBatch,
}

/// A protocol whose messages are decoded into columns.
pub trait Table: Protocol {
    /// What is to be decoded, and how.
    type Options: Clone + Default + Send + Sync;
    /// The columns of rows, being built.
    type Rows: Builder<Self>;
    /// The fields of structs, being built.
    type Structs: Builder<Self>;

    /// The options, by name.
    const OPTIONS: &'static [(&'static str, Setting<Self::Options>)];
    /// The columns that decoding takes.
    const INPUTS: &'static [Input];
    /// The columns of a capture that a message keeps of the row it comes from.
    const KEPT: &'static [&'static str];
    /// What a column may be unable to hold of a good message.
    const COLUMN_KINDS: &'static [ColumnKind];

    /// Which frames are messages.
    fn settings(options: &Self::Options) -> &Self::Settings;

    /// What becomes of the others.
    fn mode(options: &Self::Options) -> Mode;

    /// Decodes what is here of a message.
    #[inline]
    fn read(message: &Message<'_>, settings: &Self::Settings) -> Result<Self::Layout, DecodeError> {
        Self::decode(message.frames, settings)
    }
}

/// Columns being built.
pub trait Builder<T: Table + ?Sized>: Sized {
    /// What the columns are.
    fn fields(options: &T::Options) -> Fields;

    /// Columns without a row.
    fn new(options: &T::Options) -> Self;

    /// Appends a good message, and tells how many rows that took.
    fn push(&mut self, message: &Message<'_>, layout: &T::Layout) -> Result<usize, ColumnError>;

    /// Appends a row of frames that are no message.
    fn push_error(&mut self, message: &Message<'_>, kind: ErrorKind) -> Result<(), ColumnError>;

    /// Appends a row of nothing.
    fn push_null(&mut self) -> Result<(), ColumnError>;

    /// The columns.
    fn finish(self, options: &T::Options) -> Result<Vec<ArrayRef>, ColumnError>;
}

/// The columns of [`decode_rows`].
pub fn row_fields<T: Table>(options: &T::Options) -> Fields {
    T::Rows::fields(options)
}

/// The fields of the struct that [`decode_structs`] gives.
pub fn struct_fields<T: Table>(options: &T::Options) -> Result<Fields, PlanError> {
    if T::mode(options) == Mode::DropMalformed {
        Err(PlanError::DropInFunction)
    } else {
        Ok(T::Structs::fields(options))
    }
}

/// Decodes a batch into a row a message, what a table of messages is made of. Where there is no message there is a row of
/// nulls.
pub fn decode_rows<T: Table>(options: &T::Options, parts: &Parts) -> Result<Rows, ColumnError> {
    let inputs = parts.read(T::INPUTS)?;
    let mut source = Source::new(inputs.rows)?;
    let builder = fill::<T, T::Rows>(options, &inputs, |row, _, made| source.push(row, made))?;
    let schema = Arc::new(Schema::new(row_fields::<T>(options)));
    let count = RecordBatchOptions::new().with_row_count(Some(source.rows.len()));
    let columns = RecordBatch::try_new_with_options(schema, builder.finish(options)?, &count)?;
    Ok(Rows { source: source.rows.into(), columns })
}

/// Decodes a batch into a struct a message, what a column function gives. Where there is no message the struct is null.
pub fn decode_structs<T: Table>(options: &T::Options, parts: &Parts) -> Result<StructArray, ColumnError> {
    let fields = struct_fields::<T>(options).map_err(|error| ColumnError::Input(error.to_string()))?;
    let inputs = parts.read(T::INPUTS)?;
    let mut nulls = Nulls::default();
    let builder = fill::<T, T::Structs>(options, &inputs, |row, is_there, _| {
        nulls.push(row, is_there);
        Ok(())
    })?;
    Ok(StructArray::try_new(fields, builder.finish(options)?, nulls.finish(inputs.rows))?)
}

/// Fills columns row by row, telling of each whether there is a message and how many rows it made.
#[inline]
fn fill<T: Table, B: Builder<T>>(
    options: &T::Options,
    inputs: &Inputs<'_>,
    mut tell: impl FnMut(usize, bool, usize) -> Result<(), ColumnError>,
) -> Result<B, ColumnError> {
    let (settings, mode) = (T::settings(options), T::mode(options));
    let mut builder = B::new(options);
    let mut frames = Vec::new();
    for row in 0..inputs.rows {
        let Some(message) = inputs.message(row, &mut frames) else {
            builder.push_null()?;
            tell(row, false, 1)?;
            continue;
        };
        let rows = match T::read(&message, settings) {
            Ok(layout) => builder.push(&message, &layout)?,
            Err(error) => match mode {
                Mode::Permissive => builder.push_error(&message, error.kind).map(|()| 1)?,
                Mode::FailFast => return Err(ColumnError::Decode { row, error }),
                Mode::DropMalformed => 0,
            },
        };
        tell(row, true, rows)?;
    }
    Ok(builder)
}

/// Where rows come from. Nearly every row makes one, which takes no more than is there from the start.
struct Source {
    rows: Vec<u32>,
    alike: bool,
}

impl Source {
    fn new(rows: usize) -> Result<Self, ColumnError> {
        let rows = u32::try_from(rows).map_err(|_| ColumnError::TooLarge)?;
        Ok(Self { rows: (0..rows).collect(), alike: true })
    }

    #[inline]
    fn push(&mut self, row: usize, made: usize) -> Result<(), ColumnError> {
        if self.alike {
            if made == 1 {
                return Ok(());
            }
            self.alike = false;
            self.rows.truncate(row);
        }
        let row = u32::try_from(row).map_err(|_| ColumnError::TooLarge)?;
        self.rows.extend(std::iter::repeat_n(row, made));
        Ok(())
    }
}
