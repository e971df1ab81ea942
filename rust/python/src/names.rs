//! Python strings of names that come again and again: the keys of maps.

use std::array;
use std::sync::{LazyLock, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyString;

/// How many names are kept, each in the one place its bytes give it; a later one takes it over.
const PLACES: usize = 256;

/// Longer names are made anew each time.
const LONGEST: usize = 32;

static NAMES: LazyLock<Mutex<[Option<Name>; PLACES]>> = LazyLock::new(|| Mutex::new(array::from_fn(|_| None)));

struct Name {
    text: Box<str>,
    object: Py<PyString>,
}

/// The string `text`, the same object as last time if it is kept, with its hash already taken.
///
/// The lock is never held while Python runs, so it cannot wait for a thread that waits for the GIL.
pub(crate) fn name<'py>(py: Python<'py>, text: &str) -> Bound<'py, PyString> {
    if text.len() > LONGEST {
        return PyString::new(py, text);
    }
    let place = place(text);
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = names[place].as_ref().filter(|name| *name.text == *text) {
        return name.object.bind(py).clone();
    }
    drop(names);
    let object = PyString::new(py, text);
    let name = Name { text: text.into(), object: object.clone().unbind() };
    let evicted = NAMES.lock().unwrap_or_else(PoisonError::into_inner)[place].replace(name);
    drop(evicted);
    object
}

fn place(text: &str) -> usize {
    text.bytes().fold(text.len(), |place, byte| place.wrapping_mul(31).wrapping_add(byte.into())) % PLACES
}
