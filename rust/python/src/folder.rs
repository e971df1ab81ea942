//! Files of a directory in Python, read and written piece by piece, without following links.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use trunkline_capture::{Folder, FolderFile, NewFile};

use crate::errors::{ClosedError, capture_error};

/// A directory; names are below it.
#[pyclass(frozen, module = "trunkline._native.capture", name = "Folder")]
pub(crate) struct PyFolder(Folder);

#[pymethods]
impl PyFolder {
    /// An existing directory.
    #[new]
    #[allow(clippy::needless_pass_by_value)] // as Python gives it
    fn new(path: PathBuf) -> PyResult<Self> {
        Folder::open(&path).map(Self).map_err(|error| capture_error(&error))
    }

    /// The directory, which is made if there is none.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value)] // as Python gives it
    fn make(path: PathBuf) -> PyResult<Self> {
        Folder::make(&path).map(Self).map_err(|error| capture_error(&error))
    }

    /// Makes a directory in it, if there is none.
    fn make_folder(&self, name: &str) -> PyResult<()> {
        self.0.make_folder(name).map_err(|error| capture_error(&error))
    }

    /// The regular files in a directory below, with their bytes.
    fn files(&self, py: Python<'_>, folder: &str) -> PyResult<Vec<(String, u64)>> {
        py.detach(|| self.0.files(folder)).map_err(|error| capture_error(&error))
    }

    /// Opens a file for reading; `None` if there is none.
    fn read(&self, name: &str) -> PyResult<Option<PyFolderFile>> {
        Ok(self.0.read(name).map_err(|error| capture_error(&error))?.map(PyFolderFile))
    }

    /// Begins a file.
    fn write(&self, name: &str) -> PyResult<PyNewFile> {
        let file = self.0.write(name).map_err(|error| capture_error(&error))?;
        Ok(PyNewFile(Mutex::new(Some(file))))
    }

    /// Removes a file; gives whether there was one.
    fn remove(&self, name: &str) -> PyResult<bool> {
        self.0.remove(name).map_err(|error| capture_error(&error))
    }
}

/// A file that is read.
#[pyclass(frozen, module = "trunkline._native.capture", name = "FolderFile")]
pub(crate) struct PyFolderFile(FolderFile);

#[pymethods]
impl PyFolderFile {
    /// The bytes it had when it was opened.
    #[getter]
    fn size(&self) -> u64 {
        self.0.bytes()
    }

    /// Up to so many bytes at a position; none at the end.
    fn read_at<'py>(&self, py: Python<'py>, at: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        let piece = py.detach(|| self.0.read_at(at, length)).map_err(|error| capture_error(&error))?;
        Ok(PyBytes::new(py, &piece))
    }
}

/// A file that is written, and gets its name when it is complete. Without that it is removed.
#[pyclass(frozen, module = "trunkline._native.capture", name = "NewFile")]
pub(crate) struct PyNewFile(Mutex<Option<NewFile>>);

#[pymethods]
impl PyNewFile {
    /// Appends bytes.
    #[allow(clippy::needless_pass_by_value)] // as Python gives it
    fn append(&self, py: Python<'_>, piece: PyBackedBytes) -> PyResult<()> {
        py.detach(|| {
            let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Some(file.as_mut()?.append(&piece))
        })
        .ok_or_else(over)?
        .map_err(|error| capture_error(&error))
    }

    /// Gives it its name, once its bytes are on the disk.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(over)?;
        py.detach(|| file.finish()).map_err(|error| capture_error(&error))
    }

    /// Removes it.
    fn abandon(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn over() -> PyErr {
    ClosedError::new_err("this file is complete, or abandoned")
}
