//! The user's handle of a running role.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use trunkline_wire::Machine;

use crate::engine::Engine;
use crate::fork;
use crate::outbox::OUTBOX_BYTES;
use crate::settings::{Capture, StartError};
use crate::shared::{Bounds, End, Offered, Order, Shared, Snapshot};
use crate::signal::Signal;
use crate::sink::Sink;
use crate::tap::Tap;
use crate::transport::{Transport, TransportError};
use crate::trouble::Trouble;

/// Everything about a role that is not its protocol.
pub struct Settings {
    /// Limits of what is queued between engine and user.
    pub bounds: Bounds,
    /// Other limits of events that wait for the user: those beyond are dropped, and counted, and reading goes on.
    pub sheds: Option<Bounds>,
    /// The pending bytes allowed for all peers of the role together: the fullest peer loses first.
    pub outbox_bytes: usize,
    /// Where to record.
    pub capture: Option<Capture>,
    /// What its transport needs alive; dropped when the engine has ended.
    pub keep_alive: Option<Box<dyn Any + Send>>,
    /// The thread's name.
    pub name: String,
    /// How long a role that is dropped and not closed may take to end.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            sheds: None,
            outbox_bytes: OUTBOX_BYTES,
            capture: None,
            keep_alive: None,
            name: String::new(),
            grace: Duration::ZERO,
        }
    }
}

/// A role that runs on its own thread.
///
/// Dropping it asks the role to end and does not wait; [`join`](Self::join) does.
pub struct Handle<M: Machine> {
    name: String,
    shared: Arc<Shared<M>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    tickets: AtomicU64,
    closing: AtomicBool,
    grace: Duration,
    /// The process that started it.
    process: u64,
}

/// A running role, whatever its machine.
pub trait Running: Send + Sync {
    /// The name of its thread.
    fn name(&self) -> &str;

    /// Asks the role to end within `grace`; once more to end sooner. A child after fork has none to end.
    fn close(&self, grace: Duration);

    /// Whether it was asked to end.
    fn is_closing(&self) -> bool;

    /// Asks for the capture to be safe on disk, and with `publish` visible to readers of Parquet. Gives the number that
    /// [`flushed`](Self::flushed) reaches.
    fn flush(&self, publish: bool) -> u64;

    /// Whether a flush is done.
    fn flushed(&self, ticket: u64) -> bool;

    /// Messages taken in since the start.
    fn progress(&self) -> u64;

    /// Wakes the user once, when so many messages have been taken in. Announced anew before each wait, so any number of
    /// threads may wait, each for its own number.
    fn await_progress(&self, count: u64);

    /// Whether [`offer`](Self::offer) would find room.
    fn has_room(&self) -> bool;

    /// Whether the machine holds nothing more to send.
    fn is_drained(&self) -> bool;

    /// Whether there are events to read.
    fn has_events(&self) -> bool;

    /// Whether the role is over.
    fn is_over(&self) -> bool;

    /// Why the role is over, once it is.
    fn end(&self) -> Option<End>;

    /// Whether the transport was given up, at the end, with messages that it had taken.
    fn is_unsent(&self) -> bool;

    /// The endpoints it listens on.
    fn endpoints(&self) -> Vec<String>;

    /// What wakes a reader of events.
    fn events(&self) -> &Signal;

    /// What wakes threads that wait for room, a flush or the end.
    fn changes(&self) -> &Signal;

    /// How long it may take to end unless the user gives a time.
    fn grace(&self) -> Duration;

    /// Whether this process started the role; a child after fork holds only a copy.
    fn is_ours(&self) -> bool;

    /// Waits until the engine's thread has ended.
    fn join(&self);
}

/// A running role, as its user holds it: on a thread of its own, or in a simulation.
pub trait Hold<M: Machine>: Running {
    /// Moves what has come in to `events`, which is empty. False when the role is over and nothing is left.
    fn read(&self, events: &mut VecDeque<M::Event>) -> bool;

