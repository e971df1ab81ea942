//! The sending role.

use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use trunkline_engine::{Announcing, Either, Handle, Offered, Queued, Together};
use trunkline_wire::cdtp::{BatchBounds, Sender, SenderEvent, SenderSettings, SenderVerb, Variant};
use trunkline_wire::chirp::Beacon;
use trunkline_wire::msgpack::Timestamp;
use trunkline_wire::{ErrorKind, FRAME_COST, Framing, MAX_FRAMES};

use super::message::{encoded_map, no_message, no_timestamp, timestamp, variant};
use crate::chirp::BeaconOptions;
use crate::counters::counters;
use crate::errors::LocalProtocolError;
use crate::frames;
use crate::role::{Role, RoleOptions, connection, seconds, start, trouble};

/// A sender's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.cdtp", name = "Sender")]
pub(crate) struct PySender {
    handle: Arc<Handle<Announced>>,
    variant: Variant,
    max_message_bytes: u64,
}

/// A sender, announced if it is in a group.
pub(super) type Announced = Together<Sender, Beacon, Announcing>;

/// A message on its way to the engine.
#[pyclass(module = "trunkline._native.cdtp", name = "Outgoing")]
pub(crate) struct Outgoing {
    verb: Option<SenderVerb>,
    bytes: usize,
}

impl PySender {
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
        Ok(Outgoing { bytes: sizes.iter().map(|size| size + FRAME_COST).sum(), verb: Some(verb) })
    }

    fn give(&self, outgoing: &mut Outgoing) -> bool {
        let Some(verb) = outgoing.verb.take() else { return true };
        match self.handle.offer(Either::First(verb), outgoing.bytes) {
            Offered::Full(Either::First(verb)) | Offered::Over(Either::First(verb)) => {
                outgoing.verb = Some(verb);
                false
            }
            Offered::Taken | Offered::Full(Either::Second(_)) | Offered::Over(Either::Second(_)) => true,
        }
    }
}

/// The timestamp of a message: now, if none is given.
fn stamp(timestamp_ns: Option<&Bound<'_, PyAny>>) -> PyResult<Timestamp> {
    if let Some(nanoseconds) = timestamp_ns {
        return timestamp(nanoseconds);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Timestamp::from_nanos(i128::try_from(now.as_nanos()).unwrap_or_default()).unwrap_or_default())
}

pub(super) fn data(
    variant: Variant,
    payload: &Bound<'_, PyAny>,
    tags: Option<&Bound<'_, PyAny>>,
    timestamp_ns: Option<&Bound<'_, PyAny>>,
) -> PyResult<SenderVerb> {
    let payload = frames::one_or_more("payload", payload)?;
    if variant == Variant::S && payload.is_empty() {
        return Err(no_message(ErrorKind::MissingPayload));
    }
    if timestamp_ns.is_some() && matches!(variant, Variant::B | Variant::Two) {
        return Err(no_timestamp(variant));
    }
    Ok(SenderVerb::Data { timestamp: stamp(timestamp_ns)?, tags: encoded_map("tags", tags)?, payload })
}

pub(super) fn begin_run(config: &Bound<'_, PyAny>, timestamp_ns: Option<&Bound<'_, PyAny>>) -> PyResult<SenderVerb> {
    let config = encoded_map("config", Some(config))?;
    Ok(SenderVerb::BeginRun { timestamp: stamp(timestamp_ns)?, config })
}

pub(super) fn end_run(metadata: &Bound<'_, PyAny>, timestamp_ns: Option<&Bound<'_, PyAny>>) -> PyResult<SenderVerb> {
    let metadata = encoded_map("metadata", Some(metadata))?;
    Ok(SenderVerb::EndRun { timestamp: stamp(timestamp_ns)?, metadata })
}

pub(super) fn raw(frames: &Bound<'_, PyAny>) -> PyResult<SenderVerb> {
    let frames = frames::frames("frames", frames)?;
    if frames.is_empty() { Err(no_message(ErrorKind::MissingPayload)) } else { Ok(SenderVerb::Raw(frames)) }
}

/// The notice of an event: its kind, an endpoint, and details in words.
pub(super) fn notice(event: SenderEvent) -> (&'static str, String, String) {
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
        let machine = Sender::new(SenderSettings {
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
        });
        let beacon = beacon.map(BeaconOptions::beacon).transpose()?;
        let machine = Together::new(machine, beacon, Announcing::default());
        let (handle, role) = start(py, machine, Queued, options, Framing::Cdtp, "trunkline-cdtp-sender")?;
        Ok(PyClassInitializer::from(role).add_subclass(Self { handle, variant, max_message_bytes }))
    }

    /// A data message.
    #[pyo3(signature = (payload, tags, timestamp_ns))]
    fn data(
        &self,
        payload: &Bound<'_, PyAny>,
        tags: Option<&Bound<'_, PyAny>>,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Outgoing> {
        self.outgoing(data(self.variant, payload, tags, timestamp_ns)?)
    }

    /// The begin of a run.
    fn begin_run(&self, config: &Bound<'_, PyAny>) -> PyResult<Outgoing> {
        self.outgoing(begin_run(config, None)?)
    }

    /// The end of a run.
    fn end_run(&self, metadata: &Bound<'_, PyAny>) -> PyResult<Outgoing> {
        self.outgoing(end_run(metadata, None)?)
    }

    /// A message as it is.
    fn raw(&self, frames: &Bound<'_, PyAny>) -> PyResult<Outgoing> {
        self.outgoing(raw(frames)?)
    }

    /// Sends what is gathered without waiting for more.
    fn flush(&self) {
        self.handle.ask(Either::First(SenderVerb::Flush));
    }

    /// Hands a message to the engine; false when there is no room.
    fn offer(slf: &Bound<'_, Self>, outgoing: &mut Outgoing) -> PyResult<bool> {
        slf.as_super().get().offer(|| slf.get().give(outgoing))
    }

    /// Hands a message to the engine, waiting for room.
    #[pyo3(signature = (outgoing, timeout_s = None))]
    fn put(slf: &Bound<'_, Self>, outgoing: &mut Outgoing, timeout_s: Option<f64>) -> PyResult<()> {
        slf.as_super().get().put(slf.py(), timeout_s, || slf.get().give(outgoing))
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
