//! The messages of a connector: until the transport has taken them, and calls until they are answered.

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;

use crate::{Backlog, CallId, Frames, SendId, Unsent, cost};

/// How many messages the transport is offered at a time; the rest stays in the machine, for a new connection if need
/// be.
const WINDOW: usize = 64;

/// The number of a message. It stays the same when the message is sent again; lower numbers are sent first.
pub(super) type MessageNumber = u64;

/// The purpose of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// For this connection only, and before all others.
    Greeting,
    /// It is sent once.
    Plain,
    /// It is sent again on each connection until it is answered.
    Call(CallId),
    /// A cancelled call: if it is sent all the same, these topics have to be unsubscribed.
    Forgotten(Vec<Bytes>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// The transport was offered it, on that connection.
    Offered(u64),
    /// It was sent on this connection.
    Gone,
}

#[derive(Debug)]
struct Message {
    what: What,
    frames: Frames,
    bytes: usize,
    state: State,
}

impl Message {
    const fn is_held(&self) -> bool {
        matches!(self.what, What::Plain | What::Call(_))
    }
}

/// Where a cancelled message was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was not sent.
    Kept,
    /// The transport was offered it, and has to give it back.
    Offered(SendId),
    /// It was sent.
    Gone,
}

/// The messages of a connector.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    messages: HashMap<MessageNumber, Message>,
    waiting: BTreeSet<MessageNumber>,
    greetings: VecDeque<MessageNumber>,
    next: MessageNumber,
    /// The number of the connection.
    connection: u64,
    /// How many messages the transport was offered, and has neither taken nor refused.
    offered: usize,
    held: Backlog,
}

impl Outgoing {
    fn keep(&mut self, what: What, frames: Frames) -> MessageNumber {
        let message = Message { what, bytes: cost(&frames), frames, state: State::Waiting };
        if message.is_held() {
            self.held.messages += 1;
            self.held.bytes += message.bytes;
        }
        self.next += 1;
        self.messages.insert(self.next, message);
        self.next
    }

    /// Appends a message to the queue.
    pub(super) fn push(&mut self, what: What, frames: Frames) -> MessageNumber {
        let place = self.keep(what, frames);
        self.waiting.insert(place);
        place
    }

    /// Queues a message before all others, for this connection only.
    pub(super) fn greet(&mut self, frames: Frames) -> MessageNumber {
        let place = self.keep(What::Greeting, frames);
        self.greetings.push_back(place);
        place
    }

    /// How much is queued or unanswered.
    pub(super) const fn held(&self) -> Backlog {
        self.held
    }

    /// Whether the transport has taken all messages.
    pub(super) fn is_idle(&self) -> bool {
        self.offered == 0 && self.waiting.is_empty() && self.greetings.is_empty()
    }

    /// The next message for the transport.
    pub(super) fn offer(&mut self) -> Option<(SendId, Frames)> {
        if self.offered >= WINDOW {
            return None;
        }
        let place = self.greetings.pop_front().or_else(|| self.waiting.pop_first())?;
        let message = self.messages.get_mut(&place)?;
        message.state = State::Offered(self.connection);
        self.offered += 1;
        Some((SendId(place), message.frames.clone()))
    }

    /// The transport has taken or refused a message. Returns its purpose if taken.
    pub(super) fn settle(&mut self, send: SendId, unsent: Option<Unsent>) -> Option<What> {
        let place = send.0;
        let message = self.messages.get_mut(&place)?;
        let State::Offered(connection) = message.state else { return None };
        self.offered -= 1;
        let is_over = connection != self.connection;
        let what = message.what.clone();
        match (&what, unsent) {
            (What::Call(_) | What::Plain, Some(Unsent::Expired)) => self.wait(place),
            // It was sent on a connection that is over.
            (What::Call(_), None) if is_over => self.wait(place),
            // The transport would refuse it again.
            (What::Call(_), _) => message.state = State::Gone,
            (What::Greeting | What::Plain | What::Forgotten(_), _) => {
                self.drop(place);
            }
        }
        unsent.is_none().then_some(what)
    }

    fn wait(&mut self, place: MessageNumber) {
        if let Some(message) = self.messages.get_mut(&place) {
            message.state = State::Waiting;
            self.waiting.insert(place);
        }
    }

    fn drop(&mut self, place: MessageNumber) -> Option<Message> {
        let message = self.messages.remove(&place)?;
        if message.is_held() {
            self.held.messages -= 1;
            self.held.bytes -= message.bytes;
        }
        Some(message)
    }

    /// Whether it may have reached the middleware.
    pub(super) fn may_be_there(&self, place: MessageNumber) -> bool {
        self.messages.get(&place).is_some_and(|message| message.state != State::Waiting)
    }

    /// Drops a message; if it is sent all the same, the topics in `unwanted` have to be unsubscribed.
    pub(super) fn forget(&mut self, place: MessageNumber, unwanted: Vec<Bytes>) -> Fate {
        let Some(mut message) = self.drop(place) else { return Fate::Gone };
        match message.state {
            State::Waiting => {
                self.waiting.remove(&place);
                Fate::Kept
            }
            State::Offered(_) => {
                message.what = What::Forgotten(unwanted);
                self.messages.insert(place, message);
                Fate::Offered(SendId(place))
            }
            State::Gone => Fate::Gone,
        }
    }

    /// The connection is over: its first messages are obsolete, and unanswered calls are sent again. Returns the sends
    /// that the transport has to give back, in order.
    pub(super) fn renew(&mut self) -> Vec<SendId> {
        self.connection += 1;
        for place in std::mem::take(&mut self.greetings) {
            self.drop(place);
        }
        let mut offered = vec![];
        for (place, message) in &mut self.messages {
            match message.state {
                State::Waiting => {}
                State::Offered(_) => offered.push(SendId(*place)),
                State::Gone => {
                    message.state = State::Waiting;
                    self.waiting.insert(*place);
                }
            }
        }
        offered.sort_unstable();
        offered
    }

    /// Drops all that has not been offered.
    pub(super) fn clear(&mut self) {
        self.greetings.clear();
        self.waiting.clear();
        self.messages.retain(|_, message| matches!(message.state, State::Offered(_)));
        for message in self.messages.values_mut() {
            message.what = What::Forgotten(vec![]);
        }
        self.held = Backlog::default();
    }
}
