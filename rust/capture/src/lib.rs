//! Messages into segments on disk and back.
//!
//! A capture is a directory of Parquet segments, one row for each message. A [`Writer`] takes rows on the engine's
//! thread, builds Arrow columns of them and leaves the disk to its own thread, which appends every batch to a journal
//! (a dot-file) and at the same time encodes it into the next segment. What the journal holds after an `fsync` is
//! durable; what the segment holds after its rename is visible to Parquet readers. [`Capture`] reads both, [`recover`]
//! turns the journal of a killed writer into a segment.
#![forbid(unsafe_code)]

mod account;
mod batches;
mod clock;
mod columns;
mod compaction;
mod direction;
mod disk;
mod error;
#[cfg(test)]
mod faults;
mod files;
mod folder;
mod guard;
mod import;
mod interleaving;
mod ipc;
mod journal;
mod layout;
mod load;
#[cfg(unix)]
mod local;
#[cfg(not(unix))]
#[path = "elsewhere.rs"]
mod local;
mod location;
mod lock;
mod manifest;
mod names;
mod notes;
mod numbering;
mod patient;
mod published;
mod publishing;
mod reader;
mod recovery;
mod replacing;
mod retention;
mod rows;
mod runs;
mod scan;
mod schema;
mod sealed;
mod segment;
mod selection;
mod settings;
mod source;
mod staged;
mod store;
mod thrift;
mod variant;
mod verify;
mod writer;

pub use batches::Batches;
pub use clock::RowClock;
pub use columns::{MESSAGE_TOO_LARGE, Row};
pub use compaction::{Compaction, compact};
pub use direction::Direction;
pub use error::{CaptureError, CaptureErrorKind};
pub use folder::{Folder, FolderFile, NewFile};
pub use import::Import;
pub use layout::is_capture;
pub use location::{Location, Object, ObjectStore};
pub use names::Names;
pub use published::{Position, Published, existing, groups, published, read_file, segments, sizes};
pub use publishing::{QueryBatch, publish};
pub use reader::{Capture, Info};
pub use recovery::recover;
pub use replacing::{need_unlocked, put_back, replace};
pub use rows::Rows;
pub use runs::{RunRecord, Runs};
pub use schema::schema;
pub use selection::Selection;
pub use settings::{Access, Keep, Settings};
pub use staged::{Key, Staged, Stager};
pub use store::Recovery;
pub use variant::mark_variants;
pub use verify::{Problem, Verification, sums, verify};
pub use writer::{LowSpace, Progress, Ticket, Writer};
