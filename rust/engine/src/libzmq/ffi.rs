//! The functions of libzmq that the engine calls, found at run time in the library that pyzmq has loaded.
//!
//! The only file of the crate that knows libzmq's memory rules.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;

use bytes::{Bytes, BytesMut};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use crate::transport::TransportError;

/// Frames below this many bytes are copied: cheaper than counting references across threads.
pub(super) const COPY_BELOW: usize = 1024;

/// Small frames of several messages share a block of this size.
const SLAB: usize = 16 * 1024;

pub(super) const DONTWAIT: c_int = 1;
pub(super) const SNDMORE: c_int = 2;
pub(super) const POLLIN: c_int = 1;
pub(super) const POLLOUT: c_int = 2;
/// libzmq's own error numbers start here.
const HAUSNUMERO: c_int = 156_384_712;
pub(super) const ETERM: c_int = HAUSNUMERO + 53;

/// A REQ may not send or receive now.
const EFSM: c_int = HAUSNUMERO + 51;

/// A kind of endpoint that is not for such sockets.
const ENOCOMPATPROTO: c_int = HAUSNUMERO + 52;

pub(super) mod option {
    use std::ffi::c_int;

    pub(in crate::libzmq) const ROUTING_ID: c_int = 5;
    pub(in crate::libzmq) const FD: c_int = 14;
    pub(in crate::libzmq) const EVENTS: c_int = 15;
    pub(in crate::libzmq) const TYPE: c_int = 16;
    pub(in crate::libzmq) const LINGER: c_int = 17;
    pub(in crate::libzmq) const MAXMSGSIZE: c_int = 22;
    pub(in crate::libzmq) const SNDHWM: c_int = 23;
    pub(in crate::libzmq) const RCVHWM: c_int = 24;
    pub(in crate::libzmq) const LAST_ENDPOINT: c_int = 32;
    pub(in crate::libzmq) const ROUTER_MANDATORY: c_int = 33;
    /// `TCP_KEEPALIVE`, and its IDLE, CNT and INTVL.
    pub(in crate::libzmq) const KEEPALIVE: [c_int; 4] = [34, 36, 35, 37];
    pub(in crate::libzmq) const IMMEDIATE: c_int = 39;
    pub(in crate::libzmq) const IPV6: c_int = 42;
    pub(in crate::libzmq) const CURVE_SERVER: c_int = 47;
    pub(in crate::libzmq) const CURVE_PUBLICKEY: c_int = 48;
    pub(in crate::libzmq) const CURVE_SECRETKEY: c_int = 49;
    pub(in crate::libzmq) const CURVE_SERVERKEY: c_int = 50;
    pub(in crate::libzmq) const HANDSHAKE_IVL: c_int = 66;
    pub(in crate::libzmq) const HEARTBEAT_IVL: c_int = 75;
    pub(in crate::libzmq) const HEARTBEAT_TIMEOUT: c_int = 77;
    /// The options of libzmq that take 64 bits.
    pub(in crate::libzmq) const WIDE: [c_int; 3] = [4, MAXMSGSIZE, 90];
}

pub(super) mod event {
    pub(in crate::libzmq) const CONNECTED: u16 = 0x0001;
    pub(in crate::libzmq) const ACCEPTED: u16 = 0x0020;
    pub(in crate::libzmq) const ACCEPT_FAILED: u16 = 0x0040;
    pub(in crate::libzmq) const DISCONNECTED: u16 = 0x0200;
    pub(in crate::libzmq) const HANDSHAKE_FAILED_NO_DETAIL: u16 = 0x0800;
    pub(in crate::libzmq) const HANDSHAKE_SUCCEEDED: u16 = 0x1000;
    pub(in crate::libzmq) const HANDSHAKE_FAILED_PROTOCOL: u16 = 0x2000;
    pub(in crate::libzmq) const HANDSHAKE_FAILED_AUTH: u16 = 0x4000;
    pub(in crate::libzmq) const ALL: u16 = CONNECTED
        | ACCEPTED
        | ACCEPT_FAILED
        | DISCONNECTED
        | HANDSHAKE_FAILED_NO_DETAIL
        | HANDSHAKE_SUCCEEDED
        | HANDSHAKE_FAILED_PROTOCOL
        | HANDSHAKE_FAILED_AUTH;
}

