//! The properties that both sides send: RFC 37, "Connection Metadata".

use bytes::{BufMut, Bytes, BytesMut};

use crate::SocketType;
use crate::reason::{Fault, Reason};

const SOCKET_TYPE: &[u8] = b"Socket-Type";
const IDENTITY: &[u8] = b"Identity";

/// The longest routing id.
pub(crate) const IDENTITY_BYTES: usize = 255;

/// The properties of a peer, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(Bytes);

impl Metadata {
    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let [name, value, after] = property(rest)?;
            rest = after;
            Some((name, value))
        })
    }

    /// The value of a name, regardless of case.
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Reads and checks properties; they are copied, so that they do not keep the memory they came in.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let (mut rest, mut seen) = (bytes, [false; 2]);
        while !rest.is_empty() {
            let Some([name, _, after]) = property(rest) else { return Err(Reason::BadMetadata.into()) };
            let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(byte);
            if name.is_empty() || !name.iter().all(is_good) {
                return Err(Reason::BadMetadata.into());
            }
            // With two values, different readers could take different ones.
            for (known, seen) in [SOCKET_TYPE, IDENTITY].into_iter().zip(&mut seen) {
                if name.eq_ignore_ascii_case(known) && std::mem::replace(seen, true) {
                    return Err(Reason::BadMetadata.into());
                }
            }
            rest = after;
        }
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }

    /// The type and the routing id of a peer, if its type suits ours.
    pub(crate) fn peer(&self, ours: SocketType) -> Result<(SocketType, Bytes), Fault> {
        let name = self.value(SOCKET_TYPE).ok_or(Fault(Reason::BadSocketType, None))?;
        let theirs = SocketType::named(name).ok_or_else(|| Fault::with(Reason::BadSocketType, name))?;
        let identity = peer(ours, theirs, self.value(IDENTITY).unwrap_or_default())?;
        Ok((theirs, identity))
    }
}

/// The routing id that a peer claims, if its socket goes with ours.
pub(crate) fn peer(ours: SocketType, theirs: SocketType, identity: &[u8]) -> Result<Bytes, Fault> {
    if !ours.suits(theirs) {
        return Err(Fault::with(Reason::BadSocketType, theirs.name().as_bytes()));
    }
    let identity = if theirs.has_identity() { identity } else { &[] };
    if identity.first() == Some(&0) || identity.len() > IDENTITY_BYTES {
        return Err(Reason::BadIdentity.into());
    }
    Ok(Bytes::copy_from_slice(identity))
}

/// The name and the value of the first property, and what is left.
fn property(bytes: &[u8]) -> Option<[&[u8]; 3]> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (length, rest) = rest.split_first_chunk()?;
    let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some([name, value, rest])
}

/// The properties of a socket.
pub(crate) fn write(socket: SocketType, identity: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(64 + identity.len());
    let mut put = |name: &[u8], value: &[u8]| {
        bytes.put_u8(u8::try_from(name.len()).expect("a short name"));
        bytes.put_slice(name);
        bytes.put_u32(u32::try_from(value.len()).expect("a short value"));
        bytes.put_slice(value);
    };
    put(SOCKET_TYPE, socket.name().as_bytes());
    if socket.has_identity() {
        put(IDENTITY, identity);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason<T>(result: Result<T, Fault>) -> Option<Reason> {
        result.err().map(|fault| fault.0)
    }

    #[test]
    fn is_read_as_written() {
        let metadata = Metadata::read(&write(SocketType::Dealer, b"me")).unwrap();
        assert_eq!(metadata.iter().count(), 2);
        assert_eq!(metadata.value(b"SOCKET-type"), Some(&b"DEALER"[..]));
        assert_eq!(metadata.peer(SocketType::Router), Ok((SocketType::Dealer, Bytes::from_static(b"me"))));
        assert_eq!(reason(metadata.peer(SocketType::Pull)), Some(Reason::BadSocketType));
        assert_eq!(Metadata::read(&write(SocketType::Push, b"me")).unwrap().iter().count(), 1);
    }

    #[test]
    fn ill_formed_properties_are_refused() {
        let good = write(SocketType::Dealer, b"me");
        let twice = [&good[..], &good[..]].concat();
        for bytes in
            [&good[..good.len() - 1], &good[..5], b"\0\0\0\0\0", b"\x01 \0\0\0\0", b"\x01a\xff\xff\xff\xff", &twice]
        {
            assert_eq!(reason(Metadata::read(bytes)), Some(Reason::BadMetadata));
        }
    }

    #[test]
    fn routing_ids_of_strangers_are_not_ours() {
        for (identity, is_good) in [(&b""[..], true), (b"\0a", false), (&[7; 255], true), (&[7; 256], false)] {
            let metadata = Metadata::read(&write(SocketType::Dealer, identity)).unwrap();
            assert_eq!(metadata.peer(SocketType::Router).is_ok(), is_good);
        }
        // Those of other types are not checked.
        let mut bytes = write(SocketType::Push, b"");
        bytes.put_slice(b"\x08Identity\0\0\0\x01\0");
        let metadata = Metadata::read(&bytes).unwrap();
        assert_eq!(metadata.peer(SocketType::Pull), Ok((SocketType::Push, Bytes::new())));
        assert_eq!(reason(Metadata::default().peer(SocketType::Pull)), Some(Reason::BadSocketType));
    }
}
