//! libsodium, which pyzmq's wheels carry for libzmq's CURVE.

use std::collections::HashMap;
use std::ffi::{OsStr, c_int, c_uchar, c_ulonglong, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;
use trunkline_wire::zap::Key;
use trunkline_zmtp::curve::{Count, Crypto, Pieces, Prefix, Secret, Tag};
use zeroize::Zeroize;

/// Bytes of key stream made at a time. `crypto_secretbox` makes those of a short text block by block; libsodium makes
/// eight blocks with AVX2 in the time of one.
const STRIDE: usize = if cfg!(target_arch = "x86_64") { 512 } else { BLOCK };
const BLOCK: usize = 64;

/// The part of a text beyond this is encrypted in place.
const STREAM: usize = 2048;

/// The key of the tag comes first.
const ONE_TIME: usize = 32;

/// Its functions, as they are called.
#[derive(Clone, Copy)]
struct Sodium {
    random: unsafe extern "C" fn(*mut c_void, usize),
    public: unsafe extern "C" fn(*mut c_uchar, *const c_uchar) -> c_int,
    shared: unsafe extern "C" fn(*mut c_uchar, *const c_uchar, *const c_uchar) -> c_int,
    derive: unsafe extern "C" fn(*mut c_uchar, *const c_uchar, *const c_uchar, *const c_uchar) -> c_int,
    stream: unsafe extern "C" fn(*mut c_uchar, c_ulonglong, *const c_uchar, *const c_uchar) -> c_int,
    xor: unsafe extern "C" fn(*mut c_uchar, *const c_uchar, c_ulonglong, *const c_uchar, u64, *const c_uchar) -> c_int,
    tag: unsafe extern "C" fn(*mut c_uchar, *const c_uchar, c_ulonglong, *const c_uchar) -> c_int,
    is_tag: unsafe extern "C" fn(*const c_uchar, *const c_uchar, c_ulonglong, *const c_uchar) -> c_int,
    begin: unsafe extern "C" fn(*mut State, *const c_uchar) -> c_int,
    update: unsafe extern "C" fn(*mut State, *const c_uchar, c_ulonglong) -> c_int,
    end: unsafe extern "C" fn(*mut State, *mut c_uchar) -> c_int,
}

/// `crypto_onetimeauth_state`, the same in all versions.
#[repr(C, align(64))]
struct State([c_uchar; 256]);

/// A text that is handled in pieces.
struct InPieces {
    sodium: Sodium,
    state: Box<State>,
    key: Secret,
    count: Count,
    /// How much of the key stream was used: its beginning is the key of the tag.
    used: u64,
}

impl fmt::Debug for InPieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InPieces")
    }
}

impl Drop for InPieces {
    fn drop(&mut self) {
        self.state.0.zeroize();
    }
}

impl InPieces {
    /// Encrypts or decrypts bytes that begin with a block of the key stream.
    fn xor(&self, bytes: &mut [u8], block: u64) {
        let at = bytes.as_mut_ptr();
        // SAFETY: it works in place, and writes as many bytes as it reads; count and key have its sizes.
        unsafe {
            (self.sodium.xor)(
                at,
                at,
                bytes.len() as c_ulonglong,
                self.count.as_ptr(),
                block,
                self.key.bytes().as_ptr(),
            );
        }
    }
}

impl Pieces for InPieces {
    fn apply(&mut self, piece: &mut [u8]) {
        const BYTES: u64 = BLOCK as u64;
        let begun = usize::try_from(self.used % BYTES).expect("it is less than a block");
        let (head, rest) = piece.split_at_mut(piece.len().min((BLOCK - begun) % BLOCK));
        if !head.is_empty() {
            let mut block = zeroize::Zeroizing::new([0; BLOCK]);
            self.xor(&mut block[..], self.used / BYTES);
            head.iter_mut().zip(&block[begun..]).for_each(|(byte, key)| *byte ^= key);
        }
        if !rest.is_empty() {
            self.xor(rest, (self.used + head.len() as u64) / BYTES);
        }
        self.used += (head.len() + rest.len()) as u64;
    }

    fn cover(&mut self, piece: &[u8]) {
        // SAFETY: pointer and length are those of the slice; the state was begun.
        unsafe { (self.sodium.update)(&raw mut *self.state, piece.as_ptr(), piece.len() as c_ulonglong) };
    }

    fn tag(&mut self) -> Tag {
        let mut tag = [0; 16];
        // SAFETY: the tag has its size; the state was begun.
        unsafe { (self.sodium.end)(&raw mut *self.state, tag.as_mut_ptr()) };
        tag
    }
}

/// The beginning of a key stream, wiped after use.
struct Stream {
    bytes: [u8; STREAM],
    used: usize,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.bytes[..self.used].zeroize();
    }
}

