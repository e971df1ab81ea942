//! Columns of wire bytes in, Arrow columns out: one call for each batch, no row leaves Rust.
#![forbid(unsafe_code)]

mod asked;
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
mod payload;
mod protocols;
mod table;
mod tags;
mod variant;
mod writing;

pub use asked::Asked;
pub use ddl::ddl;
pub use error::{ColumnError, ColumnKind};
pub use every::EVERY;
pub use input::{Input, Message, Need, Parts};
pub use options::{Mode, PlanError, RestType, Setting, TagType, Tags, Value};
pub use payload::{Fault, FixedField, FixedType, Layout, LayoutError, Payload, PayloadKind, Types};
pub use protocols::{Decoder, Description, RowBatches};
pub use table::{
    BATCH_BYTES, Batches, Builder, Mismatches, Rows, Table, decode_rows, decode_structs, row_fields, struct_fields,
};
pub use tags::Maps;
pub use variant::{Shredding, flagged_objects, unshredded, variant_field, variant_json};
pub use writing::{StructFields, Writer, encode_structs, frames_fields};

use trunkline_wire::{cdt::Cdt, cdtp::Cdtp, dcp::Dcp, mc0::Mc0, mtl::Mtl};

use protocols::Of;

/// Every protocol that has columns. The first is the default.
pub static PROTOCOLS: &[&dyn Description] =
    &[&Of::<Cdtp>::NEW, &Of::<Dcp>::NEW, &Of::<Mc0>::NEW, &Of::<Mtl>::NEW, &Of::<Cdt>::NEW];
