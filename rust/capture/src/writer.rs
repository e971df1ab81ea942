//! The thread that owns the disk, and its handle.

use std::collections::VecDeque;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::columns::{BATCH_BYTES, Batch, Columns};
use crate::disk::Disk;
use crate::layout::need_room;
use crate::local::{LocalDisk, make_directory};
use crate::lock::Lock;
use crate::patient::Patient;
use crate::retention::Now;
use crate::store::{Recovery, Store};
use crate::{CaptureError, Row, Settings, import};

/// How often to check for segments that are too old: a tenth of the time they are kept, between these.
const TIDY_MIN: Duration = Duration::from_millis(100);
const TIDY_MAX: Duration = Duration::from_secs(60 * 60);

/// A position in the order of appended rows, flushes and publications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The progress of a [`Writer`]. All counts are of this writer.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Rows appended.
    pub recorded: u64,
    /// Rows that survive a power failure.
    pub durable: u64,
    pub segments: u64,
    /// Every flush and publication up to this one is done, or has failed if there is a `failure`.
    pub done: Ticket,
    /// Segments deleted by [`Settings::keep`].
    pub deleted: u64,
    /// Those of them that were not copied elsewhere.
    pub deleted_unshipped: u64,
    /// Open runs whose BOR was deleted, since [`Settings::keep`] has no more room for them.
    pub let_go: u64,
    /// How often the runs of a sender were no longer followed, since there are too many senders.
    pub unfollowed: u64,
    /// The free space, when it is less than [`Settings::low_space_bytes`].
    pub low_space: Option<LowSpace>,
    /// Why writing has ended.
    pub failure: Option<CaptureError>,
}

/// Too little free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowSpace {
    /// The free bytes.
    pub bytes: u64,
    /// Whether it is less than [`Settings::critical_space_bytes`].
    pub is_critical: bool,
}

/// A capture being written.
///
/// The handle belongs to one thread, whose calls never wait for the disk except in [`open`](Self::open) and
/// [`close`](Self::close). Dropping it makes the rows so far durable, without publishing them.
pub struct Writer {
    columns: Columns,
    first_at: Instant,
    /// The number of the first row of this writer.
    first_seq: u64,
    recorded: u64,
    batch_bytes: u64,
    hand_over_age: Duration,
    backlog_bytes: u64,
    tickets: Ticket,
    recovery: Recovery,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    lock: Option<Lock>,
    process: u32,
}

