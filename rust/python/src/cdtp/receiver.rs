//! The receiving role; a recorder delivers nothing.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::{Either, Finding, Queued, Together, Trouble};
use trunkline_wire::Framing;
use trunkline_wire::cdtp::{Batch, Layout, Receiver, ReceiverEvent, ReceiverSettings, ReceiverVerb, RunEnd};
use trunkline_wire::chirp::{Beacon, Service};

use super::message::{Headers, Message, settings};
use crate::chirp::BeaconOptions;
use crate::counters::{add_recorded, counters};
use crate::errors::dropped;
use crate::frames::Frame;
use crate::reader::{Look, Next, Reader};
use crate::role::{Role, RoleOptions, connection, run, trouble};

/// A receiver, which discovers its senders if it is in a group.
type FindingSenders = Together<Receiver, Beacon, Finding>;

/// A receiver's or recorder's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.cdtp", name = "Receiver")]
pub(crate) struct PyReceiver {
    reader: Reader<FindingSenders>,
    batch: Mutex<Option<Records>>,
    /// Called with `(kind, *details)` for everything that is no message.
    on_notice: Py<PyAny>,
}

/// The current CDTP2 message, and how many of its records were handed out: each becomes a message when it is due, since
/// there may be millions.
struct Records {
    frame: Bytes,
    batch: Batch,
    next: usize,
}

impl Iterator for Records {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let record = self.batch.records.get(self.next)?;
        self.next += 1;
        Some(Message::record(&self.frame, &self.batch, record))
    }
}

/// What to hand out: messages of one record as they came, others one by one.
enum Item {
    Next(Next<ReceiverEvent>),
    Record(Message),
}

