//! A disk in memory: any call can be the last, can fail, and can be lost with the power.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::disk::{Disk, DiskFile, Files};
use crate::source::{ReadAt, Source};

/// The fault of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It and all after it are never made; a write may have begun.
    Stop,
    /// It fails, once.
    Fail(io::ErrorKind),
}

/// What a crash loses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// The process alone: all that was written stays.
    Process,
    /// The power: file data that was not synced.
    Data,
    /// The power: names that were not synced.
    Names,
    /// The power: both.
    DataAndNames,
}

impl Loss {
    pub(crate) const ALL: [Self; 4] = [Self::Process, Self::Data, Self::Names, Self::DataAndNames];
}

#[derive(Clone, Default)]
pub(crate) struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<u64, Contents>,
    names: BTreeMap<PathBuf, u64>,
    synced_names: BTreeMap<PathBuf, u64>,
    calls: usize,
    fault: Option<(usize, Fault)>,
    reads: usize,
    read_fault: Option<usize>,
}

#[derive(Clone, Default)]
struct Contents {
    data: Vec<u8>,
    synced: usize,
}

struct FaultyFile {
    disk: FaultyDisk,
    file: u64,
}

impl FaultyDisk {
    /// Sets a fault of the call with this number, counted from here.
    pub(crate) fn set_fault(&self, call: usize, fault: Fault) {
        let mut state = self.state();
        state.calls = 0;
        state.fault = Some((call, fault));
    }

    /// Fails the read with this number, counted from here.
    pub(crate) fn set_read_fault(&self, read: usize) {
        let mut state = self.state();
        state.reads = 0;
        state.read_fault = Some(read);
    }

    /// The reads since the fault was set, or at all.
    pub(crate) fn reads(&self) -> usize {
        self.state().reads
    }

    /// The calls made since the fault was set, or at all.
    pub(crate) fn calls(&self) -> usize {
        self.state().calls
    }

    /// The disk as the next start finds it.
    pub(crate) fn after(&self, loss: Loss) -> Self {
        let state = self.state();
        let [keeps_data, keeps_names] = match loss {
            Loss::Process => [true, true],
            Loss::Data => [false, true],
            Loss::Names => [true, false],
            Loss::DataAndNames => [false, false],
        };
        let names = if keeps_names { &state.names } else { &state.synced_names }.clone();
        let mut files = state.files.clone();
        for file in files.values_mut() {
            if !keeps_data {
                file.data.truncate(file.synced);
            }
            file.synced = file.data.len();
        }
        let state = State { files, synced_names: names.clone(), names, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn contents(&self, path: &Path) -> Vec<u8> {
        let state = self.state();
        state.files[&state.names[path]].data.clone()
    }

    pub(crate) fn set_contents(&self, path: &Path, data: Vec<u8>) {
        let mut state = self.state();
        let file = state.names[path];
        state.files.insert(file, Contents { synced: data.len(), data });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Counts a call, which the fault may stop.
    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        let call = state.calls;
        state.calls += 1;
        match state.fault {
            Some((at, Fault::Stop)) if call >= at => Err(io::Error::other("stopped")),
            Some((at, Fault::Fail(kind))) if call == at => Err(kind.into()),
            _ => Ok(state),
        }
    }
}

impl FaultyDisk {
    /// Counts a read, which the disk may refuse.
    fn read(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        let read = state.reads;
        state.reads += 1;
        if state.read_fault == Some(read) { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(state) }
    }
}

/// A file being read.
struct FaultyBytes {
    disk: FaultyDisk,
    bytes: Bytes,
}

impl ReadAt for FaultyBytes {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        drop(self.disk.read()?);
        self.bytes.read_at(buffer, at)
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Files for FaultyDisk {
    fn open(&self, path: &Path) -> io::Result<Source> {
        let state = self.read()?;
        let file = state.names.get(path).ok_or_else(missing)?;
        let bytes = Bytes::from(state.files[file].data.clone());
        let length = bytes.len() as u64;
        Ok(Source::new(FaultyBytes { disk: self.clone(), bytes }, length))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.read()?;
        let names = state.names.keys().filter_map(|path| path.strip_prefix(directory).ok()?.to_str());
        Ok(names.map(str::to_owned).collect())
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.call()?;
        let file = state.files.len() as u64;
        state.files.insert(file, Contents::default());
        state.names.insert(path.to_owned(), file);
        drop(state);
        Ok(Box::new(FaultyFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.call()?;
        let file = state.names.remove(from).ok_or_else(missing)?;
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call()?;
        state.names.remove(path).map(drop).ok_or_else(missing)
    }

    /// Files are made a second apart.
    fn size_and_time(&self, path: &Path) -> io::Result<(u64, SystemTime)> {
        let state = self.read()?;
        let file = state.names.get(path).ok_or_else(missing)?;
        Ok((state.files[file].data.len() as u64, UNIX_EPOCH + Duration::from_secs(*file)))
    }

    /// Directories exist as soon as a file in them does.
    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        self.call().map(drop)
    }

    fn remove_directory(&self, _path: &Path) -> io::Result<()> {
        self.call().map(drop)
    }

    fn sync_directory(&self, _directory: &Path) -> io::Result<()> {
        let mut state = self.call()?;
        state.synced_names = state.names.clone();
        Ok(())
    }

    fn free_bytes(&self, _directory: &Path) -> Option<u64> {
        Some(1 << 20)
    }
}

impl Write for FaultyFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.disk.call().map(|_| buffer.len());
        let mut state = self.disk.state();
        let reached = match (&written, state.fault) {
            (Err(_), Some((at, Fault::Stop))) if at + 1 < state.calls => 0,
            (Err(_), _) => buffer.len() / 2,
            (Ok(length), _) => *length,
        };
        if let Some(file) = state.files.get_mut(&self.file) {
            file.data.extend_from_slice(&buffer[..reached]);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for FaultyFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.call()?;
        if let Some(file) = state.files.get_mut(&self.file) {
            file.synced = file.data.len();
        }
        Ok(())
    }
}
