//! Topics, keys and values: bytes on the wire, `str` in Python. Bytes that are not UTF-8 become surrogates, as in
//! `os.fsdecode`, and are restored from them.

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use trunkline_wire::mc0::Header;

use crate::frames;
use crate::names::name;

/// Bytes as Python's text.
pub(super) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(name(py, text)),
        Err(_) => PyString::from_encoded_object(&PyBytes::new(py, bytes), Some(c"utf-8"), Some(c"surrogateescape")),
    }
}

/// The bytes of a `str`, or those that are given. `argument` is the name of the argument in Python.
pub(super) fn bytes(argument: &str, object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let py = object.py();
    if let Ok(text) = object.cast::<PyString>() {
        if let Ok(text) = text.to_str() {
            return Ok(Bytes::copy_from_slice(text.as_bytes()));
        }
        let encoded = text.call_method1(intern!(py, "encode"), ("utf-8", "surrogateescape"))?;
        return Ok(Bytes::copy_from_slice(encoded.cast::<PyBytes>()?.as_bytes()));
    }
    if object.is_instance_of::<PyBytes>() {
        return frames::frame(argument, object);
    }
    Err(PyTypeError::new_err(format!("{argument} takes a str or bytes, not {}", object.get_type().qualname()?)))
}

/// Pairs of a key and a value, from a mapping or a sequence of pairs.
pub(super) fn headers(object: &Bound<'_, PyAny>) -> PyResult<Vec<Header>> {
    let py = object.py();
    let is_mapping = object.is_instance_of::<PyDict>() || object.hasattr(intern!(py, "items"))?;
    let pairs = if is_mapping { object.call_method0(intern!(py, "items"))? } else { object.clone() };
    let refused = || PyTypeError::new_err("headers takes a mapping, or a sequence of (key, value) pairs");
    if pairs.is_instance_of::<PyString>() || pairs.is_instance_of::<PyBytes>() {
        return Err(refused());
    }
    let mut headers = vec![];
    for pair in pairs.try_iter().map_err(|_| refused())? {
        let pair = pair?;
        let is_pair = pair.is_instance_of::<PyTuple>() || pair.is_instance_of::<PyList>();
        if !is_pair || pair.len()? != 2 {
            return Err(refused());
        }
        headers.push((bytes("a header's key", &pair.get_item(0)?)?, bytes("a header's value", &pair.get_item(1)?)?));
    }
    Ok(headers)
}