impl Writer {
    /// Locks a directory, created if absent, publishes what a killed writer left there, and starts the writer thread.
    ///
    /// `wake` is called from that thread when there is room again after [`has_room`](Self::has_room) was false, when a
    /// flush or publication is done, when a warning of [`Progress`] has changed, and when writing fails. It must not
    /// wait for this handle's thread.
    pub fn open(
        directory: &Path,
        settings: Settings,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, CaptureError> {
        need_room(directory)?;
        let writing = |error| CaptureError::writing(directory, error);
        make_directory(directory, settings.access).map_err(writing)?;
        let disk = LocalDisk::open(directory, settings.access).map_err(writing)?;
        Self::open_on(Arc::new(Patient::new(disk)), directory, settings, Box::new(wake))
    }

    fn open_on(disk: Arc<dyn Disk>, directory: &Path, settings: Settings, wake: Wake) -> Result<Self, CaptureError> {
        let lock = Lock::acquire(directory, settings.access)?;
        import::clear(directory)?;
        let (store, recovery) = Store::open(disk, directory, &|| true)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            commands: Condvar::new(),
            backlog: AtomicU64::new(0),
            is_stalled: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            wake,
        });
        // About as many batches as fill a segment, so that none is left half empty.
        let batches = settings.segment_bytes.div_ceil(BATCH_BYTES).max(1);
        let batch_bytes = settings.segment_bytes / batches;
        let hand_over_age = settings.sync_interval / 4;
        let backlog_bytes = settings.backlog_bytes;
        let first_seq = store.next_seq();
        let thread = DiskThread::spawn(store, settings, Arc::clone(&shared))
            .map_err(|error| CaptureError::writing(directory, error))?;
        Ok(Self {
            columns: Columns::default(),
            first_at: Instant::now(),
            first_seq,
            recorded: 0,
            batch_bytes,
            hand_over_age,
            backlog_bytes,
            tickets: Ticket::default(),
            recovery,
            shared,
            thread: Some(thread),
            lock: Some(lock),
            process: std::process::id(),
        })
    }

    /// What a killed writer left.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Adds a message, and gives the number of its row. Never waits; see [`has_room`](Self::has_room).
    #[inline]
    pub fn append<F: AsRef<[u8]>>(&mut self, row: &Row<'_, F>) -> u64 {
        let n_bytes = trunkline_wire::nbytes(row.frames);
        if self.columns.rows() == 0 {
            self.first_at = Instant::now();
        } else if self.columns.frame_bytes() + n_bytes > self.batch_bytes {
            self.hand_over();
            self.first_at = Instant::now();
        }
        self.columns.push(row, n_bytes);
        self.recorded += 1;
        if self.columns.is_full(self.batch_bytes) {
            self.hand_over();
        }
        self.first_seq + self.recorded - 1
    }

    /// Whether more may be appended. After `false`, `wake` is called when it is `true` again; a writer that failed has
    /// no room.
    pub fn has_room(&self) -> bool {
        let is_full = || {
            self.shared.has_failed.load(Ordering::SeqCst)
                || self.shared.backlog.load(Ordering::SeqCst) >= self.backlog_bytes
        };
        if !is_full() {
            return true;
        }
        // Announced before the second check, so that room made in between is either seen here or reported by `wake`.
        self.shared.is_stalled.store(true, Ordering::SeqCst);
        !is_full()
    }

    /// Hands over rows that have waited for more. Call it before waiting, and at [`deadline`](Self::deadline).
    pub fn idle(&mut self) {
        if self.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            self.hand_over();
        }
    }

    /// When to call [`idle`](Self::idle) next, for rows to be durable in time.
    pub fn deadline(&self) -> Option<Instant> {
        (self.columns.rows() > 0).then(|| self.first_at + self.hand_over_age)
    }

    /// Requests that every row so far is made durable. Does not wait: see [`Progress::done`].
    pub fn flush(&mut self) -> Ticket {
        self.ask(Command::Flush)
    }

    /// Requests that every row so far is made durable and visible as a segment. Does not wait: see [`Progress::done`].
    pub fn publish(&mut self) -> Ticket {
        self.ask(Command::Publish)
    }

    /// The progress so far.
    pub fn progress(&self) -> Progress {
        Progress { recorded: self.recorded, ..self.shared.state().progress.clone() }
    }

    /// Publishes what is left, ends the thread and unlocks the directory.
    pub fn close(mut self) -> Result<Progress, CaptureError> {
        self.publish();
        self.end();
        let progress = self.progress();
        if let Some(lock) = self.lock.take() {
            let released = lock.release();
            if progress.failure.is_none() {
                released?;
            }
        }
        match progress.failure {
            Some(failure) => Err(failure),
            None => Ok(progress),
        }
    }

    #[cold]
    fn hand_over(&mut self) {
        if self.columns.rows() == 0 {
            return;
        }
        let cost = self.columns.cost();
        let command = match self.columns.finish() {
            Ok(batch) => Command::Append { batch, cost },
            Err(error) => Command::Fail(CaptureError::columns(Path::new("batch"), &error)),
        };
        self.tell(command);
    }

    fn ask(&mut self, command: impl FnOnce(Ticket) -> Command) -> Ticket {
        self.hand_over();
        self.tickets = Ticket(self.tickets.0 + 1);
        self.tell(command(self.tickets));
        self.tickets
    }

    fn tell(&self, command: Command) {
        self.shared.backlog.fetch_add(command.cost(), Ordering::SeqCst);
        self.shared.state().commands.push_back(command);
        self.shared.commands.notify_one();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.tell(Command::End);
        // A panic of the thread has been reported as a failure.
        let _ = thread.join();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // After a fork the thread and the lock are the parent's.
            std::mem::forget(self.thread.take());
            std::mem::forget(self.lock.take());
            return;
        }
        if self.thread.is_some() {
            self.flush();
            self.end();
        }
        if let Some(lock) = self.lock.take() {
            // No caller is left for the error, and the system unlocks in any case.
            let _ = lock.release();
        }
    }
}

