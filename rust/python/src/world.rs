//! Roles without sockets, threads and clock.

use std::collections::VecDeque;
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use trunkline_engine::{Bounds, Hold, Member, Queued, Running, Simulated, Sink, World};
use trunkline_wire::simulation::{Bare, Network, Node, Notice, Simulation};
use trunkline_wire::{Machine, Nanos, SocketKind};

use crate::errors::LocalProtocolError;
use crate::frames;
use crate::role::seconds;

/// Machines, and the network between them.
#[pyclass(frozen, module = "trunkline._native", name = "Simulation")]
pub(crate) struct PySimulation {
    world: Arc<World>,
    members: Mutex<Vec<Arc<dyn Member>>>,
    /// The time that its clock began at.
    origin: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing of Python runs under it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PySimulation {
    fn member(&self, number: usize) -> PyResult<Arc<dyn Member>> {
        lock(&self.members).get(number).cloned().ok_or_else(|| PyValueError::new_err(format!("no member {number}")))
    }

    /// Adds a role.
    fn join(&self, member: Arc<dyn Member>) {
        // Members are numbered in their order.
        lock(&self.members).push(member);
    }
}

#[pymethods]
impl PySimulation {
    #[new]
    fn new(seed: u64, steps: u64) -> Self {
        let world = Arc::new(Mutex::new(Simulation::new(seed, Network::default(), steps)));
        Self { world, members: Mutex::default(), origin: Instant::now() }
    }

    /// Sets how messages sent from now on are treated.
    #[pyo3(signature = (*, latency_s, jitter_s, loss, duplication, reorder))]
    fn set_network(&self, latency_s: f64, jitter_s: f64, loss: f64, duplication: f64, reorder: bool) -> PyResult<()> {
        if [loss, duplication].iter().any(|share| !(0.0..=1.0).contains(share)) {
            return Err(PyValueError::new_err("loss and duplication must be from 0 to 1"));
        }
        let (latency, jitter) = (seconds("latency_s", latency_s)?, seconds("jitter_s", jitter_s)?);
        lock(&self.world).set_network(Network { latency, jitter, loss, duplication, reorder });
        Ok(())
    }

    /// The time since the start.
    #[getter]
    fn now_ns(&self) -> u64 {
        lock(&self.world).now().0
    }

    /// Adds a raw socket of this kind.
    fn peer(&self, kind: &str, bind: Vec<String>, connect: Vec<String>) -> PyResult<PyPeer> {
        let kind = match kind {
            "DEALER" => SocketKind::Dealer,
            "NATS" => SocketKind::Nats,
            "PULL" => SocketKind::Pull,
            "PUSH" => SocketKind::Push,
            "REQ" => SocketKind::Req,
            "ROUTER" => SocketKind::Router,
            other => return Err(PyValueError::new_err(format!("unknown kind of socket {other:?}"))),
        };
        let make = move |_, _| Bare::new(kind, bind.clone(), connect.clone());
        let peer = Arc::new(Simulated::start(&self.world, ("peer", "peer"), make, Queued, Bounds::UNLIMITED)?);
        self.join(peer.clone());
        Ok(PyPeer(peer))
    }

    /// Has `run` report this number after so long.
    fn wake(&self, after_s: f64, token: u64) -> PyResult<()> {
        lock(&self.world).wake(seconds("after_s", after_s)?, token);
        Ok(())
    }

    /// Runs the next event that is due by then; unless `once`, goes on until there is something to report. Gives what
    /// is reported, each the number of a role that has an event to `deliver` or None, and that of `wake`; and whether
    /// anything was due.
    #[pyo3(signature = (until_ns, *, once))]
    #[allow(clippy::type_complexity)] // it is read once, in Python
    fn run(&self, until_ns: Option<u64>, once: bool) -> PyResult<(Vec<(Option<usize>, u64)>, bool)> {
        let until = Nanos(until_ns.unwrap_or(u64::MAX));
        let members = lock(&self.members);
        let mut simulation = lock(&self.world);
        let was_due = if once { simulation.step(until) } else { simulation.run(until) };
        let was_due = was_due.map_err(|endless| PyRuntimeError::new_err(endless.to_string()))?;
        let notices: Vec<_> = iter::from_fn(|| simulation.poll_notice()).collect();
        let reported = notices.into_iter().map(|notice| match notice {
            Notice::Woken(token) => (None, token),
            Notice::Event(Node(number)) => {
                members[number].fetch(&mut simulation);
                (Some(number), 0)
            }
        });
        Ok((reported.collect(), was_due))
    }

