//! Bare libzmq for loads: nothing of the engine, so that a load costs as little as it can.
#![allow(dead_code)] // no load needs all of it

use std::ffi::{CString, c_char, c_int, c_long, c_short, c_void};
use std::ptr::null_mut;
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

pub(crate) const PUB: c_int = 1;
pub(crate) const SUB: c_int = 2;
pub(crate) const DEALER: c_int = 5;
pub(crate) const ROUTER: c_int = 6;
pub(crate) const PULL: c_int = 7;
pub(crate) const PUSH: c_int = 8;

const SUBSCRIBE: c_int = 6;
const LINGER: c_int = 17;
const SNDHWM: c_int = 23;
const RCVHWM: c_int = 24;
const LAST_ENDPOINT: c_int = 32;
const CURVE_PUBLICKEY: c_int = 48;
const CURVE_SECRETKEY: c_int = 49;
const CURVE_SERVERKEY: c_int = 50;
const DONTWAIT: c_int = 1;
const SNDMORE: c_int = 2;
const POLLIN: c_short = 1;

#[repr(C, align(8))]
struct RawMessage([u8; 64]);

#[repr(C)]
struct PollItem {
    socket: *mut c_void,
    fd: c_int,
    events: c_short,
    revents: c_short,
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn load() -> Self {
                let path = std::env::var_os("TRUNKLINE_LIBZMQ").expect("TRUNKLINE_LIBZMQ is set");
                // SAFETY: libzmq has no harmful initialisers, and its functions have the types of zmq.h.
                unsafe {
                    let library: &Library =
                        Box::leak(Box::new(Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL).expect("libzmq")));
                    Self { $($name: *library.get(concat!("zmq_", stringify!($name)).as_bytes()).expect("a function"),)* }
                }
            }
        }
    };
}

functions! {
    ctx_new: fn() -> *mut c_void;
    ctx_term: fn(*mut c_void) -> c_int;
    socket: fn(*mut c_void, c_int) -> *mut c_void;
    close: fn(*mut c_void) -> c_int;
    setsockopt: fn(*mut c_void, c_int, *const c_void, usize) -> c_int;
    getsockopt: fn(*mut c_void, c_int, *mut c_void, *mut usize) -> c_int;
    curve_keypair: fn(*mut c_char, *mut c_char) -> c_int;
    bind: fn(*mut c_void, *const c_char) -> c_int;
    connect: fn(*mut c_void, *const c_char) -> c_int;
    send: fn(*mut c_void, *const c_void, usize, c_int) -> c_int;
    msg_init: fn(*mut RawMessage) -> c_int;
    msg_recv: fn(*mut RawMessage, *mut c_void, c_int) -> c_int;
    msg_data: fn(*mut RawMessage) -> *mut c_void;
    msg_size: fn(*const RawMessage) -> usize;
    msg_more: fn(*const RawMessage) -> c_int;
    poll: fn(*mut PollItem, c_int, c_long) -> c_int;
}

/// A context, its sockets by number, and the last message received. Every failure is a panic: a load cannot report
/// errors.
pub(crate) struct Zmq {
    functions: Functions,
    context: *mut c_void,
    items: Vec<PollItem>,
    message: RawMessage,
    frames: Vec<u8>,
    ends: Vec<usize>,
}

