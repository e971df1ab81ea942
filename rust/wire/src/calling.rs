//! Machines whose users wait for answers, whatever the protocol calls them.

use crate::Machine;

/// The user's number of a call, never used twice. Of two calls that wait the lower one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A machine some of whose verbs are calls. Each ends in one event, whatever happens, unless it was cancelled.
pub trait Calling: Machine {
    /// How a call ends.
    type Outcome: Send + 'static;

    /// The call that this event ends, and how; the event itself where it ends none.
    ///
    /// # Errors
    /// The event.
    fn outcome(event: Self::Event) -> Result<(CallId, Self::Outcome), Self::Event>;

    /// How a call ends whose machine is gone.
    fn unanswered() -> Self::Outcome;

    /// What an outcome takes of a queue's bytes.
    fn cost(outcome: &Self::Outcome) -> usize;
}