    /// How many calls of `read` give what has come in by now.
    fn bursts(&self) -> usize;

    /// Whether the next event is a notice that is reported without a reader of messages: in simulations alone.
    fn has_notice(&self) -> bool {
        false
    }

    /// How often it was started again: what a role has handed out in one life is nothing to the next. In simulations
    /// alone.
    fn life(&self) -> u64 {
        0
    }

    /// The next event of the capture.
    fn read_trouble(&self) -> Option<Trouble>;

    /// Hands over a verb if there is room, and wakes the engine; `bytes` is its size.
    fn offer(&self, verb: M::Verb, bytes: usize) -> Offered<M::Verb> {
        let offered = self.post(verb, bytes);
        if matches!(offered, Offered::Taken) {
            self.wake();
        }
        offered
    }

    /// The same, without waking it: [`wake`](Self::wake) follows after the last of several.
    fn post(&self, verb: M::Verb, bytes: usize) -> Offered<M::Verb>;

    /// Hands over a verb that never waits for room.
    fn ask(&self, verb: M::Verb);

    /// Wakes the engine: its sink has room again, or there are verbs.
    fn wake(&self);

    /// Counters as they are now; the last known ones where the role is over or not ours. Never waits for the engine
    /// longer than a tenth of a second.
    fn stats(&self) -> Snapshot<M::Stats>;
}

/// Threads of roles that were dropped and not joined.
static ORPHANS: Mutex<Vec<(u64, JoinHandle<()>)>> = Mutex::new(vec![]);

/// Waits for the roles of this process that were dropped and have not ended yet.
pub fn join_orphans() {
    let orphans = std::mem::take(&mut *ORPHANS.lock().unwrap_or_else(PoisonError::into_inner));
    for (process, thread) in orphans {
        if process == fork::generation() {
            // The thread catches its panics.
            let _ = thread.join();
        } else {
            // A thread of the parent does not exist in the child.
            std::mem::forget(thread);
        }
    }
}

impl<M: Machine + Send + 'static> Handle<M> {
    /// Starts a role; returns once its sockets are open.
    ///
    /// # Errors
    /// When they cannot be.
    pub fn start<T: Transport>(
        machine: M,
        transport: impl FnOnce() -> Result<T, TransportError> + Send + 'static,
        sink: impl Sink<M>,
        settings: Settings,
    ) -> Result<Self, StartError> {
        let shared = Arc::new(Shared::new(settings.bounds, settings.sheds)?);
        let (report, started) = mpsc::sync_channel(1);
        let engine_shared = Arc::clone(&shared);
        let grace = settings.grace;
        let body = move || {
            let shared = Arc::clone(&engine_shared);
            let run = AssertUnwindSafe(|| {
                run(machine, transport, sink, engine_shared, settings.outbox_bytes, settings.capture, &report);
            });
            if let Err(panic) = catch_unwind(run) {
                shared.finish(End::Panicked(words(&*panic)));
            }
            drop(settings.keep_alive);
        };
        let thread = spawn(settings.name.clone(), body)?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self {
                name: settings.name,
                shared,
                thread: Mutex::new(Some(thread)),
                tickets: AtomicU64::new(0),
                closing: AtomicBool::new(false),
                grace,
                process: fork::generation(),
            }),
            Ok(Err(error)) => {
                // The role can only end now.
                let _ = thread.join();
                Err(error)
            }
            Err(_) => {
                let _ = thread.join();
                let words = match shared.end() {
                    Some(End::Panicked(words)) => words,
                    _ => String::new(),
                };
                Err(StartError::Panicked(words))
            }
        }
    }
}

