//! Columns of wire bytes in, Arrow columns out: one call a batch, no row leaves Rust.
#![forbid(unsafe_code)]

pub mod cdtp;
pub mod dcp;
mod ddl;
mod error;
mod input;
mod options;
mod output;
mod tags;
mod variant;

pub use ddl::ddl;
pub use error::{ColumnError, ColumnKind};
pub use input::{Headers, Parts};
pub use options::{Mode, PlanError, TagType, Tags};
pub use output::Rows;
pub use variant::variant_type;
