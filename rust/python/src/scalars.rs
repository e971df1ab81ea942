//! Numbers that behave like Python's own without being one: above all those of `NumPy`.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;

/// Such a number, without a loss.
pub(crate) enum Scalar<'py> {
    Bool(bool),
    Int(Bound<'py, PyAny>),
    Float(f64),
}

/// The number that an object is, if Python's numbers can represent it. Decimals, fractions, complex numbers, longer
/// floats, times and arrays are none: their `__float__` would lose what distinguishes them.
pub(crate) fn scalar<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Scalar<'py>>> {
    let py = object.py();
    let kind = object.get_type();
    if kind.module()? == "numpy" {
        // NumPy 1 names its boolean `bool_`.
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
        // An array has it, whether it holds one integer or not.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}
