//! Messages between a machine and its connection, many at a time.

use std::collections::VecDeque;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyTuple};
use trunkline_wire::Parcel;

use crate::frames;

/// A message as a connection has it.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    /// The number of its socket.
    pub(crate) socket: usize,
    /// Its number, if its machine needs the outcome.
    pub(crate) number: Option<u64>,
    /// Where it comes from or goes to.
    pub(crate) peer: Bytes,
    pub(crate) frames: Parcel,
}

impl Carried {
    fn nbytes(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum()
    }
}

/// A message as Python gives it.
type Given<'py> = (usize, Option<u64>, Bound<'py, PyBytes>, Bound<'py, PyTuple>);

/// Messages in their order, each `(socket, number or None, peer, frames)` when read.
#[pyclass(module = "trunkline._native", name = "Messages")]
#[derive(Default)]
pub(crate) struct PyMessages {
    messages: VecDeque<Carried>,
    nbytes: usize,
}

impl PyMessages {
    pub(crate) fn push(&mut self, message: Carried) {
        self.nbytes += message.nbytes();
        self.messages.push_back(message);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Carried> {
        self.messages.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

#[pymethods]
impl PyMessages {
    #[new]
    #[allow(clippy::needless_pass_by_value)] // Python gives it away
    fn new(messages: Vec<Given<'_>>) -> PyResult<Self> {
        let mut made = Self::default();
        for (socket, number, peer, given) in messages {
            let peer = Bytes::copy_from_slice(peer.as_bytes());
            made.push(Carried { socket, number, peer, frames: frames::frames("frames", &given)?.into() });
        }
        Ok(made)
    }

    fn __len__(&self) -> usize {
        self.messages.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let shown = PyList::empty(py);
        for Carried { socket, number, peer, frames } in &self.messages {
            shown.append((socket, number, PyBytes::new(py, peer), frames::tuple(py, frames.iter())?))?;
        }
        shown.try_iter()
    }

    /// How many bytes their frames have.
    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Whether a machine needs the outcome of any of them.
    #[getter]
    fn numbered(&self) -> bool {
        self.messages.iter().any(|message| message.number.is_some())
    }

    /// Takes off the first of them: one, and as many more as there are until they have so many bytes.
    fn take(&mut self, nbytes: usize) -> Self {
        if self.nbytes <= nbytes {
            return std::mem::take(self);
        }
        let mut taken = Self::default();
        while let Some(message) = self.messages.pop_front() {
            taken.push(message);
            if taken.nbytes >= nbytes {
                break;
            }
        }
        self.nbytes -= taken.nbytes;
        taken
    }
}