type Wake = Box<dyn Fn() + Send + Sync>;

enum Command {
    Append { batch: Batch, cost: u64 },
    Flush(Ticket),
    Publish(Ticket),
    Fail(CaptureError),
    End,
}

impl Command {
    fn cost(&self) -> u64 {
        match self {
            Self::Append { cost, .. } => *cost,
            Self::Flush(_) | Self::Publish(_) | Self::Fail(_) | Self::End => 0,
        }
    }
}

/// What the handle and the thread share.
struct Shared {
    state: Mutex<State>,
    commands: Condvar,
    backlog: AtomicU64,
    is_stalled: AtomicBool,
    has_failed: AtomicBool,
    wake: Wake,
}

#[derive(Default)]
struct State {
    commands: VecDeque<Command>,
    progress: Progress,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Between any two statements under the lock the state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's side.
struct DiskThread {
    /// `None` after a failure.
    store: Option<Store>,
    settings: Settings,
    shared: Arc<Shared>,
    first_seq: u64,
    /// Since when some row is not durable.
    unsynced_since: Option<Instant>,
    /// Since when the segment has a row.
    segment_since: Option<Instant>,
    /// When to check next for segments that are too old, and for free space.
    tidy_at: Option<Instant>,
}

impl DiskThread {
    fn spawn(store: Store, settings: Settings, shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
        let first_seq = store.next_seq();
        let mut thread = Self {
            store: Some(store),
            settings,
            shared,
            first_seq,
            unsynced_since: None,
            segment_since: None,
            tidy_at: Some(Instant::now()),
        };
        without_signals(|| {
            thread::Builder::new().name("trunkline-capture".into()).spawn(move || {
                if panic::catch_unwind(AssertUnwindSafe(|| while thread.step() {})).is_err() {
                    thread.store = None;
                    thread.fail(CaptureError::corrupt(Path::new("capture"), "the writer thread panicked"));
                    while thread.step() {}
                }
            })
        })
    }

    /// Does the next step: a command, or what is due. False at the end.
    fn step(&mut self) -> bool {
        let Some(command) = self.next_command() else {
            let is_due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= Instant::now());
            if is_due(self.publish_deadline()) {
                self.write(Store::publish);
            } else if is_due(self.sync_deadline()) {
                self.write(Store::sync);
            } else if is_due(self.tidy_at) {
                self.tidy();
            }
            return true;
        };
        let cost = command.cost();
        match command {
            Command::Append { batch, .. } => self.append(&batch),
            Command::Flush(ticket) => self.answer(ticket, Store::sync),
            Command::Publish(ticket) => self.answer(ticket, Store::publish),
            Command::Fail(failure) => self.fail(failure),
            Command::End => return false,
        }
        let before = self.shared.backlog.fetch_sub(cost, Ordering::SeqCst);
        let has_room = self.store.is_some() && before - cost <= self.settings.backlog_bytes / 2;
        if has_room && self.shared.is_stalled.swap(false, Ordering::SeqCst) {
            (self.shared.wake)();
        }
        true
    }

