//! Frames between Python and Rust.

use std::fmt::Display;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView, PyString, PyTuple};
use smallvec::SmallVec;
use trunkline_wire::Frames;

use crate::errors::LocalProtocolError;

/// Frames below this are copied: cheaper than keeping Python's object alive.
const COPY_BELOW: usize = 1024;

/// A frame of a message that Python holds: one from a socket, or Python's own `bytes`, which are never copied.
pub(crate) enum Frame {
    Native(Bytes),
    Python(Shared),
}

/// A number of things, as text.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(number: N, what: &str) -> String {
    format!("{number} {what}{}", if number == N::from(1) { "" } else { "s" })
}

impl Frame {
    /// Reads a bytes-like object in place if it never changes, else a copy.
    pub(crate) fn of(argument: &str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::Python(Shared::new(bytes))),
            Err(_) => frame(argument, object).map(Self::Native),
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

/// The frames in a tuple of them.
pub(crate) fn of_tuple<'py>(frames: &Bound<'py, PyTuple>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    frames.iter().map(|frame| Ok(frame.cast_into::<PyBytes>()?)).collect()
}

/// Frames as numbers, in one array of one dimension, or one of them: of bytes unless a dtype is given.
pub(crate) fn array<'py>(
    py: Python<'py>,
    mut frames: Vec<Bound<'py, PyBytes>>,
    dtype: Option<Bound<'py, PyAny>>,
    frame: Option<isize>,
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py
        .import(intern!(py, "numpy"))
        .map_err(|_| LocalProtocolError::new_err("this requires numpy: pip install numpy"))?;
    if let Some(frame) = frame {
        let count = frames.len();
        // As Python counts, below zero from the end.
        let at = if frame < 0 { count.checked_sub(frame.unsigned_abs()) } else { Some(frame.unsigned_abs()) };
        let Some(at) = at.filter(|at| *at < count) else {
            return Err(PyIndexError::new_err(format!("frame {frame} of {}", counted(count, "frame"))));
        };
        frames = vec![frames.swap_remove(at)];
    }
    let bytes = match frames.as_slice() {
        [frame] => frame.clone().into_any(),
        frames => PyBytes::new(py, b"").call_method1(intern!(py, "join"), (PyTuple::new(py, frames)?,))?,
    };
    let dtype = dtype.unwrap_or_else(|| intern!(py, "uint8").clone().into_any());
    numpy.call_method1(intern!(py, "frombuffer"), (bytes, dtype))
}

/// A frame as Rust keeps it; a large `bytes` object is shared, everything else is copied. `argument` is the name of the
/// argument in Python.
pub(crate) fn frame(argument: &str, object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(shared(bytes));
    }
    match contents(object)? {
        Some(bytes) => Ok(bytes),
        None => Err(no_frame(argument, object)),
    }
}

/// A copy of the contents of a buffer; None if it is none, or its bytes have no meaning outside this process.
fn contents(object: &Bound<'_, PyAny>) -> PyResult<Option<Bytes>> {
    let py = object.py();
    if let Ok(buffer) = PyBuffer::<u8>::get(object) {
        return Ok(Some(buffer.to_vec(py)?.into()));
    }
    // Items of other sizes, and `zmq.Frame`, which leaves out what only a view of Python's own fills in.
    let Ok(view) = PyMemoryView::from(object) else { return Ok(None) };
    let format: String = view.getattr(intern!(py, "format"))?.extract()?;
    let is_contiguous: bool = view.getattr(intern!(py, "c_contiguous"))?.extract()?;
    // The format names fields between colons; pointers and Python's objects are addresses, valid only here.
    let holds_addresses = format.split(':').step_by(2).any(|types| types.contains(['O', 'P', 'X', '&']));
    if !is_contiguous || holds_addresses {
        return Ok(None);
    }
    let bytes = view.call_method0(intern!(py, "tobytes"))?;
    Ok(Some(shared(bytes.cast::<PyBytes>()?)))
}

fn is_buffer(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyBytes>() || PyMemoryView::from(object).is_ok()
}

/// Whether an object with items is a single value whose items are no frames: text, a map, or an array.
fn is_single(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_one = object.is_instance_of::<PyString>() || object.is_instance_of::<PyDict>() || is_buffer(object);
    Ok(is_one || object.hasattr(intern!(object.py(), "__array_interface__"))?)
}

fn no_frame(argument: &str, object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type().qualname().map_or_else(|_| "this".to_owned(), |name| name.to_string());
    let advice = if object.is_instance_of::<PyString>() {
        ": encode it"
    } else if is_buffer(object) {
        " that is not contiguous or contains objects: make a contiguous copy of plain numbers"
    } else if object.hasattr(intern!(object.py(), "__array_interface__")).unwrap_or_default() {
        " of values without a buffer, such as times: view them as whole numbers"
    } else {
        ""
    };
    PyTypeError::new_err(format!("{argument} takes bytes or another buffer, not {kind}{advice}"))
}

/// One frame, or a sequence of them.
pub(crate) fn one_or_more(argument: &str, object: &Bound<'_, PyAny>) -> PyResult<SmallVec<[Bytes; 2]>> {
    let is_sequence = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
    if is_sequence {
        return sequence(argument, object, frame);
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(smallvec::smallvec![shared(bytes)]);
    }
    match contents(object)? {
        Some(bytes) => Ok(smallvec::smallvec![bytes]),
        None if is_single(object)? => Err(no_frame(argument, object)),
        None => sequence(argument, object, frame),
    }
}

/// A sequence of frames.
pub(crate) fn frames(argument: &str, object: &Bound<'_, PyAny>) -> PyResult<Frames> {
    sequence(argument, object, frame)
}

/// A sequence of frames for a message that Python holds.
pub(crate) fn held(argument: &str, object: &Bound<'_, PyAny>) -> PyResult<SmallVec<[Frame; 3]>> {
    sequence(argument, object, Frame::of)
}

/// Lists and tuples, which most sequences of frames are, need no iterator of their own.
fn sequence<F, C: FromIterator<F>>(
    argument: &str,
    object: &Bound<'_, PyAny>,
    frame: impl Fn(&str, &Bound<'_, PyAny>) -> PyResult<F>,
) -> PyResult<C> {
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|item| frame(argument, &item)).collect();
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter().map(|item| frame(argument, &item)).collect();
    }
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        let text =
            format!("{argument} takes a sequence of bytes, not {}: put it in a list", object.get_type().qualname()?);
        return Err(PyTypeError::new_err(text));
    }
    let Ok(items) = object.try_iter() else { return Err(no_frame(argument, object)) };
    items.map(|item| frame(argument, &item?)).collect()
}

/// Refuses a frame that is larger than a peer takes.
pub(crate) fn within<'a>(frames: impl Iterator<Item = &'a Bytes>, max_message_bytes: u64) -> PyResult<()> {
    match frames.map(Bytes::len).max() {
        Some(largest) if largest as u64 > max_message_bytes => Err(LocalProtocolError::new_err(format!(
            "a frame of {largest} bytes is larger than max_message_bytes, {max_message_bytes}"
        ))),
        _ => Ok(()),
    }
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

/// A `bytes` object whose content Rust reads without the GIL: it never changes and stays while it is referred to.
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
