//! JSON between Python and Rust.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Number, Value};
use trunkline_wire::mtl::control::Json;

use crate::names::name;

/// The deepest nesting of objects and arrays that readers take.
const DEPTH: usize = 127;

pub(super) fn to_python<'py>(py: Python<'py>, object: &Json) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in object {
        dict.set_item(name(py, key), value_to_python(py, value)?)?;
    }
    Ok(dict)
}

fn value_to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into_bound_py_any(py),
            (None, Some(number)) => number.into_bound_py_any(py),
            (None, None) => number.as_f64().into_bound_py_any(py),
        },
        Value::String(text) => text.into_bound_py_any(py),
        Value::Array(values) => {
            let values = values.iter().map(|value| value_to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
            values.into_bound_py_any(py)
        }
        Value::Object(object) => to_python(py, object)?.into_bound_py_any(py),
    }
}

/// A JSON object from a dictionary; `argument` is the name of the argument in Python.
pub(super) fn from_python(argument: &str, object: &Bound<'_, PyAny>) -> PyResult<Json> {
    let dict = object.cast::<PyDict>();
    let dict = dict.map_err(|_| PyTypeError::new_err(format!("{argument} must be a dict, not {}", kind(object))))?;
    object_from_python(argument, dict, DEPTH)
}

fn object_from_python(argument: &str, dict: &Bound<'_, PyDict>, depth: usize) -> PyResult<Json> {
    let depth = depth.checked_sub(1).ok_or_else(|| {
        PyValueError::new_err(format!("{argument} must not nest objects and arrays more than {DEPTH} deep"))
    })?;
    let mut json = Json::with_capacity(dict.len());
    for (key, value) in dict {
        let key = key.cast::<PyString>();
        let key = key.map_err(|error| PyTypeError::new_err(format!("the names in {argument} must be str: {error}")))?;
        json.insert(key.to_str()?.to_owned(), value_from_python(argument, &value, depth)?);
    }
    Ok(json)
}

fn value_from_python(argument: &str, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Value::Bool(value.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        let number = value.extract::<i64>().map(Number::from).or_else(|_| value.extract::<u64>().map(Number::from));
        return number
            .map(Value::Number)
            .map_err(|_| PyValueError::new_err(format!("{argument}: the number {value} does not fit in 64 bits")));
    }
    if value.is_instance_of::<PyFloat>() {
        let number = Number::from_f64(value.extract()?);
        return number.map(Value::Number).ok_or_else(|| {
            PyValueError::new_err(format!("{argument} must not contain {value}: JSON has no such number"))
        });
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(text.to_str()?.to_owned()));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return object_from_python(argument, dict, depth).map(Value::Object);
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let depth = depth.checked_sub(1).ok_or_else(|| {
            PyValueError::new_err(format!("{argument} must not nest objects and arrays more than {DEPTH} deep"))
        })?;
        let values = value.try_iter()?.map(|value| value_from_python(argument, &value?, depth));
        return Ok(Value::Array(values.collect::<PyResult<_>>()?));
    }
    Err(PyTypeError::new_err(format!("{argument} must contain JSON values only, not {}", kind(value))))
}

fn kind(object: &Bound<'_, PyAny>) -> String {
    object.get_type().qualname().map_or_else(|_| "such thing".to_owned(), |name| name.to_string())
}
