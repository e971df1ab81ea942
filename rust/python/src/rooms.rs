//! The protocols, for callers that know the name only at run time.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trunkline_wire::Framing;

use crate::{ROOMS, frames};

/// The messages in recorded frames, as leniently as any recorder may have taken them. For some only the topic gives
/// their type.
pub(crate) type Decode = for<'py> fn(&Bound<'py, PyAny>, Option<&str>) -> PyResult<Vec<Bound<'py, PyAny>>>;

/// A protocol.
pub(crate) struct Room {
    pub(crate) name: &'static str,
    /// If it is recorded.
    pub(crate) decode: Option<Decode>,
}

/// The messages in recorded frames; None if their protocol is unknown.
#[pyfunction]
#[pyo3(signature = (protocol, frames, topic = None))]
pub(crate) fn decode<'py>(
    protocol: &str,
    frames: &Bound<'py, PyAny>,
    topic: Option<&str>,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let decode = ROOMS.iter().find(|room| room.name == protocol).and_then(|room| room.decode);
    decode.map(|decode| decode(frames, topic)).transpose()
}

/// The topic of a message, if it is in a fixed frame.
#[pyfunction]
pub(crate) fn topic<'py>(protocol: &str, frames: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let Some(framing) = Framing::named(protocol) else { return Ok(None) };
    let held = frames::held("frames", frames)?;
    let topic = framing.split(&held).topic;
    Ok(topic.map(|at| PyBytes::new(frames.py(), held[at].as_ref())))
}
