//! Combines messages: the request and its reply, the content and what settled it. Folds over decoded rows in recorded
//! order, without files, sockets or Python.
#![forbid(unsafe_code)]

mod alike;
mod contents;
mod divide;
mod fold;
mod folds;
mod gaps;
mod latencies;
mod ordered;
mod passing;
mod queues;
mod requests;
mod rollout;
mod room;
mod rows;
mod runs;
mod seen;
mod senders;
mod state;
mod summaries;
mod table;
mod topics;
mod tries;

pub use divide::divide;
pub use fold::Folding;
pub use folds::{NAMES, Options, folding};
pub use runs::FRAMES;
pub use state::StateError;
pub use summaries::{COLOURS, Clock, DECADE, NAMES_MAX, OTHERS, Scope, Summary, summary};