    /// Hands the oldest event of a role that `run` has reported to its readers.
    fn deliver(&self, number: usize) -> PyResult<()> {
        self.member(number)?.deliver();
        Ok(())
    }

    /// Removes a role without notice.
    fn crash(&self, number: usize) -> PyResult<()> {
        self.member(number)?.crash();
        Ok(())
    }

    /// Restarts a role without its former state.
    fn restart(&self, number: usize) -> PyResult<()> {
        self.member(number)?.restart();
        Ok(())
    }
}

/// A raw socket of a simulation.
#[pyclass(frozen, module = "trunkline._native", name = "Peer")]
pub(crate) struct PyPeer(Arc<Simulated<Bare>>);

#[pymethods]
impl PyPeer {
    /// Its number in the simulation.
    #[getter]
    fn number(&self) -> usize {
        self.0.node().0
    }

    /// Whether it has crashed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_over()
    }

    /// Its address at the peer that it dialled first, while it is connected.
    #[getter]
    fn address<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.address().map(|address| PyBytes::new(py, &address))
    }

    /// Sends a message, to this peer of a ROUTER; nothing once it has crashed.
    #[pyo3(signature = (frames, to))]
    fn send(&self, frames: &Bound<'_, PyAny>, to: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let frames = frames::frames("frames", frames)?;
        if frames.is_empty() {
            return Err(LocalProtocolError::new_err("a message has at least one frame"));
        }
        self.0.ask((to.map(|to| frames::frame("to", to)).transpose()?, frames));
        Ok(())
    }

    /// The next message that was delivered.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let mut events = VecDeque::new();
        self.0.read(&mut events);
        events.pop_front().map(|received| frames::tuple(py, received.frames.iter())).transpose()
    }
}

/// The simulation that a role is in.
pub(crate) struct Clock {
    /// Python's entry of the role, which calls the readers of events. The entry holds the role.
    entry: Py<PyWeakrefReference>,
    simulation: Py<PySimulation>,
}

impl Clock {
    /// Python's entry of the role.
    pub(crate) fn entry<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.entry.bind(py).upgrade()
    }

    /// The time since the start of the simulation.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.simulation.get().now_ns())
    }

    /// The time, on the clock of this process.
    pub(crate) fn now(&self) -> Instant {
        self.simulation.get().origin + self.elapsed()
    }

    /// Does what is due next, by then at most; false when nothing is. Without an end that is an error: it would wait
    /// for ever.
    pub(crate) fn step(&self, py: Python<'_>, until: Option<Instant>) -> PyResult<bool> {
        let until = until.map(|until| until.saturating_duration_since(self.simulation.get().origin));
        let until_ns = until.map(|until| u64::try_from(until.as_nanos()).unwrap_or(u64::MAX));
        let entry = self.entry(py).ok_or_else(|| PyRuntimeError::new_err("the simulation of this role is gone"))?;
        entry.call_method1("step", (until_ns,))?.extract()
    }
}

/// Adds a role to the simulation of an entry.
pub(crate) fn simulated<M: Machine + Send + 'static>(
    entry: &Bound<'_, PyAny>,
    make: impl Fn(Nanos, [u8; 32]) -> M + Send + 'static,
    sink: impl Sink<M>,
    name: &'static str,
    bounds: Bounds,
) -> PyResult<(Arc<Simulated<M>>, Clock)> {
    let simulation = entry.getattr("simulation")?.cast_into::<PySimulation>()?.unbind();
    // Peers know it by its role.
    let peer = name.rsplit('-').next().unwrap_or(name);
    let role = Arc::new(Simulated::start(&simulation.get().world, (peer, name), make, sink, bounds)?);
    simulation.get().join(role.clone());
    entry.call_method1("join", (role.node().0,))?;
    Ok((role, Clock { entry: PyWeakrefReference::new(entry)?.unbind(), simulation }))
}