impl Sodium {
    /// The key stream of a box with a text of this length.
    fn stream(&self, key: &Secret, count: Count, text: usize) -> Stream {
        let used = (ONE_TIME + text).next_multiple_of(STRIDE).min(STREAM);
        let mut stream = Stream { bytes: [0; STREAM], used };
        // SAFETY: it writes as many bytes as asked for, which fit; count and key have its sizes.
        unsafe { (self.stream)(stream.bytes.as_mut_ptr(), used as c_ulonglong, count.as_ptr(), key.bytes().as_ptr()) };
        stream
    }

    /// Encrypts or decrypts a text in place.
    fn apply(&self, key: &Secret, count: Count, stream: &Stream, text: &mut [u8]) {
        let (head, rest) = text.split_at_mut(text.len().min(STREAM - ONE_TIME));
        head.iter_mut().zip(&stream.bytes[ONE_TIME..]).for_each(|(byte, key)| *byte ^= key);
        if !rest.is_empty() {
            let (at, len, first) = (rest.as_mut_ptr(), rest.len() as c_ulonglong, (STREAM / BLOCK) as u64);
            // SAFETY: it works in place, and writes as many bytes as it reads; count and key have its sizes.
            unsafe { (self.xor)(at, at, len, count.as_ptr(), first, key.bytes().as_ptr()) };
        }
    }
}

impl fmt::Debug for Sodium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("libsodium")
    }
}

type Loaded = HashMap<PathBuf, Option<Arc<dyn Crypto>>>;

/// The loaded functions, which stay for good.
static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

/// Loads the libsodium that comes with libzmq, else the system's; `None` if there is none.
pub fn load_sodium(libzmq: &Path) -> Option<Arc<dyn Crypto>> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = loaded.get_or_insert_default();
    known.entry(libzmq.to_owned()).or_insert_with(|| candidates(libzmq).iter().find_map(|path| load(path))).clone()
}

/// Where it may be: beside libzmq, or where wheels have it, in a folder beside the package or in the package. The known
/// library may be pyzmq's own module, `zmq/backend/cython/_zmq`.
fn candidates(libzmq: &Path) -> Vec<PathBuf> {
    let above = libzmq.ancestors().skip(1).take(4);
    let of_wheels = above.flat_map(|folder| [folder.join("pyzmq.libs"), folder.join(".dylibs")]);
    let folders = libzmq.parent().map(Path::to_owned).into_iter().chain(of_wheels);
    let files = folders.filter_map(|folder| folder.read_dir().ok()).flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        files.filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(is_sodium)).collect();
    found.extend(["libsodium.so.26", "libsodium.so.23", "libsodium.dylib"].map(PathBuf::from));
    found
}

/// Whether a file is called as a system or a wheel calls it: `libsodium.so.23`, `libsodium-6c8f8377.so.26.4.0`,
/// `libsodium.26.dylib`.
fn is_sodium(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("libsodium") else { return false };
    let rest = match rest.strip_prefix('-').and_then(|hashed| hashed.split_at_checked(8)) {
        Some((hash, rest)) if hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => rest,
        Some(_) => return false,
        None => rest,
    };
    let is_version = |version: &str| version.split('.').skip(1).all(|part| part.parse::<u32>().is_ok());
    match (rest.strip_prefix(".so"), rest.strip_suffix(".dylib")) {
        (Some(version), _) | (None, Some(version)) => {
            (version.is_empty() || version.starts_with('.')) && is_version(version)
        }
        (None, None) => false,
    }
}

