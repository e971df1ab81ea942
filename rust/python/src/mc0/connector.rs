//! The role that subscribes and publishes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::{Answering, Aside, Notices, Replies};
use trunkline_wire::mc0::{
    Asked, Connector, ConnectorEvent, ConnectorSettings, ConnectorVerb, Header, OWN, Outcome, Put,
};
use trunkline_wire::{CallId, Frames, Framing, MAX_FRAMES, cost};

use super::Message;
use super::text::{bytes, headers, text};
use crate::caller::{Called, Caller, Outgoing, Reply};
use crate::counters::counters;
use crate::errors::{LocalProtocolError, MiddlewareError, PeerLostError, dropped};
use crate::frames::{self, within};
use crate::notices::PyNotices;
use crate::reader::{Look, Next, Reader};
use crate::role::{RoleOptions, connection, run, seconds};
use crate::waiting::Waiting;

/// A connector's engine.
#[pyclass(frozen, extends = Caller, module = "trunkline._native.mc0", name = "Connector")]
pub(crate) struct PyConnector {
    reader: Reader<Connector>,
    /// The notices, to be reported.
    #[pyo3(get)]
    notice_queue: Py<PyNotices>,
    max_message_bytes: u64,
}

/// A PUT on its way to the engine, without confirmation.
#[pyclass(module = "trunkline._native.mc0", name = "OutgoingPut")]
pub(crate) struct OutgoingPut(Waiting<ConnectorVerb>);

impl Called for Connector {
    fn reply(py: Python<'_>, outcome: Outcome) -> PyResult<Reply> {
        Ok(match outcome {
            Outcome::Done => Reply::Value(py.None()),
            Outcome::Alive(after) => Reply::Value(after.as_secs_f64().into_py_any(py)?),
            Outcome::Refused { topic, text } => Reply::Failed(refused(py, topic.as_ref(), &text)?),
            Outcome::TimedOut => Reply::TimedOut,
            Outcome::Lost => Reply::Failed(lost()),
            Outcome::Unanswered => Reply::Unanswered,
        })
    }

    fn cancel(call: CallId) -> ConnectorVerb {
        ConnectorVerb::Cancel(call)
    }
}

fn refused(py: Python<'_>, topic: Option<&Bytes>, words: &[u8]) -> PyResult<PyErr> {
    let topic = topic.map(|topic| text(py, topic)).transpose()?.map(Bound::unbind);
    Ok(MiddlewareError::new_err((text(py, words)?.unbind(), topic)))
}

fn lost() -> PyErr {
    PeerLostError::new_err(
        "the middleware is silent, and a socket passed with socket= is not reconnected: reconnect it",
    )
}

/// The most frames of topics, headers and a body: a message also has a verb, an ID, a topic and delimiters.
const FRAMES: usize = MAX_FRAMES - 8;

/// The size of what goes in one message, which must not be larger than a peer takes.
fn checked(parts: &Frames, max_message_bytes: u64) -> PyResult<usize> {
    if parts.len() > FRAMES {
        let text =
            format!("a message has at most {FRAMES} topics, or headers and frames together, not {}", parts.len());
        return Err(LocalProtocolError::new_err(text));
    }
    within(parts.iter(), max_message_bytes)?;
    Ok(cost(parts))
}

/// Topics as Python gives them, and their size.
fn topics(object: &Bound<'_, PyAny>, max_message_bytes: u64) -> PyResult<(Vec<Bytes>, usize)> {
    let topics: Frames = object.try_iter()?.map(|topic| bytes("topics", &topic?)).collect::<PyResult<_>>()?;
    let size = checked(&topics, max_message_bytes)?;
    Ok((topics.into_vec(), size))
}

/// A message for a topic, as Python gives it, and its size.
fn put(
    topic: &Bound<'_, PyAny>,
    body: &Bound<'_, PyAny>,
    headers: &Bound<'_, PyAny>,
    max_message_bytes: u64,
) -> PyResult<(Put, usize)> {
    let headers: Vec<Header> = self::headers(headers)?;
    if let Some((key, _)) = headers.iter().find(|(key, _)| !key.starts_with(OWN)) {
        let key = String::from_utf8_lossy(key);
        let text = format!("header {key:?} is reserved: your own headers must begin with X-");
        return Err(LocalProtocolError::new_err(text));
    }
    let topic = bytes("topic", topic)?;
    let body = frames::one_or_more("body", body)?.into_vec();
    let of_headers = headers.iter().flat_map(|(key, value)| [key, value]);
    let size = checked(&[&topic].into_iter().chain(of_headers).chain(&body).cloned().collect(), max_message_bytes)?;
    Ok((Put { topic, headers, body }, size))
}

impl PyConnector {
    fn call(slf: &Bound<'_, Self>, asked: Asked, bytes: usize, timeout_s: Option<f64>) -> PyResult<Outgoing> {
        let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?;
        Ok(slf.as_super().get().outgoing(|call| ConnectorVerb::Call { call, asked, timeout }, bytes))
    }

    /// The next message without a wait. `None` when there is none now.
    fn take(slf: &Bound<'_, Self>) -> PyResult<Option<Message>> {
        let mut look = Look::default();
        loop {
            match slf.get().reader.next(&mut look) {
                Next::Event(ConnectorEvent::Message { frames, layout }) => {
                    return Ok(Some(Message::of(frames, layout)));
                }
                Next::Event(ConnectorEvent::Lost) => return Err(lost()),
                // Notices are read separately, and calls have their own outcomes.
                Next::Event(_) | Next::Trouble(_) => {}
                Next::Nothing => return Ok(None),
                Next::Over => return Err(slf.as_super().as_super().get().ended()),
            }
        }
    }
}