    /// The next command; `None` when a deadline comes first.
    fn next_command(&self) -> Option<Command> {
        let deadline = [self.sync_deadline(), self.publish_deadline(), self.tidy_at].into_iter().flatten().min();
        let mut state = self.shared.state();
        loop {
            // A deadline goes before commands: otherwise a busy writer would never sync.
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            if let Some(command) = state.commands.pop_front() {
                return Some(command);
            }
            state = match left {
                Some(left) => self.shared.commands.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.shared.commands.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Half the interval: rows have waited for their batch already, and the sync takes time.
    fn sync_deadline(&self) -> Option<Instant> {
        self.unsynced_since.map(|since| since + self.settings.sync_interval / 2)
    }

    fn publish_deadline(&self) -> Option<Instant> {
        self.segment_since.map(|since| since + self.settings.segment_age)
    }

    fn tidy(&mut self) {
        let Settings { keep, .. } = self.settings;
        self.write(|store| store.trim(keep, Now::read()));
        self.tidy_at = keep.age.map(|age| Instant::now() + (age / 10).clamp(TIDY_MIN, TIDY_MAX));
    }

    fn append(&mut self, batch: &Batch) {
        let segment_bytes = self.settings.segment_bytes;
        self.write(|store| store.append(batch, segment_bytes));
        if self.store.as_ref().is_some_and(|store| store.unsynced_bytes() >= self.settings.sync_bytes) {
            self.write(Store::sync);
        }
    }

    fn answer(&mut self, ticket: Ticket, step: impl FnOnce(&mut Store) -> Result<(), CaptureError>) {
        self.write(step);
        self.shared.state().progress.done = ticket;
        (self.shared.wake)();
    }

    /// Does a step on the disk unless one has failed before, and publishes the progress.
    fn write(&mut self, step: impl FnOnce(&mut Store) -> Result<(), CaptureError>) {
        let Some(store) = &mut self.store else { return };
        let segments = store.segments();
        if let Err(error) = step(store) {
            return self.fail(error);
        }
        if store.segments() > segments
            && let Err(error) = store.trim(self.settings.keep, Now::read())
        {
            return self.fail(error);
        }
        let is_durable = store.durable_seq() == store.next_seq();
        let Settings { low_space_bytes, critical_space_bytes, .. } = self.settings;
        let low_space = |bytes: &u64| *bytes < low_space_bytes.max(critical_space_bytes);
        let low_space = is_durable.then(|| {
            let bytes = store.free_bytes().filter(low_space)?;
            Some(LowSpace { bytes, is_critical: bytes < critical_space_bytes })
        });
        let mut state = self.shared.state();
        state.progress.durable = store.durable_seq() - self.first_seq;
        state.progress.segments = store.segments();
        let mut is_news = store.deleted() != state.progress.deleted;
        (state.progress.deleted, state.progress.deleted_unshipped) = (store.deleted(), store.deleted_unshipped());
        let level = |low_space: Option<LowSpace>| low_space.map(|low_space| low_space.is_critical);
        is_news |= (store.let_go(), store.unfollowed()) != (state.progress.let_go, state.progress.unfollowed);
        (state.progress.let_go, state.progress.unfollowed) = (store.let_go(), store.unfollowed());
        if let Some(low_space) = low_space {
            is_news |= level(low_space) != level(state.progress.low_space);
            state.progress.low_space = low_space;
        }
        drop(state);
        if is_news {
            (self.shared.wake)();
        }
        let since = |is_open: bool, since: Option<Instant>| is_open.then(|| since.unwrap_or_else(Instant::now));
        self.unsynced_since = since(!is_durable, self.unsynced_since);
        if store.segments() > segments {
            self.segment_since = None;
        }
        self.segment_since = since(store.has_segment_open(), self.segment_since);
    }

    fn fail(&mut self, failure: CaptureError) {
        if let Some(store) = self.store.take() {
            store.abandon();
        }
        self.unsynced_since = None;
        self.segment_since = None;
        self.tidy_at = None;
        let mut state = self.shared.state();
        state.progress.failure.get_or_insert(failure);
        drop(state);
        self.shared.has_failed.store(true, Ordering::SeqCst);
        (self.shared.wake)();
    }
}

/// Runs `spawn` so that its thread has every signal blocked: they are for the program's own threads.
#[cfg(unix)]
fn without_signals<T>(spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    use nix::sys::signal::{SigSet, SigmaskHow};
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let spawned = spawn();
    before.thread_set_mask()?;
    spawned
}

#[cfg(not(unix))]
fn without_signals<T>(spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    spawn()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::SystemTime;

    use trunkline_wire::Framing;

    use super::*;
    use crate::disk::{DiskFile, Files};
    use crate::faults::{Fault, FaultyDisk};
    use crate::source::Source;
    use crate::{Access, Capture, CaptureErrorKind, Direction, Info, Keep, recover};

    fn append(writer: &mut Writer, messages: usize, payload: &[u8]) {
        for at in 0..messages {
            writer.append(&Row {
                received_at_ns: i64::try_from(at).unwrap(),
                framing: Framing::Cdtp,
                endpoint: Some("tcp://127.0.0.1:1"),
                peer: None,
                direction: Direction::In,
                topic: None,
                reply_to: None,
                frames: &[b"header".as_slice(), payload],
                error: at.is_multiple_of(5).then_some("bad_header"),
            });
        }
    }

    fn open(directory: &Path, settings: Settings) -> (Writer, Receiver<()>) {
        let (wake, woken) = channel();
        (Writer::open(directory, settings, wake_by(wake)).unwrap(), woken)
    }

    fn wake_by(wake: Sender<()>) -> impl Fn() + Send + Sync {
        move || {
            let _ = wake.send(());
        }
    }

    fn wait(writer: &Writer, woken: &Receiver<()>, until: impl Fn(&Progress) -> bool) -> Progress {
        loop {
            let progress = writer.progress();
            if until(&progress) {
                return progress;
            }
            woken.recv_timeout(Duration::from_secs(20)).expect("a wake");
        }
    }

    fn info(directory: &Path) -> Info {
        Capture::open(directory).unwrap().info().unwrap()
    }

    #[test]
    fn flush_makes_durable_and_publish_visible() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, woken) = open(directory.path(), Settings::default());
        assert_eq!(info(directory.path()).messages, 0);
        append(&mut writer, 10_000, b"payload");
        assert_eq!(writer.progress().recorded, 10_000);
        let flushed = writer.flush();
        let progress = wait(&writer, &woken, |progress| progress.done >= flushed);
        assert_eq!((progress.durable, progress.segments), (10_000, 0));
        let before = info(directory.path());
        assert_eq!((before.messages, before.segments, before.bytes), (10_000, 0, 130_000));
        append(&mut writer, 1, b"");
        let published = writer.publish();
        let progress = wait(&writer, &woken, |progress| progress.done >= published);
        assert_eq!((progress.durable, progress.segments), (10_001, 1));
        let after = info(directory.path());
        assert_eq!((after.messages, after.segments), (10_001, 1));
        assert_eq!(after.first_received_at_ns.zip(after.last_received_at_ns), Some((0, 9_999)));
        assert_eq!(after.protocols.into_iter().collect::<Vec<_>>(), [("cdtp".into(), 10_001)]);
        assert_eq!(after.errors.into_iter().collect::<Vec<_>>(), [("bad_header".into(), 2_001)]);
        assert_eq!(writer.close().unwrap().segments, 1);
    }

    #[test]
    fn a_directory_has_one_writer() {
        let directory = tempfile::tempdir().unwrap();
        let (writer, _) = open(directory.path(), Settings::default());
        let refused = Writer::open(directory.path(), Settings::default(), || {}).err().unwrap();
        assert_eq!(refused.kind(), CaptureErrorKind::Locked);
        assert_eq!(recover(directory.path(), &|| true).unwrap_err().kind(), CaptureErrorKind::Locked);
        writer.close().unwrap();
        assert_eq!(recover(directory.path(), &|| true).unwrap(), Recovery::default());
    }

    #[test]
    fn the_next_run_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let mut ids = Vec::new();
        for run in 1..=3 {
            let (mut writer, _) = open(directory.path(), Settings::default());
            append(&mut writer, 10, b"x");
            writer.close().unwrap();
            let info = info(directory.path());
            assert_eq!((info.messages, info.segments), (10 * run, run));
            ids.push(info.capture_id.unwrap());
        }
        assert!(ids.iter().all(|id| *id == ids[0]));
    }

