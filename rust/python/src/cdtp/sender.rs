//! The sending role.

use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use trunkline_engine::{Announcing, Either, Hold, Queued, Together};
use trunkline_wire::cdtp::{BatchBounds, Sender, SenderEvent, SenderSettings, SenderVerb, Variant};
use trunkline_wire::chirp::{Beacon, BeaconVerb};
use trunkline_wire::msgpack::Timestamp;
use trunkline_wire::{ErrorKind, FRAME_COST, Framing, MAX_FRAMES};

use super::message::{encoded_map, no_message, no_timestamp, timestamp, variant};
use crate::chirp::BeaconOptions;
use crate::counters::counters;
use crate::errors::LocalProtocolError;
use crate::frames;
use crate::role::{Role, RoleOptions, connection, run, seconds, trouble};
use crate::waiting::Waiting;
use crate::world::Clock;

/// A sender's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.cdtp", name = "Sender")]
pub(crate) struct PySender {
    handle: Arc<dyn Hold<Announced>>,
    /// Of a simulated sender.
    clock: Option<Arc<Clock>>,
    variant: Variant,
    max_message_bytes: u64,
}

/// A sender, announced if it is in a group.
type Announced = Together<Sender, Beacon, Announcing>;

/// A message on its way to the engine.
#[pyclass(module = "trunkline._native.cdtp", name = "Outgoing")]
pub(crate) struct Outgoing(Waiting<Either<SenderVerb, BeaconVerb>>);

impl PySender {
    /// The current time; a simulation begins in 1970.
    fn now(&self) -> Timestamp {
        let live = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = self.clock.as_ref().map_or_else(live, |clock| clock.elapsed());
        Timestamp::from_nanos(i128::try_from(now.as_nanos()).unwrap_or_default()).unwrap_or_default()
    }

    fn outgoing(&self, verb: SenderVerb) -> PyResult<Outgoing> {
        let sizes: Vec<usize> = match &verb {
            SenderVerb::Data { tags, payload, .. } => payload.iter().chain([tags]).map(Bytes::len).collect(),
            SenderVerb::BeginRun { config: map, .. } | SenderVerb::EndRun { metadata: map, .. } => vec![map.len()],
            SenderVerb::Raw(frames) => frames.iter().map(Bytes::len).collect(),
            SenderVerb::Flush => vec![],
        };
        if sizes.iter().any(|&size| size as u64 > self.max_message_bytes) {
            let largest = sizes.iter().max().copied().unwrap_or_default();
            let limit = self.max_message_bytes;
            let text = format!("a frame of {largest} bytes is larger than max_message_bytes, {limit}");
            return Err(LocalProtocolError::new_err(text));
        }
        if sizes.len() > MAX_FRAMES {
            let text = format!("a message has at most {MAX_FRAMES} frames, including the header, not {}", sizes.len());
            return Err(LocalProtocolError::new_err(text));
        }
        let bytes = sizes.iter().map(|size| size + FRAME_COST).sum();
        Ok(Outgoing(Waiting::new(Either::First(verb), bytes)))
    }
}

/// The notice of an event: its kind, an endpoint, and details in words.
fn notice(event: SenderEvent) -> (&'static str, String, String) {
    match event {
        SenderEvent::Bound(endpoint) => ("bound", endpoint, String::new()),
        SenderEvent::Connection(what) => connection(what),
        SenderEvent::AtRisk { endpoint, messages } => ("at_risk", endpoint, messages.to_string()),
        SenderEvent::Shared(endpoint) => ("shared", endpoint, String::new()),
        SenderEvent::Refused(reason) => ("refused", String::new(), reason),
    }
}

