//! The receiving role; a recorder is one that delivers nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use trunkline_capture::Progress;
use trunkline_engine::{Either, Finding, Handle, Snapshot, Together, Trouble};
use trunkline_wire::cdtp::{
    Batch, Layout, Receiver, ReceiverEvent, ReceiverSettings, ReceiverStats, ReceiverVerb, SenderCount,
};
use trunkline_wire::chirp::{Beacon, Service};
use trunkline_wire::{ErrorKind, Framing};

use super::message::{Headers, Message, settings};
use crate::chirp::BeaconOptions;
use crate::errors::decode_error;
use crate::frames::{self, Frame};
use crate::role::{Role, RoleOptions, connection, deadline, start, timed_out, trouble};

/// A receiver's or recorder's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.cdtp", name = "Receiver")]
pub(crate) struct PyReceiver {
    engine: Arc<dyn Engine>,
    inbox: Mutex<Inbox>,
    /// Called with `(kind, *details)` for everything that is no message.
    on_notice: Py<PyAny>,
}

/// The engine of a receiver by endpoints, or of one that finds its senders.
trait Engine: Send + Sync {
    fn read(&self, events: &mut VecDeque<ReceiverEvent>) -> bool;
    fn read_trouble(&self) -> Option<Trouble>;
    fn ask(&self, verb: ReceiverVerb);
    /// Counters, fresh where the role is ours, and how many datagrams of CHIRP came to nothing.
    fn stats(&self) -> Snapshot<(ReceiverStats, u64)>;
}

impl Engine for Handle<Receiver> {
    fn read(&self, events: &mut VecDeque<ReceiverEvent>) -> bool {
        self.read(events)
    }

    fn read_trouble(&self) -> Option<Trouble> {
        self.read_trouble()
    }

    fn ask(&self, verb: ReceiverVerb) {
        self.ask(verb);
    }

    fn stats(&self) -> Snapshot<(ReceiverStats, u64)> {
        self.stats().map(|receiver| (receiver, 0))
    }
}

impl Engine for Handle<Together<Receiver, Beacon, Finding>> {
    fn read(&self, events: &mut VecDeque<ReceiverEvent>) -> bool {
        self.read(events)
    }

    fn read_trouble(&self) -> Option<Trouble> {
        self.read_trouble()
    }

    fn ask(&self, verb: ReceiverVerb) {
        self.ask(Either::First(verb));
    }

    fn stats(&self) -> Snapshot<(ReceiverStats, u64)> {
        self.stats().map(|(receiver, beacon)| (receiver, beacon.dropped.values().sum()))
    }
}

/// What was taken from the engine and not handed out yet.
#[derive(Default)]
struct Inbox {
    events: VecDeque<ReceiverEvent>,
    /// The CDTP2 message at hand, and how many of its records were handed out: each becomes a message when it is its turn,
    /// since there may be millions.
    batch: Option<(Bytes, Batch, usize)>,
    over: bool,
}

impl Inbox {
    /// The next record of the CDTP2 message at hand.
    fn record(&mut self) -> Option<Message> {
        let (frame, batch, next) = self.batch.as_mut()?;
        let record = batch.records.get(*next).map(|record| Message::record(frame, batch, record));
        *next += 1;
        if *next >= batch.records.len() {
            self.batch = None;
        }
        record
    }
}

enum Next {
    Event(ReceiverEvent),
    Trouble(Trouble),
    /// Another record of the CDTP2 message at hand.
    Record(Message),
    Nothing,
    Over,
}

