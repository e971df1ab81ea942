//! The protocols that have columns, for callers that know the name only at run time.

use std::marker::PhantomData;

use arrow_array::StructArray;
use arrow_schema::Fields;
use trunkline_wire::{ErrorKind, cdt::Cdt, cdtp::Cdtp, dcp::Dcp, mc0::Mc0, mtl::Mtl};

use crate::{
    ColumnError, ColumnKind, Parts, PlanError, Rows, Table, Value, decode_rows, decode_structs, encode_structs,
    input::Input, row_fields, struct_fields,
};

/// Every protocol that has columns. The first is the default.
pub static PROTOCOLS: &[&dyn Description] = &[
    &Of::<Cdtp>(PhantomData),
    &Of::<Dcp>(PhantomData),
    &Of::<Mc0>(PhantomData),
    &Of::<Mtl>(PhantomData),
    &Of::<Cdt>(PhantomData),
];

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

/// A protocol with its options of decoding.
pub trait Decoder: Send + Sync {
    /// The columns of [`decode_rows`](Self::decode_rows).
    fn row_fields(&self) -> Fields;

    /// The fields of [`decode_structs`](Self::decode_structs).
    fn struct_fields(&self) -> Result<Fields, PlanError>;

    /// A row for each message, in batches of about [`BATCH_BYTES`](crate::BATCH_BYTES).
    fn decode_rows(&self, parts: Parts) -> Result<RowBatches, ColumnError>;

    /// A struct for each message.
    fn decode_structs(&self, parts: &Parts) -> Result<StructArray, ColumnError>;

    /// The frames of a struct for each message.
    fn encode_structs(&self, structs: &StructArray) -> Result<StructArray, ColumnError>;
}

struct Of<T>(PhantomData<fn() -> T>);

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

    fn decode_rows(&self, parts: Parts) -> Result<RowBatches, ColumnError> {
        Ok(Box::new(decode_rows::<T>(self.0.clone(), parts)?))
    }

    fn decode_structs(&self, parts: &Parts) -> Result<StructArray, ColumnError> {
        decode_structs::<T>(&self.0, parts)
    }

    fn encode_structs(&self, structs: &StructArray) -> Result<StructArray, ColumnError> {
        encode_structs::<T>(&self.0, structs)
    }
}
