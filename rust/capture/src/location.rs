//! The location of a capture that is only read: a directory of this machine, or a name in an object store.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::disk::Files;
use crate::files::Span;
use crate::local::LocalDisk;
use crate::source::{ReadAt, Source};
use crate::{Access, CaptureError};

/// The bytes of an object that are read at a time: each read is a request, which takes as long as a megabyte does.
const BLOCK_BYTES: u64 = 4 << 20;

/// The blocks of an object that are kept, for reads of several columns at once.
const BLOCKS: usize = 16;

/// Objects by the names below a root. A name that does not exist is [`io::ErrorKind::NotFound`].
pub trait ObjectStore: Send + Sync {
    /// Opens an object for reading. If its bytes are known, this may ask nothing: then a missing one shows when it is read.
    fn open(&self, name: &str, bytes: Option<u64>) -> io::Result<Box<dyn Object>>;
    /// The bytes of an object.
    fn size(&self, name: &str) -> io::Result<u64>;
    /// The names below a folder, without those in its folders, those of objects with their bytes; none if the folder does
    /// not exist.
    fn list(&self, folder: &str) -> io::Result<Vec<(String, Option<u64>)>>;
}

/// An object that can be read.
pub trait Object: Send + Sync {
    /// Its bytes.
    fn size(&self) -> u64;
    /// The bytes from a position on, up to this length or the end.
    fn read(&self, at: u64, length: usize) -> io::Result<Bytes>;
}

/// The location of a capture.
#[derive(Clone)]
pub struct Location {
    root: PathBuf,
    store: Option<Arc<dyn ObjectStore>>,
}

impl Location {
    /// A location in a store; `root` is its name for users.
    pub fn in_store(root: impl Into<PathBuf>, store: Arc<dyn ObjectStore>) -> Self {
        Self { root: root.into(), store: Some(store) }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory, if it is one of this machine.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.store.is_none().then_some(&*self.root)
    }

    /// The same as `files`, with the bytes of some segments, which a store is then not asked for.
    pub(crate) fn files_with(&self, sizes: impl Iterator<Item = (Span, u64)>) -> Result<Arc<dyn Files>, CaptureError> {
        let Some(store) = &self.store else { return self.files() };
        let files = StoreFiles::new(&self.root, store);
        files.known().extend(sizes.map(|(span, bytes)| (span.file(), bytes)));
        Ok(Arc::new(files))
    }

    pub(crate) fn files(&self) -> Result<Arc<dyn Files>, CaptureError> {
        match &self.store {
            Some(store) => Ok(Arc::new(StoreFiles::new(&self.root, store))),
            None => match LocalDisk::open(&self.root, Access::Umask) {
                Ok(disk) => Ok(Arc::new(disk)),
                Err(error) => Err(CaptureError::reading(&self.root, error)),
            },
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Location").field(&self.root).finish()
    }
}

impl From<&Path> for Location {
    fn from(directory: &Path) -> Self {
        Self { root: directory.to_owned(), store: None }
    }
}

impl From<&PathBuf> for Location {
    fn from(directory: &PathBuf) -> Self {
        Self::from(directory.as_path())
    }
}

impl From<PathBuf> for Location {
    fn from(root: PathBuf) -> Self {
        Self { root, store: None }
    }
}

impl From<&Self> for Location {
    fn from(location: &Self) -> Self {
        location.clone()
    }
}

/// The objects of a store as files below a directory.
struct StoreFiles {
    root: PathBuf,
    store: Arc<dyn ObjectStore>,
    /// The bytes of segments, which do not change.
    known: Mutex<HashMap<String, u64>>,
}

impl StoreFiles {
    fn new(root: &Path, store: &Arc<dyn ObjectStore>) -> Self {
        Self { root: root.to_owned(), store: Arc::clone(store), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, path: &Path) -> io::Result<String> {
        let below = path.strip_prefix(&self.root).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(below.to_string_lossy().into_owned())
    }
}

impl Files for StoreFiles {
    fn open(&self, path: &Path) -> io::Result<Source> {
        let name = self.name(path)?;
        let known = self.known().get(&name).copied();
        let object = self.store.open(&name, known)?;
        let bytes = object.size();
        let blocks = Blocks { object, kept: Mutex::default() };
        if known.is_some() && bytes > 0 {
            // Its end is needed first, and shows whether it is still there.
            blocks.block((bytes - 1) / BLOCK_BYTES)?;
        }
        Ok(Source::new(blocks, bytes))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        let name = self.name(path)?;
        let known = self.known().get(&name).copied();
        known.map_or_else(|| self.store.size(&name), Ok)
    }

