//! Columns of wire bytes in, Arrow columns out: one call for each batch, no row leaves Rust.
#![forbid(unsafe_code)]

pub mod cdt;
pub mod cdtp;
pub mod dcp;
mod ddl;
mod error;
mod every;
mod faults;
mod input;
mod item;
mod json;
mod limits;
pub mod mc0;
pub mod mtl;
mod options;
mod output;
mod protocols;
mod table;
mod tags;
mod variant;
mod writing;

pub use ddl::ddl;
pub use error::{ColumnError, ColumnKind};
pub use every::EVERY;
pub use input::{Input, Message, Need, Parts};
pub use options::{Mode, PlanError, RestType, Setting, TagType, Tags, Value};
pub use protocols::{Decoder, Description, PROTOCOLS, RowBatches};
pub use table::{
    BATCH_BYTES, Batches, Builder, Mismatches, Rows, Table, decode_rows, decode_structs, row_fields, struct_fields,
};
pub use tags::Maps;
pub use variant::variant_field;
pub use writing::{Given, Writer, encode_structs, frames_fields};
