//! How a client logs in.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde::Serialize;
use zeroize::Zeroizing;

use super::info::Info;

/// The first byte of a seed, but for the kind of its key.
const SEED: u8 = 18 << 3;

/// The alphabet of base 32.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Who a client is.
#[derive(Clone, Default)]
pub struct Login {
    /// A name and its password.
    pub user: Option<(String, Zeroizing<String>)>,
    pub token: Option<Zeroizing<String>>,
    /// A key, which signs what the server sends.
    pub key: Option<Key>,
}

impl fmt::Debug for Login {
    /// Omits the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user.as_ref().map(|(user, _)| user))
            .field("token", &self.token.is_some())
            .field("key", &self.key)
            .finish()
    }
}

/// A key of NATS, alone or with what says who it belongs to.
#[derive(Clone)]
pub struct Key {
    signing: SigningKey,
    public: String,
    jwt: Option<Zeroizing<String>>,
}

impl fmt::Debug for Key {
    /// Omits the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("public", &self.public).finish_non_exhaustive()
    }
}

impl Key {
    /// The key of a seed, `SU…`.
    ///
    /// # Errors
    /// If it is none.
    pub fn from_seed(seed: &str) -> Result<Self, BadKey> {
        let bytes = Zeroizing::new(from_base32(seed.trim()).ok_or(BadKey::NoSeed)?);
        let [first, second, secret @ .., low, high] = &bytes[..] else { return Err(BadKey::NoSeed) };
        let checked = &bytes[..bytes.len() - 2];
        if first & 0xf8 != SEED || crc(checked) != u16::from_le_bytes([*low, *high]) {
            return Err(BadKey::NoSeed);
        }
        let signing = SigningKey::from_bytes(secret.try_into().map_err(|_| BadKey::NoSeed)?);
        // The kind of the key is the first byte of its public half.
        let mut public = vec![first << 5 | second >> 3];
        public.extend_from_slice(signing.verifying_key().as_bytes());
        public.extend_from_slice(&crc(&public).to_le_bytes());
        Ok(Self { signing, public: base32(&public), jwt: None })
    }

    /// The key of a credentials file, as `nsc` writes it.
    ///
    /// # Errors
    /// If it is none.
    pub fn from_credentials(file: &str) -> Result<Self, BadKey> {
        let after = |mark: &str| {
            let mut lines = file.lines().skip_while(|line| !line.contains(mark)).skip(1).map(str::trim);
            lines.find(|line| !line.is_empty()).ok_or(BadKey::NoCredentials)
        };
        let (jwt, seed) = (after("BEGIN NATS USER JWT")?, after("BEGIN USER NKEY SEED")?);
        Ok(Self { jwt: Some(Zeroizing::new(jwt.to_owned())), ..Self::from_seed(seed)? })
    }

    fn sign(&self, nonce: &str) -> String {
        STANDARD.encode(self.signing.sign(nonce.as_bytes()).to_bytes())
    }
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    NoSeed,
    NoCredentials,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSeed => "it is not the seed of an nkey",
            Self::NoCredentials => "it is not a NATS credentials file",
        })
    }
}

impl std::error::Error for BadKey {}

/// A CONNECT, in the order of its names.
#[derive(Default, Serialize)]
#[allow(clippy::struct_excessive_bools)] // it is the protocol's list of flags
struct Connect<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
    echo: bool,
    headers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<&'a str>,
    lang: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nkey: Option<&'a str>,
    no_responders: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    pedantic: bool,
    protocol: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    verbose: bool,
    version: &'static str,
}

/// What follows `CONNECT `, for a server that has said this of itself.
pub(super) fn connect(login: &Login, name: Option<&str>, info: &Info) -> Zeroizing<Vec<u8>> {
    let mut connect = Connect {
        echo: true,
        headers: info.headers,
        lang: "trunkline",
        name,
        no_responders: info.headers,
        // The server may send an INFO at any time.
        protocol: 1,
        version: env!("CARGO_PKG_VERSION"),
        ..Connect::default()
    };
    if let Some((key, nonce)) = login.key.as_ref().zip(info.nonce.as_deref()) {
        connect.sig = Some(key.sign(nonce));
        match &key.jwt {
            Some(jwt) => connect.jwt = Some(jwt),
            None => connect.nkey = Some(&key.public),
        }
        connect.auth_token = login.token.as_ref().map(|token| token.as_str());
    } else if let Some((user, password)) = &login.user {
        connect.user = Some(user);
        connect.pass = Some(password);
    } else {
        connect.auth_token = login.token.as_ref().map(|token| token.as_str());
    }
    Zeroizing::new(serde_json::to_vec(&connect).unwrap_or_default())
}

