//! Distinguishes a process from its forked children, without a system call.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);
static WATCHED: Once = Once::new();

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The number of forks since the first call, through all ancestors: it differs in parent and child.
pub(crate) fn generation() -> u64 {
    // SAFETY: the handler does nothing that is forbidden between fork and exec.
    WATCHED.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    });
    FORKS.load(Ordering::Relaxed)
}
