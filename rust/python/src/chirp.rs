//! CHIRP: datagrams, and the role that offers and asks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use trunkline_engine::Handle;
use trunkline_wire::Framing;
use trunkline_wire::chirp::{
    self, Beacon, BeaconEvent, BeaconSettings, BeaconStats, BeaconVerb, Cast, Datagram, Id, Kind, News, Place, Service,
};

use crate::errors::{LocalProtocolError, decode_error};
use crate::frames;
use crate::role::{AnyRole, Role, RoleOptions, deadline, start, timed_out};

/// Kind, group, host, service and port of a datagram.
type Fields = (&'static str, String, String, u8, u16);

/// Kind, host, name, service and endpoint of what another host has to say.
type Told = (&'static str, String, Option<String>, u8, Option<String>);

/// What the datagram in these frames says: the one frame, or a sequence of it.
#[pyfunction]
pub(crate) fn decode(frames: &Bound<'_, PyAny>) -> PyResult<Fields> {
    let frames = frames::one_or_more("frames", frames)?;
    let Datagram { kind, group, host, service, port } =
        chirp::decode(&frames).map_err(|error| decode_error("chirp", error))?;
    Ok((kind.slug(), group.to_string(), host.to_string(), service as u8, port))
}

/// The bytes of a datagram.
#[pyfunction]
pub(crate) fn encode<'py>(
    py: Python<'py>,
    kind: &str,
    group: &str,
    host: &str,
    service: u8,
    port: u16,
) -> PyResult<Bound<'py, PyBytes>> {
    let kind = Kind::ALL.into_iter().find(|known| known.slug() == kind);
    let datagram = Datagram {
        kind: kind.ok_or_else(|| PyValueError::new_err("a kind is 'offer', 'request' or 'depart'"))?,
        group: id(group)?,
        host: id(host)?,
        service: number(service)?,
        port,
    };
    Ok(PyBytes::new(py, &datagram.encode()))
}

/// What stands for a name: 32 hexadecimal digits.
#[pyfunction]
pub(crate) fn hash_name(name: &str, lower_case: bool) -> String {
    if lower_case { Id::of_lower_case(name) } else { Id::of(name) }.to_string()
}

fn id(digits: &str) -> PyResult<Id> {
    digits.parse().map_err(|()| PyValueError::new_err(format!("{digits:?} is not 32 hexadecimal digits")))
}

fn number(service: u8) -> PyResult<Service> {
    Service::from_number(service).ok_or_else(|| PyValueError::new_err(format!("{service} is no service")))
}

/// How a beacon is set up, from the dictionary that `trunkline.chirp.beacon.beacon_options` makes.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct BeaconOptions {
    group: String,
    name: Option<String>,
    broadcast: bool,
    lower_case: bool,
    names: Vec<String>,
    only_names: bool,
    port: u16,
}

impl BeaconOptions {
    /// A beacon with a seed of its own.
    pub(crate) fn beacon(self) -> PyResult<Beacon> {
        let Self { group, name, broadcast, lower_case, names, only_names, port } = self;
        let cast = if broadcast { Cast::Broadcast } else { Cast::Multicast };
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(Beacon::new(BeaconSettings { group, name, cast, lower_case, names, only_names, port }, seed))
    }
}

/// A beacon's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.chirp", name = "Beacon")]
pub(crate) struct PyBeacon {
    handle: Arc<Handle<Beacon>>,
    events: Mutex<VecDeque<BeaconEvent>>,
    /// Called with kind, error, frames and peer for every datagram that came to nothing.
    on_drop: Py<PyAny>,
}

impl PyBeacon {
    /// The next news without a wait; drops on the way are told.
    fn take(slf: &Bound<'_, Self>) -> PyResult<Option<Told>> {
        let Self { handle, events, on_drop } = slf.get();
        loop {
            let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
            if events.is_empty() && !handle.read(&mut events) {
                return Err(slf.as_super().get().ended());
            }
            let event = events.pop_front();
            // Python may come back here from the callback.
            drop(events);
            match event {
                None => return Ok(None),
                Some(BeaconEvent::News(News { kind, host, name, service, endpoint })) => {
                    return Ok(Some((kind.slug(), host.to_string(), name, service as u8, endpoint)));
                }
                Some(BeaconEvent::Dropped { kind, error, frames, peer }) => {
                    let py = slf.py();
                    let error = error.map(|error| decode_error("chirp", error).into_value(py));
                    let peer = peer.map(|peer| PyBytes::new(py, &peer).unbind());
                    on_drop.call1(py, (kind, error, frames::tuple(py, frames.iter())?, peer))?;
                }
            }
        }
    }
}

#[pymethods]
impl PyBeacon {
    #[new]
    fn new(
        py: Python<'_>,
        options: RoleOptions,
        beacon: BeaconOptions,
        on_drop: Py<PyAny>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let machine = beacon.beacon()?;
        let (handle, role) = start(py, machine, options, Framing::Cdtp, "trunkline-chirp-beacon")?;
        Ok(PyClassInitializer::from(role).add_subclass(Self { handle, events: Mutex::default(), on_drop }))
    }

    /// Announces a service, and answers those who ask for it.
    fn offer(&self, service: u8, port: u16) -> PyResult<()> {
        if port == 0 {
            return Err(LocalProtocolError::new_err("a service is offered at a port from 1 to 65535"));
        }
        self.handle.ask(BeaconVerb::Offer(number(service)?, Place { port, address: None }));
        Ok(())
    }

    /// Asks who offers a service.
    fn request(&self, service: u8) -> PyResult<()> {
        self.handle.ask(BeaconVerb::Request(number(service)?));
        Ok(())
    }

    /// Takes an offer back.
    fn depart(&self, service: u8) -> PyResult<()> {
        self.handle.ask(BeaconVerb::Depart(number(service)?));
        Ok(())
    }

    /// Waits for news.
    #[pyo3(signature = (timeout_s = None))]
    fn receive(slf: &Bound<'_, Self>, timeout_s: Option<f64>) -> PyResult<Told> {
        let deadline = deadline(timeout_s)?;
        let role = slf.as_super().get();
        loop {
            role.ours()?;
            if let Some(told) = Self::take(slf)? {
                return Ok(told);
            }
            let some = |role: &dyn AnyRole| role.has_events() || role.is_over();
            if !role.wait_until(slf.py(), |role| role.events(), deadline, some)? {
                return Err(timed_out("no news came", timeout_s));
            }
        }
    }

    /// The next news if there are any now.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<Option<Told>> {
        slf.as_super().get().ours()?;
        Self::take(slf)
    }

    /// Counters, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = py.detach(|| self.handle.stats());
        let BeaconStats { received, ignored, dropped, sent, services } = snapshot.machine;
        let stats = PyDict::new(py);
        stats.set_item("received", received)?;
        stats.set_item("ignored", ignored)?;
        stats.set_item("dropped", dropped)?;
        stats.set_item("sent", sent)?;
        stats.set_item("services", services)?;
        Ok(stats)
    }
}
