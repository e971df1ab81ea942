//! One machine, driven by Python.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use trunkline_wire::{
    ErrorKind, Framing, Incoming, Nanos, Open, Output, SendId, SocketEvent, SocketKind, Unsent, Verdict,
};

use super::{Carried, Driven, Given, PyMessages, VerbQueue, spoken};
use crate::frames;
use crate::role::seconds;

/// The machine of a role, for callers that own its sockets and its clock.
#[pyclass(frozen, module = "trunkline._native", name = "Driver")]
pub(crate) struct PyDriver {
    machine: Mutex<Box<dyn Driven>>,
    verbs: Arc<VerbQueue>,
}

impl PyDriver {
    /// The machine, once no other thread holds it. The holder may need Python meanwhile: creating an object may run
    /// other code, which lets other threads run.
    fn machine(&self, py: Python<'_>) -> MutexGuard<'_, Box<dyn Driven>> {
        self.machine.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something at this time, after the verbs that are waiting.
    fn at<T>(&self, py: Python<'_>, now_ns: u64, act: impl FnOnce(Nanos, &mut dyn Driven) -> T) -> T {
        let now = Nanos(now_ns);
        let mut machine = self.machine(py);
        for verb in self.verbs.take() {
            machine.handle(now, verb);
        }
        act(now, &mut **machine)
    }
}

#[pymethods]
impl PyDriver {
    /// A machine of this kind, with these settings, at this time; the seed makes it differ from others.
    #[new]
    #[pyo3(signature = (kind, settings, *, now_ns, seed))]
    fn new(kind: &str, settings: Bound<'_, PyDict>, now_ns: u64, seed: Option<u64>) -> PyResult<Self> {
        let mut bytes = [0; 32];
        match seed {
            Some(seed) => bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&seed.to_be_bytes())),
            None => getrandom::fill(&mut bytes).map_err(|error| PyOSError::new_err(error.to_string()))?,
        }
        let (_, make) = spoken::make(kind, &Given(settings))?;
        Ok(Self { machine: Mutex::new(make(Nanos(now_ns), bytes)), verbs: Arc::default() })
    }