impl PyReceiver {
    fn next(&self, look: &mut Look) -> Item {
        let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(message) = batch.as_mut().and_then(Iterator::next) {
                return Item::Record(message);
            }
            *batch = None;
            match self.reader.next(look) {
                Next::Event(ReceiverEvent::Message { mut frames, layout: Layout::Batch(records) }) => {
                    *batch = frames.drain(..).next().map(|frame| Records { frame, batch: records, next: 0 });
                }
                next @ (Next::Event(_) | Next::Trouble(_) | Next::Nothing | Next::Over) => return Item::Next(next),
            }
        }
    }

    fn notify(&self, py: Python<'_>, event: ReceiverEvent) -> PyResult<()> {
        if let Some(notice) = notice(py, event)? {
            self.on_notice.bind(py).call1(notice)?;
        }
        Ok(())
    }

    fn warn(&self, py: Python<'_>, what: Trouble) -> PyResult<()> {
        self.on_notice.bind(py).call1(trouble(what)).map(drop)
    }

    /// The next message without a wait; reports notices on the way. `None` when there is none now.
    fn take<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, Message>>> {
        let mut look = Look::default();
        loop {
            match slf.get().next(&mut look) {
                Item::Next(Next::Event(ReceiverEvent::Message { frames, layout: Layout::Single(head) })) => {
                    return Message::single(frames.into_iter().map(Frame::Native), head)
                        .into_pyobject(slf.py())
                        .map(Some);
                }
                Item::Next(Next::Event(notice)) => slf.get().notify(slf.py(), notice)?,
                Item::Record(message) => return message.into_pyobject(slf.py()).map(Some),
                Item::Next(Next::Trouble(what)) => slf.get().warn(slf.py(), what)?,
                Item::Next(Next::Nothing) => return Ok(None),
                Item::Next(Next::Over) => return Err(slf.as_super().get().ended()),
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
        let settings = ReceiverSettings {
            bind: options.bind.clone(),
            connect: options.connect.clone(),
            finds: beacon.is_some(),
            options: options.socket.clone(),
            decode: settings(accept.slugs(), strict)?,
            deliver,
            limit,
        };
        let name = if deliver { "trunkline-cdtp-receiver" } else { "trunkline-cdtp-recorder" };
        let beacon = beacon.map(BeaconOptions::settings);
        let make = move |_, seed| {
            let mut receiver = Receiver::new(settings.clone());
            receiver.set_message_limit(message_limit);
            let beacon = beacon.clone().map(|settings| {
                let mut beacon = Beacon::new(settings, seed);
                beacon.seek(Service::Data);
                beacon
            });
            Together::new(receiver, beacon, Finding)
        };
        let (handle, role) = run(py, make, Queued, options, Framing::Cdtp, name)?;
        let receiver = Self { reader: Reader::new(handle), batch: Mutex::default(), on_notice };
        Ok(PyClassInitializer::from(role).add_subclass(receiver))
    }

    /// Waits for a message.
    #[pyo3(signature = (timeout_s = None))]
    fn receive<'py>(slf: &Bound<'py, Self>, timeout_s: Option<f64>) -> PyResult<Bound<'py, Message>> {
        slf.as_super().get().receive(slf.py(), timeout_s, "no message came", || Self::take(slf))
    }

    /// The next message if there is one now; reports notices on the way.
    fn poll<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, Message>>> {
        slf.as_super().get().ours()?;
        Self::take(slf)
    }

    /// Reports the notices that need no reader of messages: those of a simulation.
    fn report(&self, py: Python<'_>) -> PyResult<()> {
        while self.reader.handle.has_notice() {
            if let Next::Event(notice) = self.reader.next(&mut Look::default()) {
                self.notify(py, notice)?;
            }
        }
        Ok(())
    }

    /// Discards what was not read of a role that is over; reports the notices on the way.
    fn give_up(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.as_super().get().ours().is_err() {
            return Ok(());
        }
        let mut look = Look::default();
        loop {
            match slf.get().next(&mut look) {
                Item::Next(Next::Event(notice)) => slf.get().notify(slf.py(), notice)?,
                Item::Record(_) => {}
                Item::Next(Next::Trouble(what)) => slf.get().warn(slf.py(), what)?,
                Item::Next(Next::Nothing | Next::Over) => return Ok(()),
            }
        }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next message; the iteration ends when the role is closed.
    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, Message>>> {
        slf.as_super().get().iterated(slf.py(), Self::receive(slf, None))
    }

    /// Stops reading after so many messages in all; `None` reads on.
    #[pyo3(signature = (count))]
    fn limit(&self, count: Option<u64>) {
        self.reader.handle.ask(Either::First(ReceiverVerb::Limit(count)));
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.reader.handle.stats());
        let waiting = this.reader.count(|event| matches!(event, ReceiverEvent::Message { .. }));
        let (machine, beacon) = &snapshot.machine;
        let stats = counters(py, machine)?;
        stats.set_item("queued", snapshot.queued.messages + waiting)?;
        stats.set_item("queued_bytes", snapshot.queued.bytes)?;
        stats.set_item("chirp_dropped", beacon.dropped.values().sum::<u64>())?;
        add_recorded(&stats, &snapshot)?;
        slf.as_super().get().add_listening_to(&stats, &snapshot)?;
        Ok(stats)
    }
}

/// The notice of an event, `(kind, *details)`; messages are handed out instead.
fn notice(py: Python<'_>, event: ReceiverEvent) -> PyResult<Option<Bound<'_, PyTuple>>> {
    let notice = match event {
        ReceiverEvent::Message { .. } => return Ok(None),
        ReceiverEvent::Dropped(dropped) => self::dropped(py, "cdtp", &dropped),
        ReceiverEvent::Found(endpoint) => ("found", endpoint).into_pyobject(py),
        ReceiverEvent::Departed(endpoint) => ("departed", endpoint).into_pyobject(py),
        ReceiverEvent::Connection(what) => connection(what).into_pyobject(py),
        ReceiverEvent::Run { sender, id, ended } => {
            let (sender, id) = (String::from_utf8_lossy(&sender), (!id.is_empty()).then_some(&*id));
            match ended {
                None => ("began", sender, id).into_pyobject(py),
                Some(RunEnd { condition, missed }) => {
                    ("ended", sender, id, condition.to_string(), missed).into_pyobject(py)
                }
            }
        }
    };
    notice.map(Some)
}
