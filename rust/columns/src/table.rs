//! The columns of a protocol's messages, and the one loop that fills them: with a row or a struct for each message.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StructArray, UInt32Array};
use arrow_schema::{DataType, Fields, Schema};
use trunkline_wire::{DecodeError, Protocol};

use crate::{
    ColumnError, ColumnKind, Message, Mode, Parts, PlanError, Setting,
    asked::Asked,
    input::{Input, Inputs},
    limits::MAX_BYTES,
    output::Nulls,
    payload::{Fault, Layout, Payload},
    writing::{StructFields, Writer},
};

/// A batch of rows ends when its columns take so many bytes, or with the row that takes more.
pub const BATCH_BYTES: usize = 64 << 20;

/// The most bytes of columns for each byte of a message. A map `{0: nil}` among tags as JSON comes close.
const GROWTH: usize = 16;

/// The most bytes that a row takes in a column, apart from its value.
const CELL: usize = 16;

/// The decoded messages of a batch, one for each row.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The row of the batch that each comes from, in ascending order.
    pub source: UInt32Array,
    /// The values of the messages.
    pub columns: RecordBatch,
    /// How many values of each tag, property or field are null because their type differs from the requested one.
    pub mismatches: Mismatches,
}

/// Numbers of values by name.
pub type Mismatches = BTreeMap<String, u64>;

/// A protocol whose messages are decoded into columns.
pub trait Table: Protocol {
    /// The options of decoding.
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
    /// The values of a valid message that a column may be unable to hold.
    const COLUMN_KINDS: &'static [ColumnKind];
    /// Whether messages have tags, which may say what their payload is.
    const HAS_TAGS: bool = false;

    /// The types of messages, as in their column.
    fn message_types() -> Vec<&'static str>;

    /// The settings of valid frames.
    fn settings(options: &Self::Options) -> &Self::Settings;

    /// The handling of invalid messages.
    fn mode(options: &Self::Options) -> Mode;

    /// What becomes of payloads.
    fn payload(options: &mut Self::Options) -> &mut Payload;

    /// The writer of messages from structs.
    fn writer(options: &Self::Options, given: StructFields<'_>) -> Result<Box<dyn Writer>, ColumnError>;

    /// Decodes the available parts of a message.
    #[inline]
    fn read(message: &Message<'_>, settings: &Self::Settings) -> Result<Self::Layout, DecodeError> {
        Self::decode(message.frames, settings)
    }
}

/// Columns being built.
pub trait Builder<T: Table + ?Sized>: Sized {
    /// The fields of the columns.
    fn fields(options: &T::Options) -> Fields;

    /// Columns without a row, of which those that are not asked for will have only nulls.
    fn new(options: &T::Options, asked: &Asked) -> Self;

    /// The number of rows of a valid message; None if no column could hold what they repeat of it.
    #[inline]
    fn rows(_layout: &T::Layout) -> Option<usize> {
        Some(1)
    }

    /// The bytes of a valid message that go into one of its rows, and the number of values for each column.
    #[inline]
    fn weight(message: &Message<'_>, _layout: &T::Layout, _position: usize) -> (usize, usize) {
        (message.weight, 1)
    }

    /// The current bytes of the columns.
    fn bytes(&self) -> usize;

    /// How many values have another type than requested, by name.
    fn mismatches(&self) -> Mismatches {
        Mismatches::new()
    }

    /// Whether the payload of one of the rows of a valid message is of the layout asked for.
    fn check(&mut self, _message: &Message<'_>, _layout: &T::Layout, _position: usize) -> Result<(), Fault> {
        Ok(())
    }

