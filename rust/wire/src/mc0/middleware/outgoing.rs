//! Messages to send, shared by all their receivers.

use std::sync::Arc;

use bytes::Bytes;

use crate::mc0::{Header, ID, Layout, MESSAGE, TOPIC, Verb, encode};
use crate::{Frames, Parcel, cost};

/// A message to one or many.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// With the leading empty frame.
    frames: Arc<Frames>,
    pub(super) cost: usize,
    pub(super) is_message: bool,
    /// Whether to send the leading empty frame; `None` to do as the receiver does.
    style: Option<bool>,
}

impl Outgoing {
    fn new(frames: Frames, style: Option<bool>) -> Arc<Self> {
        let cost = cost(&frames);
        Arc::new(Self { frames: Arc::new(frames), cost, is_message: false, style })
    }

    /// The MESSAGE of a PUT: its topic first, then its other headers in order, without its ID (MC0-31).
    pub(super) fn message(frames: &Frames, layout: &Layout, topic: &Bytes) -> Arc<Self> {
        let others = layout.keys().filter(|key| !matches!(frames[*key].as_ref(), ID | TOPIC));
        let others = others.map(|key| (frames[key].clone(), frames[key + 1].clone()));
        let first: Header = (Bytes::from_static(TOPIC), topic.clone());
        let frames = encode(Verb::Message, std::iter::once(first).chain(others), &frames[layout.positional()]);
        let cost = cost(&frames);
        Arc::new(Self { frames: Arc::new(frames), cost, is_message: true, style: None })
    }

    /// A MESSAGE of the middleware itself.
    pub(super) fn own(topic: &'static [u8], body: Bytes) -> Arc<Self> {
        let topic: Header = (Bytes::from_static(TOPIC), Bytes::from_static(topic));
        let frames = encode(Verb::Message, [topic], &[body]);
        let cost = cost(&frames);
        Arc::new(Self { frames: Arc::new(frames), cost, is_message: true, style: None })
    }

    /// The confirmation of the message with this ID.
    pub(super) fn ok(id: Bytes, is_delimited: bool) -> Arc<Self> {
        Self::new(encode(Verb::Ok, [(Bytes::from_static(ID), id)], &[]), Some(is_delimited))
    }

    /// An error about the message with this ID.
    pub(super) fn error(text: String, id: Option<Bytes>, is_delimited: Option<bool>) -> Arc<Self> {
        let text = (Bytes::from_static(MESSAGE), Bytes::from(text));
        let id = id.map(|id| (Bytes::from_static(ID), id));
        Self::new(encode(Verb::Error, std::iter::once(text).chain(id), &[]), is_delimited)
    }

    pub(super) fn noop() -> Arc<Self> {
        Self::new(encode(Verb::Noop, [], &[]), None)
    }

    /// How many frames it has at most.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The frames for a receiver with this style.
    pub(super) fn frames(&self, is_delimited: bool) -> Parcel {
        Parcel::Shared(Arc::clone(&self.frames), usize::from(!self.style.unwrap_or(is_delimited)))
    }
}