fn load(path: &Path) -> Option<Arc<dyn Crypto>> {
    let name: &OsStr = path.as_ref();
    // SAFETY: its initialisers are harmless; it stays loaded, so its functions stay in place.
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
            derive: *library.get(b"crypto_core_hsalsa20\0").ok()?,
            stream: *library.get(b"crypto_stream_salsa20\0").ok()?,
            xor: *library.get(b"crypto_stream_salsa20_xor_ic\0").ok()?,
            tag: *library.get(b"crypto_onetimeauth\0").ok()?,
            is_tag: *library.get(b"crypto_onetimeauth_verify\0").ok()?,
            begin: *library.get(b"crypto_onetimeauth_init\0").ok()?,
            update: *library.get(b"crypto_onetimeauth_update\0").ok()?,
            end: *library.get(b"crypto_onetimeauth_final\0").ok()?,
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
        // SAFETY: both have the 32 bytes that it takes.
        unsafe { (self.public)(public.as_mut_ptr(), secret.bytes().as_ptr()) };
        public
    }

    fn shared_key(&self, public: &Key, secret: &Secret) -> Option<Secret> {
        let mut shared = zeroize::Zeroizing::new([0; 32]);
        // SAFETY: all have the 32 bytes that it takes.
        let failed = unsafe { (self.shared)(shared.as_mut_ptr(), public.as_ptr(), secret.bytes().as_ptr()) };
        (failed == 0).then(|| Secret::new(&shared))
    }

    fn derive(&self, shared: &Secret, prefix: &Prefix) -> Secret {
        let mut key = zeroize::Zeroizing::new([0; 32]);
        // SAFETY: all have the sizes that it takes; without a constant it uses that of Salsa20.
        unsafe { (self.derive)(key.as_mut_ptr(), prefix.as_ptr(), shared.bytes().as_ptr(), std::ptr::null()) };
        Secret::new(&key)
    }

    fn seal(&self, key: &Secret, count: Count, text: &mut [u8]) -> Tag {
        let stream = self.stream(key, count, text.len());
        self.apply(key, count, &stream, text);
        let mut tag = [0; 16];
        // SAFETY: pointer and length are those of the slice; tag and key have its sizes.
        unsafe {
            (self.tag)(tag.as_mut_ptr(), text.as_ptr(), text.len() as c_ulonglong, stream.bytes.as_ptr());
        }
        tag
    }

    fn open(&self, key: &Secret, count: Count, text: &mut [u8], tag: &Tag) -> bool {
        let stream = self.stream(key, count, text.len());
        // SAFETY: as above.
        let failed =
            unsafe { (self.is_tag)(tag.as_ptr(), text.as_ptr(), text.len() as c_ulonglong, stream.bytes.as_ptr()) };
        if failed == 0 {
            self.apply(key, count, &stream, text);
        }
        failed == 0
    }

    fn pieces(&self, key: &Secret, count: Count) -> Box<dyn Pieces> {
        let mut state = Box::new(State([0; 256]));
        let stream = self.stream(key, count, 0);
        // SAFETY: the state and the key, the beginning of the key stream, have its sizes.
        unsafe { (self.begin)(&raw mut *state, stream.bytes.as_ptr()) };
        Box::new(InPieces { sodium: *self, state, key: key.clone(), count, used: ONE_TIME as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Box = unsafe extern "C" fn(
        *mut c_uchar,
        *mut c_uchar,
        *const c_uchar,
        c_ulonglong,
        *const c_uchar,
        *const c_uchar,
    ) -> c_int;

    #[test]
    fn files_of_other_names_are_not_loaded() {
        for name in ["libsodium.so", "libsodium.so.23", "libsodium-6c8f8377.so.26.4.0", "libsodium.26.dylib"] {
            assert!(is_sodium(name), "{name}");
        }
        for name in [
            "libsodium",
            "libsodium-evil.so",
            "libsodium-6c8f83777.so",
            "libsodium.so.x",
            "libsodiumx.so",
            "libsodium.so.23.bak",
            "xlibsodium.so",
            "libsodium.26x.dylib",
        ] {
            assert!(!is_sodium(name), "{name}");
        }
    }

    #[test]
    fn boxes_are_those_of_libsodium() {
        let libzmq = std::env::var_os("TRUNKLINE_LIBZMQ").expect("`make test` names the library to test with");
        let libzmq = Path::new(&libzmq);
        let crypto = load_sodium(libzmq).expect("pyzmq's wheel has it");
        let path = candidates(libzmq).into_iter().find(|path| load(path).is_some()).expect("it was loaded");
        // SAFETY: it is loaded already, and the type is that of its headers.
        let library = unsafe { Library::new(path) }.expect("it was loaded");
        // SAFETY: as above.
        let seal = unsafe { library.get::<Box>(b"crypto_box_detached_afternm\0") }.expect("all versions have it");
        let (shared, prefix, count) = (Secret::new(&[7; 32]), *b"CurveZMQMESSAGES", 12345u64.to_be_bytes());
        let nonce = [&prefix[..], &count].concat();
        let key = crypto.derive(&shared, &prefix);
        for len in (0..600).chain(STREAM - 100..STREAM + 100).chain([10_000, 1 << 20]) {
            let text: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).expect("it is less")).collect();
            let (mut expected, mut expected_tag) = (text.clone(), [0; 16]);
            let at = expected.as_mut_ptr();
            // SAFETY: it works in place; nonce, key and tag have its sizes.
            unsafe {
                seal(at, expected_tag.as_mut_ptr(), at, len as c_ulonglong, nonce.as_ptr(), shared.bytes().as_ptr())
            };
            let mut sealed = text.clone();
            let tag = crypto.seal(&key, count, &mut sealed);
            assert!(tag == expected_tag && sealed == expected, "{len} bytes");
            assert!(!crypto.open(&key, 12346u64.to_be_bytes(), &mut sealed.clone(), &tag), "{len} bytes");
            let mut pieces = crypto.pieces(&key, count);
            let mut in_pieces = text.clone();
            for piece in in_pieces.chunks_mut(len / 3 + 1) {
                pieces.apply(piece);
                pieces.cover(piece);
            }
            assert!(pieces.tag() == tag && in_pieces == sealed, "{len} bytes in pieces");
            assert!(crypto.open(&key, count, &mut sealed, &tag) && sealed == text, "{len} bytes");
        }
    }
}
