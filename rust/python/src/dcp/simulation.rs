//! The roles without sockets, threads and clock.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{iter, mem};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_wire::dcp::simulation::{Network, Node, Part, Simulation, Told};
use trunkline_wire::dcp::{CallId, ClientSettings, ClientVerb, WorkerEvent, WorkerVerb, WorkingVerb};
use trunkline_wire::{Machine, Nanos};

use super::broker::{self, Given};
use super::request::Answers;
use super::{PyRequest, caller, client, heartbeat, worker};
use crate::errors::{LocalProtocolError, ended};
use crate::frames;
use crate::role::seconds;

/// The largest frame, as for roles that do not say.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// What users answer, until the simulation is next looked at.
type Answered = Mutex<VecDeque<(Node, WorkerVerb)>>;

/// Where the requests of a worker are answered, until it is gone.
struct Desk {
    node: Node,
    is_over: AtomicBool,
    answered: Arc<Answered>,
}

impl Answers for Desk {
    fn ask(&self, verb: WorkerVerb) {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).push_back((self.node, verb));
    }

    fn ended(&self) -> Option<PyErr> {
        self.is_over.load(Ordering::SeqCst).then(|| ended(None))
    }
}

struct World {
    simulation: Simulation,
    desks: HashMap<Node, Arc<Desk>>,
    answered: Arc<Answered>,
    calls: u64,
}

impl World {
    fn desk(&mut self, node: Node) -> Arc<Desk> {
        let answered = &self.answered;
        let desk = || Arc::new(Desk { node, is_over: AtomicBool::new(false), answered: Arc::clone(answered) });
        Arc::clone(self.desks.entry(node).or_insert_with(desk))
    }

    /// Has a client, or a worker, make or cancel a call.
    fn ask(&mut self, node: Node, verb: ClientVerb) {
        match self.simulation.worker(node) {
            Some(_) => self.simulation.ask_worker(node, WorkingVerb::Call(verb)),
            None => self.simulation.ask_client(node, verb),
        }
    }

    /// Nobody answers for who is gone.
    fn clear(&mut self) {
        let simulation = &self.simulation;
        self.desks.retain(|node, desk| {
            let is_up = simulation.is_up(*node);
            desk.is_over.store(!is_up, Ordering::SeqCst);
            is_up
        });
    }
}

/// The world, with what was answered since it was last looked at.
fn enter(world: &Mutex<World>) -> MutexGuard<'_, World> {
    let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
    let answered = mem::take(&mut *world.answered.lock().unwrap_or_else(PoisonError::into_inner));
    for (node, verb) in answered {
        world.simulation.ask_worker(node, WorkingVerb::Work(verb));
    }
    world
}

/// A broker, its peers and all that is between them.
#[pyclass(frozen, module = "trunkline._native.dcp", name = "Simulation")]
pub(crate) struct PySimulation(Arc<Mutex<World>>);

impl PySimulation {
    fn add(&self, part: Part) -> Simulated {
        let node = enter(&self.0).simulation.add(part);
        Simulated { world: Arc::clone(&self.0), node }
    }

    fn told<'py>(&self, py: Python<'py>, told: Told) -> PyResult<(Option<usize>, Bound<'py, PyTuple>)> {
        let (node, told) = match told {
            Told::Woken(token) => return Ok((None, ("woken", token).into_pyobject(py)?)),
            Told::Broker(node, event) => (node, broker::told(py, event)?),
            Told::Client(node, event) => (node, client::told(py, event)?),
            Told::Peer(node, frames) => (node, ("message", frames::tuple(py, frames.iter())?).into_pyobject(py)?),
            Told::Worker(node, WorkerEvent::Request { job, frames, body }) => {
                let desk = enter(&self.0).desk(node);
                let request = PyRequest::new(desk, MAX_MESSAGE_BYTES, job, frames, body);
                (node, ("request", request).into_pyobject(py)?)
            }
            Told::Worker(node, event) => {
                let told = worker::told(py, event)?;
                (node, told.unwrap_or_else(|| PyTuple::empty(py)))
            }
        };
        Ok((Some(node.0), told))
    }
}

#[pymethods]
impl PySimulation {
    #[new]
    fn new(seed: u64, steps: u64) -> Self {
        let simulation = Simulation::new(seed, Network::default(), steps);
        Self(Arc::new(Mutex::new(World { simulation, desks: HashMap::new(), answered: Arc::default(), calls: 0 })))
    }

    /// Has messages sent from now on treated like this.
    #[pyo3(signature = (*, latency_s, jitter_s, loss, duplication, reorder))]
    fn set_network(&self, latency_s: f64, jitter_s: f64, loss: f64, duplication: f64, reorder: bool) -> PyResult<()> {
        if [loss, duplication].iter().any(|share| !(0.0..=1.0).contains(share)) {
            return Err(PyValueError::new_err("loss and duplication are shares, from 0 to 1"));
        }
        let (latency, jitter) = (seconds("latency_s", latency_s)?, seconds("jitter_s", jitter_s)?);
        enter(&self.0).simulation.set_network(Network { latency, jitter, loss, duplication, reorder });
        Ok(())
    }

    /// The time since the start.
    #[getter]
    fn now_ns(&self) -> u64 {
        enter(&self.0).simulation.now().0
    }

    /// Puts the broker in.
    fn add_broker(&self, settings: Given<'_>) -> PyResult<Simulated> {
        Ok(self.add(Part::Broker(settings.settings()?)))
    }

