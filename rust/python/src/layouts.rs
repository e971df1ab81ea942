//! `trunkline.Layout`: what the bytes of payloads are.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use trunkline_columns::{FixedField, FixedType, Layout};

use crate::errors::LocalProtocolError;

/// What the bytes of payloads are, so that they become columns.
#[pyclass(frozen, eq, module = "trunkline", name = "Layout")]
#[derive(Clone, PartialEq)]
pub(crate) struct PyLayout(pub(crate) Layout);

#[pymethods]
impl PyLayout {
    #[new]
    fn new(layout: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::from(layout, false)
    }

    /// The layout of a dtype; with `repeat` a frame has any number of them.
    #[classmethod]
    #[pyo3(signature = (dtype, repeat=false))]
    fn of(_cls: &Bound<'_, PyType>, dtype: &Bound<'_, PyAny>, repeat: bool) -> PyResult<Self> {
        Self::of_dtype(dtype, repeat)
    }

    /// The columns that it makes, in order.
    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let columns = self.0.columns();
        PyTuple::new(py, columns.iter().map(|column| column.name()))
    }

    /// Those of its columns that hold JSON as text.
    #[getter]
    fn json_columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.json_columns())
    }

    /// The bytes of a payload; None where they vary.
    #[getter]
    fn size(&self) -> Option<usize> {
        self.0.size()
    }

    /// The dtype of a frame.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let fields = self.0.fixed_fields().ok_or_else(|| {
            LocalProtocolError::new_err(format!("{}: a NumPy dtype is of one frame of fixed size", self.0))
        })?;
        let described = fields.iter().map(|field| described(py, field)).collect::<PyResult<Vec<_>>>()?;
        dtypes(py)?.call_method1(intern!(py, "dtype_of"), (described,))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Layout({})", PyString::new(py, &self.0.to_string()).repr()?))
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.0.to_string()).hash()
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.0.to_string(),)
    }
}

impl PyLayout {
    /// Whatever says a layout: another one, its text, or a dtype of `NumPy`'s.
    pub(crate) fn from(given: &Bound<'_, PyAny>, repeat: bool) -> PyResult<Self> {
        if let Ok(layout) = given.cast::<Self>() {
            return Ok(layout.get().clone());
        }
        match given.cast::<PyString>() {
            Ok(text) => Self::parse(text.to_str()?),
            Err(_) => Self::of_dtype(given, repeat),
        }
    }

    fn parse(text: &str) -> PyResult<Self> {
        Layout::parse(text).map(Self).map_err(|error| LocalProtocolError::new_err(error.to_string()))
    }

    fn of_dtype(dtype: &Bound<'_, PyAny>, repeat: bool) -> PyResult<Self> {
        let py = dtype.py();
        let text = dtypes(py)?.call_method1(intern!(py, "text_of"), (dtype, repeat))?;
        Self::parse(text.cast::<PyString>()?.to_str()?)
    }
}

fn dtypes(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "trunkline._dtypes"))
}

/// A field as `dtype_of` takes it.
fn described<'py>(py: Python<'py>, field: &FixedField) -> PyResult<Bound<'py, PyAny>> {
    let of = match &field.of {
        FixedType::Number(name) => name.into_pyobject(py)?.into_any(),
        FixedType::Bytes(size) => size.into_pyobject(py)?.into_any(),
        FixedType::Struct(fields) => {
            let fields = fields.iter().map(|field| described(py, field)).collect::<PyResult<Vec<_>>>()?;
            fields.into_pyobject(py)?.into_any()
        }
    };
    Ok((field.name.as_deref(), of, field.repeat).into_pyobject(py)?.into_any())
}

/// The options of a decoder as they are pickled: a layout as its text.
pub(crate) fn keep_as_text(options: &Bound<'_, PyDict>, name: &str, layout: &Layout) -> PyResult<()> {
    options.set_item(name, layout.to_string())
}
