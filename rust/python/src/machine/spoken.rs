//! The kinds of machines, by name.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_wire::erased::Numbered;
use trunkline_wire::simulation::{Bare, Received};
use trunkline_wire::{Nanos, SocketKind};

use super::{Driven, Given, Spoken, VerbQueue};
use crate::errors::LocalProtocolError;
use crate::{cdt, cdtp, chirp, dcp, frames, mc0, mtl};

/// Makes a machine, from the time and a seed.
pub(crate) type Make = Box<dyn Fn(Nanos, [u8; 32]) -> Box<dyn Driven> + Send>;

/// The name of a machine among others, and how to make it from settings.
type Maker = fn(&Given<'_>) -> PyResult<Make>;

static MACHINES: &[(&str, &str, Maker)] = &[
    ("bare", "peer", bare),
    ("cdt.source", "source", cdt::source_machine),
    ("cdt.target", "target", cdt::target_machine),
    ("cdtp.receiver", "receiver", cdtp::receiver_machine),
    ("cdtp.sender", "sender", cdtp::sender_machine),
    ("chirp.beacon", "beacon", chirp::beacon_machine),
    ("dcp.broker", "broker", dcp::broker_machine),
    ("dcp.client", "client", dcp::client_machine),
    ("dcp.worker", "worker", dcp::worker_machine),
    ("mc0.connector", "connector", mc0::connector_machine),
    ("mc0.middleware", "middleware", mc0::middleware_machine),
    ("mtl.client", "client", mtl::client_machine),
    ("mtl.flow", "connection", mtl::flow_machine),
    ("mtl.server", "server", mtl::server_machine),
];

/// What makes a machine of a kind with these settings, and its name among others.
pub(super) fn make(kind: &str, settings: &Given<'_>) -> PyResult<(&'static str, Make)> {
    let known = MACHINES.iter().find(|(known, ..)| *known == kind);
    let (_, name, maker) = known.ok_or_else(|| PyValueError::new_err(format!("unknown machine {kind:?}")))?;
    Ok((name, maker(settings)?))
}

/// What makes a machine of a type.
pub(crate) fn maker<M: Spoken>(make: impl Fn(Nanos, [u8; 32]) -> M + Send + 'static) -> Make {
    Box::new(move |now, seed| Box::new(Numbered::new(make(now, seed))))
}

/// A verb that a machine does not have.
pub(crate) fn no_verb<T>(name: &str) -> PyResult<T> {
    Err(PyValueError::new_err(format!("unknown verb {name:?}")))
}

fn bare(settings: &Given<'_>) -> PyResult<Make> {
    let kind = match settings.extract::<String>("kind")?.as_str() {
        "DEALER" => SocketKind::Dealer,
        "NATS" => SocketKind::Nats,
        "PULL" => SocketKind::Pull,
        "PUSH" => SocketKind::Push,
        "REQ" => SocketKind::Req,
        "ROUTER" => SocketKind::Router,
        other => return Err(PyValueError::new_err(format!("unknown kind of socket {other:?}"))),
    };
    let (bind, connect): (Vec<String>, Vec<String>) = (settings.extract("bind")?, settings.extract("connect")?);
    Ok(maker(move |_, _| Bare::new(kind, bind.clone(), connect.clone())))
}

impl Spoken for Bare {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<Self::Verb> {
        if name != "send" {
            return no_verb(name);
        }
        let frames = frames::frames("frames", &given.any("frames")?)?;
        if frames.is_empty() {
            return Err(LocalProtocolError::new_err("a message has at least one frame"));
        }
        let to = given.optional("to")?.map(|to| frames::frame("to", &to)).transpose()?;
        Ok((to, frames))
    }

    fn notice<'py>(py: Python<'py>, event: Received, _: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let peer = event.peer.map(|peer| PyBytes::new(py, &peer));
        ("message", frames::tuple(py, event.frames.iter())?, peer).into_pyobject(py).map(Some)
    }

    fn counters<'py>(py: Python<'py>, (): &()) -> PyResult<Bound<'py, PyDict>> {
        Ok(PyDict::new(py))
    }
}
