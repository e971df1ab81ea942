//! Sockets that listen, and their backlog.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::mkdtemp;
use socket2::{SockAddr, Socket};

use super::address::{self, Address};
use super::stream::{self, StreamOptions};

/// Connections pending to be accepted; the system has its own limit.
const BACKLOG: i32 = 4096;

/// When no descriptor is free, one may be soon.
const WANT: Duration = Duration::from_millis(100);

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    endpoint: String,
    options: StreamOptions,
    _files: Files,
    /// Whether a connection may be pending.
    is_ready: bool,
    /// When to retry, if no descriptor was free.
    due: Option<Instant>,
}

impl Listener {
    pub(super) fn open(at: &Address, options: StreamOptions) -> io::Result<Self> {
        // The files are removed with it, even if it fails.
        let (mut files, mut path) = (Files::default(), None);
        let address = match at {
            Address::Tcp(address) => SockAddr::from(*address),
            Address::Named { .. } => return Err(nix::errno::Errno::ENODEV.into()),
            Address::Unix(given) => {
                let mut given = given.clone();
                if given.as_os_str().is_empty() {
                    let made = mkdtemp(&std::env::temp_dir().join("trunkline-XXXXXX"))?;
                    given = made.join("socket");
                    files.directory = Some(made);
                }
                let address = address::unix(&given)?;
                if given.as_os_str().as_bytes().first() != Some(&0) {
                    remove_stale(&given, &address)?;
                    path = Some(given);
                }
                address
            }
        };
        let socket = stream::open(&address, options)?;
        if let Address::Tcp(_) = at {
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address)?;
        files.path = path;
        socket.listen(options.backlog.unwrap_or(BACKLOG))?;
        let local = socket.local_addr()?;
        let endpoint = match local.as_socket() {
            Some(address) => format!("tcp://{address}"),
            None => files.path.as_deref().map_or_else(|| abstract_endpoint(&local), address::unix_endpoint),
        };
        Ok(Self { socket, endpoint, options, _files: files, is_ready: true, due: None })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(super) fn set_ready(&mut self) {
        self.is_ready = true;
    }

    /// When to retry without an event.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.is_ready { Some(self.due.unwrap_or_else(Instant::now)) } else { None }
    }

    /// The next pending connection; an error if no descriptor is free for it.
    pub(super) fn accept(&mut self) -> io::Result<Option<(Socket, SockAddr)>> {
        if !self.is_ready || self.due.is_some_and(|due| due > Instant::now()) {
            return Ok(None);
        }
        self.due = None;
        loop {
            match self.socket.accept() {
                Ok((socket, address)) => {
                    // If the options cannot be set, the peer is already gone, which a read reports.
                    let _ = socket
                        .set_nonblocking(true)
                        .and_then(|()| stream::set(&socket, address.domain(), self.options));
                    return Ok(Some((socket, address)));
                }
                Err(error) => match error.raw_os_error() {
                    _ if error.kind() == io::ErrorKind::WouldBlock => {
                        self.is_ready = false;
                        return Ok(None);
                    }
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.due = Some(Instant::now() + WANT);
                        return Err(error);
                    }
                    // This peer has hung up; there may be others.
                    _ => {}
                },
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A child after fork has the descriptor too.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// The files of a listener, removed with it.
#[derive(Debug, Default)]
struct Files {
    path: Option<PathBuf>,
    directory: Option<PathBuf>,
}

impl Drop for Files {
    fn drop(&mut self) {
        // Another process may have removed them.
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn abstract_endpoint(address: &SockAddr) -> String {
    address
        .as_abstract_namespace()
        .map_or_else(String::new, |name| format!("ipc://@{}", OsStr::from_bytes(name).to_string_lossy()))
}

/// Whether another implementation may listen on an endpoint: no listener runs there, and no other file is there.
pub(crate) fn check_free(endpoint: &str) -> io::Result<()> {
    let Some(path) = endpoint.strip_prefix("ipc://").filter(|path| *path != "*" && !path.starts_with('@')) else {
        return Ok(());
    };
    let path = Path::new(path);
    remove_stale(path, &address::unix(path)?)
}

/// Removes the socket of a listener that was killed; not of one that runs, and no other file.
fn remove_stale(path: &Path, address: &SockAddr) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;

    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    if !there.file_type().is_socket() {
        return Err(nix::errno::Errno::EEXIST.into());
    }
    let dialled = stream::open(address, StreamOptions::default()).and_then(|socket| socket.connect(address));
    match dialled {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => Err(nix::errno::Errno::EADDRINUSE.into()),
    }
}
