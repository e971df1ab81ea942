//! Guards calls of libraries that panic on files no writer has written.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;

use crate::CaptureError;

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Reads an untrusted file: a panic means that the file does not hold what it should.
///
/// Discard the reader after an error.
pub(crate) fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, CaptureError>) -> Result<T, CaptureError> {
    quieten();
    let was_guarded = IS_GUARDED.replace(true);
    let read = panic::catch_unwind(AssertUnwindSafe(read));
    IS_GUARDED.set(was_guarded);
    read.unwrap_or_else(|panicked| Err(CaptureError::corrupt(path, what(&*panicked))))
}

/// Keeps the message of a panic that becomes an error off the standard error stream.
fn quieten() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_GUARDED.get() {
                tell(info);
            }
        }));
    });
}

fn what(panicked: &(dyn Any + Send)) -> &str {
    let text = panicked.downcast_ref::<&str>().copied();
    text.or_else(|| panicked.downcast_ref::<String>().map(String::as_str)).unwrap_or("cannot be interpreted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CaptureErrorKind;

    #[test]
    fn a_panic_is_an_error_with_its_words() {
        let path = Path::new("segment");
        assert_eq!(guarded(path, || Ok(1)).unwrap(), 1);
        let failed = guarded(path, || -> Result<(), _> { panic!("no such {}", "type") }).unwrap_err();
        assert_eq!((failed.kind(), failed.path()), (CaptureErrorKind::Corrupt, path));
        assert_eq!(failed.to_string(), "segment: no such type");
    }
}