impl PyReceiver {
    fn next(&self) -> Next {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(message) = inbox.record() {
                return Next::Record(message);
            }
            match inbox.events.pop_front() {
                Some(ReceiverEvent::Message { mut frames, layout: Layout::Batch(batch) }) => {
                    inbox.batch = frames.drain(..).next().map(|frame| (frame, batch, 0));
                }
                Some(event) => return Next::Event(event),
                None => {
                    // Not only when there is nothing else: a reader that is never idle is to hear of it too.
                    if let Some(trouble) = self.engine.read_trouble() {
                        return Next::Trouble(trouble);
                    }
                    if inbox.over {
                        return Next::Over;
                    }
                    inbox.over = !self.engine.read(&mut inbox.events);
                    if inbox.events.is_empty() {
                        return if inbox.over { Next::Over } else { Next::Nothing };
                    }
                }
            }
        }
    }

    fn notify(&self, py: Python<'_>, notice: ReceiverEvent) -> PyResult<()> {
        let on_notice = self.on_notice.bind(py);
        match notice {
            ReceiverEvent::Message { .. } => return Ok(()),
            ReceiverEvent::Dropped { error, frames } => {
                let error = decode_error("cdtp", error).into_value(py);
                on_notice.call1(("dropped", error, frames::tuple(py, frames.iter())?))?
            }
            ReceiverEvent::Found(endpoint) => on_notice.call1(("found", endpoint))?,
            ReceiverEvent::Departed(endpoint) => on_notice.call1(("departed", endpoint))?,
            ReceiverEvent::Connection(what) => on_notice.call1(connection(what))?,
        };
        Ok(())
    }

    fn warn(&self, py: Python<'_>, what: Trouble) -> PyResult<()> {
        self.on_notice.bind(py).call1(trouble(what)).map(drop)
    }

    /// The next message without a wait; notices on the way are told. `None` when there is none now.
    fn take<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, Message>>> {
        loop {
            match slf.get().next() {
                Next::Event(ReceiverEvent::Message { frames, layout: Layout::Single(head) }) => {
                    return Message::single(frames.into_iter().map(Frame::Native), head)
                        .into_pyobject(slf.py())
                        .map(Some);
                }
                Next::Event(notice) => slf.get().notify(slf.py(), notice)?,
                Next::Record(message) => return message.into_pyobject(slf.py()).map(Some),
                Next::Trouble(what) => slf.get().warn(slf.py(), what)?,
                Next::Nothing => return Ok(None),
                Next::Over => return Err(slf.as_super().get().ended()),
            }
        }
    }

    fn wait<'py>(slf: &Bound<'py, Self>, timeout_s: Option<f64>) -> PyResult<Bound<'py, Message>> {
        let deadline = deadline(timeout_s)?;
        let role = slf.as_super().get();
        role.ours()?;
        loop {
            if let Some(message) = Self::take(slf)? {
                return Ok(message);
            }
            let some = |role: &dyn crate::role::AnyRole| role.has_events() || role.is_over();
            if !role.wait_until(slf.py(), |role| role.events(), deadline, some)? {
                return Err(timed_out("no message came", timeout_s));
            }
        }
    }
}

#[pymethods]
impl PyReceiver {
    #[new]
    #[allow(clippy::needless_pass_by_value)] // as Python gives it
    #[allow(clippy::too_many_arguments)] // as Python gives them, by name
    #[pyo3(signature = (options, on_notice, *, accept, strict, deliver, limit = None, message_limit = None, beacon = None))]
    fn new(
        py: Python<'_>,
        options: RoleOptions,
        on_notice: Py<PyAny>,
        accept: Headers,
        strict: bool,
        deliver: bool,
        limit: Option<u64>,
        message_limit: Option<u64>,
        beacon: Option<BeaconOptions>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let mut machine = Receiver::new(ReceiverSettings {
            bind: options.bind.clone(),
            connect: options.connect.clone(),
            finds: beacon.is_some(),
            options: options.socket.clone(),
            decode: settings(accept.slugs(), strict)?,
            deliver,
            limit,
        });
        machine.set_message_limit(message_limit);
        let name = if deliver { "trunkline-cdtp-receiver" } else { "trunkline-cdtp-recorder" };
        let (engine, role): (Arc<dyn Engine>, Role) = match beacon {
            None => {
                let (handle, role) = start(py, machine, options, Framing::Cdtp, name)?;
                (handle, role)
            }
            Some(beacon) => {
                let mut beacon = beacon.beacon()?;
                beacon.seek(Service::Data);
                let machine = Together::new(machine, beacon, Finding);
                let (handle, role) = start(py, machine, options, Framing::Cdtp, name)?;
                (handle, role)
            }
        };
        let receiver = Self { engine, inbox: Mutex::default(), on_notice };
        Ok(PyClassInitializer::from(role).add_subclass(receiver))
    }

