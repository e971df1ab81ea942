//! The contents of queues on disk, as one file of SQLite.
//!
//! A [`Store`] holds what a server has promised to keep: [`Store::commit`] returns once a whole change would survive
//! the loss of power, or fails and has changed nothing. The contents are read once, at the start, and handed to the
//! caller, which keeps them: from then on the file is only written.
//!
//! A [`Committer`] is a store on its own thread: what is pending while one change is being written becomes the next
//! one, so that many callers share a single `fsync`.
#![forbid(unsafe_code)]

mod committer;
mod directory;
mod error;
mod schema;
mod store;

pub use committer::{Committer, Outcome};
pub use error::StoreError;
pub use store::Store;
pub use trunkline_wire::mtl::server::{Batch, Op, Restored, StoredContent};