// SAFETY is the same in all of this file: pointers are those of live sockets and of slices that libzmq copies.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Zmq {
    pub(crate) fn new() -> Self {
        let functions = Functions::load();
        let context = unsafe { (functions.ctx_new)() };
        let mut message = RawMessage([0; 64]);
        unsafe { (functions.msg_init)(&raw mut message) };
        Self { functions, context, items: vec![], message, frames: vec![], ends: vec![] }
    }

    /// Opens a socket; with CURVE and its own keys if the server's, in text, is given.
    pub(crate) fn open(&mut self, kind: c_int, server_key: Option<&str>) -> usize {
        let socket = unsafe { (self.functions.socket)(self.context, kind) };
        assert!(!socket.is_null(), "a socket");
        let set = |option, value: &[u8]| {
            let done = unsafe { (self.functions.setsockopt)(socket, option, value.as_ptr().cast(), value.len()) };
            assert_eq!(done, 0, "option {option}");
        };
        if let Some(server_key) = server_key {
            let (mut public, mut secret) = ([0u8; 41], [0u8; 41]);
            unsafe { (self.functions.curve_keypair)(public.as_mut_ptr().cast(), secret.as_mut_ptr().cast()) };
            set(CURVE_SERVERKEY, &CString::new(server_key).expect("a key").into_bytes_with_nul());
            set(CURVE_PUBLICKEY, &public);
            set(CURVE_SECRETKEY, &secret);
        }
        self.items.push(PollItem { socket, fd: 0, events: POLLIN, revents: POLLIN });
        self.items.len() - 1
    }

    /// Sets no limit on a socket's messages, before it is connected.
    pub(crate) fn unbounded(&self, at: usize) {
        for option in [SNDHWM, RCVHWM] {
            self.set(at, option, &0i32.to_ne_bytes());
        }
    }

    pub(crate) fn subscribe(&self, at: usize, topic: &[u8]) {
        self.set(at, SUBSCRIBE, topic);
    }

    fn set(&self, at: usize, option: c_int, value: &[u8]) {
        let socket = self.items[at].socket;
        let done = unsafe { (self.functions.setsockopt)(socket, option, value.as_ptr().cast(), value.len()) };
        assert_eq!(done, 0, "option {option}");
    }

    /// Listens; gives the real endpoint.
    pub(crate) fn bind(&self, at: usize, endpoint: &str) -> String {
        let name = CString::new(endpoint).expect("an endpoint");
        let (mut real, mut size) = ([0u8; 256], 256);
        unsafe {
            assert_eq!((self.functions.bind)(self.items[at].socket, name.as_ptr()), 0, "bound to {endpoint}");
            (self.functions.getsockopt)(self.items[at].socket, LAST_ENDPOINT, real.as_mut_ptr().cast(), &raw mut size);
        }
        String::from_utf8_lossy(&real[..size - 1]).into_owned()
    }

    pub(crate) fn connect(&self, at: usize, endpoint: &str) {
        let name = CString::new(endpoint).expect("an endpoint");
        assert_eq!(unsafe { (self.functions.connect)(self.items[at].socket, name.as_ptr()) }, 0, "dialled {endpoint}");
    }

    /// Sends a message, and waits while there is no room.
    pub(crate) fn send(&self, at: usize, frames: &[&[u8]]) {
        for (number, frame) in frames.iter().enumerate() {
            let flags = if number + 1 < frames.len() { SNDMORE } else { 0 };
            let sent =
                unsafe { (self.functions.send)(self.items[at].socket, frame.as_ptr().cast(), frame.len(), flags) };
            assert!(sent >= 0, "sent");
        }
    }

    /// Receives the next message; false if there is none and `wait` is not set.
    pub(crate) fn receive(&mut self, at: usize, wait: bool) -> bool {
        self.frames.clear();
        self.ends.clear();
        loop {
            let flags = if wait { 0 } else { DONTWAIT };
            unsafe {
                if (self.functions.msg_recv)(&raw mut self.message, self.items[at].socket, flags) < 0 {
                    return false;
                }
                let size = (self.functions.msg_size)(&raw const self.message);
                let data = (self.functions.msg_data)(&raw mut self.message).cast::<u8>();
                self.frames.extend_from_slice(std::slice::from_raw_parts(data, size));
                self.ends.push(self.frames.len());
                if (self.functions.msg_more)(&raw const self.message) == 0 {
                    return true;
                }
            }
        }
    }

    /// A frame of the last message received.
    pub(crate) fn frame(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.frames[start..self.ends[number]]
    }

    /// How many frames the last message received has.
    pub(crate) fn frames(&self) -> usize {
        self.ends.len()
    }

    /// Sends the last message received back, its first frames replaced.
    pub(crate) fn answer(&self, at: usize, head: &[&[u8]], skip: usize) {
        let rest = (skip..self.frames()).map(|number| self.frame(number));
        let frames: smallvec::SmallVec<[&[u8]; 12]> = head.iter().copied().chain(rest).collect();
        self.send(at, &frames);
    }

    /// Waits until a socket has a message, or for so long.
    pub(crate) fn wait(&mut self, timeout: Duration) {
        let count = c_int::try_from(self.items.len()).expect("few");
        let timeout = c_long::try_from(timeout.as_millis()).expect("short");
        unsafe { (self.functions.poll)(self.items.as_mut_ptr(), count, timeout) };
    }

    /// Whether a socket had a message after the last wait.
    pub(crate) fn is_readable(&self, at: usize) -> bool {
        self.items[at].revents != 0
    }

    pub(crate) fn sockets(&self) -> usize {
        self.items.len()
    }

    /// Ends; pending messages are sent within `linger`.
    pub(crate) fn close(mut self, linger: Duration) {
        let linger = c_int::try_from(linger.as_millis()).expect("short");
        for PollItem { socket, .. } in self.items.drain(..) {
            unsafe {
                (self.functions.setsockopt)(socket, LINGER, (&raw const linger).cast(), size_of::<c_int>());
                (self.functions.close)(socket);
            }
        }
        unsafe { (self.functions.ctx_term)(std::mem::replace(&mut self.context, null_mut())) };
    }
}
