//! CHIRP: datagrams, and the beacon, which offers and requests.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use trunkline_engine::Queued;
use trunkline_wire::Framing;
use trunkline_wire::chirp::{
    self, Beacon, BeaconEvent, BeaconSettings, BeaconVerb, Cast, Datagram, Id, Kind, News, Service, ServiceAddress,
};

use crate::counters::counters;
use crate::errors::{LocalProtocolError, decode_error, dropped};
use crate::frames;
use crate::reader::{Look, Next, Reader};
use crate::role::{Role, RoleOptions, run};
use crate::rooms::Room;

/// Kind, group, host, service and port of a datagram.
type Fields = (&'static str, String, String, u8, u16);

/// Kind, host, name, service and endpoint of a datagram from another host.
type NewsTuple = (&'static str, String, Option<String>, u8, Option<String>);

/// The fields of the datagram in these frames: the one frame, or a sequence of it.
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
        kind: kind.ok_or_else(|| PyValueError::new_err("kind must be 'offer', 'request' or 'depart'"))?,
        group: id(group)?,
        host: id(host)?,
        service: number(service)?,
        port,
    };
    Ok(PyBytes::new(py, &datagram.encode()))
}

/// The hash of a name: 32 hexadecimal digits.
#[pyfunction]
pub(crate) fn hash_name(name: &str, lower_case: bool) -> String {
    if lower_case { Id::of_lower_case(name) } else { Id::of(name) }.to_string()
}

fn id(digits: &str) -> PyResult<Id> {
    digits.parse().map_err(|()| PyValueError::new_err(format!("{digits:?} is not 32 hexadecimal digits")))
}

fn number(service: u8) -> PyResult<Service> {
    Service::from_number(service).ok_or_else(|| PyValueError::new_err(format!("unknown service {service}")))
}

/// The settings of a beacon, from the dictionary that `trunkline.chirp.beacon.beacon_options` makes.
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
    pub(crate) fn settings(self) -> BeaconSettings {
        let Self { group, name, broadcast, lower_case, names, only_names, port } = self;
        let cast = if broadcast { Cast::Broadcast } else { Cast::Multicast };
        BeaconSettings { group, name, cast, lower_case, names, only_names, port }
    }
}

/// A beacon's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.chirp", name = "Beacon")]
pub(crate) struct PyBeacon {
    reader: Reader<Beacon>,
    /// Called with `("dropped", error, kind, frames, peer)` for every datagram that was dropped.
    on_drop: Py<PyAny>,
}

impl PyBeacon {
    /// The next news without a wait; reports drops on the way.
    fn take(slf: &Bound<'_, Self>) -> PyResult<Option<NewsTuple>> {
        let Self { reader, on_drop } = slf.get();
        let mut look = Look::default();
        loop {
            match reader.next(&mut look) {
                Next::Event(BeaconEvent::News(news)) => {
                    let News { kind, host, name, service, endpoint } = news;
                    return Ok(Some((kind.slug(), host.to_string(), name, service as u8, endpoint)));
                }
                Next::Event(BeaconEvent::Dropped(dropped)) => {
                    on_drop.call1(slf.py(), self::dropped(slf.py(), "chirp", &dropped)?)?;
                }
                // A beacon records nothing.
                Next::Trouble(_) => {}
                Next::Nothing => return Ok(None),
                Next::Over => return Err(slf.as_super().get().ended()),
            }
        }
    }
}

fn place(port: u16) -> PyResult<ServiceAddress> {
    if port == 0 {
        return Err(LocalProtocolError::new_err("the port of a service must be from 1 to 65535"));
    }
    Ok(ServiceAddress { port, address: None })
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
        let settings = beacon.settings();
        let make = move |_, seed| Beacon::new(settings.clone(), seed);
        let (handle, role) = run(py, make, Queued, options, Framing::Cdtp, "trunkline-chirp-beacon")?;
        Ok(PyClassInitializer::from(role).add_subclass(Self { reader: Reader::new(handle), on_drop }))
    }

    /// Announces a service, and answers requests for it.
    fn offer(&self, service: u8, port: u16) -> PyResult<()> {
        self.reader.handle.ask(BeaconVerb::Offer(number(service)?, place(port)?));
        Ok(())
    }

    /// Requests offers of a service.
    fn request(&self, service: u8) -> PyResult<()> {
        self.reader.handle.ask(BeaconVerb::Request(number(service)?));
        Ok(())
    }

    /// Withdraws an offer.
    fn depart(&self, service: u8) -> PyResult<()> {
        self.reader.handle.ask(BeaconVerb::Depart(number(service)?));
        Ok(())
    }

    /// Waits for news.
    #[pyo3(signature = (timeout_s = None))]
    fn receive(slf: &Bound<'_, Self>, timeout_s: Option<f64>) -> PyResult<NewsTuple> {
        slf.as_super().get().receive(slf.py(), timeout_s, "no news came", || Self::take(slf))
    }

    /// The next news if there are any now.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<Option<NewsTuple>> {
        slf.as_super().get().ours()?;
        Self::take(slf)
    }

    /// Counters, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = py.detach(|| self.reader.handle.stats());
        counters(py, &snapshot.machine)
    }
}

pub(crate) static ROOM: Room = Room { name: "chirp", decode: None };

#[pymodule(submodule, name = "chirp")]
pub(crate) mod module {
    #[pymodule_export]
    use super::{PyBeacon, decode, encode, hash_name};
}