#[pymethods]
impl PyConnector {
    #[new]
    #[pyo3(signature = (options, *, ttl_ms, leading_delimiter, max_message_bytes))]
    fn new(
        py: Python<'_>,
        options: RoleOptions,
        ttl_ms: Option<u64>,
        leading_delimiter: bool,
        max_message_bytes: u64,
    ) -> PyResult<PyClassInitializer<Self>> {
        let (connect, socket) = (options.connect.clone(), options.socket.clone());
        let ttl = ttl_ms.map(Duration::from_millis);
        let settings =
            ConnectorSettings { connect, options: socket, ttl, leading_delimiter, ..ConnectorSettings::default() };
        let (replies, notices) = (Arc::new(Replies::new(options.bounds)?), Arc::new(Notices::new()?));
        let sink = Aside::new(Arc::clone(&notices), Answering::new(Arc::clone(&replies)));
        let make = move |now, seed| Connector::new(now, settings.clone(), seed);
        let (handle, role) = run(py, make, sink, options, Framing::Mc0, "trunkline-mc0-connector")?;
        let caller = Caller::new(handle.clone(), replies);
        let notice_queue = Py::new(py, PyNotices::new(&role, handle.clone(), notices, notice))?;
        let connector = Self { reader: Reader::new(handle), notice_queue, max_message_bytes };
        Ok(PyClassInitializer::from(role).add_subclass(caller).add_subclass(connector))
    }

    /// A call that subscribes.
    fn subscribe(slf: &Bound<'_, Self>, topics: &Bound<'_, PyAny>, timeout_s: Option<f64>) -> PyResult<Outgoing> {
        let (topics, bytes) = self::topics(topics, slf.get().max_message_bytes)?;
        Self::call(slf, Asked::Subscribe(topics), bytes, timeout_s)
    }

    /// A call that unsubscribes.
    fn unsubscribe(slf: &Bound<'_, Self>, topics: &Bound<'_, PyAny>, timeout_s: Option<f64>) -> PyResult<Outgoing> {
        let (topics, bytes) = self::topics(topics, slf.get().max_message_bytes)?;
        Self::call(slf, Asked::Unsubscribe(topics), bytes, timeout_s)
    }

    /// A call that publishes.
    fn submit(
        slf: &Bound<'_, Self>,
        topic: &Bound<'_, PyAny>,
        body: &Bound<'_, PyAny>,
        headers: &Bound<'_, PyAny>,
        timeout_s: Option<f64>,
    ) -> PyResult<Outgoing> {
        let (put, bytes) = put(topic, body, headers, slf.get().max_message_bytes)?;
        Self::call(slf, Asked::Put(put), bytes, timeout_s)
    }

    /// A call that sends a ping.
    fn ping(slf: &Bound<'_, Self>, timeout_s: Option<f64>) -> PyResult<Outgoing> {
        Self::call(slf, Asked::Ping, 0, timeout_s)
    }

    /// A PUT without confirmation.
    fn prepare_put(
        &self,
        topic: &Bound<'_, PyAny>,
        body: &Bound<'_, PyAny>,
        headers: &Bound<'_, PyAny>,
    ) -> PyResult<OutgoingPut> {
        let (put, bytes) = put(topic, body, headers, self.max_message_bytes)?;
        Ok(OutgoingPut(Waiting::new(ConnectorVerb::Put(put), bytes)))
    }

    /// Hands a message to the engine; false when there is no room.
    fn offer_put(slf: &Bound<'_, Self>, put: &mut OutgoingPut) -> PyResult<bool> {
        slf.as_super().as_super().get().offer(|| put.0.give(&*slf.get().reader.handle))
    }

    /// Hands a message to the engine, waiting for room.
    #[pyo3(signature = (put, timeout_s = None))]
    fn send_put(slf: &Bound<'_, Self>, put: &mut OutgoingPut, timeout_s: Option<f64>) -> PyResult<()> {
        slf.as_super().as_super().get().put(slf.py(), timeout_s, || put.0.give(&*slf.get().reader.handle))
    }

    /// Waits for a message.
    #[pyo3(signature = (timeout_s = None))]
    fn receive(slf: &Bound<'_, Self>, timeout_s: Option<f64>) -> PyResult<Message> {
        let role = slf.as_super().as_super().get();
        role.receive(slf.py(), timeout_s, "no message came", || Self::take(slf))
    }

    /// The next message if there is one now.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<Option<Message>> {
        slf.as_super().as_super().get().ours()?;
        Self::take(slf)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next message; the iteration ends when the role is closed.
    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Message>> {
        slf.as_super().as_super().get().iterated(slf.py(), Self::receive(slf, None))
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.reader.handle.stats());
        let stats = counters(py, &snapshot.machine)?;
        slf.as_super().as_super().get().add_to(&stats, &snapshot)?;
        Ok(stats)
    }
}

/// The notice of an event, `(kind, *details)`; others are handed out instead.
fn notice(py: Python<'_>, event: ConnectorEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        ConnectorEvent::Error { frames, layout } => ("error", Message::of(frames, layout)).into_pyobject(py),
        ConnectorEvent::Silent => ("silent",).into_pyobject(py),
        ConnectorEvent::Found => ("found",).into_pyobject(py),
        ConnectorEvent::Dropped(dropped) => self::dropped(py, "mc0", &dropped),
        ConnectorEvent::Connection(what) => connection(what).into_pyobject(py),
        ConnectorEvent::Ended(..) | ConnectorEvent::Message { .. } | ConnectorEvent::Lost => Ok(PyTuple::empty(py)),
    }
}
