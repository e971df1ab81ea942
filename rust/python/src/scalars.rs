//! Numbers that behave like Python's own without being any: those of `NumPy`, above all.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;

/// Such a number, without a loss.
pub(crate) enum Scalar<'py> {
    Bool(bool),
    Int(Bound<'py, PyAny>),
    Float(f64),
}

/// What number an object is, if it is one that a Python number can be. Decimals, fractions, complex numbers, longer floats, times
/// and arrays are none: to take them by their `__float__` would lose what makes them other.
pub(crate) fn scalar<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Scalar<'py>>> {
    let py = object.py();
    let kind = object.get_type();
    if kind.module()? == "numpy" {
        // What is true is `bool_` in its version 1.
        match kind.name()?.to_str()? {
            "bool" | "bool_" => return Ok(Some(Scalar::Bool(object.is_truthy()?))),
            "float16" | "float32" => return Ok(Some(Scalar::Float(object.extract()?))),
            _ => {}
        }
    }
    if !object.hasattr(intern!(py, "__index__"))? {
        return Ok(None);
    }
    match object.call_method0(intern!(py, "__index__")) {
        Ok(integer) => Ok(Some(Scalar::Int(integer))),
        // An array has it, whether it is of one integer or not.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}