    #[test]
    fn a_dropped_writer_leaves_its_rows_to_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = open(directory.path(), Settings::default());
        append(&mut writer, 10, b"x");
        drop(writer);
        assert_eq!((info(directory.path()).segments, info(directory.path()).messages), (0, 10));
        let recovery = recover(directory.path(), &|| true).unwrap();
        assert_eq!(recovery, Recovery { rows: 10, segment: Some(0), ..Recovery::default() });
        assert_eq!((info(directory.path()).segments, info(directory.path()).messages), (1, 10));
    }

    #[test]
    fn segments_keep_to_their_bound() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { segment_bytes: 1_000, ..Settings::default() };
        let (mut writer, _) = open(directory.path(), settings);
        append(&mut writer, 100, &[7; 94]);
        append(&mut writer, 1, &[7; 5_000]);
        append(&mut writer, 1, &[7; 94]);
        assert_eq!(writer.close().unwrap().segments, 12);
    }

    #[test]
    fn rows_become_durable_and_visible_by_themselves() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            sync_interval: Duration::from_millis(40),
            segment_age: Duration::from_millis(200),
            ..Settings::default()
        };
        let (mut writer, _) = open(directory.path(), settings);
        assert_eq!(writer.deadline(), None);
        append(&mut writer, 1, b"x");
        let began = Instant::now();
        let deadline = writer.deadline().unwrap();
        thread::sleep(deadline.saturating_duration_since(began));
        writer.idle();
        assert_eq!(writer.deadline(), None);
        while writer.progress().durable == 0 {
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::yield_now();
        }
        while writer.progress().segments == 0 {
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::yield_now();
        }
        assert!(began.elapsed() >= Duration::from_millis(200));
    }

    /// A disk whose syncs wait until the test lets them go on.
    struct SlowDisk {
        disk: LocalDisk,
        gate: Arc<Mutex<Receiver<()>>>,
    }

    struct SlowFile(Box<dyn DiskFile>, Arc<Mutex<Receiver<()>>>);

    impl Write for SlowFile {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            self.0.write(buffer)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    impl DiskFile for SlowFile {
        fn sync(&mut self) -> io::Result<()> {
            let _ = self.1.lock().unwrap().recv();
            self.0.sync()
        }
    }

    impl Files for SlowDisk {
        fn open(&self, path: &Path) -> io::Result<Source> {
            self.disk.open(path)
        }

        fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
            self.disk.list(directory)
        }
    }

    impl Disk for SlowDisk {
        fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
            Ok(Box::new(SlowFile(self.disk.create(path)?, Arc::clone(&self.gate))))
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.disk.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            self.disk.remove(path)
        }
        fn size_and_time(&self, path: &Path) -> io::Result<(u64, SystemTime)> {
            self.disk.size_and_time(path)
        }
        fn create_directory(&self, path: &Path) -> io::Result<()> {
            self.disk.create_directory(path)
        }

        fn remove_directory(&self, path: &Path) -> io::Result<()> {
            self.disk.remove_directory(path)
        }
        fn sync_directory(&self, directory: &Path) -> io::Result<()> {
            self.disk.sync_directory(directory)
        }
        fn free_bytes(&self, directory: &Path) -> Option<u64> {
            self.disk.free_bytes(directory)
        }
    }

    #[test]
    fn a_slow_disk_stops_the_reading_and_wakes_it_again() {
        let directory = tempfile::tempdir().unwrap();
        let (open_gate, gate) = channel();
        let disk = SlowDisk {
            disk: LocalDisk::open(directory.path(), Access::Umask).unwrap(),
            gate: Arc::new(Mutex::new(gate)),
        };
        open_gate.send(()).unwrap(); // the first manifest
        let settings = Settings { backlog_bytes: 4 << 20, ..Settings::default() };
        let (wake, woken) = channel();
        let mut writer = Writer::open_on(Arc::new(disk), directory.path(), settings, Box::new(wake_by(wake))).unwrap();
        append(&mut writer, 1, b"x");
        writer.flush();
        let payload = vec![0; 100_000];
        let mut appended = 0;
        while writer.has_room() {
            append(&mut writer, 1, &payload);
            appended += 1;
        }
        assert!((40..=60).contains(&appended), "{appended}");
        assert!(woken.try_recv().is_err());
        drop(open_gate);
        while !writer.has_room() {
            woken.recv_timeout(Duration::from_secs(20)).expect("a wake");
        }
        assert_eq!(writer.close().unwrap().durable, appended + 1);
    }

    #[test]
    fn a_failing_disk_is_reported_and_ends_it() {
        let scratch = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::default();
        let (wake, woken) = channel();
        let mut writer =
            Writer::open_on(Arc::new(disk.clone()), scratch.path(), Settings::default(), Box::new(wake_by(wake)))
                .unwrap();
        append(&mut writer, 10, b"x");
        let flushed = writer.flush();
        wait(&writer, &woken, |progress| progress.done >= flushed);
        disk.set_fault(0, Fault::Fail(io::ErrorKind::StorageFull));
        append(&mut writer, 10, b"x");
        writer.flush();
        let progress = wait(&writer, &woken, |progress| progress.failure.is_some());
        assert_eq!(progress.durable, 10);
        assert_eq!(progress.low_space, Some(LowSpace { bytes: 1 << 20, is_critical: true }));
        assert!(!writer.has_room());
        append(&mut writer, 10, b"x");
        assert_eq!(writer.close().unwrap_err().kind(), CaptureErrorKind::Full);
    }

    #[test]
    fn little_space_is_reported_at_the_start_already() {
        let scratch = tempfile::tempdir().unwrap();
        for (low, critical, expected) in
            [(1 << 20, 1 << 20, None), (2 << 20, 1 << 20, Some(false)), (0, 2 << 20, Some(true))]
        {
            let settings = Settings { low_space_bytes: low, critical_space_bytes: critical, ..Settings::default() };
            let (wake, woken) = channel();
            let disk = Arc::new(FaultyDisk::default());
            let mut writer = Writer::open_on(disk, scratch.path(), settings, Box::new(wake_by(wake))).unwrap();
            if expected.is_some() {
                wait(&writer, &woken, |progress| progress.low_space.is_some());
            }
            let flushed = writer.flush();
            let progress = wait(&writer, &woken, |progress| progress.done >= flushed);
            assert_eq!(progress.low_space.map(|low_space| low_space.is_critical), expected);
            assert!(progress.low_space.is_none_or(|low_space| low_space.bytes == 1 << 20));
        }
    }

    #[test]
    fn what_has_grown_old_goes_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let keep = Keep { age: Some(Duration::from_millis(300)), bytes: None };
        let (mut writer, woken) = open(directory.path(), Settings { keep, ..Settings::default() });
        for _ in 0..3 {
            append(&mut writer, 10, b"x");
            let published = writer.publish();
            wait(&writer, &woken, |progress| progress.done >= published);
        }
        let began = Instant::now();
        // Nothing more is recorded; the latest segment stays.
        while writer.progress().deleted < 2 {
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::yield_now();
        }
        assert_eq!((info(directory.path()).segments, info(directory.path()).messages), (1, 10));
        assert_eq!(writer.close().unwrap().segments, 3);
        append(&mut open(directory.path(), Settings::default()).0, 10, b"x");
        recover(directory.path(), &|| true).unwrap();
        assert_eq!((info(directory.path()).segments, info(directory.path()).messages), (2, 20));
    }

    #[test]
    fn an_unwritable_place_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        fs::write(&file, "in the way").unwrap();
        let refused = Writer::open(&file, Settings::default(), || {}).err().unwrap();
        assert_eq!(refused.kind(), CaptureErrorKind::Unwritable);
        assert_eq!(Capture::open(PathBuf::from("nowhere")).unwrap_err().kind(), CaptureErrorKind::Missing);
        assert_eq!(Capture::open(scratch.path()).unwrap_err().kind(), CaptureErrorKind::Missing);
    }

    #[test]
    fn what_was_opened_stays_readable_while_the_writer_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, woken) = open(directory.path(), Settings::default());
        append(&mut writer, 10, b"x");
        let flushed = writer.flush();
        wait(&writer, &woken, |progress| progress.done >= flushed);
        let capture = Capture::open(directory.path()).unwrap();
        append(&mut writer, 10, b"x");
        writer.close().unwrap();
        let rows = |capture: &Capture| capture.batches().unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>();
        assert!(rows(&capture) >= 10);
        assert_eq!(rows(&capture), rows(&capture));
        assert_eq!(rows(&Capture::open(directory.path()).unwrap()), 20);
    }
}
