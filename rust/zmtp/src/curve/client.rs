//! The client's side of the handshake: RFC 26, "The HELLO Command" to "The READY Command".

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use trunkline_wire::zap::Key;

use super::keys::{ClientKeys, KeyPair, Secret};
use super::{Cipher, TAG, long_nonce, open_box, put_box, short_nonce};
use crate::codec::command;
use crate::codec::metadata::Metadata;
use crate::codec::outbox::Outbox;
use crate::reason::{Fault, Reason};

const WELCOME: &[u8; 8] = b"\x07WELCOME";
const READY: &[u8; 6] = b"\x05READY";
const ERROR: &[u8; 6] = b"\x05ERROR";

const COOKIE: usize = 96;

/// The nonces of HELLO and INITIATE; those of messages follow.
const FIRST: u64 = 1;
const SECOND: u64 = 2;

#[derive(Debug)]
enum State {
    /// HELLO was sent, or will be.
    Hello,
    /// INITIATE was sent: the key of both transient keys.
    Initiate(Secret),
    Ready(Cipher),
    Over,
}

/// A client, up to the end of the handshake.
#[derive(Debug)]
pub(crate) struct Client {
    keys: Arc<ClientKeys>,
    transient: KeyPair,
    state: State,
}

impl Client {
    pub(crate) fn new(keys: Arc<ClientKeys>) -> Self {
        let transient = KeyPair::transient(&*keys.crypto);
        Self { keys, transient, state: State::Hello }
    }

    /// Sends HELLO.
    pub(crate) fn begin(&mut self, outbox: &mut Outbox) -> Result<(), Fault> {
        let crypto = &*self.keys.crypto;
        let shared = crypto.shared_key(&self.keys.server, &self.transient.secret).ok_or(Reason::BadWelcome)?;
        let mut hello = BytesMut::with_capacity(200);
        hello.put_slice(b"\x05HELLO\x01\0");
        hello.put_bytes(0, 72);
        hello.put_slice(&self.transient.public);
        hello.put_u64(FIRST);
        let nonce = short_nonce(b"CurveZMQHELLO---", FIRST);
        put_box(&mut hello, crypto, &shared, &nonce, |out| out.put_bytes(0, 64));
        outbox.put_command(&hello);
        Ok(())
    }

    /// Takes a command; `ours` are our properties. Gives the server's properties, once it has sent them.
    pub(crate) fn handle(&mut self, body: &[u8], ours: &[u8], outbox: &mut Outbox) -> Result<Option<Metadata>, Fault> {
        if let Some(data) = body.strip_prefix(ERROR) {
            return Err(command::error(data));
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Hello => {
                let shared = self.welcome(body, ours, outbox)?;
                self.state = State::Initiate(shared);
                Ok(None)
            }
            State::Initiate(shared) => {
                let (metadata, cipher) = self.ready(body, &shared)?;
                self.state = State::Ready(cipher);
                Ok(Some(metadata))
            }
            State::Ready(_) | State::Over => Err(Reason::UnexpectedCommand.into()),
        }
    }

    /// The keys of the connection, once it is ready.
    pub(crate) fn cipher(self) -> Option<Cipher> {
        if let State::Ready(cipher) = self.state { Some(cipher) } else { None }
    }

    /// Takes WELCOME and sends INITIATE.
    fn welcome(&self, body: &[u8], ours: &[u8], outbox: &mut Outbox) -> Result<Secret, Fault> {
        let (crypto, refused) = (&*self.keys.crypto, Reason::BadWelcome);
        let rest = body.strip_prefix(WELCOME).ok_or(refused)?;
        let (nonce, sealed) = rest.split_first_chunk().ok_or(refused)?;
        if sealed.len() != TAG + size_of::<Key>() + COOKIE {
            return Err(refused.into());
        }
        let shared = crypto.shared_key(&self.keys.server, &self.transient.secret).ok_or(refused)?;
        let text = open_box(crypto, &shared, &long_nonce(*b"WELCOME-", nonce), sealed).ok_or(refused)?;
        let (server, cookie) = text.0.split_first_chunk::<32>().ok_or(refused)?;
        let shared = crypto.shared_key(server, &self.transient.secret).ok_or(refused)?;
        // The vouch proves that the transient key is ours, to this server alone.
        let vouching = crypto.shared_key(server, &self.keys.keys.secret).ok_or(refused)?;
        let mut random = [0; 16];
        crypto.random(&mut random);
        let mut initiate = BytesMut::with_capacity(257 + ours.len());
        initiate.put_slice(b"\x08INITIATE");
        initiate.put_slice(cookie);
        initiate.put_u64(SECOND);
        put_box(&mut initiate, crypto, &shared, &short_nonce(b"CurveZMQINITIATE", SECOND), |out| {
            out.put_slice(&self.keys.keys.public);
            out.put_slice(&random);
            put_box(out, crypto, &vouching, &long_nonce(*b"VOUCH---", &random), |out| {
                out.put_slice(&self.transient.public);
                out.put_slice(&self.keys.server);
            });
            out.put_slice(ours);
        });
        outbox.put_command(&initiate);
        Ok(shared)
    }

    /// Takes READY.
    fn ready(&self, body: &[u8], shared: &Secret) -> Result<(Metadata, Cipher), Fault> {
        let crypto = &self.keys.crypto;
        let rest = body.strip_prefix(READY).ok_or(Reason::BadReady)?;
        let (count, sealed) = rest.split_first_chunk().ok_or(Reason::BadReady)?;
        let count = u64::from_be_bytes(*count);
        let nonce = short_nonce(b"CurveZMQREADY---", count);
        let text = open_box(&**crypto, shared, &nonce, sealed).ok_or(Reason::BadReady)?;
        let metadata = Metadata::read(&text.0)?;
        Ok((metadata, Cipher::new(Arc::clone(crypto), shared, false, SECOND, count)))
    }
}
