//! Frames between Python and Rust.

use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple};
use smallvec::SmallVec;
use trunkline_wire::Frames;

/// Frames below this are copied: cheaper than keeping Python's object alive.
const COPY_BELOW: usize = 1024;

/// A frame of a message that Python holds: one off a socket, or Python's own `bytes`, which are never copied.
pub(crate) enum Frame {
    Native(Bytes),
    Python(Shared),
}

impl Frame {
    /// Looks at a bytes-like object where it is if that never changes, else at a copy.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::Python(Shared::new(bytes))),
            Err(_) => frame(object).map(Self::Native),
        }
    }

    pub(crate) fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        match self {
            Self::Native(bytes) => PyBytes::new(py, bytes),
            Self::Python(shared) => shared.owner.bind(py).clone(),
        }
    }

    /// The same as Rust keeps it.
    pub(crate) fn share(&self, py: Python<'_>) -> Bytes {
        match self {
            Self::Native(bytes) => bytes.clone(),
            Self::Python(held) => shared(held.owner.bind(py)),
        }
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Native(bytes) => bytes,
            Self::Python(shared) => shared.as_ref(),
        }
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Hash for Frame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Frame {}

/// A frame as Rust keeps it; a large `bytes` object is shared, everything else is copied.
pub(crate) fn frame(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(shared(bytes));
    }
    let buffer = buffer(object).map_err(|_| PyTypeError::new_err("a frame is a bytes-like object of single bytes"))?;
    Ok(buffer.to_vec(object.py())?.into())
}

/// What a bytes-like object holds. `zmq.Frame` leaves out what only a view of Python's own fills in.
fn buffer(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    PyBuffer::get(object).or_else(|_| PyBuffer::get(PyMemoryView::from(object)?.as_any()))
}

/// One frame, or a sequence of them.
pub(crate) fn one_or_more(object: &Bound<'_, PyAny>) -> PyResult<SmallVec<[Bytes; 2]>> {
    let is_sequence = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
    if !is_sequence && (object.is_instance_of::<PyBytes>() || buffer(object).is_ok()) {
        return Ok(smallvec::smallvec![frame(object)?]);
    }
    sequence(object, frame)
}

/// A sequence of frames.
pub(crate) fn frames(object: &Bound<'_, PyAny>) -> PyResult<Frames> {
    sequence(object, frame)
}

/// A sequence of frames for a message of Python's.
pub(crate) fn held(object: &Bound<'_, PyAny>) -> PyResult<SmallVec<[Frame; 3]>> {
    sequence(object, Frame::of)
}

/// Lists and tuples, which most sequences of frames are, need no iterator of their own.
fn sequence<F, C: FromIterator<F>>(
    object: &Bound<'_, PyAny>,
    frame: impl Fn(&Bound<'_, PyAny>) -> PyResult<F>,
) -> PyResult<C> {
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|item| frame(&item)).collect();
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter().map(|item| frame(&item)).collect();
    }
    object.try_iter()?.map(|item| frame(&item?)).collect()
}

/// Frames as Python's tuple of `bytes`.
pub(crate) fn tuple<'py, 'a>(
    py: Python<'py>,
    frames: impl ExactSizeIterator<Item = &'a Bytes>,
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, frames.map(|frame| PyBytes::new(py, frame)))
}

fn shared(bytes: &Bound<'_, PyBytes>) -> Bytes {
    if bytes.as_bytes().len() < COPY_BELOW {
        return Bytes::copy_from_slice(bytes.as_bytes());
    }
    Bytes::from_owner(Shared::new(bytes))
}

/// A `bytes` object whose content Rust looks at without the GIL: it never changes and stays while it is referred to.
pub(crate) struct Shared {
    data: *const u8,
    length: usize,
    owner: Py<PyBytes>,
}

// SAFETY: the content of a `bytes` object is immutable; the reference is given back when Python next has the GIL.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(bytes: &Bound<'_, PyBytes>) -> Self {
        let content = bytes.as_bytes();
        Self { data: content.as_ptr(), length: content.len(), owner: bytes.clone().unbind() }
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the owner keeps the content alive and in place.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }
}
