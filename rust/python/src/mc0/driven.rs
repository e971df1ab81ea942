//! The machines of mc0 in Python's hands.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_wire::mc0::{Middleware, MiddlewareEvent, MiddlewareSettings, MiddlewareStats, MiddlewareVerb};

use super::middleware;
use crate::counters::counters;
use crate::machine::{Desk, Given, Make, Spoken, maker, no_verb};

pub(crate) fn middleware_machine(given: &Given<'_>) -> PyResult<Make> {
    let settings = given.whole::<middleware::Given>()?.settings()?;
    let settings = MiddlewareSettings { bind: given.extract("bind")?, ..settings };
    Ok(maker(move |_, _| Middleware::new(settings.clone())))
}

impl Spoken for Middleware {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<MiddlewareVerb> {
        match name {
            "enforce" => Ok(MiddlewareVerb::Enforce(middleware::given_policy(&given.any("policy")?)?)),
            other => no_verb(other),
        }
    }

    fn told<'py>(py: Python<'py>, event: MiddlewareEvent, _desk: &Arc<Desk>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        middleware::told(py, event).map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &MiddlewareStats) -> PyResult<Bound<'py, PyDict>> {
        let stats = counters(py, stats)?;
        stats.set_item("capture_lost", 0)?;
        stats.set_item("turned_away", 0)?;
        stats.set_item("refused", 0)?;
        Ok(stats)
    }
}
