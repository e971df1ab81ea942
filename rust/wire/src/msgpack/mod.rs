//! MessagePack: a bounds-checked reader over borrowed bytes, and writers of the shortest encoding.
//!
//! The reader takes every encoding the format allows, however wide, and never allocates: a map or an array is a count,
//! and its members are read one after another. Nesting is limited to [`MAX_DEPTH`].

mod head;
mod read;
mod timestamp;
mod write;

pub use head::{Head, Length, Width};
pub use read::{Reader, Value};
pub use timestamp::Timestamp;
pub use write::{
    Oversize, write_array, write_binary, write_bool, write_ext, write_f32, write_f64, write_map, write_nil,
    write_signed, write_string, write_timestamp, write_unsigned,
};

/// How deep maps and arrays may be nested, the outermost included.
pub const MAX_DEPTH: usize = 32;

/// The extension type of timestamps.
pub const TIMESTAMP_CODE: i8 = -1;
