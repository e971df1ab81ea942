//! libsodium, which pyzmq's wheels carry for libzmq's CURVE.

use std::collections::HashMap;
use std::ffi::{OsStr, c_int, c_uchar, c_ulonglong, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;
use trunkline_wire::zap::Key;
use trunkline_zmtp::curve::{Crypto, Nonce, Secret, Tag};

type Seal = unsafe extern "C" fn(
    *mut c_uchar,
    *mut c_uchar,
    *const c_uchar,
    c_ulonglong,
    *const c_uchar,
    *const c_uchar,
) -> c_int;
type Open = unsafe extern "C" fn(
    *mut c_uchar,
    *const c_uchar,
    *const c_uchar,
    c_ulonglong,
    *const c_uchar,
    *const c_uchar,
) -> c_int;

/// Its functions, as they are called.
struct Sodium {
    random: unsafe extern "C" fn(*mut c_void, usize),
    public: unsafe extern "C" fn(*mut c_uchar, *const c_uchar) -> c_int,
    shared: unsafe extern "C" fn(*mut c_uchar, *const c_uchar, *const c_uchar) -> c_int,
    seal: Seal,
    open: Open,
}

impl fmt::Debug for Sodium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("libsodium")
    }
}

type Loaded = HashMap<PathBuf, Option<Arc<dyn Crypto>>>;

/// Those that were loaded, which stay for good.
static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

/// Loads the libsodium that a libzmq brings along, or else the system's; `None` where there is none.
pub fn load_sodium(libzmq: &Path) -> Option<Arc<dyn Crypto>> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = loaded.get_or_insert_default();
    known.entry(libzmq.to_owned()).or_insert_with(|| candidates(libzmq).iter().find_map(|path| load(path))).clone()
}

/// Where it may be. Wheels have it in a folder beside the package, or in the package, under a name of their own.
fn candidates(libzmq: &Path) -> Vec<PathBuf> {
    let is_sodium = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libsodium"));
    let folders = libzmq.ancestors().skip(1).take(3);
    let folders = folders.flat_map(|folder| [folder.to_owned(), folder.join("pyzmq.libs"), folder.join(".dylibs")]);
    let files = folders.filter_map(|folder| folder.read_dir().ok()).flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = files.filter(|path| is_sodium(path)).collect();
    found.extend(["libsodium.so.26", "libsodium.so.23", "libsodium.dylib"].map(PathBuf::from));
    found
}

fn load(path: &Path) -> Option<Arc<dyn Crypto>> {
    let name: &OsStr = path.as_ref();
    // SAFETY: loading it runs its initialisers, which are harmless; it stays loaded, so that its functions stay where they are.
    let library: &'static Library = Box::leak(Box::new(unsafe { Library::new(name) }.ok()?));
    // SAFETY: the types are those of its headers, the same in all its versions.
    unsafe {
        let init = library.get::<unsafe extern "C" fn() -> c_int>(b"sodium_init\0").ok()?;
        if init() < 0 {
            return None;
        }
        let sodium = Sodium {
            random: *library.get(b"randombytes_buf\0").ok()?,
            public: *library.get(b"crypto_scalarmult_base\0").ok()?,
            shared: *library.get(b"crypto_box_beforenm\0").ok()?,
            seal: *library.get(b"crypto_box_detached_afternm\0").ok()?,
            open: *library.get(b"crypto_box_open_detached_afternm\0").ok()?,
        };
        Some(Arc::new(sodium))
    }
}

impl Crypto for Sodium {
    fn random(&self, bytes: &mut [u8]) {
        // SAFETY: pointer and length are those of the slice.
        unsafe { (self.random)(bytes.as_mut_ptr().cast(), bytes.len()) }
    }

    fn public_key(&self, secret: &Secret) -> Key {
        let mut public = [0; 32];
        // SAFETY: both are of the 32 bytes that it takes.
        unsafe { (self.public)(public.as_mut_ptr(), secret.bytes().as_ptr()) };
        public
    }

    fn shared_key(&self, public: &Key, secret: &Secret) -> Option<Secret> {
        let mut shared = zeroize::Zeroizing::new([0; 32]);
        // SAFETY: all are of the 32 bytes that it takes.
        let failed = unsafe { (self.shared)(shared.as_mut_ptr(), public.as_ptr(), secret.bytes().as_ptr()) };
        (failed == 0).then(|| Secret::new(&shared))
    }

    fn seal(&self, shared: &Secret, nonce: &Nonce, text: &mut [u8]) -> Tag {
        let mut tag = [0; 16];
        let text_at = text.as_mut_ptr();
        // SAFETY: it encrypts in place, and writes as many bytes as it reads; nonce, key and tag are of its sizes.
        unsafe {
            (self.seal)(
                text_at,
                tag.as_mut_ptr(),
                text_at,
                text.len() as c_ulonglong,
                nonce.as_ptr(),
                shared.bytes().as_ptr(),
            )
        };
        tag
    }

    fn open(&self, shared: &Secret, nonce: &Nonce, text: &mut [u8], tag: &Tag) -> bool {
        let text_at = text.as_mut_ptr();
        // SAFETY: as above.
        let failed = unsafe {
            (self.open)(
                text_at,
                text_at,
                tag.as_ptr(),
                text.len() as c_ulonglong,
                nonce.as_ptr(),
                shared.bytes().as_ptr(),
            )
        };
        failed == 0
    }
}