    /// Appends one of the rows of a valid message.
    fn push(&mut self, message: &Message<'_>, layout: &T::Layout, position: usize) -> Result<(), ColumnError>;

    /// Appends a row of an error and, if they are kept, its frames.
    fn push_error(&mut self, kind: &'static str, frames: Option<&[&[u8]]>) -> Result<(), ColumnError>;

    /// Appends a row of nulls.
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

/// Decodes a batch into a row for each message, for a table of messages. Without a message the row has only nulls.
pub fn decode_rows<T: Table>(options: T::Options, parts: Parts) -> Result<Batches<T>, ColumnError> {
    decode_columns(options, parts, Asked::default())
}

/// The same, where only some columns are filled in.
pub(crate) fn decode_columns<T: Table>(
    options: T::Options,
    parts: Parts,
    asked: Asked,
) -> Result<Batches<T>, ColumnError> {
    parts.read(T::INPUTS)?;
    Ok(Batches { options, parts, asked, next: Some(Position::default()) })
}

/// The rows that [`decode_rows`] gives, in batches of about [`BATCH_BYTES`]: at least one, and none after an error.
#[derive(Debug)]
pub struct Batches<T: Table> {
    options: T::Options,
    parts: Parts,
    asked: Asked,
    /// Where the next batch begins, if there is one.
    next: Option<Position>,
}

impl<T: Table> Iterator for Batches<T> {
    type Item = Result<Rows, ColumnError>;

    fn next(&mut self) -> Option<Self::Item> {
        let from = self.next.take()?;
        Some(self.decode(from))
    }
}

impl<T: Table> Batches<T> {
    fn decode(&mut self, from: Position) -> Result<Rows, ColumnError> {
        let inputs = self.parts.read(T::INPUTS)?;
        let mut source = Source { first: from.row, alike: 0, others: Vec::new() };
        let (builder, to) =
            fill::<T, T::Rows>((&self.options, &self.asked), &inputs, from, Some(BATCH_BYTES), |row, _| {
                source.push(row);
            })?;
        let source = source.finish();
        let schema = Arc::new(Schema::new(row_fields::<T>(&self.options)));
        let count = RecordBatchOptions::new().with_row_count(Some(source.len()));
        let mismatches = builder.mismatches();
        let columns = RecordBatch::try_new_with_options(schema, builder.finish(&self.options)?, &count)?;
        self.next = (to.row < inputs.rows).then_some(to);
        Ok(Rows { source, columns, mismatches })
    }
}

/// Decodes a batch into a struct for each message, for a column function. Without a message the struct is null.
pub fn decode_structs<T: Table>(options: &T::Options, parts: &Parts) -> Result<StructArray, ColumnError> {
    let fields = struct_fields::<T>(options).map_err(|error| ColumnError::Input(error.to_string()))?;
    let inputs = parts.read(T::INPUTS)?;
    let mut nulls = Nulls::default();
    let (builder, _) =
        fill::<T, T::Structs>((options, &Asked::default()), &inputs, Position::default(), None, |row, is_there| {
            nulls.push(row, is_there);
        })?;
    Ok(StructArray::try_new(fields, builder.finish(options)?, nulls.finish(inputs.rows))?)
}

/// The position of decoding: this row of the batch, and this one of the rows of its message.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    row: usize,
    position: usize,
}

/// Fills columns from this position on, until they take `limit` bytes, and records for each row its source and whether
/// there is a message. Without a limit all rows are filled in, and a message that does not fit beside the others is too
/// large.
#[inline]
fn fill<T: Table, B: Builder<T>>(
    (options, asked): (&T::Options, &Asked),
    inputs: &Inputs<'_>,
    from: Position,
    limit: Option<usize>,
    mut tell: impl FnMut(usize, bool),
) -> Result<(B, Position), ColumnError> {
    let (settings, mode) = (T::settings(options), T::mode(options));
    let payloads = T::payload(&mut options.clone()).layout().cloned();
    let growth = GROWTH.max(payloads.as_ref().map_or(0, Layout::growth));
    let null = payloads.as_ref().map_or(0, Layout::fixed);
    let cells = null.saturating_add(CELL * columns(&B::fields(options)));
    let is_checked = mode != Mode::Permissive && payloads.is_some();
    let asked = &asked.of(inputs.payloads());
    let mut builder = B::new(options, asked);
    let mut room = Room { left: 0, limit, is_empty: true };
    let mut frames = Vec::new();
    let mut position = from.position;
    for row in from.row..inputs.rows {
        let Some(message) = inputs.message(row, &mut frames) else {
            if null > 0 && matches!(room.ask(cells, || builder.bytes()), Fit::Elsewhere) {
                return Ok((builder, Position { row, position }));
            }
            builder.push_null()?;
            tell(row, false);
            continue;
        };
        // Read in place: to move it costs as much as to fill in a row.
        let read = T::read(&message, settings);
        match &read {
            Ok(layout) => {
                let rows = B::rows(layout);
                while position < rows.unwrap_or(1) {
                    let (bytes, values) = B::weight(&message, layout, position);
                    let fits = match room
                        .ask(bytes.saturating_mul(growth).saturating_add(values.saturating_mul(cells)), || {
                            builder.bytes()
                        }) {
                        Fit::Certainly => rows.is_some(),
                        Fit::Perhaps(taken) => {
                            rows.is_some() && fits_beside::<T, B>((options, asked), &message, layout, position, taken)?
                        }
                        // The message is decoded again then, which is rare.
                        Fit::Elsewhere => return Ok((builder, Position { row, position })),
                    };
                    if fits {
                        if is_checked && let Err(fault) = builder.check(&message, layout, position) {
                            if mode == Mode::FailFast {
                                return Err(ColumnError::Payload { row, fault });
                            }
                            position += 1;
                            continue;
                        }
                        builder.push(&message, layout, position)?;
                    } else if mode == Mode::FailFast {
                        return Err(ColumnError::MessageTooLarge { row });
                    } else {
                        builder.push_error(ColumnKind::MessageTooLarge.slug(), None)?;
                    }
                    tell(row, true);
                    position += 1;
                }
                position = 0;
            }
            Err(error) => match mode {
                Mode::FailFast => return Err(ColumnError::Decode { row, error: *error }),
                Mode::DropMalformed => {}
                Mode::Permissive => {
                    let frames = match room.ask(message.weight.saturating_add(cells), || builder.bytes()) {
                        Fit::Certainly => Some(message.frames),
                        Fit::Perhaps(_) => None,
                        Fit::Elsewhere => return Ok((builder, Position { row, position })),
                    };
                    builder.push_error(error.kind.slug(), frames)?;
                    tell(row, true);
                }
            },
        }
    }
    Ok((builder, Position { row: inputs.rows, position: 0 }))
}

/// The sources of rows: mostly each follows that of the row before.
struct Source {
    first: usize,
    /// The number of first rows for which this holds.
    alike: usize,
    others: Vec<u32>,
}

impl Source {
    #[inline]
    fn push(&mut self, row: usize) {
        if row == self.first + self.alike && self.others.is_empty() {
            self.alike += 1;
        } else {
            self.others.push(index(row));
        }
    }

    fn finish(self) -> UInt32Array {
        let alike = (self.first..self.first + self.alike).map(index);
        alike.chain(self.others).collect::<Vec<_>>().into()
    }
}

/// The number of a row of a batch, which has no more than 32 bits as its columns' offsets.
fn index(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}

/// The number of columns, nested ones included.
fn columns(fields: &Fields) -> usize {
    fields.iter().map(|field| 1 + within(field.data_type())).sum()
}

fn within(data_type: &DataType) -> usize {
    if let DataType::List(element) | DataType::Map(element, _) = data_type {
        return 1 + within(element.data_type());
    }
    if let DataType::Struct(fields) = data_type { columns(fields) } else { 0 }
}

/// The room in a batch.
struct Room {
    /// So many bytes fit without another check of the columns.
    left: usize,
    limit: Option<usize>,
    is_empty: bool,
}

/// Whether a row fits into a batch.
enum Fit {
    Certainly,
    /// It must be tried: beside so many bytes.
    Perhaps(usize),
    /// It belongs to the next batch.
    Elsewhere,
}

impl Room {
    /// Whether there is room for a row of at most this many bytes, when the columns take `taken`.
    #[inline]
    fn ask(&mut self, bytes: usize, taken: impl FnOnce() -> usize) -> Fit {
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return Fit::Certainly;
        }
        self.look(bytes, taken())
    }

    #[inline(never)]
    fn look(&mut self, bytes: usize, taken: usize) -> Fit {
        let limit = self.limit.unwrap_or(MAX_BYTES);
        let is_certain = taken < limit && bytes <= MAX_BYTES - taken;
        if !is_certain && self.limit.is_some() && !self.is_empty {
            return Fit::Elsewhere;
        }
        self.is_empty = false;
        self.left = limit.saturating_sub(taken).saturating_sub(bytes);
        if is_certain { Fit::Certainly } else { Fit::Perhaps(taken) }
    }
}

/// Whether a row fits beside so many bytes: tried in separate columns, as a row that fits only in part cannot be
/// removed.
#[inline(never)]
fn fits_beside<T: Table, B: Builder<T>>(
    (options, asked): (&T::Options, &Asked),
    message: &Message<'_>,
    layout: &T::Layout,
    position: usize,
    taken: usize,
) -> Result<bool, ColumnError> {
    let mut alone = B::new(options, asked);
    match alone.push(message, layout, position) {
        Ok(()) => Ok(alone.bytes() <= MAX_BYTES.saturating_sub(taken)),
        Err(ColumnError::TooLarge) => Ok(false),
        Err(error) => Err(error),
    }
}
