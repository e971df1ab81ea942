//! The place of a capture in Python: a directory, or the URL of a store that `trunkline.capture.stores` opens.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::{PyFileNotFoundError, PyPermissionError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use trunkline_capture::{Location, Object, ObjectStore};

/// A place from a path, or from a path whose text is a URL.
pub(crate) struct PyLocation(pub(crate) Location);

impl<'py> FromPyObject<'_, 'py> for PyLocation {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let path: PathBuf = given.extract()?;
        let Some(url) = path.to_str().filter(|text| text.contains("://")) else { return Ok(Self(path.into())) };
        let store = given.py().import("trunkline.capture.stores")?.getattr("store")?.call1((url,))?;
        let root: String = store.getattr("name")?.extract()?;
        Ok(Self(Location::in_store(root, Arc::new(PyStore(store.unbind())))))
    }
}

/// A `Store` of Python's.
struct PyStore(Py<PyAny>);

impl ObjectStore for PyStore {
    fn open(&self, name: &str, bytes: Option<u64>) -> io::Result<Box<dyn Object>> {
        ask(|py| {
            let (file, size) = self.0.bind(py).call_method1("open", (name, bytes))?.extract()?;
            Ok(Box::new(PyObject { file, size }) as _)
        })
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        ask(|py| self.0.bind(py).call_method1("size", (name,))?.extract())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<(String, Option<u64>)>> {
        ask(|py| self.0.bind(py).call_method1("list", (folder,))?.extract())
    }
}

/// A `NativeFile` of pyarrow's.
struct PyObject {
    file: Py<PyAny>,
    size: u64,
}

impl Object for PyObject {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, at: u64, length: usize) -> io::Result<Bytes> {
        let read = ask(|py| -> PyResult<PyBackedBytes> {
            Ok(self.file.bind(py).call_method1("read_at", (length, at))?.extract()?)
        });
        read.map(Bytes::from_owner)
    }
}

/// What Python answers. It may be gone by the time that a thread of our own asks.
fn ask<T>(question: impl FnOnce(Python<'_>) -> PyResult<T>) -> io::Result<T> {
    let over = || io::Error::other("Python has ended");
    Python::try_attach(question).ok_or_else(over)?.map_err(failure)
}

/// An error of Python as a system error, with its message.
#[allow(clippy::needless_pass_by_value)] // as `map_err` gives it
fn failure(error: PyErr) -> io::Error {
    Python::attach(|py| {
        let kind = if error.is_instance_of::<PyFileNotFoundError>(py) {
            io::ErrorKind::NotFound
        } else if error.is_instance_of::<PyPermissionError>(py) {
            io::ErrorKind::PermissionDenied
        } else {
            io::ErrorKind::Other
        };
        io::Error::new(kind, error.value(py).to_string())
    })
}
