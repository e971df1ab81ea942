//! One datagram: the same 42 bytes in every release (CHIRP-01).

use std::fmt;
use std::str::FromStr;

use md5::{Digest, Md5};

use crate::error::{DecodeError, ErrorKind, Fault};

/// The bytes of a datagram.
pub const LENGTH: usize = 42;

const NAME: &[u8; 5] = b"CHIRP";
const VERSION: u8 = 1;

const VERSION_AT: usize = 5;
const KIND_AT: usize = 6;
const GROUP_AT: usize = 7;
const HOST_AT: usize = 23;
const SERVICE_AT: usize = 39;
const PORT_AT: usize = 40;

/// The MD5 digest of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub [u8; 16]);

impl Id {
    /// Of the name unchanged, as in releases up to 0.6 (CHIRP-03).
    pub fn of(name: &str) -> Self {
        Self(Md5::digest(name).into())
    }

    /// Of the name in lower case, as in releases from 0.7 (CHIRP-03).
    pub fn of_lower_case(name: &str) -> Self {
        Self::of(&name.to_lowercase())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Id {
    type Err = ();

    fn from_str(digits: &str) -> Result<Self, ()> {
        let mut id = [0; 16];
        if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(());
        }
        for (byte, at) in id.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| ())?;
        }
        Ok(Self(id))
    }
}

/// The kind of a datagram (CHIRP-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Which hosts have this service?
    Request = 1,
    /// This host has it.
    Offer = 2,
    /// This host no longer has it.
    Depart = 3,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Request, Self::Offer, Self::Depart];

    /// Its stable name.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Offer => "offer",
            Self::Depart => "depart",
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A service (CHIRP-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// CSCP.
    Control = 1,
    /// CHP.
    Heartbeat = 2,
    /// CMDP.
    Monitoring = 3,
    /// CDTP.
    Data = 4,
}

impl Service {
    /// Every service, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Control, Self::Heartbeat, Self::Monitoring, Self::Data];

    /// The service of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|service| *service as u8 == number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    pub kind: Kind,
    /// The receiving group.
    pub group: Id,
    /// The sending host.
    pub host: Id,
    pub service: Service,
    /// The TCP port of the service; unused in a request.
    pub port: u16,
}

impl Datagram {
    /// Its bytes.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..VERSION_AT].copy_from_slice(NAME);
        bytes[VERSION_AT] = VERSION;
        bytes[KIND_AT] = self.kind as u8;
        bytes[GROUP_AT..HOST_AT].copy_from_slice(&self.group.0);
        bytes[HOST_AT..SERVICE_AT].copy_from_slice(&self.host.0);
        bytes[SERVICE_AT] = self.service as u8;
        bytes[PORT_AT..].copy_from_slice(&self.port.to_be_bytes());
        bytes
    }
}

/// Decodes the only frame of a datagram. Bytes are checked in order, so that the first of two faults is reported.
pub fn decode(frames: &[impl AsRef<[u8]>]) -> Result<Datagram, DecodeError> {
    let bad_count = |frame| DecodeError { kind: ErrorKind::BadFrameCount, frame, offset: 0 };
    let [bytes, rest @ ..] = frames else { return Err(bad_count(0)) };
    let datagram = read(bytes.as_ref()).map_err(|fault| fault.in_frame(0))?;
    if rest.is_empty() { Ok(datagram) } else { Err(bad_count(1)) }
}

fn read(bytes: &[u8]) -> Result<Datagram, Fault> {
    let fault = |kind, offset| Fault { kind, offset };
    let truncated = fault(ErrorKind::Truncated, bytes.len());
    if !bytes.iter().zip(NAME).all(|(byte, letter)| byte == letter) {
        return Err(fault(ErrorKind::BadProtocol, 0));
    }
    if *bytes.get(VERSION_AT).ok_or(truncated)? != VERSION {
        return Err(fault(ErrorKind::UnsupportedVersion, VERSION_AT));
    }
    let Some(kind) = Kind::from_number(*bytes.get(KIND_AT).ok_or(truncated)?) else {
        return Err(fault(ErrorKind::BadType, KIND_AT));
    };
    let Some(service) = Service::from_number(*bytes.get(SERVICE_AT).ok_or(truncated)?) else {
        return Err(fault(ErrorKind::BadService, SERVICE_AT));
    };
    let port = u16::from_be_bytes(*bytes.get(PORT_AT..).and_then(<[u8]>::first_chunk).ok_or(truncated)?);
    // Port 0 cannot be connected to.
    if kind == Kind::Offer && port == 0 {
        return Err(fault(ErrorKind::BadPort, PORT_AT));
    }
    if bytes.len() > LENGTH {
        return Err(fault(ErrorKind::TrailingBytes, LENGTH));
    }
    let id = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map(Id).ok_or(truncated);
    Ok(Datagram { kind, group: id(GROUP_AT)?, host: id(HOST_AT)?, service, port })
}
