//! What captures do not contain: passwords, login data, and leases.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::control::{Json, beyond};
use super::data::Kind;
use super::{FIRST_OF_CONTROL, status};
use crate::Frames;

/// Replaces what is not kept.
const HIDDEN: &str = "…";

/// Secret members of commands and replies.
const SECRET: [&str; 4] = ["response", "challenge", "lease", "password"];

/// The only member of a login that is not secret: under a misspelt name a client has still sent its password.
const OPEN: &str = "mechanism";

/// Bytes of a header before the lease: the type, the sequence, the length.
const BEFORE_LEASE: usize = 10;

/// The replacement of a lease: it cannot be used, and equal leases have equal ones.
#[must_use]
pub fn lease_hash(lease: &str) -> String {
    let digest = Sha256::digest(lease.as_bytes());
    digest[..8].iter().fold(HIDDEN.to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A message as a capture keeps it, if that differs: valid or not, of either flow, with or without an envelope.
pub(crate) fn redacted(frames: &[Bytes]) -> Option<Frames> {
    if let [header, rest @ ..] = frames
        && header.first().is_some_and(|first| *first < FIRST_OF_CONTROL)
    {
        // The lease is the only secret of the data flow.
        let is_lease = header.first() == Some(&(Kind::Lease as u8));
        return is_lease.then(|| std::iter::once(hidden_lease(header)).chain(rest.iter().cloned()).collect());
    }
    let mut shown: Option<Frames> = None;
    for (at, frame) in frames.iter().enumerate() {
        let before = at.checked_sub(1).map_or(&b""[..], |before| &frames[before]);
        // A lease may have been sent on the wrong socket.
        let is_lease = frame.len() >= BEFORE_LEASE && frame[0] == Kind::Lease as u8;
        let other = if is_lease { Some(hidden_lease(frame)) } else { hidden_members(frame, before) };
        if let Some(other) = other {
            shown.get_or_insert_with(|| frames.iter().cloned().collect())[at] = other;
        }
    }
    shown
}

/// The header with a placeholder for the lease and what follows it; without a lease, it ends after the sequence.
fn hidden_lease(header: &Bytes) -> Bytes {
    let mut shown = BytesMut::from(&header[..header.len().min(BEFORE_LEASE - 1)]);
    let said = header.get(BEFORE_LEASE..).and_then(|said| said.split_at_checked(header[BEFORE_LEASE - 1].into()));
    if let Some((lease, rest)) = said
        && let Ok(lease) = std::str::from_utf8(lease)
    {
        let hash = lease_hash(lease);
        shown.put_u8(u8::try_from(hash.len()).unwrap_or(u8::MAX));
        shown.put_slice(hash.as_bytes());
        // An invalid length stays invalid.
        shown.put_bytes(b'.', rest.len());
    }
    shown.freeze()
}

/// The frame without its secrets; the frame before it says which those are.
fn hidden_members(frame: &Bytes, name: &[u8]) -> Option<Bytes> {
    let is_login = name.eq_ignore_ascii_case(b"connection.authorize");
    let is_secret = is_login || matches!(status(name), Some(202 | 402));
    let hidden = || is_secret.then(|| Bytes::from_static(HIDDEN.as_bytes())).filter(|_| !frame.is_empty());
    if !is_secret && frame.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return None;
    }
    if beyond(frame).is_some() {
        return Some(Bytes::from_static(HIDDEN.as_bytes()));
    }
    let Ok(mut said) = serde_json::from_slice::<Json>(frame) else { return hidden() };
    let mut any = false;
    for (name, value) in &mut said {
        if SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret)) || (is_login && name != OPEN) {
            any = true;
            let lease = value.as_str().filter(|_| name == "lease");
            *value = Value::String(lease.map_or_else(|| HIDDEN.to_owned(), lease_hash));
        }
    }
    // Only the last of several members of one name was seen, so the frame is written anew.
    if any { serde_json::to_vec(&said).ok().map(Bytes::from) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::mtl::data;

    /// Frames, and what is kept of them if it differs.
    type Row = (&'static [&'static [u8]], Option<&'static [&'static str]>);

    fn shown(frames: &[&[u8]]) -> Option<Vec<String>> {
        let frames: Vec<_> = frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect();
        let text = |frame: &Bytes| String::from_utf8_lossy(frame).into_owned();
        redacted(&frames).map(|frames| frames.iter().map(text).collect())
    }

    #[test]
    fn what_logins_say_is_not_kept() {
        let rows: &[Row] = &[
            (
                &[b"", b"Connection.Authorize", b"{\"mechanism\": \"PLAIN\", \"r\\u0065sponse\": \"AHNlc2FtZQ==\"}"],
                Some(&["", "Connection.Authorize", "{\"mechanism\":\"PLAIN\",\"response\":\"…\"}"]),
            ),
            (&[b"", b"CONNECTION.authorize", b"{\"response\": \"c2VzYW1l\""], Some(&["", "CONNECTION.authorize", "…"])),
            (
                &[
                    b"",
                    b"Connection.Authorize",
                    b"{\"mechanism\": \"PLAIN\", \"Response\": \"x\", \"auth\": {\"response\": \"y\"}}",
                ],
                Some(&["", "Connection.Authorize", "{\"mechanism\":\"PLAIN\",\"Response\":\"…\",\"auth\":\"…\"}"]),
            ),
            (&[b"", b"Queue.Info", b"{\"Password\": \"x\"}"], Some(&["", "Queue.Info", "{\"Password\":\"…\"}"])),
            (&[b"", b"402", b"{\"challenge\": 5}"], Some(&["", "402", "{\"challenge\":\"…\"}"])),
            (&[b"{\"response\": \"x\", \"response\": \"y\"}"], Some(&["{\"response\":\"…\"}"])),
            (&[b"", b"Queue.Info", b"{\"name\": \"jobs\"}"], None),
            (&[b"", b"Queue.Info", b"{"], None),
            (&[b"", b"\x01\0\0\0\0\0\0\0\x01\x02ab"], Some(&["", "\x01\0\0\0\0\0\0\0\x01\x13…fb8e20fc2e4c3f24"])),
            (&[b"\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0", b"{\"name\": 1}"], None),
        ];
        for (frames, expected) in rows {
            let expected = expected.map(|frames| frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>());
            assert_eq!(shown(frames), expected, "{frames:?}");
        }
    }

    #[test]
    fn leases_are_kept_as_hashes() {
        let hash = lease_hash("00ff");
        assert_eq!((hash.chars().count(), &hash), (17, &lease_hash("00ff")));
        assert_ne!(hash, lease_hash("00fe"));
        assert_eq!(redacted(&data::lease(7, "00ff")), Some(data::lease(7, &hash)));
        let reply = shown(&[b"", b"202", b"{\"lease\": \"00ff\", \"port\": 1}"]).expect("it has a lease");
        assert_eq!(reply[2], format!("{{\"lease\":\"{hash}\",\"port\":1}}"));
        for header in [&b"\x01"[..], b"\x01\0\0\0\0\0\0\0\x01\x09sesame", b"\x01\0\0\0\0\0\0\0\x01\x06\xffesame"] {
            let shown = shown(&[header, b""]).expect("it is a lease");
            assert!(!shown[0].contains("esame"), "{shown:?}");
        }
        // An invalid message stays invalid.
        let long = [Bytes::from_static(b"\x01\0\0\0\0\0\0\0\x01\x02absesame"), Bytes::new()];
        let shown = redacted(&long).expect("it is a lease");
        assert!(shown[0].ends_with(b"......"), "{shown:?}");
        assert_eq!(data::decode(&shown).map_err(|error| error.kind), Err(ErrorKind::TrailingBytes));
    }
}
