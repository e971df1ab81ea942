//! Roles without sockets, threads and clock.

use std::collections::HashMap;
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_wire::Nanos;
use trunkline_wire::simulation::{Network, Node, Notice, Simulation};

use super::{Driven, Given, VerbQueue, spoken};
use crate::role::seconds;

struct World {
    simulation: Simulation<dyn Driven>,
    queues: HashMap<Node, Arc<VerbQueue>>,
}

impl World {
    fn queue(&mut self, node: Node) -> Arc<VerbQueue> {
        Arc::clone(self.queues.entry(node).or_default())
    }

    /// The verbs of a machine that is gone are never read.
    fn clear(&mut self) {
        let simulation = &self.simulation;
        self.queues.retain(|node, queue| {
            let is_up = simulation.is_up(*node);
            if !is_up {
                queue.close();
            }
            is_up
        });
    }
}

/// The world, once no other thread holds it, with the verbs that came since. The holder may need Python meanwhile, as
/// that of a driver may.
fn enter<'a>(py: Python<'_>, world: &'a Mutex<World>) -> MutexGuard<'a, World> {
    let mut world = world.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
    let put: Vec<_> = world.queues.iter().map(|(node, queue)| (*node, queue.take())).collect();
    for (node, verbs) in put {
        let now = world.simulation.now();
        for verb in verbs {
            world.simulation.act(node, |machine| machine.handle(now, verb));
        }
    }
    world
}

/// Machines, and the network between them.
#[pyclass(frozen, module = "trunkline._native", name = "Simulation")]
pub(crate) struct PySimulation(Arc<Mutex<World>>);

#[pymethods]
impl PySimulation {
    #[new]
    fn new(seed: u64, steps: u64) -> Self {
        let simulation = Simulation::new(seed, Network::default(), steps);
        Self(Arc::new(Mutex::new(World { simulation, queues: HashMap::new() })))
    }

    /// Sets how messages sent from now on are treated.
    #[pyo3(signature = (*, latency_s, jitter_s, loss, duplication, reorder))]
    fn set_network(
        &self,
        py: Python<'_>,
        latency_s: f64,
        jitter_s: f64,
        loss: f64,
        duplication: f64,
        reorder: bool,
    ) -> PyResult<()> {
        if [loss, duplication].iter().any(|share| !(0.0..=1.0).contains(share)) {
            return Err(PyValueError::new_err("loss and duplication must be from 0 to 1"));
        }
        let (latency, jitter) = (seconds("latency_s", latency_s)?, seconds("jitter_s", jitter_s)?);
        enter(py, &self.0).simulation.set_network(Network { latency, jitter, loss, duplication, reorder });
        Ok(())
    }

    /// The time since the start.
    #[getter]
    fn now_ns(&self, py: Python<'_>) -> u64 {
        enter(py, &self.0).simulation.now().0
    }

    /// Adds a machine: its kind, and its settings.
    fn add(&self, kind: &str, settings: Bound<'_, PyDict>) -> PyResult<Simulated> {
        let py = settings.py();
        let (name, make) = spoken::make(kind, &Given(settings))?;
        let node = enter(py, &self.0).simulation.put(name, make);
        Ok(Simulated { world: Arc::clone(&self.0), node })
    }

    /// Reports `("woken", token)` after so long.
    fn wake(&self, py: Python<'_>, after_s: f64, token: u64) -> PyResult<()> {
        enter(py, &self.0).simulation.wake(seconds("after_s", after_s)?, token);
        Ok(())
    }

    /// Runs the next event that is due by then; unless `once`, goes on until there is something to report. Gives what
    /// is reported, with its machine and `(kind, *details)`, and whether anything was due.
    #[pyo3(signature = (until_ns, *, once))]
    #[allow(clippy::type_complexity)] // it is read once, in Python
    fn run<'py>(
        &self,
        py: Python<'py>,
        until_ns: Option<u64>,
        once: bool,
    ) -> PyResult<(Vec<(Option<usize>, Bound<'py, PyTuple>)>, bool)> {
        let until = Nanos(until_ns.unwrap_or(u64::MAX));
        let mut world = enter(py, &self.0);
        let was_due = if once { world.simulation.step(until) } else { world.simulation.run(until) };
        let was_due = was_due.map_err(|endless| PyRuntimeError::new_err(endless.to_string()))?;
        let notices: Vec<_> = iter::from_fn(|| world.simulation.poll_notice()).collect();
        let mut all = Vec::with_capacity(notices.len());
        for notice in notices {
            match notice {
                Notice::Woken(token) => all.push((None, ("woken", token).into_pyobject(py)?)),
                Notice::Event(node) => {
                    let queue = world.queue(node);
                    let notice = world.simulation.any(node).next_notice(py, &queue)?;
                    all.extend(notice.map(|notice| (Some(node.0), notice)));
                }
            }
        }
        world.clear();
        Ok((all, was_due))
    }
}

/// One member of the simulation.
#[pyclass(frozen, module = "trunkline._native")]
pub(crate) struct Simulated {
    world: Arc<Mutex<World>>,
    node: Node,
}

#[pymethods]
impl Simulated {
    /// Its number in `Simulation.run`.
    #[getter]
    fn number(&self) -> usize {
        self.node.0
    }

    /// Whether it crashed or has ended.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        !enter(py, &self.world).simulation.is_up(self.node)
    }

    /// Its address at the peer that it dialled first, while it is connected.
    #[getter]
    fn address<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        enter(py, &self.world).simulation.address(self.node).map(|address| PyBytes::new(py, address))
    }

    /// The endpoints it listens on, ports filled in.
    #[getter]
    fn endpoints(&self, py: Python<'_>) -> Vec<String> {
        enter(py, &self.world).simulation.endpoints(self.node)
    }

    /// Removes it without notice.
    fn crash(&self, py: Python<'_>) {
        let mut world = enter(py, &self.world);
        world.simulation.crash(self.node);
        world.clear();
    }

    /// Restarts it without its former state.
    fn restart(&self, py: Python<'_>) {
        self.crash(py);
        enter(py, &self.world).simulation.restart(self.node);
    }

    /// Asks it to end in an orderly way within so many seconds.
    fn close(&self, py: Python<'_>, grace_s: f64) -> PyResult<()> {
        let grace = seconds("grace_s", grace_s)?;
        let mut world = enter(py, &self.world);
        world.simulation.close(self.node, grace);
        world.clear();
        Ok(())
    }

    /// Asks it for something, unless it is gone.
    #[pyo3(signature = (verb, **given))]
    fn ask(&self, py: Python<'_>, verb: &str, given: Option<Bound<'_, PyDict>>) -> PyResult<()> {
        let given = Given(given.unwrap_or_else(|| PyDict::new(py)));
        let mut world = enter(py, &self.world);
        let now = world.simulation.now();
        let mut said = Ok(());
        world.simulation.act(self.node, |machine| said = machine.say(now, verb, &given));
        said
    }

    /// Counters, by name, as the live role has them.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = enter(py, &self.world).simulation.any(self.node).counters(py)?;
        // Roles of CDT and CHIRP have no ZeroMQ transport.
        if stats.contains("connection_failures")? {
            stats.set_item("transport", "simulation")?;
        }
        Ok(stats)
    }
}