    /// Puts a worker in.
    #[pyo3(signature = (service, *, concurrency, heartbeat_interval_s, liveness))]
    fn add_worker(
        &self,
        service: &Bound<'_, PyAny>,
        concurrency: usize,
        heartbeat_interval_s: f64,
        liveness: u32,
    ) -> PyResult<Simulated> {
        let settings = worker::settings(service, concurrency, heartbeat_interval_s, liveness)?;
        Ok(self.add(Part::Worker(settings)))
    }

    /// Puts a client in.
    #[pyo3(signature = (*, heartbeat_interval_s, liveness))]
    fn add_client(&self, heartbeat_interval_s: f64, liveness: u32) -> PyResult<Simulated> {
        let (heartbeat_interval, liveness) = heartbeat(heartbeat_interval_s, liveness)?;
        // Who does not say waits for ever.
        let timeout = Duration::MAX;
        let settings = ClientSettings { timeout, heartbeat_interval, liveness, ..ClientSettings::default() };
        Ok(self.add(Part::Client(settings)))
    }

    /// Puts a raw DEALER in.
    fn add_peer(&self) -> Simulated {
        self.add(Part::Peer)
    }

    /// Tells `("woken", token)` after so long.
    fn wake(&self, after_s: f64, token: u64) -> PyResult<()> {
        enter(&self.0).simulation.wake(seconds("after_s", after_s)?, token);
        Ok(())
    }

    /// Lets the next thing happen that is due by then; unless `once`, and on until there is something to tell. Gives what
    /// is told, whose it is and `(kind, *details)`, and whether anything was due.
    #[pyo3(signature = (until_ns, *, once))]
    #[allow(clippy::type_complexity)] // it is read once, in Python
    fn run<'py>(
        &self,
        py: Python<'py>,
        until_ns: Option<u64>,
        once: bool,
    ) -> PyResult<(Vec<(Option<usize>, Bound<'py, PyTuple>)>, bool)> {
        let until = Nanos(until_ns.unwrap_or(u64::MAX));
        let mut world = enter(&self.0);
        let simulation = &mut world.simulation;
        let was_due = if once { simulation.step(until) } else { simulation.run(until) };
        let was_due = was_due.map_err(|endless| PyRuntimeError::new_err(endless.to_string()))?;
        let told: Vec<_> = iter::from_fn(|| simulation.poll_told()).collect();
        world.clear();
        // Python may run while its objects are made, and look at this.
        drop(world);
        Ok((told.into_iter().map(|one| self.told(py, one)).collect::<PyResult<_>>()?, was_due))
    }
}

/// One of those that take part.
#[pyclass(frozen, module = "trunkline._native.dcp")]
pub(crate) struct Simulated {
    world: Arc<Mutex<World>>,
    node: Node,
}

#[pymethods]
impl Simulated {
    /// What `Simulation.run` calls it.
    #[getter]
    fn number(&self) -> usize {
        self.node.0
    }

    /// Whether it crashed or has ended.
    #[getter]
    fn closed(&self) -> bool {
        !enter(&self.world).simulation.is_up(self.node)
    }

    /// The routing id the broker knows it by, while it is connected.
    #[getter]
    fn address<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        enter(&self.world).simulation.address(self.node).map(|address| PyBytes::new(py, address))
    }

    /// Takes it out without a word.
    fn crash(&self) {
        let mut world = enter(&self.world);
        world.simulation.crash(self.node);
        world.clear();
    }

    /// Puts it back in, knowing nothing of its former life.
    fn restart(&self) {
        self.crash();
        enter(&self.world).simulation.restart(self.node);
    }

    /// Asks it to end in an orderly way within so many seconds.
    fn close(&self, grace_s: f64) -> PyResult<()> {
        let grace = seconds("grace_s", grace_s)?;
        let mut world = enter(&self.world);
        world.simulation.close(self.node, grace);
        world.clear();
        Ok(())
    }

    /// Asks a service; gives the number of the call.
    #[pyo3(signature = (service, data, *, metadata, timeout_s, retries))]
    fn request(
        &self,
        service: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        metadata: &Bound<'_, PyAny>,
        timeout_s: Option<f64>,
        retries: u32,
    ) -> PyResult<u64> {
        let number = || {
            let mut world = enter(&self.world);
            world.calls += 1;
            CallId(world.calls)
        };
        let asked = (service, data, metadata);
        let (call, request, _) = caller::request(number, asked, timeout_s, retries, MAX_MESSAGE_BYTES)?;
        enter(&self.world).ask(self.node, request);
        Ok(call.0)
    }

    /// Waits for a call no more.
    fn cancel(&self, call: u64) {
        enter(&self.world).ask(self.node, ClientVerb::Cancel(CallId(call)));
    }

    /// Sends these frames, if it is a raw DEALER.
    fn send(&self, frames: &Bound<'_, PyAny>) -> PyResult<()> {
        let frames = frames::frames("frames", frames)?;
        if frames.is_empty() {
            return Err(LocalProtocolError::new_err("a message has one frame at least"));
        }
        enter(&self.world).simulation.send(self.node, frames);
        Ok(())
    }

    /// Counters, by name, as the live role has them.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let world = enter(&self.world);
        let simulation = &world.simulation;
        let broker = simulation.broker(self.node).map(Machine::stats);
        let worker = simulation.worker(self.node).map(Machine::stats);
        let client = simulation.client(self.node).map(Machine::stats);
        drop(world);
        let stats = match (broker, worker, client) {
            (Some(stats), _, _) => {
                let stats = broker::stats_dict(py, &stats)?;
                stats.set_item("refused", 0)?;
                stats
            }
            (_, Some(stats), _) => worker::stats_dict(py, &stats)?,
            (_, _, Some(stats)) => client::stats_dict(py, &stats)?,
            (None, None, None) => return Ok(PyDict::new(py)),
        };
        stats.set_item("capture_lost", 0)?;
        Ok(stats)
    }
}
