//! The primitives of `NaCl`, in pure Rust, with random bytes that are the same each time.

use std::fmt;
use std::sync::Mutex;

use curve25519_dalek::MontgomeryPoint;
use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit;
use salsa20::cipher::consts::U10;
use salsa20::cipher::{KeyIvInit, StreamCipher};
use salsa20::{Salsa20, hsalsa};
use trunkline_wire::zap::Key;
use trunkline_zmtp::curve::{Count, Crypto, KeyPair, Pieces, Prefix, Secret, Tag};

/// Random bytes are all 1 the first time, then all 2, and so on.
#[derive(Debug, Default)]
pub(crate) struct Pure(pub(crate) Mutex<u8>);

impl Pure {
    /// Encrypts or decrypts; gives the key of the tag.
    fn stream(key: &Secret, count: Count, text: &mut [u8]) -> [u8; 32] {
        let mut stream = Salsa20::new(key.bytes().into(), (&count).into());
        let mut key = [0; 32];
        stream.apply_keystream(&mut key);
        stream.apply_keystream(text);
        key
    }
}

impl Crypto for Pure {
    fn random(&self, bytes: &mut [u8]) {
        let mut next = self.0.lock().expect("nobody panicked");
        *next += 1;
        bytes.fill(*next);
    }

    fn public_key(&self, secret: &Secret) -> Key {
        MontgomeryPoint::mul_base_clamped(*secret.bytes()).to_bytes()
    }

    fn shared_key(&self, public: &Key, secret: &Secret) -> Option<Secret> {
        let point = MontgomeryPoint(*public).mul_clamped(*secret.bytes()).to_bytes();
        let key = hsalsa::<U10>(&point.into(), &[0; 16].into());
        (point != [0; 32]).then(|| Secret::new(&key.into()))
    }

    fn derive(&self, shared: &Secret, prefix: &Prefix) -> Secret {
        Secret::new(&hsalsa::<U10>(shared.bytes().into(), prefix.into()).into())
    }

    fn seal(&self, key: &Secret, count: Count, text: &mut [u8]) -> Tag {
        let key = Self::stream(key, count, text);
        Poly1305::new(&key.into()).compute_unpadded(text).into()
    }

    fn open(&self, key: &Secret, count: Count, text: &mut [u8], tag: &Tag) -> bool {
        let one_time = Self::stream(key, count, &mut []);
        let expected: Tag = Poly1305::new(&one_time.into()).compute_unpadded(text).into();
        Self::stream(key, count, text);
        expected == *tag
    }

    fn pieces(&self, key: &Secret, count: Count) -> Box<dyn Pieces> {
        let mut stream = Salsa20::new(key.bytes().into(), (&count).into());
        let mut one_time = [0; 32];
        stream.apply_keystream(&mut one_time);
        Box::new(InPieces { stream, one_time, covered: vec![] })
    }
}

struct InPieces {
    stream: Salsa20,
    one_time: [u8; 32],
    covered: Vec<u8>,
}

impl fmt::Debug for InPieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InPieces")
    }
}

impl Pieces for InPieces {
    fn apply(&mut self, piece: &mut [u8]) {
        self.stream.apply_keystream(piece);
    }

    fn cover(&mut self, piece: &[u8]) {
        self.covered.extend_from_slice(piece);
    }

    fn tag(&mut self) -> Tag {
        Poly1305::new(&self.one_time.into()).compute_unpadded(&self.covered).into()
    }
}

/// The keys of a secret that is this byte over and over.
pub(crate) fn keys(byte: u8) -> KeyPair {
    let secret = Secret::new(&[byte; 32]);
    KeyPair { public: Pure::default().public_key(&secret), secret }
}