/// `zmq_msg_t`: 64 bytes that only libzmq understands.
#[repr(C, align(8))]
struct RawMessage([u8; 64]);

type Free = unsafe extern "C" fn(*mut c_void, *mut c_void);

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// libzmq's functions.
        #[derive(Debug)]
        pub struct Libzmq {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _library: Library,
        }

        impl Libzmq {
            /// Finds the functions in the library at `path` or in those it links to.
            ///
            /// # Errors
            /// When the library cannot be loaded or lacks one of them, as static builds do.
            pub fn load(path: &Path) -> Result<Self, String> {
                // SAFETY: the library is one Python has loaded already, or libzmq itself; neither has harmful initialisers.
                let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }.map_err(|e| e.to_string())?;
                $(
                    // SAFETY: the signature is the one of zmq.h.
                    let $name = *unsafe { library.get(concat!("zmq_", stringify!($name)).as_bytes()) }
                        .map_err(|e| e.to_string())?;
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

functions! {
    errno: fn() -> c_int;
    strerror: fn(c_int) -> *const c_char;
    has: fn(*const c_char) -> c_int;
    ctx_new: fn() -> *mut c_void;
    ctx_term: fn(*mut c_void) -> c_int;
    socket: fn(*mut c_void, c_int) -> *mut c_void;
    close: fn(*mut c_void) -> c_int;
    setsockopt: fn(*mut c_void, c_int, *const c_void, usize) -> c_int;
    getsockopt: fn(*mut c_void, c_int, *mut c_void, *mut usize) -> c_int;
    bind: fn(*mut c_void, *const c_char) -> c_int;
    unbind: fn(*mut c_void, *const c_char) -> c_int;
    connect: fn(*mut c_void, *const c_char) -> c_int;
    disconnect: fn(*mut c_void, *const c_char) -> c_int;
    socket_monitor: fn(*mut c_void, *const c_char, c_int) -> c_int;
    send: fn(*mut c_void, *const c_void, usize, c_int) -> c_int;
    msg_init: fn(*mut RawMessage) -> c_int;
    msg_init_data: fn(*mut RawMessage, *mut c_void, usize, Option<Free>, *mut c_void) -> c_int;
    msg_send: fn(*mut RawMessage, *mut c_void, c_int) -> c_int;
    msg_recv: fn(*mut RawMessage, *mut c_void, c_int) -> c_int;
    msg_move: fn(*mut RawMessage, *mut RawMessage) -> c_int;
    msg_close: fn(*mut RawMessage) -> c_int;
    msg_data: fn(*mut RawMessage) -> *mut c_void;
    msg_size: fn(*const RawMessage) -> usize;
    msg_more: fn(*const RawMessage) -> c_int;
    msg_gets: fn(*const RawMessage, *const c_char) -> *const c_char;
}

/// A context of libzmq.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContextPtr(pub(crate) NonNull<c_void>);

// SAFETY: libzmq's contexts may be used from any thread.
unsafe impl Send for ContextPtr {}
// SAFETY: as above.
unsafe impl Sync for ContextPtr {}

impl ContextPtr {
    /// A context that other code has made, by its address.
    ///
    /// # Safety
    /// The address must be that of a libzmq context, which must live until the role that uses it has ended.
    pub unsafe fn from_address(address: usize) -> Option<Self> {
        NonNull::new(address as *mut c_void).map(Self)
    }
}

/// A socket of libzmq; used by one thread at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketPtr(pub(crate) NonNull<c_void>);

// SAFETY: libzmq allows a socket to be handed to another thread with a full fence, which sending it is.
unsafe impl Send for SocketPtr {}

impl SocketPtr {
    /// A socket that other code has opened, by its address.
    ///
    /// # Safety
    /// The address must be that of a libzmq socket which no other code uses or closes until the role that uses it has
    /// ended.
    pub unsafe fn from_address(address: usize) -> Option<Self> {
        NonNull::new(address as *mut c_void).map(Self)
    }
}

impl Libzmq {
    fn error(&self) -> TransportError {
        // SAFETY: both take no pointer; strerror's answer is a static string.
        let (errno, words) = unsafe {
            let errno = (self.errno)();
            (errno, CStr::from_ptr((self.strerror)(errno)))
        };
        if errno == ETERM {
            return TransportError::Terminated;
        }
        TransportError::Failed { errno, reason: words.to_string_lossy().into_owned() }
    }

    fn check(&self, result: c_int) -> Result<(), TransportError> {
        if result >= 0 { Ok(()) } else { Err(self.error()) }
    }

    /// Whether the library was built with a capability, as `curve`.
    pub fn has(&self, capability: &CStr) -> bool {
        // SAFETY: a string goes in, a number comes out.
        unsafe { (self.has)(capability.as_ptr()) == 1 }
    }

    pub(super) fn context(&self) -> Result<ContextPtr, TransportError> {
        // SAFETY: takes nothing.
        NonNull::new(unsafe { (self.ctx_new)() }).map(ContextPtr).ok_or_else(|| self.error())
    }

    /// Ends a context; waits until its sockets' lingering is over.
    pub(super) fn terminate(&self, context: ContextPtr) {
        // SAFETY: the context is ours and is not used again. EINTR asks for a retry.
        while unsafe { (self.ctx_term)(context.0.as_ptr()) } != 0 {
            if !matches!(self.error(), TransportError::Failed { errno: libc::EINTR, .. }) {
                break;
            }
        }
    }

    pub(super) fn socket(&self, context: ContextPtr, kind: c_int) -> Result<SocketPtr, TransportError> {
        // SAFETY: the context is alive as long as a transport uses it.
        NonNull::new(unsafe { (self.socket)(context.0.as_ptr(), kind) }).map(SocketPtr).ok_or_else(|| self.error())
    }

    pub(super) fn close(&self, socket: SocketPtr) {
        // SAFETY: the socket is ours and is not used again.
        unsafe { (self.close)(socket.0.as_ptr()) };
    }

    pub(super) fn set_bytes(&self, socket: SocketPtr, option: c_int, value: &[u8]) -> Result<(), TransportError> {
        // SAFETY: pointer and length are those of a slice, which libzmq copies.
        self.check(unsafe { (self.setsockopt)(socket.0.as_ptr(), option, value.as_ptr().cast(), value.len()) })
    }

    pub(super) fn set_int(&self, socket: SocketPtr, option: c_int, value: i64) -> Result<(), TransportError> {
        if option::WIDE.contains(&option) {
            return self.set_bytes(socket, option, &value.to_ne_bytes());
        }
        let value = c_int::try_from(value).unwrap_or(if value < 0 { c_int::MIN } else { c_int::MAX });
        self.set_bytes(socket, option, &value.to_ne_bytes())
    }

    pub(super) fn int(&self, socket: SocketPtr, option: c_int) -> Result<c_int, TransportError> {
        let mut value: c_int = 0;
        let mut size = size_of::<c_int>();
        // SAFETY: pointer and length are those of a c_int.
        self.check(unsafe { (self.getsockopt)(socket.0.as_ptr(), option, (&raw mut value).cast(), &raw mut size) })?;
        Ok(value)
    }

    pub(super) fn text(&self, socket: SocketPtr, option: c_int) -> Result<String, TransportError> {
        let mut value = [0u8; 512];
        let mut size = value.len();
        // SAFETY: pointer and length are those of the array.
        self.check(unsafe { (self.getsockopt)(socket.0.as_ptr(), option, value.as_mut_ptr().cast(), &raw mut size) })?;
        let text = &value[..size.saturating_sub(1)];
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn with_endpoint(
        &self,
        function: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
        socket: SocketPtr,
        endpoint: &str,
    ) -> Result<(), TransportError> {
        let endpoint = CString::new(endpoint).map_err(|_| TransportError::Failed {
            errno: libc::EINVAL,
            reason: "the endpoint holds a NUL".to_owned(),
        })?;
        // SAFETY: a live socket and a string that libzmq copies.
        let done = self.check(unsafe { function(socket.0.as_ptr(), endpoint.as_ptr()) });
        done.map_err(|error| match error {
            // Its own words for a kind of endpoint that is not for this socket, or not for this system.
            TransportError::Failed { errno: ENOCOMPATPROTO | libc::EAGAIN, .. } => {
                TransportError::Failed { errno: libc::EPROTONOSUPPORT, reason: "Protocol not supported".to_owned() }
            }
            TransportError::Terminated
            | TransportError::Unsupported(_)
            | TransportError::WrongSocket { .. }
            | TransportError::Failed { .. } => error,
        })
    }

    pub(super) fn bind(&self, socket: SocketPtr, endpoint: &str) -> Result<(), TransportError> {
        self.with_endpoint(self.bind, socket, endpoint)
    }

    pub(super) fn unbind(&self, socket: SocketPtr, endpoint: &str) -> Result<(), TransportError> {
        self.with_endpoint(self.unbind, socket, endpoint)
    }

    pub(super) fn connect(&self, socket: SocketPtr, endpoint: &str) -> Result<(), TransportError> {
        self.with_endpoint(self.connect, socket, endpoint)
    }

    pub(super) fn disconnect(&self, socket: SocketPtr, endpoint: &str) -> Result<(), TransportError> {
        self.with_endpoint(self.disconnect, socket, endpoint)
    }

    /// Reports the socket's connections at an inproc endpoint; `None` ends that.
    pub(super) fn monitor(&self, socket: SocketPtr, endpoint: Option<&CStr>) -> Result<(), TransportError> {
        let endpoint = endpoint.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: a live socket; a null endpoint is how monitoring is ended.
        self.check(unsafe { (self.socket_monitor)(socket.0.as_ptr(), endpoint, event::ALL.into()) })
    }

    /// Sends one frame; false when it would have to wait.
    pub(super) fn send(&self, socket: SocketPtr, frame: &Bytes, more: bool) -> Result<bool, TransportError> {
        let flags = DONTWAIT | if more { SNDMORE } else { 0 };
        if frame.len() >= COPY_BELOW {
            return self.send_shared(socket, frame, flags);
        }
        // SAFETY: pointer and length are those of the frame, which libzmq copies.
        self.sent(unsafe { (self.send)(socket.0.as_ptr(), frame.as_ptr().cast(), frame.len(), flags) })
    }

    fn sent(&self, result: c_int) -> Result<bool, TransportError> {
        if result >= 0 {
            return Ok(true);
        }
        let error = self.error();
        if matches!(error, TransportError::Failed { errno: libc::EAGAIN | EFSM, .. }) { Ok(false) } else { Err(error) }
    }

    fn send_shared(&self, socket: SocketPtr, frame: &Bytes, flags: c_int) -> Result<bool, TransportError> {
        unsafe extern "C" fn free(_data: *mut c_void, owner: *mut c_void) {
            // SAFETY: the pointer is the box that was leaked below; libzmq calls this once.
            drop(unsafe { Box::from_raw(owner.cast::<Bytes>()) });
        }
        let owner = Box::into_raw(Box::new(frame.clone()));
        let mut message = RawMessage([0; 64]);
        // SAFETY: the data lives as long as its owner, which libzmq frees through `free`.
        let result = unsafe {
            let data = frame.as_ptr().cast_mut().cast();
            (self.msg_init_data)(&raw mut message, data, frame.len(), Some(free), owner.cast());
            (self.msg_send)(&raw mut message, socket.0.as_ptr(), flags)
        };
        let sent = self.sent(result);
        if result < 0 {
            // SAFETY: a message that was not sent is still ours; closing it frees the owner.
            unsafe { (self.msg_close)(&raw mut message) };
        }
        sent
    }
}

/// Takes frames off sockets; small ones share blocks of memory, large ones stay where libzmq put them.
pub(super) struct FrameReader {
    zmq: &'static Libzmq,
    message: RawMessage,
    slab: BytesMut,
}

impl FrameReader {
    pub(super) fn new(zmq: &'static Libzmq) -> Self {
        let mut message = RawMessage([0; 64]);
        // SAFETY: 64 bytes of the right alignment.
        unsafe { (zmq.msg_init)(&raw mut message) };
        Self { zmq, message, slab: BytesMut::with_capacity(SLAB) }
    }

    /// The next frame and whether another follows; `None` when nothing has arrived.
    pub(super) fn receive(&mut self, socket: SocketPtr) -> Result<Option<(Bytes, bool)>, TransportError> {
        let zmq = self.zmq;
        // SAFETY: the message is initialised; msg_recv frees what it held.
        let size = unsafe { (zmq.msg_recv)(&raw mut self.message, socket.0.as_ptr(), DONTWAIT) };
        if size < 0 {
            let error = zmq.error();
            let nothing = matches!(error, TransportError::Failed { errno: libc::EAGAIN | libc::EINTR | EFSM, .. });
            return if nothing { Ok(None) } else { Err(error) };
        }
        // SAFETY: the message holds a frame now.
        let (more, size) =
            unsafe { ((zmq.msg_more)(&raw const self.message) != 0, (zmq.msg_size)(&raw const self.message)) };
        if size == 0 {
            return Ok(Some((Bytes::new(), more)));
        }
        if size < COPY_BELOW {
            if self.slab.capacity() - self.slab.len() < size {
                self.slab = BytesMut::with_capacity(SLAB);
            }
            // SAFETY: msg_data gives `size` readable bytes until the message is changed.
            let data = unsafe { std::slice::from_raw_parts((zmq.msg_data)(&raw mut self.message).cast::<u8>(), size) };
            self.slab.extend_from_slice(data);
            return Ok(Some((self.slab.split().freeze(), more)));
        }
        let mut owned = OwnedMessage { zmq, message: Box::new(RawMessage([0; 64])) };
        // SAFETY: both messages are initialised before they are used; msg_move leaves ours empty.
        unsafe {
            (zmq.msg_init)(&raw mut *owned.message);
            (zmq.msg_move)(&raw mut *owned.message, &raw mut self.message);
        }
        Ok(Some((Bytes::from_owner(owned), more)))
    }

    /// A property of the last frame's sender, as `User-Id`.
    pub(super) fn property(&self, name: &CStr) -> Option<Bytes> {
        // SAFETY: the message holds a frame; the answer lives as long and is copied.
        unsafe {
            let value = (self.zmq.msg_gets)(&raw const self.message, name.as_ptr());
            (!value.is_null()).then(|| Bytes::copy_from_slice(CStr::from_ptr(value).to_bytes()))
        }
    }
}

impl Drop for FrameReader {
    fn drop(&mut self) {
        // SAFETY: the message is initialised and not used again.
        unsafe { (self.zmq.msg_close)(&raw mut self.message) };
    }
}

/// A large frame in libzmq's own memory. Boxed, since libzmq keeps small frames inside the message itself.
struct OwnedMessage {
    zmq: &'static Libzmq,
    message: Box<RawMessage>,
}

impl AsRef<[u8]> for OwnedMessage {
    fn as_ref(&self) -> &[u8] {
        let message: *const RawMessage = &raw const *self.message;
        // SAFETY: the message is initialised and does not change while it is shared; msg_data does not write to it.
        unsafe {
            let size = (self.zmq.msg_size)(message);
            std::slice::from_raw_parts((self.zmq.msg_data)(message.cast_mut()).cast::<u8>(), size)
        }
    }
}

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        // SAFETY: the message is initialised and not used again.
        unsafe { (self.zmq.msg_close)(&raw mut *self.message) };
    }
}
