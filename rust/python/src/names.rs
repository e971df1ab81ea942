//! Python strings of names that come again and again: the keys of maps.

use std::array;
use std::cell::RefCell;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// How many names are kept, each in the one place its bytes give it; a later one takes it over.
const PLACES: usize = 256;

/// Longer names are made anew each time.
const LONGEST: usize = 32;

const HASH: FixedState = FixedState::with_seed(0);

thread_local! {
    /// Each thread has its own: a lock would cost more than all else that is done for a name.
    static NAMES: RefCell<[Option<Name>; PLACES]> = RefCell::new(array::from_fn(|_| None));
}

struct Name {
    text: Box<str>,
    object: Py<PyString>,
}

/// The string `text`, the same object as last time if it is kept, with its hash already taken.
pub(crate) fn name<'py>(py: Python<'py>, text: &str) -> Bound<'py, PyString> {
    if text.len() > LONGEST {
        return PyString::new(py, text);
    }
    #[allow(clippy::cast_possible_truncation)] // any bits do
    let place = HASH.hash_one(text) as usize % PLACES;
    let kept = NAMES.with_borrow(|names| {
        names[place].as_ref().filter(|name| *name.text == *text).map(|name| name.object.bind(py).clone())
    });
    kept.unwrap_or_else(|| {
        let object = PyString::new(py, text);
        let name = Name { text: text.into(), object: object.clone().unbind() };
        // Dropped where nobody looks at the names any more.
        let evicted = NAMES.with_borrow_mut(|names| names[place].replace(name));
        drop(evicted);
        object
    })
}
