//! Keys, and the interface of the cryptography.

use std::fmt;
use std::sync::Arc;

use trunkline_wire::zap::Key;
use zeroize::Zeroize;

/// The first part of a nonce: it keeps the boxes of each kind apart.
pub type Prefix = [u8; 16];

/// The rest of a nonce: it keeps the boxes of one kind apart.
pub type Count = [u8; 8];

/// The authentication tag of a box, at its beginning.
pub type Tag = [u8; 16];

/// A secret key, of one side or shared by both: wiped after use, and never printed. It is boxed, since a move would
/// leave a copy behind.
#[derive(Clone)]
pub struct Secret(Box<[u8; 32]>);

impl Secret {
    /// A key of these bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(Box::new(*bytes))
    }

    /// Its bytes, for computing.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The primitives of `NaCl` that CurveZMQ is made of: RFC 26, "CurveZMQ Commands". A box is X25519, `HSalsa20` and
/// `XSalsa20-Poly1305`, its tag first; `XSalsa20` is [`derive`](Self::derive), once for all boxes of a kind, then
/// `Salsa20`.
pub trait Crypto: fmt::Debug + Send + Sync {
    /// Fills a buffer with random bytes.
    fn random(&self, bytes: &mut [u8]);

    /// The public key of a secret one: `crypto_scalarmult_base`.
    fn public_key(&self, secret: &Secret) -> Key;

    /// The key shared by both sides of a box: `crypto_box_beforenm`. `None` for a weak public key, which would give the
    /// same key for every secret one.
    fn shared_key(&self, public: &Key, secret: &Secret) -> Option<Secret>;

    /// The key of all boxes of a kind: `crypto_core_hsalsa20`.
    fn derive(&self, shared: &Secret, prefix: &Prefix) -> Secret;

    /// Encrypts a text in place, by Salsa20 and Poly1305, with a key that was [derived](Self::derive).
    fn seal(&self, key: &Secret, count: Count, text: &mut [u8]) -> Tag;

    /// Decrypts a text in place. False if the tag does not match, and the text is then undefined; takes the same time
    /// for every tag.
    fn open(&self, key: &Secret, count: Count, text: &mut [u8], tag: &Tag) -> bool;

    /// The same for a text that is handled piece by piece, from its beginning.
    fn pieces(&self, key: &Secret, count: Count) -> Box<dyn Pieces>;
}

/// A box that is sealed or opened piece by piece.
pub trait Pieces: fmt::Debug + Send {
    /// Encrypts or decrypts the next piece in place.
    fn apply(&mut self, piece: &mut [u8]);

    /// Adds the next encrypted piece to what the tag covers.
    fn cover(&mut self, piece: &[u8]);

    /// The tag of all that was covered.
    fn tag(&mut self) -> Tag;
}

#[derive(Clone, Debug)]
pub struct KeyPair {
    pub public: Key,
    pub secret: Secret,
}

impl KeyPair {
    /// A new pair, for one connection.
    pub(crate) fn transient(crypto: &dyn Crypto) -> Self {
        let secret = random_secret(crypto);
        Self { public: crypto.public_key(&secret), secret }
    }
}

/// A random key.
pub(crate) fn random_secret(crypto: &dyn Crypto) -> Secret {
    let mut secret = Secret::new(&[0; 32]);
    crypto.random(&mut secret.0[..]);
    secret
}

/// The keys of a CURVE client.
#[derive(Clone, Debug)]
pub struct ClientKeys {
    pub crypto: Arc<dyn Crypto>,
    pub keys: KeyPair,
    /// The key of the server: it connects to no other.
    pub server: Key,
}

/// The keys of a CURVE server.
#[derive(Clone, Debug)]
pub struct ServerKeys {
    pub crypto: Arc<dyn Crypto>,
    pub keys: KeyPair,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let keys = KeyPair { public: [1; 32], secret: Secret::new(&[99; 32]) };
        assert!(!format!("{keys:?}").contains("99"));
    }
}