#[pymethods]
impl PySender {
    #[new]
    #[allow(clippy::too_many_arguments)] // as Python names them
    #[pyo3(signature = (options, name, *, header, max_message_bytes, batch_bytes, batch_s, beacon = None))]
    fn new(
        py: Python<'_>,
        mut options: RoleOptions,
        name: String,
        header: &str,
        max_message_bytes: u64,
        batch_bytes: u64,
        batch_s: f64,
        beacon: Option<BeaconOptions>,
    ) -> PyResult<PyClassInitializer<Self>> {
        if name.len() as u64 > max_message_bytes {
            return Err(LocalProtocolError::new_err("the name is larger than max_message_bytes"));
        }
        options.socket.max_message_bytes = None;
        options.socket.send_hwm = Some(SEND_HWM);
        let variant = variant(header)?;
        let settings = SenderSettings {
            name,
            variant,
            bind: options.bind.clone(),
            connect: options.connect.clone(),
            options: options.socket.clone(),
            batch: BatchBounds {
                // Together they must not be larger than a receiver takes.
                bytes: usize::try_from(batch_bytes.min(max_message_bytes)).unwrap_or(usize::MAX),
                time: seconds("batch_s", batch_s)?,
            },
        };
        let beacon = beacon.map(BeaconOptions::settings);
        let make = move |_, seed| {
            let beacon = beacon.clone().map(|settings| Beacon::new(settings, seed));
            Together::new(Sender::new(settings.clone()), beacon, Announcing::default())
        };
        let (handle, role) = run(py, make, Queued, options, Framing::Cdtp, "trunkline-cdtp-sender")?;
        let sender = Self { handle, clock: role.clock.clone(), variant, max_message_bytes };
        Ok(PyClassInitializer::from(role).add_subclass(sender))
    }

    /// A data message.
    #[pyo3(signature = (payload, tags, timestamp_ns))]
    fn data(
        &self,
        payload: &Bound<'_, PyAny>,
        tags: Option<&Bound<'_, PyAny>>,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Outgoing> {
        let payload = frames::one_or_more("payload", payload)?;
        if self.variant == Variant::S && payload.is_empty() {
            return Err(no_message(ErrorKind::MissingPayload));
        }
        if timestamp_ns.is_some() && matches!(self.variant, Variant::B | Variant::Two) {
            return Err(no_timestamp(self.variant));
        }
        let timestamp = timestamp_ns.map_or_else(|| Ok(self.now()), timestamp)?;
        self.outgoing(SenderVerb::Data { timestamp, tags: encoded_map("tags", tags)?, payload })
    }

    /// The begin of a run.
    fn begin_run(&self, config: &Bound<'_, PyAny>) -> PyResult<Outgoing> {
        let config = encoded_map("config", Some(config))?;
        self.outgoing(SenderVerb::BeginRun { timestamp: self.now(), config })
    }

    /// The end of a run.
    fn end_run(&self, metadata: &Bound<'_, PyAny>) -> PyResult<Outgoing> {
        let metadata = encoded_map("metadata", Some(metadata))?;
        self.outgoing(SenderVerb::EndRun { timestamp: self.now(), metadata })
    }

    /// A message as it is.
    fn raw(&self, frames: &Bound<'_, PyAny>) -> PyResult<Outgoing> {
        let frames = frames::frames("frames", frames)?;
        if frames.is_empty() {
            return Err(no_message(ErrorKind::MissingPayload));
        }
        self.outgoing(SenderVerb::Raw(frames))
    }

    /// Ends the run, if one is in progress, without waiting for room.
    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        let metadata = encoded_map("metadata", Some(&PyDict::new(py)))?;
        self.handle.ask(Either::First(SenderVerb::EndRun { timestamp: self.now(), metadata }));
        Ok(())
    }

    /// Sends what is gathered without waiting for more.
    fn flush(&self) {
        self.handle.ask(Either::First(SenderVerb::Flush));
    }

    /// Hands a message to the engine; false when there is no room.
    fn offer(slf: &Bound<'_, Self>, outgoing: &mut Outgoing) -> PyResult<bool> {
        slf.as_super().get().offer(|| outgoing.0.give(&*slf.get().handle))
    }

    /// Hands a message to the engine, waiting for room.
    #[pyo3(signature = (outgoing, timeout_s = None))]
    fn put(slf: &Bound<'_, Self>, outgoing: &mut Outgoing, timeout_s: Option<f64>) -> PyResult<()> {
        slf.as_super().get().put(slf.py(), timeout_s, || outgoing.0.give(&*slf.get().handle))
    }

    /// Notices since the last call, each `(kind, *details)`.
    fn notices(&self) -> Vec<(&'static str, String, String)> {
        let mut events = VecDeque::new();
        self.handle.read(&mut events);
        let troubles = iter::from_fn(|| self.handle.read_trouble().map(trouble));
        let troubles = troubles.map(|(kind, text)| (kind, String::new(), text));
        events.into_iter().map(notice).chain(troubles).collect()
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.handle.stats());
        let stats = counters(py, &snapshot.machine.0)?;
        slf.as_super().get().add_listening_to(&stats, &snapshot)?;
        Ok(stats)
    }
}

/// Messages that libzmq may hold for a receiver, and lose with it: just enough to keep it busy.
const SEND_HWM: u32 = 128;
