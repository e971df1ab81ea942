//! DCP messages as columns: a row for each, or a struct for each.

mod message;
mod rows;
mod structs;

pub use message::row_fields;
pub use rows::decode_rows;
pub use structs::{decode_structs, struct_fields};

use trunkline_wire::dcp::Settings;

use crate::Mode;

/// What is to be decoded, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which frames are messages.
    pub settings: Settings,
    /// What becomes of the others.
    pub mode: Mode,
    /// Whether there is a column of the parts of the data.
    pub data: bool,
}