impl<M: Machine + Send + 'static> Hold<M> for Handle<M> {
    fn read(&self, events: &mut VecDeque<M::Event>) -> bool {
        self.shared.read(events)
    }

    fn bursts(&self) -> usize {
        self.shared.bursts()
    }

    fn read_trouble(&self) -> Option<Trouble> {
        self.shared.read_trouble()
    }

    fn post(&self, verb: M::Verb, bytes: usize) -> Offered<M::Verb> {
        self.shared.post(verb, bytes)
    }

    fn ask(&self, verb: M::Verb) {
        self.shared.ask(verb);
    }

    fn wake(&self) {
        self.shared.engine.notify();
    }

    fn stats(&self) -> Snapshot<M::Stats> {
        if self.is_ours() { self.shared.counters() } else { self.shared.remembered_counters() }
    }
}

impl<M: Machine + Send + 'static> Running for Handle<M> {
    fn name(&self) -> &str {
        &self.name
    }

    fn close(&self, grace: Duration) {
        self.closing.store(true, Ordering::SeqCst);
        if self.is_ours() {
            self.shared.order(Order::Close(grace));
        }
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn flush(&self, publish: bool) -> u64 {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        self.shared.order(Order::Flush { ticket, publish });
        ticket
    }

    fn flushed(&self, ticket: u64) -> bool {
        self.shared.flushed.load(Ordering::SeqCst) >= ticket
    }

    fn progress(&self) -> u64 {
        self.shared.progress.load(Ordering::SeqCst)
    }

    fn await_progress(&self, count: u64) {
        self.shared.awaited.fetch_min(count, Ordering::SeqCst);
    }

    fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    fn is_drained(&self) -> bool {
        self.shared.is_drained()
    }

    fn has_events(&self) -> bool {
        self.shared.has_events()
    }

    fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn end(&self) -> Option<End> {
        self.shared.end()
    }

    fn is_unsent(&self) -> bool {
        self.shared.unsent.load(Ordering::SeqCst)
    }

    fn endpoints(&self) -> Vec<String> {
        if self.is_ours() { self.shared.endpoints() } else { self.shared.remembered_endpoints() }
    }

    fn events(&self) -> &Signal {
        &self.shared.events
    }

    fn changes(&self) -> &Signal {
        &self.shared.user
    }

    fn grace(&self) -> Duration {
        self.grace
    }

    fn is_ours(&self) -> bool {
        self.process == fork::generation()
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread catches its panics.
            let _ = thread.join();
        }
    }
}

impl<M: Machine> Drop for Handle<M> {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        if self.process != fork::generation() {
            // After fork the thread is the parent's, and our locks may stay locked forever.
            std::mem::forget(thread);
            return;
        }
        self.shared.order(Order::Close(self.grace));
        let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
        orphans.retain(|(_, thread)| !thread.is_finished());
        orphans.push((self.process, thread));
    }
}

fn run<M: Machine + Send + 'static, T: Transport>(
    machine: M,
    transport: impl FnOnce() -> Result<T, TransportError>,
    sink: impl Sink<M>,
    shared: Arc<Shared<M>>,
    outbox_bytes: usize,
    capture: Option<Capture>,
    report: &mpsc::SyncSender<Result<(), StartError>>,
) {
    let tap = capture.map(|capture| {
        let wake = Arc::clone(&shared);
        Tap::new(capture, Box::new(move || wake.engine.notify()))
    });
    let transport = match transport() {
        Ok(transport) => transport,
        Err(error) => {
            let _ = report.send(Err(StartError::Transport(error)));
            return;
        }
    };
    let mut engine = Engine::new(machine, transport, sink, shared, tap, outbox_bytes);
    let started = engine.start();
    let runs = started.is_ok();
    // The starter waits for this.
    let _ = report.send(started);
    if runs {
        engine.run();
    }
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "for no stated reason".to_owned())
}

/// Starts a thread that receives no signals: they are Python's.
fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    // SAFETY: both sets are initialised by the calls; the mask of this thread is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let thread = thread::Builder::new().name(name).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        thread
    }
}
