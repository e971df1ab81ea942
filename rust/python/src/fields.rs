//! The attributes of a message, by name.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

/// All attributes of an object, as its class has them: first the positional ones of a pattern, then by name.
pub(crate) fn to_dict<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let class = object.get_type();
    let mut names: Vec<String> = class.getattr("__match_args__")?.cast_into::<PyTuple>()?.extract()?;
    let positional = names.len();
    for member in class.getattr("__dict__")?.call_method0("items")?.try_iter()? {
        let (name, value): (Bound<'py, PyString>, Bound<'py, PyAny>) = member?.extract()?;
        let name = name.to_str()?;
        let is_attribute = value.get_type().name()? == "getset_descriptor" && !name.starts_with('_');
        if is_attribute && !names[..positional].iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names[positional..].sort_unstable();
    let found = PyDict::new(object.py());
    for name in names {
        found.set_item(&name, object.getattr(name.as_str())?)?;
    }
    Ok(found)
}
