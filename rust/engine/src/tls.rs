//! TLS: how a server is trusted, and an encrypted stream.

use std::fmt;
use std::io::{IoSlice, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The plain bytes that are encrypted ahead of what the system takes.
const AHEAD: usize = 128 << 10;

/// How a server is trusted, and who this side is; the files are of PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that are trusted; without, those of the system.
    pub ca: Option<PathBuf>,
    /// This side's certificate and those that lead to its authority.
    pub certificate: Option<PathBuf>,
    /// Its key; without, it is in the file of the certificate.
    pub key: Option<PathBuf>,
    /// Whether the server must be trusted; else any that encrypts will do, and a machine in between may read all.
    pub verify: bool,
}

impl Default for Tls {
    fn default() -> Self {
        Self { ca: None, certificate: None, key: None, verify: true }
    }
}

/// Why encryption could not be set up: an option, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

/// The same, read from its files.
#[derive(Clone, Debug)]
pub(crate) struct Trust(Arc<ClientConfig>);

impl Tls {
    /// Reads the files.
    pub(crate) fn load(&self) -> Result<Trust, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = if self.verify {
            let roots = Arc::new(self.roots()?);
            let built = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
            built.map_err(|error| TlsError(format!("ca: {error}")))?
        } else {
            Arc::new(Unverified(Arc::clone(&provider)))
        };
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| TlsError(format!("tls: {error}")))?;
        // What is dangerous is to trust any server, which is a choice of the user.
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = match (&self.certificate, &self.key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (None, Some(_)) => return Err(TlsError("key: it needs certificate= as well".to_owned())),
            (Some(certificate), key) => {
                let chain = certificates("certificate", certificate)?;
                let key = key.as_ref().unwrap_or(certificate);
                let secret =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("key", key, "key", &error))?;
                builder.with_client_auth_cert(chain, secret)
            }
        };
        config.map(|config| Trust(Arc::new(config))).map_err(|error| TlsError(format!("certificate: {error}")))
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        if let Some(ca) = &self.ca {
            for certificate in certificates("ca", ca)? {
                roots.add(certificate).map_err(|error| TlsError(format!("ca: {}: {error}", ca.display())))?;
            }
            return Ok(roots);
        }
        // One that cannot be read, or is no authority, leaves the others.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(TlsError("ca: the system has no authorities that are trusted: name a file".to_owned()));
        }
        Ok(roots)
    }
}

/// The certificates of a file, of which there must be one.
fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = read.map_err(|error| unreadable(option, path, "certificate", &error))?;
    if all.is_empty() {
        return Err(TlsError(format!("{option}: {}: there is no certificate of PEM in it", path.display())));
    }
    Ok(all)
}

fn unreadable(option: &str, path: &Path, what: &str, error: &rustls::pki_types::pem::Error) -> TlsError {
    #[allow(clippy::wildcard_enum_match_arm)] // the list is the library's, and open
    let reason = match error {
        rustls::pki_types::pem::Error::Io(error) => crate::reactor::words(error),
        _ => format!("there is no {what} of PEM in it"),
    };
    TlsError(format!("{option}: {}: {reason}", path.display()))
}

/// Trusts any server that has the key of its certificate.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a stream is not encrypted, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The server's certificate is not trusted: why.
    Untrusted(String),
    /// Anything else.
    Failed(String),
}

/// One encrypted stream, between plain bytes and those of a link.
#[derive(Debug)]
pub(crate) struct Encrypted {
    connection: ClientConnection,
    host: String,
}

impl Encrypted {
    /// A stream to the server that is certified to have this name or address.
    pub(crate) fn new(trust: &Trust, host: &str) -> Result<Self, Broken> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| Broken::Failed(error.to_string()))?;
        let connection = ClientConnection::new(Arc::clone(&trust.0), name);
        let mut connection = connection.map_err(|error| Broken::Failed(error.to_string()))?;
        connection.set_buffer_limit(Some(AHEAD));
        Ok(Self { connection, host: host.to_owned() })
    }

    /// Whether the server is not known yet.
    pub(crate) fn is_shaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Takes what came on the link; gives what it is in clear text, which may be nothing yet.
    pub(crate) fn receive(&mut self, mut sent: &[u8]) -> Result<Bytes, Broken> {
        let mut plain = BytesMut::with_capacity(sent.len());
        while !sent.is_empty() {
            let read = self.connection.read_tls(&mut sent).map_err(|error| Broken::Failed(error.to_string()))?;
            let state = self.connection.process_new_packets().map_err(|error| self.broken(&error))?;
            let before = plain.len();
            plain.resize(before + state.plaintext_bytes_to_read(), 0);
            let filled = self.connection.reader().read_exact(&mut plain[before..]);
            filled.map_err(|error| Broken::Failed(error.to_string()))?;
            // After the end of the encrypted stream nothing is taken.
            if read == 0 || state.peer_has_closed() {
                break;
            }
        }
        Ok(plain.freeze())
    }

    #[allow(clippy::wildcard_enum_match_arm)] // the lists are the library's, and open
    fn broken(&self, error: &rustls::Error) -> Broken {
        match error {
            rustls::Error::InvalidCertificate(why) => Broken::Untrusted(match why {
                CertificateError::UnknownIssuer => "its issuer is unknown".to_owned(),
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    format!("it is not for the host {}", self.host)
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
                other => other.to_string(),
            }),
            other => Broken::Failed(other.to_string()),
        }
    }

    /// Takes plain bytes to be encrypted; gives how many.
    pub(crate) fn put(&mut self, slices: &[IoSlice<'_>]) -> usize {
        // It takes what there is room for, and has no other error.
        self.connection.writer().write_vectored(slices).unwrap_or_default()
    }

    /// Whether there is something to be written to the link.
    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes to the link once; false if it takes no more.
    pub(crate) fn write(&mut self, link: &mut dyn Write) -> bool {
        self.connection.write_tls(link).is_ok_and(|written| written > 0)
    }
}
