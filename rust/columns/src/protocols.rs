//! The protocols that have columns, for callers that know the name only at run time.

use std::{collections::HashSet, marker::PhantomData};

use arrow_array::StructArray;
use arrow_schema::Fields;
use trunkline_wire::ErrorKind;

use crate::{
    Asked, ColumnError, ColumnKind, Layout, Mode, Parts, Payload, PlanError, Rows, Table, Value, decode_structs,
    encode_structs,
    input::{Input, Need},
    row_fields, struct_fields,
    table::decode_columns,
};

/// The description of a protocol's columns.
pub trait Description: Sync {
    /// The name in a capture's `protocol` column.
    fn name(&self) -> &'static str;

    /// Whether messages go one way, so that those recorded can be sent again.
    fn is_one_way(&self) -> bool;

    /// The options with their defaults, in order.
    fn options(&self) -> Vec<(&'static str, Value)>;

    /// The columns that decoding takes.
    fn inputs(&self) -> &'static [Input];

    /// The columns of a capture that a message keeps of the row it comes from.
    fn kept(&self) -> &'static [&'static str];

    /// The kinds of errors of invalid frames.
    fn error_kinds(&self) -> &'static [ErrorKind];

    /// The values of a valid message that a column may be unable to hold.
    fn column_kinds(&self) -> &'static [ColumnKind];

    /// The types of messages, as in their column.
    fn message_types(&self) -> Vec<&'static str>;

    /// A decoder with these options, and defaults for the others.
    fn decoder(&self, options: Vec<(&str, Value)>) -> Result<Box<dyn Decoder>, PlanError>;
}

/// The result of [`Decoder::decode_rows`]; nothing comes after an error.
pub type RowBatches = Box<dyn Iterator<Item = Result<Rows, ColumnError>> + Send>;

/// The batches with these columns alone.
pub(crate) fn projected(batches: RowBatches, only: Option<&[String]>) -> RowBatches {
    let Some(only) = only.map(<[String]>::to_vec) else { return batches };
    Box::new(batches.map(move |rows| {
        let rows = rows?;
        let schema = rows.columns.schema();
        let places = only.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>()?;
        Ok(Rows { columns: rows.columns.project(&places)?, ..rows })
    }))
}

/// A protocol with its options of decoding.
pub trait Decoder: Send + Sync {
    /// The columns of [`decode_rows`](Self::decode_rows).
    fn row_fields(&self) -> Fields;

    /// The fields of [`decode_structs`](Self::decode_structs).
    fn struct_fields(&self) -> Result<Fields, PlanError>;

    /// The columns that decoding takes, and the purpose of each.
    fn inputs(&self) -> Vec<(&'static str, Need<Vec<String>>)>;

    /// A row for each message, in batches of about [`BATCH_BYTES`](crate::BATCH_BYTES). With `only` these columns alone,
    /// in this order.
    fn decode_rows(&self, parts: Parts, only: Option<&[String]>) -> Result<RowBatches, ColumnError>;

    /// A struct for each message.
    fn decode_structs(&self, parts: &Parts) -> Result<StructArray, ColumnError>;

    /// The frames of a struct for each message.
    fn encode_structs(&self, structs: &StructArray) -> Result<StructArray, ColumnError>;
}

/// The description of one protocol.
pub(crate) struct Of<T>(PhantomData<fn() -> T>);

impl<T> Of<T> {
    pub(crate) const NEW: Self = Self(PhantomData);
}

impl<T: Table> Description for Of<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn is_one_way(&self) -> bool {
        T::ONE_WAY
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        let mut options = T::Options::default();
        T::OPTIONS.iter().map(|(name, setting)| (*name, setting.get(&mut options))).collect()
    }

    fn inputs(&self) -> &'static [Input] {
        T::INPUTS
    }

    fn kept(&self) -> &'static [&'static str] {
        T::KEPT
    }

    fn error_kinds(&self) -> &'static [ErrorKind] {
        T::KINDS
    }

    fn column_kinds(&self) -> &'static [ColumnKind] {
        T::COLUMN_KINDS
    }

    fn message_types(&self) -> Vec<&'static str> {
        T::message_types()
    }

    fn decoder(&self, given: Vec<(&str, Value)>) -> Result<Box<dyn Decoder>, PlanError> {
        let mut options = T::Options::default();
        for (name, value) in given {
            let setting = T::OPTIONS.iter().find(|(known, _)| *known == name);
            let (name, setting) = setting.ok_or_else(|| PlanError::NotOf(T::NAME, name.to_owned()))?;
            setting.set(&mut options, name, value)?;
        }
        if T::payload(&mut options).layout().is_some_and(Layout::needs_tags) && !T::HAS_TAGS {
            return Err(PlanError::NoTags(T::NAME));
        }
        Ok(Box::new(With::<T>(options)))
    }
}

struct With<T: Table>(T::Options);

impl<T: Table> Decoder for With<T> {
    fn row_fields(&self) -> Fields {
        row_fields::<T>(&self.0)
    }

    fn struct_fields(&self) -> Result<Fields, PlanError> {
        struct_fields::<T>(&self.0)
    }

    fn inputs(&self) -> Vec<(&'static str, Need<Vec<String>>)> {
        let mut options = self.0.clone();
        let is_kept = T::mode(&options) == Mode::Permissive;
        let layout = T::payload(&mut options).layout();
        let of = |input: &Input| match (input.need, layout) {
            (need, Some(layout)) if input.name == "payload" && need != Need::Always => {
                // Without it neither is known what is wrong with it, nor which rows to drop.
                if is_kept {
                    need.with(layout.columns().iter().map(|column| column.name().as_str()).chain(["error"]))
                } else {
                    Need::Always
                }
            }
            (need, _) => need.with([]),
        };
        T::INPUTS.iter().map(|input| (input.name, of(input))).collect()
    }

    fn decode_rows(&self, parts: Parts, only: Option<&[String]>) -> Result<RowBatches, ColumnError> {
        let mut options = self.0.clone();
        if let (Some(only), Payload::Layout(layout)) = (only, T::payload(&mut options)) {
            let only: HashSet<&str> = only.iter().map(String::as_str).collect();
            // What is wrong with a value of a map is seen where it becomes a column.
            let has_faults = only.contains("error") || T::mode(&self.0) == Mode::FailFast;
            *layout = layout.only(|name| only.contains(name) || (has_faults && layout.is_map()));
        }
        Ok(projected(Box::new(decode_columns::<T>(options, parts, Asked::only(only))?), only))
    }

    fn decode_structs(&self, parts: &Parts) -> Result<StructArray, ColumnError> {
        decode_structs::<T>(&self.0, parts)
    }

    fn encode_structs(&self, structs: &StructArray) -> Result<StructArray, ColumnError> {
        encode_structs::<T>(&self.0, structs)
    }
}