    /// Takes one whole message; gives the kind of error, the framing and the topic, if any.
    #[pyo3(signature = (now_ns, socket, frames, *, peer = None, user_id = None, host = None))]
    #[allow(clippy::too_many_arguments, clippy::type_complexity)] // it is read once, in Python
    fn handle_message<'py>(
        &self,
        py: Python<'py>,
        now_ns: u64,
        socket: usize,
        frames: &Bound<'_, PyAny>,
        peer: Option<&[u8]>,
        user_id: Option<&[u8]>,
        host: Option<String>,
    ) -> PyResult<(Option<&'static str>, Option<&'static str>, Option<Bound<'py, PyBytes>>)> {
        let (peer, user_id) = (peer.map(Bytes::copy_from_slice), user_id.map(Bytes::copy_from_slice));
        let host = host.map(String::into_boxed_str);
        let incoming = Incoming { socket, peer, user_id, host, frames: frames::frames("frames", frames)? };
        let Verdict { error, label } = self.at(py, now_ns, |now, machine| machine.handle_message(now, incoming));
        let topic = label.topic.map(|topic| PyBytes::new(py, &topic));
        Ok((error.map(ErrorKind::slug), label.framing.map(Framing::name), topic))
    }

    /// Takes what happened to a socket: what, to which endpoint or send, and why.
    #[pyo3(signature = (now_ns, socket, event, *, endpoint = None, send = None, reason = None))]
    #[allow(clippy::too_many_arguments)] // it is read once, in Python
    fn handle_socket(
        &self,
        py: Python<'_>,
        now_ns: u64,
        socket: usize,
        event: &str,
        endpoint: Option<&str>,
        send: Option<u64>,
        reason: Option<String>,
    ) -> PyResult<()> {
        let need = |name: &str| PyValueError::new_err(format!("{event} needs {name}="));
        let at = || endpoint.map(str::to_owned).ok_or_else(|| need("endpoint"));
        let id = || send.map(SendId).ok_or_else(|| need("send"));
        let event = match event {
            "bound" => SocketEvent::Bound(at()?),
            "connected" => SocketEvent::Connected(at()?.into()),
            "disconnected" => SocketEvent::Disconnected(at()?.into()),
            "open_failed" => SocketEvent::OpenFailed { endpoint: at()?, reason: reason.unwrap_or_default() },
            "handshake_failed" => SocketEvent::HandshakeFailed { endpoint: at()?, reason: reason.unwrap_or_default() },
            "sent" => SocketEvent::Sent(id()?),
            "unsent" => SocketEvent::Unsent(id()?, unsent(reason.as_deref())?),
            "closed" => SocketEvent::Closed,
            other => return Err(PyValueError::new_err(format!("unknown socket event {other:?}"))),
        };
        self.at(py, now_ns, |now, machine| machine.handle_socket(now, socket, event));
        Ok(())
    }

    /// Handles the timers that are due.
    fn handle_timeout(&self, py: Python<'_>, now_ns: u64) {
        self.at(py, now_ns, |now, machine| machine.handle_timeout(now));
    }

    /// Begins an orderly end that takes at most so many seconds.
    fn handle_close(&self, py: Python<'_>, now_ns: u64, grace_s: f64) -> PyResult<()> {
        let grace = seconds("grace_s", grace_s)?;
        self.at(py, now_ns, |now, machine| machine.handle_close(now, grace));
        Ok(())
    }

    /// Asks it for something.
    #[pyo3(signature = (now_ns, verb, **given))]
    fn ask(&self, py: Python<'_>, now_ns: u64, verb: &str, given: Option<Bound<'_, PyDict>>) -> PyResult<()> {
        let given = Given(given.unwrap_or_else(|| PyDict::new(py)));
        self.at(py, now_ns, |now, machine| machine.say(now, verb, &given))
    }

    /// The next thing to do on a socket, as a dictionary; None when there is none.
    fn poll_output<'py>(&self, py: Python<'py>, now_ns: u64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let output = self.at(py, now_ns, |_, machine| machine.poll_output());
        output.map(|output| shown(py, output)).transpose()
    }

    /// The next event, `(kind, *details)`; None when there is none.
    fn poll_event<'py>(&self, py: Python<'py>, now_ns: u64) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.at(py, now_ns, |_, machine| {
            machine.gather();
            machine.next_notice(py, &self.verbs)
        })
    }

    /// Handles the timers that are due, and takes messages. Gives all outputs, with consecutive sends as `Messages`,
    /// and all events; which of the messages are invalid, and why; when to call it next, and whether its orderly end is
    /// over.
    #[allow(clippy::type_complexity, clippy::needless_pass_by_value)] // it is read once, in Python, which gives it away
    fn exchange<'py>(
        &self,
        py: Python<'py>,
        now_ns: u64,
        messages: PyRef<'py, PyMessages>,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>, Vec<(usize, &'static str)>, Option<u64>, bool)> {
        let (outputs, events, mut errors) = (PyList::empty(py), PyList::empty(py), vec![]);
        let (timeout, is_closed) = self.at(py, now_ns, |now, machine| {
            machine.handle_timeout(now);
            for (number, message) in messages.iter().enumerate() {
                let Carried { socket, peer, frames, .. } = message.clone();
                let incoming = Incoming { socket, peer: Some(peer), user_id: None, host: None, frames: frames.into() };
                let verdict = machine.handle_message(now, incoming);
                errors.extend(verdict.error.map(|error| (number, error.slug())));
            }
            let mut sends = PyMessages::default();
            while let Some(output) = machine.poll_output() {
                if let Output::Send { id, socket, to, frames, .. } = output {
                    let (number, peer) = (id.map(|id| id.0), to.unwrap_or_default());
                    sends.push(Carried { socket, number, peer, frames });
                    continue;
                }
                if !sends.is_empty() {
                    outputs.append(std::mem::take(&mut sends))?;
                }
                outputs.append(shown(py, output)?)?;
            }
            if !sends.is_empty() {
                outputs.append(sends)?;
            }
            machine.gather();
            while let Some(event) = machine.next_notice(py, &self.verbs)? {
                events.append(event)?;
            }
            PyResult::Ok((timeout_ns(&*machine), machine.is_closed()))
        })?;
        Ok((outputs, events, errors, timeout, is_closed))
    }

    /// When to call `handle_timeout` next.
    #[getter]
    fn timeout_ns(&self, py: Python<'_>) -> Option<u64> {
        timeout_ns(&**self.machine(py))
    }

    /// Whether messages of this socket are wanted now.
    fn reads(&self, py: Python<'_>, socket: usize) -> bool {
        self.machine(py).reads(socket)
    }

    /// Whether the orderly end is over.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.machine(py).is_closed()
    }

    /// Counters, by name, as the live role has them.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.machine(py).counters(py)
    }
}