/// Base 32 without padding.
fn base32(bytes: &[u8]) -> String {
    let (mut text, mut bits, mut count) = (String::new(), 0_u32, 0);
    for byte in bytes.iter().copied() {
        bits = bits << 8 | u32::from(byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(digit(bits >> count));
        }
    }
    if count > 0 {
        text.push(digit(bits << (5 - count)));
    }
    text
}

fn digit(bits: u32) -> char {
    BASE32[(bits & 31) as usize].into()
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len()), 0_u32, 0);
    for digit in text.bytes() {
        let value = BASE32.iter().position(|letter| *letter == digit)?;
        bits = bits << 5 | u32::try_from(value).ok()?;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

/// CRC-16/XMODEM.
fn crc(bytes: &[u8]) -> u16 {
    let step = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, step))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEED_TEXT: &str = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y";
    const PUBLIC: &str = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK";
    const SIGNATURE: &str = "Aj/HcjDZwFlZktcyYu97JAgWYctxzcaFc0SikCYG0tfchHcFVhub4zZnHvakWWBUcdmRZEtv5hiISSzXSYZ5BA==";

    fn info() -> Info {
        Info::read(br#"{"headers": true, "nonce": "nonce-1"}"#).unwrap()
    }

    fn said(login: &Login) -> String {
        String::from_utf8(connect(login, Some("me"), &info()).to_vec()).unwrap()
    }

    fn secret(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    /// The reference is the package `nkeys`, for the seed of the bytes from 0 to 31.
    #[test]
    fn a_key_signs_as_other_clients_do() {
        let key = Key::from_seed(&format!(" {SEED_TEXT}\n")).unwrap();
        assert_eq!((key.public.as_str(), key.sign("nonce-1").as_str()), (PUBLIC, SIGNATURE));
        let text = said(&Login { key: Some(key), ..Login::default() });
        assert!(text.contains(&format!(r#""nkey":"{PUBLIC}""#)) && text.contains(&format!(r#""sig":"{SIGNATURE}""#)));
    }

    #[test]
    fn credentials_are_read() {
        let file = format!(
            "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n\n*** keep it ***\n\
             -----BEGIN USER NKEY SEED-----\n{SEED_TEXT}\n------END USER NKEY SEED------\n"
        );
        let text = said(&Login { key: Some(Key::from_credentials(&file).unwrap()), ..Login::default() });
        assert!(text.contains(r#""jwt":"a.b.c""#) && text.contains(SIGNATURE) && !text.contains("nkey"), "{text}");
        for (bad, why) in [
            ("", BadKey::NoCredentials),
            (SEED_TEXT, BadKey::NoCredentials),
            ("BEGIN NATS USER JWT\nx\nBEGIN USER NKEY SEED", BadKey::NoCredentials),
            ("BEGIN NATS USER JWT\nx\nBEGIN USER NKEY SEED\nSUANOSEED", BadKey::NoSeed),
        ] {
            assert_eq!(Key::from_credentials(bad).err(), Some(why), "{bad}");
        }
    }

    #[test]
    fn what_is_no_seed_is_refused() {
        let changed = SEED_TEXT.replace("YMBU", "YMBV");
        for bad in ["", "S", "SUANOSEED", &changed, PUBLIC, &SEED_TEXT[1..], &SEED_TEXT.to_lowercase(), "\u{e9}"] {
            assert_eq!(Key::from_seed(bad).err(), Some(BadKey::NoSeed), "{bad}");
        }
    }

    #[test]
    fn who_has_a_name_says_it() {
        let user = Login { user: Some(("u".to_owned(), secret("p\""))), ..Login::default() };
        let head = r#"{"echo":true,"headers":true,"lang":"trunkline","name":"me","no_responders":true,"#;
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            said(&user),
            format!(
                r#"{head}"pass":"p\"","pedantic":false,"protocol":1,"user":"u","verbose":false,"version":"{version}"}}"#
            )
        );
        let token = Login { token: Some(secret("t")), ..Login::default() };
        assert!(said(&token).starts_with(r#"{"auth_token":"t","#));
        assert_eq!(
            said(&Login::default()),
            format!(r#"{head}"pedantic":false,"protocol":1,"verbose":false,"version":"{version}"}}"#)
        );
    }

    #[test]
    fn nothing_shows_a_secret() {
        let login = Login {
            user: Some(("u".to_owned(), secret("hidden"))),
            token: Some(secret("hidden")),
            key: Some(Key::from_seed(SEED_TEXT).unwrap()),
        };
        let shown = format!("{login:?}");
        assert!(!shown.contains("hidden") && !shown.contains("SUA") && shown.contains(PUBLIC), "{shown}");
    }

    proptest! {
        #[test]
        fn base_32_is_read_as_written(bytes: Vec<u8>) {
            prop_assert_eq!(from_base32(&base32(&bytes)), Some(bytes));
        }

        #[test]
        fn no_text_breaks_the_reader(text: String) {
            let _ = (Key::from_seed(&text), Key::from_credentials(&text));
        }
    }
}
