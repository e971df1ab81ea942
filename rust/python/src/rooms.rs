//! The messages of every protocol as objects of its room, for callers that know the protocol only at run time.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trunkline_wire::cdt::Cdt;
use trunkline_wire::cdtp::Cdtp;
use trunkline_wire::dcp::Dcp;
use trunkline_wire::mc0::Mc0;
use trunkline_wire::mtl;
use trunkline_wire::{Framing, Protocol as _};

use crate::{cdt, cdtp, dcp, frames, mc0, mtl as room_of_mtl};

/// Decodes frames, as leniently as any recorder may have.
type Decode = for<'py> fn(&Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>>;

static ROOMS: &[(&str, Decode)] = &[
    (Cdtp::NAME, cdtp::recorded),
    (Dcp::NAME, dcp::recorded),
    (Mc0::NAME, mc0::recorded),
    (mtl::Data::NAME, room_of_mtl::recorded),
];

/// The messages in recorded frames; None if their protocol is unknown. For some only the topic gives their type.
#[pyfunction]
#[pyo3(signature = (protocol, frames, topic = None))]
pub(crate) fn decode<'py>(
    protocol: &str,
    frames: &Bound<'py, PyAny>,
    topic: Option<&str>,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if protocol == Cdt::NAME {
        return cdt::recorded(frames, topic).map(Some);
    }
    let room = ROOMS.iter().find(|(name, _)| *name == protocol);
    room.map(|(_, decode)| decode(frames)).transpose()
}

/// The topic of a message, if it is in a fixed frame.
#[pyfunction]
pub(crate) fn topic<'py>(protocol: &str, frames: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let Some(framing) = Framing::named(protocol) else { return Ok(None) };
    let held = frames::held("frames", frames)?;
    let topic = framing.split(&held).topic;
    Ok(topic.map(|at| PyBytes::new(frames.py(), held[at].as_ref())))
}
