//! Combines messages: the request and its reply, the content and what settled it. Folds over decoded rows in recorded
//! order, without files, sockets or Python.
#![forbid(unsafe_code)]

mod bodies;
mod budget;
mod contents;
mod dead_letters;
mod delivered;
mod deliveries;
mod divide;
mod fingerprint;
mod fold;
mod folds;
mod gaps;
mod latencies;
mod ordered;
mod passing;
mod payloads;
mod queues;
mod remembered;
mod requests;
mod rollout;
mod rows;
mod runs;
mod seen;
mod senders;
mod settlements;
mod state;
mod summaries;
mod table;
mod topics;

pub use divide::{Choice, Key, Part, divide};
pub use fold::Folding;
pub use folds::{NAMES, Options, folding};
pub use payloads::Payloads;
pub use runs::FRAMES;
pub use state::StateError;
pub use summaries::{COLOURS, Clock, DECADE, NAMES_MAX, OTHERS, Scope, Summary, key, summary};
