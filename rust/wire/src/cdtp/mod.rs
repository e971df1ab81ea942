//! CDTP: one sender streams data to one receiver over PUSH and PULL.

mod header;

pub use header::*;
