//! Python strings of repeated names: the keys of maps.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, Hasher as _};
use std::str::{self, Utf8Error};

use foldhash::fast::FixedState;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// How many names are kept, each in the slot that its bytes give; a later name replaces it.
const PLACES: usize = 256;

/// Longer names are made anew each time.
const LONGEST: usize = 32;

const HASH: FixedState = FixedState::with_seed(0);

thread_local! {
    /// Each thread has its own: a lock would cost more than all other work for a name.
    static NAMES: RefCell<[Option<Name>; PLACES]> = const { RefCell::new([const { None }; PLACES]) };
}

struct Name {
    text: Box<str>,
    object: Py<PyString>,
}

/// The string `text`, the same object as last time if it is kept, with its hash already computed.
pub(crate) fn name<'py>(py: Python<'py>, text: &str) -> Bound<'py, PyString> {
    kept(py, text.as_bytes()).unwrap_or_else(|| new(py, text))
}

/// The same for bytes that may not be text: a name that is kept has been checked.
pub(crate) fn name_of_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyString>, Utf8Error> {
    kept(py, bytes).map_or_else(|| str::from_utf8(bytes).map(|text| new(py, text)), Ok)
}

/// The slot of a name, if it has one.
fn place(bytes: &[u8]) -> Option<usize> {
    if bytes.len() > LONGEST {
        return None;
    }
    let mut hasher = HASH.build_hasher();
    hasher.write(bytes);
    #[allow(clippy::cast_possible_truncation)] // any bits do
    let hash = hasher.finish() as usize;
    Some(hash % PLACES)
}

fn kept<'py>(py: Python<'py>, bytes: &[u8]) -> Option<Bound<'py, PyString>> {
    let place = place(bytes)?;
    NAMES.with_borrow(|names| {
        let name = names[place].as_ref().filter(|name| name.text.as_bytes() == bytes);
        name.map(|name| name.object.bind(py).clone())
    })
}

fn new<'py>(py: Python<'py>, text: &str) -> Bound<'py, PyString> {
    let object = PyString::new(py, text);
    if let Some(place) = place(text.as_bytes()) {
        let name = Name { text: text.into(), object: object.clone().unbind() };
        // Dropped when the names are no longer borrowed.
        let evicted = NAMES.with_borrow_mut(|names| names[place].replace(name));
        drop(evicted);
    }
    object
}