    fn is_far(&self) -> bool {
        true
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let listed = self.store.list(&self.name(directory)?)?;
        if directory == self.root {
            let is_segment = |name: &str| name.strip_suffix(".parquet").is_some_and(|name| Span::named(name).is_some());
            let mut known = self.known();
            known.clear();
            known.extend(
                listed
                    .iter()
                    .filter_map(|(name, bytes)| bytes.filter(|_| is_segment(name)).map(|bytes| (name.clone(), bytes))),
            );
        }
        Ok(listed.into_iter().map(|(name, _)| name).collect())
    }
}

/// An object that is read in blocks, the latest of which are kept.
struct Blocks {
    object: Box<dyn Object>,
    /// The latest one is last.
    kept: Mutex<Vec<(u64, Bytes)>>,
}

impl Blocks {
    fn block(&self, number: u64) -> io::Result<Bytes> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, block)) = kept().iter().find(|(at, _)| *at == number) {
            return Ok(block.clone());
        }
        // Others must not wait meanwhile: they may hold what this read needs, for example the lock of an interpreter.
        let at = number * BLOCK_BYTES;
        let length = self.object.size().saturating_sub(at).min(BLOCK_BYTES);
        let block = self.object.read(at, usize::try_from(length).unwrap_or_default())?;
        if (block.len() as u64) < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut kept = kept();
        if kept.len() == BLOCKS {
            kept.remove(0);
        }
        kept.push((number, block.clone()));
        Ok(block)
    }
}