    /// Waits for a message.
    #[pyo3(signature = (timeout_s = None))]
    fn receive<'py>(slf: &Bound<'py, Self>, timeout_s: Option<f64>) -> PyResult<Bound<'py, Message>> {
        Self::wait(slf, timeout_s)
    }

    /// The next message if there is one now; tells notices on the way.
    fn poll<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, Message>>> {
        slf.as_super().get().ours()?;
        Self::take(slf)
    }

    /// Gives up what was not read of a role that is over; tells the notices on the way.
    fn give_up(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.as_super().get().ours().is_err() {
            return Ok(());
        }
        loop {
            match slf.get().next() {
                Next::Event(notice) => slf.get().notify(slf.py(), notice)?,
                Next::Record(_) => {}
                Next::Trouble(what) => slf.get().warn(slf.py(), what)?,
                Next::Nothing | Next::Over => return Ok(()),
            }
        }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next message; the iteration ends when the role is closed.
    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, Message>>> {
        match Self::wait(slf, None) {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.is_instance_of::<crate::errors::ClosedError>(slf.py()) => {
                slf.as_super().get().failure()?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads no more after so many messages in all; `None` reads on.
    #[pyo3(signature = (count))]
    fn limit(&self, count: Option<u64>) {
        self.engine.ask(ReceiverVerb::Limit(count));
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.engine.stats());
        let waiting = {
            let inbox = this.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.events.iter().filter(|event| matches!(event, ReceiverEvent::Message { .. })).count()
        };
        let stats = stats_dict(py, &snapshot, waiting)?;
        stats.set_item("refused", slf.as_super().get().refused(py))?;
        Ok(stats)
    }
}

fn stats_dict<'py>(
    py: Python<'py>,
    snapshot: &Snapshot<(ReceiverStats, u64)>,
    waiting: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let (machine, chirp_dropped) = &snapshot.machine;
    let ReceiverStats { received, accepted, dropped, bytes, messages, duplicate_keys, senders } = machine;
    let stats = PyDict::new(py);
    stats.set_item("received", received)?;
    stats.set_item("accepted", accepted)?;
    stats.set_item("dropped", kinds(py, dropped.iter())?)?;
    stats.set_item("bytes", bytes)?;
    stats.set_item("messages", messages)?;
    stats.set_item("queued", snapshot.queued.messages + waiting)?;
    stats.set_item("queued_bytes", snapshot.queued.bytes)?;
    stats.set_item("duplicate_keys", duplicate_keys)?;
    stats.set_item("chirp_dropped", chirp_dropped)?;
    let by_name = PyDict::new(py);
    for (name, SenderCount { messages, bytes, missed }) in senders {
        let sender = PyDict::new(py);
        sender.set_item("messages", messages)?;
        sender.set_item("bytes", bytes)?;
        sender.set_item("missed", missed)?;
        by_name.set_item(name, sender)?;
    }
    stats.set_item("senders", by_name)?;
    let Progress { recorded, durable, segments, .. } = snapshot.capture.clone().unwrap_or_default();
    stats.set_item("recorded", recorded)?;
    stats.set_item("durable", durable)?;
    stats.set_item("segments", segments)?;
    stats.set_item("capture_lost", snapshot.capture_lost)?;
    Ok(stats)
}

fn kinds<'a, 'py>(
    py: Python<'py>,
    counts: impl Iterator<Item = (&'a ErrorKind, &'a u64)>,
) -> PyResult<Bound<'py, PyDict>> {
    let kinds = PyDict::new(py);
    for (kind, count) in counts {
        kinds.set_item(kind.slug(), count)?;
    }
    Ok(kinds)
}
