//! Machines whose users wait for answers; each protocol has its own term for these calls.

use crate::Machine;

/// The user's number of a call, never used twice. Of two queued calls, the lower number is sent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A machine with calls among its verbs. Each ends in exactly one event, unless it was cancelled.
pub trait Calling: Machine {
    /// The outcome of a call.
    type Outcome: Send + 'static;

    /// The call that an event ends, with its outcome.
    ///
    /// # Errors
    /// The event, if it ends no call.
    fn outcome(event: Self::Event) -> Result<(CallId, Self::Outcome), Self::Event>;

    /// The outcome of a call after its machine is gone.
    fn unanswered() -> Self::Outcome;

    /// How many bytes an outcome takes of a queue.
    fn cost(outcome: &Self::Outcome) -> usize;
}