impl ReadAt for Blocks {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        if buffer.is_empty() || at >= self.object.size() {
            return Ok(0);
        }
        self.block(at / BLOCK_BYTES)?.read_at(buffer, at % BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use arrow_array::cast::AsArray as _;
    use arrow_array::types::Int64Type;

    use super::*;
    use crate::{Capture, CaptureErrorKind, Import, Selection, Settings, compact, published, segments, verify};

    /// The files of a directory as objects, and the sizes of the reads from them.
    struct Directory(PathBuf, Arc<Mutex<Vec<usize>>>);

    struct InMemory(Bytes, Arc<Mutex<Vec<usize>>>);

    impl ObjectStore for Directory {
        fn open(&self, name: &str, _bytes: Option<u64>) -> io::Result<Box<dyn Object>> {
            let bytes = fs::read(self.0.join(name))?;
            Ok(Box::new(InMemory(bytes.into(), Arc::clone(&self.1))))
        }

        fn size(&self, name: &str) -> io::Result<u64> {
            self.1.lock().unwrap().push(0);
            fs::metadata(self.0.join(name)).map(|metadata| metadata.len())
        }

        fn list(&self, folder: &str) -> io::Result<Vec<(String, Option<u64>)>> {
            let Ok(entries) = fs::read_dir(self.0.join(folder)) else { return Ok(Vec::new()) };
            let entries = entries.map(|entry| {
                let entry = entry?;
                let metadata = entry.metadata()?;
                Ok((entry.file_name().into_string().unwrap_or_default(), metadata.is_file().then_some(metadata.len())))
            });
            entries.collect()
        }
    }

    impl Object for InMemory {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn read(&self, at: u64, length: usize) -> io::Result<Bytes> {
            self.1.lock().unwrap().push(length);
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            Ok(self.0.slice(at..(at + length).min(self.0.len())))
        }
    }

    fn recorded(directory: &Path, rows: i64) {
        let mut import = Import::open(directory, Settings { segment_bytes: 1000, ..Settings::default() }).unwrap();
        for at in 0..rows {
            import.append(&crate::import::row(at)).unwrap();
        }
        import.commit().unwrap();
    }

    #[test]
    fn a_store_is_read_as_a_directory_is() {
        let scratch = tempfile::tempdir().unwrap();
        recorded(scratch.path(), 500);
        let reads = Arc::default();
        let store = Arc::new(Directory(scratch.path().to_owned(), Arc::clone(&reads)));
        let location = Location::in_store("s3://lab/runs", store);
        let (there, here) = (Capture::open(&location).unwrap(), Capture::open(scratch.path()).unwrap());
        assert_eq!(there.info().unwrap(), here.info().unwrap());
        assert_eq!(there.runs().unwrap(), here.runs().unwrap());
        assert_eq!(published(&location).unwrap(), published(scratch.path()).unwrap());
        let rows = |capture: &Capture| capture.batches().unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(rows(&there), rows(&here));
        assert_eq!(verify(&location, &|| true).unwrap(), verify(scratch.path(), &|| true).unwrap());
        // A small object is read at once, however much of it is needed.
        reads.lock().unwrap().clear();
        assert_eq!(rows(&there.parts()[0]).len(), 1);
        assert_eq!(reads.lock().unwrap().len(), 1);
        // Each segment takes one request, if its size is known from a listing.
        let known = segments(&location, None, 0).unwrap();
        let spans: Vec<_> = known.iter().map(|known| (known.first, known.last)).collect();
        let sizes: Vec<_> = known.iter().map(|known| known.bytes).collect();
        let known = Capture::of_known(&location, &spans, &sizes, None).unwrap();
        reads.lock().unwrap().clear();
        assert_eq!(rows(&known), rows(&here));
        assert_eq!(reads.lock().unwrap().len(), spans.len());
        assert!(known.gone().is_empty());
    }

    #[test]
    fn what_is_gone_is_passed_over_where_that_is_no_error() {
        let scratch = tempfile::tempdir().unwrap();
        recorded(scratch.path(), 500);
        let store = Arc::new(Directory(scratch.path().to_owned(), Arc::default()));
        let spans = published(scratch.path()).unwrap();
        let sizes = vec![1 << 10; spans.len()];
        let seqs = |capture: &Capture| -> Vec<i64> {
            let batches = capture.columns(&["seq"], Selection::default()).unwrap().map(Result::unwrap);
            batches.flat_map(|batch| batch["seq"].as_primitive::<Int64Type>().values().to_vec()).collect()
        };
        let segment = |number: u64| seqs(&Capture::of(scratch.path(), &[(number, number)]).unwrap());
        let expected: Vec<i64> = seqs(&Capture::open(scratch.path()).unwrap());
        let expected: Vec<i64> = expected.into_iter().filter(|seq| !segment(2).contains(seq)).collect();
        fs::remove_file(scratch.path().join(crate::files::segment(2))).unwrap();
        for location in [Location::in_store("s3://lab/runs", store), Location::from(scratch.path())] {
            let opened = Capture::of_known(&location, &spans, &sizes, None).unwrap();
            assert_eq!(seqs(&opened), expected);
            assert_eq!(opened.gone(), [(2, 2)]);
            assert_eq!(
                Capture::of(&location, &spans).unwrap().batches().unwrap().find_map(Result::err).unwrap().kind(),
                CaptureErrorKind::Missing
            );
        }
        compact(scratch.path(), 1 << 20, &|| true).unwrap();
        let merged = Capture::of_known(scratch.path(), &spans, &sizes, None).unwrap();
        assert_eq!(seqs(&merged), expected);
        assert_eq!(merged.gone(), [(2, 2)]);
    }

    #[test]
    fn what_is_no_capture_is_reported() {
        let scratch = tempfile::tempdir().unwrap();
        let location = |name: &str| {
            Location::in_store(format!("s3://{name}"), Arc::new(Directory(scratch.path().join(name), Arc::default())))
        };
        fs::create_dir(scratch.path().join("other")).unwrap();
        fs::write(scratch.path().join("other/photo.jpg"), "").unwrap();
        for (name, what) in [("nowhere", "contains no capture"), ("other", "it contains photo.jpg")] {
            let error = Capture::open(location(name)).unwrap_err();
            assert_eq!(error.kind(), CaptureErrorKind::Missing);
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn an_object_is_read_in_blocks() {
        let length = usize::try_from(2 * BLOCK_BYTES + 10).unwrap();
        let bytes: Bytes = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<_>>().into();
        let reads = Arc::default();
        let blocks = Blocks { object: Box::new(InMemory(bytes.clone(), Arc::clone(&reads))), kept: Mutex::default() };
        let source = Source::new(blocks, length as u64);
        assert_eq!(source.read_all(1 << 30).unwrap(), bytes);
        assert_eq!(*reads.lock().unwrap(), [4 << 20, 4 << 20, 10]);
        let short = Blocks { object: Box::new(Short), kept: Mutex::default() };
        assert_eq!(short.read_at(&mut [0; 4], 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    /// Its size is larger than its contents.
    struct Short;

    impl Object for Short {
        fn size(&self) -> u64 {
            100
        }

        fn read(&self, _at: u64, _length: usize) -> io::Result<Bytes> {
            Ok(Bytes::new())
        }
    }
}
