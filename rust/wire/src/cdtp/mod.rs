//! CDTP: one sender streams data to one receiver over PUSH and PULL.

mod decode;
mod encode;
mod layout;
mod variant;

pub use decode::{decode, decode_header};
pub use encode::{encode_batch, encode_header};
pub use layout::{Batch, Head, Layout, Record};
pub use variant::{Accept, MessageType, Settings, Variant};