fn timeout_ns(machine: &dyn Driven) -> Option<u64> {
    machine.poll_timeout().filter(|at| *at != Nanos(u64::MAX)).map(|at| at.0)
}

fn unsent(reason: Option<&str>) -> PyResult<Unsent> {
    match reason {
        Some("unreachable") => Ok(Unsent::Unreachable),
        Some("peer_full") => Ok(Unsent::PeerFull),
        Some("expired") => Ok(Unsent::Expired),
        Some("closed") => Ok(Unsent::Closed),
        _ => Err(PyValueError::new_err("unsent needs reason= 'unreachable', 'peer_full', 'expired' or 'closed'")),
    }
}

fn kind(kind: SocketKind) -> &'static str {
    match kind {
        SocketKind::Dealer => "DEALER",
        SocketKind::Nats => "NATS",
        SocketKind::Pull => "PULL",
        SocketKind::Push => "PUSH",
        SocketKind::Req => "REQ",
        SocketKind::Router => "ROUTER",
        SocketKind::Udp => "UDP",
    }
}

fn shown(py: Python<'_>, output: Output<usize>) -> PyResult<Bound<'_, PyDict>> {
    let shown = PyDict::new(py);
    let set_socket = |what: &str, socket: usize| {
        shown.set_item("output", what)?;
        shown.set_item("socket", socket)
    };
    match output {
        Output::Send { id, socket, to, frames, until } => {
            set_socket("send", socket)?;
            shown.set_item("id", id.map(|id| id.0))?;
            shown.set_item("to", to.map(|to| PyBytes::new(py, &to)))?;
            shown.set_item("frames", frames::tuple(py, frames.iter())?)?;
            shown.set_item("until_ns", until.map(|until| until.0))?;
        }
        Output::Withdraw { socket, id } => {
            set_socket("withdraw", socket)?;
            shown.set_item("id", id.0)?;
        }
        Output::Open(open) => {
            let Open { socket, kind: pattern, bind, connect, .. } = *open;
            set_socket("open", socket)?;
            shown.set_item("kind", kind(pattern))?;
            shown.set_item("bind", PyTuple::new(py, bind)?)?;
            shown.set_item("connect", PyTuple::new(py, connect)?)?;
        }
        Output::Connect { socket, endpoint } => {
            set_socket("connect", socket)?;
            shown.set_item("endpoint", endpoint)?;
        }
        Output::Disconnect { socket, endpoint } => {
            set_socket("disconnect", socket)?;
            shown.set_item("endpoint", endpoint)?;
        }
        Output::Close { socket, linger } => {
            set_socket("close", socket)?;
            shown.set_item("linger_s", linger.as_secs_f64())?;
        }
    }
    Ok(shown)
}
