//! The verbs and events of a connector.

use std::time::Duration;

use bytes::Bytes;

use super::calls::Kind;
use super::outgoing::{Fate, What};
use super::{Bus, Connector};
use crate::mc0::{Header, ID, Layout, TOPIC, Verb};
use crate::{CallId, Calling, Connection, Dropped, Event, Frames, Nanos, Origin, Output, Weight, cost};

/// A message for a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub topic: Bytes,
    /// Headers for the subscribers; their keys begin with `X-`.
    pub headers: Vec<Header>,
    /// The frames of the body.
    pub body: Vec<Bytes>,
}

/// What a call requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To subscribe to these topics.
    Subscribe(Vec<Bytes>),
    Unsubscribe(Vec<Bytes>),
    /// To put a message, and have it confirmed.
    Put(Put),
    /// A sign of life.
    Ping,
}

/// What the user of a connector may request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectorVerb {
    /// A call, which is answered.
    Call {
        /// The number of the call.
        call: CallId,
        /// What it requests.
        asked: Asked,
        /// How long it may take; `None` for no limit.
        timeout: Option<Duration>,
    },
    /// A message that is sent once, and never confirmed.
    Put(Put),
    /// Stop waiting for a call; it is not sent any more.
    Cancel(CallId),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The middleware has carried it out.
    Done,
    /// The middleware is alive; this is the time since the transport took the NOOP.
    Alive(Duration),
    /// The middleware has refused it.
    Refused {
        /// The topic, if there is just one.
        topic: Option<Bytes>,
        /// The reason, as given by the middleware.
        text: Bytes,
    },
    /// There was no answer in time.
    TimedOut,
    /// The middleware is silent, and the user supplied the socket.
    Lost,
    /// The connector was closed before the answer arrived.
    Unanswered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectorEvent {
    /// A call has ended.
    Ended(CallId, Outcome),
    /// A message of a subscribed topic.
    Message {
        /// The message, bit for bit.
        frames: Frames,
        layout: Layout,
    },
    /// An ERROR that answers no call.
    Error {
        /// The message, bit for bit.
        frames: Frames,
        layout: Layout,
    },
    /// The middleware has been silent for too long, and is dialled again.
    Silent,
    /// It is silent, and the user supplied the socket: calls end with [`Outcome::Lost`] until it sends something.
    Lost,
    /// It has sent something again.
    Found,
    /// A message that is invalid, or that a connector must not be sent.
    Dropped(Dropped),
    /// What became of a connection.
    Connection(Connection),
}

impl Event for ConnectorEvent {
    fn weight(&self) -> Weight {
        match self {
            Self::Ended(_, outcome) => Weight::Lossless(Connector::cost(outcome)),
            Self::Message { frames, .. } => Weight::Lossless(cost(frames)),
            Self::Lost => Weight::Lossless(0),
            Self::Error { frames, .. } => Weight::Notice(cost(frames)),
            Self::Dropped(dropped) => dropped.weight(),
            Self::Silent | Self::Found | Self::Connection(_) => Weight::Notice(0),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        if let Self::Dropped(dropped) = self { Some(&mut dropped.origin) } else { None }
    }
}

impl Calling for Connector {
    type Outcome = Outcome;

    fn outcome(event: ConnectorEvent) -> Result<(CallId, Outcome), ConnectorEvent> {
        match event {
            ConnectorEvent::Ended(call, outcome) => Ok((call, outcome)),
            ConnectorEvent::Message { .. }
            | ConnectorEvent::Error { .. }
            | ConnectorEvent::Silent
            | ConnectorEvent::Lost
            | ConnectorEvent::Found
            | ConnectorEvent::Dropped(_)
            | ConnectorEvent::Connection(_) => Err(event),
        }
    }

    fn unanswered() -> Outcome {
        Outcome::Unanswered
    }

    fn cost(outcome: &Outcome) -> usize {
        match outcome {
            Outcome::Refused { text, .. } => text.len(),
            Outcome::Done | Outcome::Alive(_) | Outcome::TimedOut | Outcome::Lost | Outcome::Unanswered => 0,
        }
    }
}

impl Connector {
    pub(super) fn ask(&mut self, now: Nanos, call: CallId, asked: Asked, timeout: Option<Duration>) {
        if self.calls.has(call) {
            return;
        }
        let id = self.calls.header(call);
        let header = [(Bytes::from_static(ID), id.clone())];
        let (frames, kind) = match asked {
            Asked::Subscribe(topics) => (self.message(Verb::Sub, header, &topics), Kind::Subscribe(topics)),
            Asked::Unsubscribe(topics) => {
                // Whether it succeeds or not.
                self.disown(&topics);
                (self.message(Verb::Unsub, header, &topics), Kind::Unsubscribe(topics))
            }
            Asked::Put(put) => {
                self.stats.put += 1;
                let topic = put.topic.clone();
                (self.put(Some(id), put), Kind::Put(topic))
            }
            Asked::Ping => (self.message(Verb::Noop, header, &[]), Kind::Ping),
        };
        let place = self.outgoing.push(What::Call(call), frames);
        self.calls.insert(now, call, kind, place, timeout.map(|timeout| now + timeout));
    }

    pub(super) fn put(&self, id: Option<Bytes>, Put { topic, headers, body }: Put) -> Frames {
        let id = id.map(|id| (Bytes::from_static(ID), id));
        let topic = (Bytes::from_static(TOPIC), topic);
        self.message(Verb::Put, id.into_iter().chain([topic]).chain(headers), &body)
    }

    /// Cancels a call: it is not sent any more, and a subscription that was sent is undone.
    pub(super) fn give_up(&mut self, id: CallId) {
        let Some(call) = self.calls.remove(id) else { return };
        let topics = match call.kind {
            Kind::Subscribe(topics) => topics,
            Kind::Unsubscribe(_) | Kind::Put(_) | Kind::Ping => vec![],
        };
        match self.outgoing.forget(call.place, topics.clone()) {
            Fate::Kept => {}
            Fate::Offered(id) => self.outputs.push_back(Output::Withdraw { socket: Bus, id }),
            Fate::Gone => self.unsubscribe(topics),
        }
    }

    /// Unsubscribes from topics that nothing else needs.
    pub(super) fn unsubscribe(&mut self, mut topics: Vec<Bytes>) {
        topics.retain(|topic| !self.topics.contains(topic) && !self.calls.subscribes(topic));
        if !topics.is_empty() {
            let frames = self.message(Verb::Unsub, [], &topics);
            self.outgoing.push(What::Plain, frames);
        }
    }
}
