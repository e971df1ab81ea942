//! CurveZMQ: RFC 26, as ZMTP carries it by RFC 25.
//!
//! [`Crypto`] computes; this module decides what goes in which box, under which nonce, and what of it to believe.

mod cipher;
mod client;
mod keys;
mod server;

pub use keys::{ClientKeys, Count, Crypto, KeyPair, Pieces, Prefix, Secret, ServerKeys, Tag};

pub(crate) use cipher::{Cipher, OVERHEAD, Opened};
pub(crate) use client::Client;
pub(crate) use server::Server;

use bytes::{BufMut, BytesMut};

/// The overhead of a box.
const TAG: usize = size_of::<Tag>();

type Nonce = (Prefix, Count);

/// A nonce of a prefix and a counter: RFC 26, "General Design".
fn short_nonce(prefix: &Prefix, count: u64) -> Nonce {
    (*prefix, count.to_be_bytes())
}

/// A nonce of a prefix and random bytes.
fn long_nonce(prefix: [u8; 8], random: &[u8; 16]) -> Nonce {
    let mut nonce = (Prefix::default(), Count::default());
    nonce.0[..8].copy_from_slice(&prefix);
    nonce.0[8..].copy_from_slice(&random[..8]);
    nonce.1.copy_from_slice(&random[8..]);
    nonce
}

/// Appends a box with what `put` writes.
fn put_box(out: &mut BytesMut, crypto: &dyn Crypto, shared: &Secret, nonce: &Nonce, put: impl FnOnce(&mut BytesMut)) {
    put_box_of_kind(out, crypto, &crypto.derive(shared, &nonce.0), nonce.1, put);
}

/// The same with the key of the boxes of one kind.
fn put_box_of_kind(
    out: &mut BytesMut,
    crypto: &dyn Crypto,
    key: &Secret,
    count: Count,
    put: impl FnOnce(&mut BytesMut),
) {
    let start = out.len();
    out.put_bytes(0, TAG);
    put(out);
    let (tag, text) = out[start..].split_at_mut(TAG);
    tag.copy_from_slice(&crypto.seal(key, count, text));
}

/// Opens a box, if it was made with this key and nonce.
fn open_box(crypto: &dyn Crypto, shared: &Secret, nonce: &Nonce, sealed: &[u8]) -> Option<Secrets> {
    let (tag, text) = sealed.split_first_chunk()?;
    let mut text = Secrets(text.to_vec());
    crypto.open(&crypto.derive(shared, &nonce.0), nonce.1, &mut text.0, tag).then_some(text)
}

/// Bytes that are wiped after use.
struct Secrets(Vec<u8>);

impl Drop for Secrets {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0[..]);
    }
}
