//! What a connector sends, until the transport has it; calls until they are answered.

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;

use crate::{Backlog, CallId, Frames, SendId, Unsent, cost};

/// Sends the transport is asked to take at one time; the rest waits in the machine, where a new connection can have it.
const WINDOW: usize = 64;

/// The number of a letter. It has the same one however often it is sent, and of two the lower goes first.
pub(super) type Place = u64;

/// What a letter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It means something on this connection only, and goes before all others.
    Greeting,
    /// It is sent once.
    Plain,
    /// It is sent again on each connection until it is answered.
    Call(CallId),
    /// A call nobody waits for: if it has gone all the same, these topics are not wanted.
    Forgotten(Vec<Bytes>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// The transport was asked to take it, on that connection.
    Offered(u64),
    /// It went on this connection.
    Gone,
}

#[derive(Debug)]
struct Letter {
    what: What,
    frames: Frames,
    bytes: usize,
    state: State,
}

impl Letter {
    const fn is_held(&self) -> bool {
        matches!(self.what, What::Plain | What::Call(_))
    }
}

/// Where a letter was that is not wanted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has not left.
    Kept,
    /// The transport was asked to take it, and is to be told.
    Offered(SendId),
    /// It has left.
    Gone,
}

/// The letters of a connector.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    letters: HashMap<Place, Letter>,
    waiting: BTreeSet<Place>,
    greetings: VecDeque<Place>,
    next: Place,
    /// The number of the connection.
    connection: u64,
    /// Sends the transport has not decided on.
    offered: usize,
    held: Backlog,
}

impl Outgoing {
    fn keep(&mut self, what: What, frames: Frames) -> Place {
        let letter = Letter { what, bytes: cost(&frames), frames, state: State::Waiting };
        if letter.is_held() {
            self.held.messages += 1;
            self.held.bytes += letter.bytes;
        }
        self.next += 1;
        self.letters.insert(self.next, letter);
        self.next
    }

    /// Puts something at the end of the queue.
    pub(super) fn push(&mut self, what: What, frames: Frames) -> Place {
        let place = self.keep(what, frames);
        self.waiting.insert(place);
        place
    }

    /// Has something go before what waits, on this connection.
    pub(super) fn greet(&mut self, frames: Frames) -> Place {
        let place = self.keep(What::Greeting, frames);
        self.greetings.push_back(place);
        place
    }

    /// What waits to be sent, or answered.
    pub(super) const fn held(&self) -> Backlog {
        self.held
    }

    /// Whether the transport has all there is.
    pub(super) fn is_idle(&self) -> bool {
        self.offered == 0 && self.waiting.is_empty() && self.greetings.is_empty()
    }

    /// The next to offer to the transport.
    pub(super) fn offer(&mut self) -> Option<(SendId, Frames)> {
        if self.offered >= WINDOW {
            return None;
        }
        let place = self.greetings.pop_front().or_else(|| self.waiting.pop_first())?;
        let letter = self.letters.get_mut(&place)?;
        letter.state = State::Offered(self.connection);
        self.offered += 1;
        Some((SendId(place), letter.frames.clone()))
    }

    /// Learns what became of an offer: gives what it was, where the transport has taken it.
    pub(super) fn settle(&mut self, send: SendId, unsent: Option<Unsent>) -> Option<What> {
        let place = send.0;
        let letter = self.letters.get_mut(&place)?;
        let State::Offered(connection) = letter.state else { return None };
        self.offered -= 1;
        let is_over = connection != self.connection;
        let what = letter.what.clone();
        match (&what, unsent) {
            (What::Call(_) | What::Plain, Some(Unsent::Expired)) => self.wait(place),
            // It went where nobody answers any more.
            (What::Call(_), None) if is_over => self.wait(place),
            // What the transport refuses once it would refuse again.
            (What::Call(_), _) => letter.state = State::Gone,
            (What::Greeting | What::Plain | What::Forgotten(_), _) => {
                self.drop(place);
            }
        }
        unsent.is_none().then_some(what)
    }

    fn wait(&mut self, place: Place) {
        if let Some(letter) = self.letters.get_mut(&place) {
            letter.state = State::Waiting;
            self.waiting.insert(place);
        }
    }

    fn drop(&mut self, place: Place) -> Option<Letter> {
        let letter = self.letters.remove(&place)?;
        if letter.is_held() {
            self.held.messages -= 1;
            self.held.bytes -= letter.bytes;
        }
        Some(letter)
    }

    /// Whether it may have reached the middleware.
    pub(super) fn may_be_there(&self, place: Place) -> bool {
        self.letters.get(&place).is_some_and(|letter| letter.state != State::Waiting)
    }

    /// Takes out what is not to be sent again; `unwanted` is told where it goes all the same.
    pub(super) fn forget(&mut self, place: Place, unwanted: Vec<Bytes>) -> Fate {
        let Some(mut letter) = self.drop(place) else { return Fate::Gone };
        match letter.state {
            State::Waiting => {
                self.waiting.remove(&place);
                Fate::Kept
            }
            State::Offered(_) => {
                letter.what = What::Forgotten(unwanted);
                self.letters.insert(place, letter);
                Fate::Offered(SendId(place))
            }
            State::Gone => Fate::Gone,
        }
    }

    /// The connection is over: what was to begin it is no use, and what is not answered is to be sent again. Gives what the
    /// transport is to be asked to give back, in order.
    pub(super) fn renew(&mut self) -> Vec<SendId> {
        self.connection += 1;
        for place in std::mem::take(&mut self.greetings) {
            self.drop(place);
        }
        let mut offered = vec![];
        for (place, letter) in &mut self.letters {
            match letter.state {
                State::Waiting => {}
                State::Offered(_) => offered.push(SendId(*place)),
                State::Gone => {
                    letter.state = State::Waiting;
                    self.waiting.insert(*place);
                }
            }
        }
        offered.sort_unstable();
        offered
    }

    /// Lets go of all that has not been offered.
    pub(super) fn clear(&mut self) {
        self.greetings.clear();
        self.waiting.clear();
        self.letters.retain(|_, letter| matches!(letter.state, State::Offered(_)));
        for letter in self.letters.values_mut() {
            letter.what = What::Forgotten(vec![]);
        }
        self.held = Backlog::default();
    }
}
