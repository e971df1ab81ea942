//! The server's side of the handshake: RFC 26, "The HELLO Command" to "The READY Command".

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use trunkline_wire::zap::Key;

use super::keys::{KeyPair, Secret, ServerKeys, random_secret};
use super::{Cipher, TAG, long_nonce, open_box, put_box, short_nonce};
use crate::codec::metadata::Metadata;
use crate::codec::outbox::Outbox;
use crate::reason::{Fault, Reason};

const HELLO: &[u8; 6] = b"\x05HELLO";
const INITIATE: &[u8; 9] = b"\x08INITIATE";

const PADDING: usize = 72;

/// The nonce of READY; those of messages follow.
const FIRST: u64 = 1;

#[derive(Debug)]
enum State {
    /// Waits for HELLO.
    Hello,
    /// WELCOME was sent. The transient keys are only in its cookie. The cookie's key opens no other cookie, and is
    /// dropped with the first INITIATE or with the connection, after ten seconds at the latest: a replayed handshake
    /// meets another key.
    Welcome {
        cookie: Secret,
        count: u64,
    },
    /// INITIATE came: the key of both transient keys, and the client's nonce.
    Initiate {
        shared: Secret,
        count: u64,
    },
    Ready(Cipher),
    Over,
}

/// A server, up to the end of the handshake.
#[derive(Debug)]
pub(crate) struct Server {
    keys: Arc<ServerKeys>,
    state: State,
}

impl Server {
    pub(crate) fn new(keys: Arc<ServerKeys>) -> Self {
        Self { keys, state: State::Hello }
    }

    /// Takes a command. Gives the client's key and properties, once it has sent them.
    pub(crate) fn handle(&mut self, body: &[u8], outbox: &mut Outbox) -> Result<Option<(Key, Metadata)>, Fault> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Hello => {
                self.state = self.hello(body, outbox)?;
                Ok(None)
            }
            State::Welcome { cookie, count } => {
                let (state, key, metadata) = self.initiate(body, &cookie, count)?;
                self.state = state;
                Ok(Some((key, metadata)))
            }
            State::Initiate { .. } | State::Ready(_) | State::Over => Err(Reason::UnexpectedCommand.into()),
        }
    }

    /// Sends READY: `ours` are our properties.
    pub(crate) fn accept(&mut self, ours: &[u8], outbox: &mut Outbox) {
        let State::Initiate { shared, count } = std::mem::replace(&mut self.state, State::Over) else { return };
        let crypto = &self.keys.crypto;
        let mut ready = BytesMut::with_capacity(30 + ours.len());
        ready.put_slice(b"\x05READY");
        ready.put_u64(FIRST);
        let nonce = short_nonce(b"CurveZMQREADY---", FIRST);
        put_box(&mut ready, &**crypto, &shared, &nonce, |out| out.put_slice(ours));
        outbox.put_command(&ready);
        self.state = State::Ready(Cipher::new(Arc::clone(crypto), &shared, true, FIRST, count));
    }

    /// The keys of the connection, once it is ready.
    pub(crate) fn cipher(self) -> Option<Cipher> {
        if let State::Ready(cipher) = self.state { Some(cipher) } else { None }
    }

    /// Takes HELLO and sends WELCOME.
    fn hello(&self, body: &[u8], outbox: &mut Outbox) -> Result<State, Fault> {
        let (crypto, keys, refused) = (&*self.keys.crypto, &self.keys.keys, Reason::BadHello);
        let rest = body.strip_prefix(HELLO).ok_or(refused)?;
        let ([1, 0], rest) = rest.split_first_chunk().ok_or(refused)? else { return Err(refused.into()) };
        let (padding, rest) = rest.split_first_chunk::<PADDING>().ok_or(refused)?;
        let (client, rest) = rest.split_first_chunk::<32>().ok_or(refused)?;
        let (count, sealed) = rest.split_first_chunk().ok_or(refused)?;
        if *padding != [0; PADDING] || sealed.len() != TAG + 64 {
            return Err(refused.into());
        }
        let count = u64::from_be_bytes(*count);
        let shared = crypto.shared_key(client, &keys.secret).ok_or(refused)?;
        let text = open_box(crypto, &shared, &short_nonce(b"CurveZMQHELLO---", count), sealed).ok_or(refused)?;
        if text.0 != [0; 64] {
            return Err(refused.into());
        }
        let (transient, cookie) = (KeyPair::transient(crypto), random_secret(crypto));
        let mut random = [[0; 16]; 2];
        for random in &mut random {
            crypto.random(random);
        }
        let mut welcome = BytesMut::with_capacity(168);
        welcome.put_slice(b"\x07WELCOME");
        welcome.put_slice(&random[0]);
        put_box(&mut welcome, crypto, &shared, &long_nonce(*b"WELCOME-", &random[0]), |out| {
            out.put_slice(&transient.public);
            out.put_slice(&random[1]);
            put_box(out, crypto, &cookie, &long_nonce(*b"COOKIE--", &random[1]), |out| {
                out.put_slice(client);
                out.put_slice(transient.secret.bytes());
            });
        });
        outbox.put_command(&welcome);
        Ok(State::Welcome { cookie, count })
    }

    /// Takes INITIATE.
    fn initiate(&self, body: &[u8], cookie: &Secret, before: u64) -> Result<(State, Key, Metadata), Fault> {
        let (crypto, refused) = (&*self.keys.crypto, Reason::BadInitiate);
        let rest = body.strip_prefix(INITIATE).ok_or(refused)?;
        let (nonce, rest) = rest.split_first_chunk().ok_or(refused)?;
        let (sealed, rest) = rest.split_first_chunk::<80>().ok_or(refused)?;
        let kept = open_box(crypto, cookie, &long_nonce(*b"COOKIE--", nonce), sealed).ok_or(refused)?;
        let (client, secret) = kept.0.split_first_chunk::<32>().ok_or(refused)?;
        let secret = Secret::new(secret.first_chunk().ok_or(refused)?);
        let (count, sealed) = rest.split_first_chunk().ok_or(refused)?;
        let count = u64::from_be_bytes(*count);
        if count <= before {
            return Err(Reason::BadNonce.into());
        }
        let shared = crypto.shared_key(client, &secret).ok_or(refused)?;
        let text = open_box(crypto, &shared, &short_nonce(b"CurveZMQINITIATE", count), sealed).ok_or(refused)?;
        let (key, rest) = text.0.split_first_chunk::<32>().ok_or(refused)?;
        let (nonce, rest) = rest.split_first_chunk().ok_or(refused)?;
        let (sealed, metadata) = rest.split_first_chunk::<80>().ok_or(refused)?;
        let vouching = crypto.shared_key(key, &secret).ok_or(refused)?;
        let vouch = open_box(crypto, &vouching, &long_nonce(*b"VOUCH---", nonce), sealed).ok_or(refused)?;
        if vouch.0 != [&client[..], &self.keys.keys.public].concat() {
            return Err(refused.into());
        }
        Ok((State::Initiate { shared, count }, *key, Metadata::read(metadata)?))
    }
}
