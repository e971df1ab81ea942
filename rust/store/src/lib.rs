//! The contents of queues on disk, as one file of SQLite.
//!
//! A [`Store`] holds what a server has promised to keep: [`Store::commit`] returns once a change would survive the loss of
//! power, whole, or fails and has changed nothing. What is read at the start is handed over once, and kept by whoever
//! asked: the file is written from then on, and not read.
//!
//! A [`Committer`] is a store on a thread of its own: what waits while one change is being written becomes the next one,
//! so that many who wait share a single `fsync`.
#![forbid(unsafe_code)]

mod committer;
mod error;
mod place;
mod schema;
mod store;

pub use committer::{Committer, Outcome};
pub use error::StoreError;
pub use store::Store;
pub use trunkline_wire::mtl::server::{Batch, Op, Restored, StoredContent};
