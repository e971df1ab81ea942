//! A file that any number of readers read at any position, and never past its end.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};

use crate::CaptureError;

/// The buffer for reading in order.
const BUFFER_BYTES: usize = 1 << 20;
/// The buffer for reading a column.
const COLUMN_BUFFER_BYTES: usize = 8 << 10;

/// The largest piece of a segment that a writer makes: a column of one message, or of a row group.
const PIECE_BYTES_MAX: u64 = 4 << 30;

/// Reads at a position, without a shared position.
pub(crate) trait ReadAt: Send + Sync {
    /// Reads some bytes; none at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buffer, at)
    }

    #[cfg(windows)]
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, buffer, at)
    }
}

impl ReadAt for Bytes {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

/// An open file. It stays readable after its removal.
#[derive(Clone)]
pub(crate) struct Source {
    file: Arc<Watched>,
    bytes: u64,
}

/// A file that keeps its error, which a library's error may hold only as text.
struct Watched {
    file: Box<dyn ReadAt>,
    error: Mutex<Option<io::Error>>,
}

impl ReadAt for Watched {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                let words = || io::Error::new(error.kind(), error.to_string());
                let same = error.raw_os_error().map_or_else(words, io::Error::from_raw_os_error);
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(same);
            }
        })
    }
}

impl Source {
    /// A file with so many bytes, as it was when it was opened.
    pub(crate) fn new(file: impl ReadAt + 'static, bytes: u64) -> Self {
        Self { file: Arc::new(Watched { file: Box::new(file), error: Mutex::default() }), bytes }
    }

    /// The cause of a library's error: the disk, or the contents of the file.
    pub(crate) fn failure(&self, path: &Path, error: impl fmt::Display) -> CaptureError {
        match self.file.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => CaptureError::reading(path, error),
            None => CaptureError::corrupt(path, error),
        }
    }

    /// The bytes it had when it was opened.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads it from its start to the end it had when it was opened.
    pub(crate) fn reader(&self) -> BufReader<SourceReader> {
        BufReader::with_capacity(BUFFER_BYTES, self.at(0))
    }

    /// All of it, unless it has more than `most` bytes.
    pub(crate) fn read_all(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut contents = Vec::new();
        self.at(0).take(most + 1).read_to_end(&mut contents)?;
        if contents.len() as u64 > most {
            let what = format!("is larger than the {most} bytes such a file may have");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(contents)
    }

    pub(crate) fn at(&self, at: u64) -> SourceReader {
        SourceReader { file: Arc::clone(&self.file), at, end: self.bytes }
    }
}

impl From<Bytes> for Source {
    fn from(bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        Self::new(bytes, length)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A position in a file, and the end that it had when it was opened: a writer may go on.
pub(crate) struct SourceReader {
    file: Arc<Watched>,
    at: u64,
    end: u64,
}

impl Read for SourceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..length], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Source {
    type T = BufReader<SourceReader>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(BufReader::with_capacity(COLUMN_BUFFER_BYTES, self.at(start)))
    }

    /// The lengths that a file claims must not determine allocations.
    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let is_there = start.checked_add(length as u64).is_some_and(|end| end <= self.bytes);
        if !is_there || length as u64 > PIECE_BYTES_MAX {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are missing")));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|error| ParquetError::External(Box::new(error)))?;
        bytes.resize(length, 0);
        self.at(start).read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_there_is() {
        let source = Source::from(Bytes::from_static(b"abcdef"));
        assert_eq!(source.get_bytes(2, 4).unwrap(), "cdef");
        for (start, length) in [(2, 5), (7, 0), (0, usize::MAX), (u64::MAX, 2)] {
            assert!(source.get_bytes(start, length).is_err(), "{length} at {start}");
        }
        // A sparse file, which takes no room on the disk.
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let sparse = Source::new(file, 1 << 40);
        assert!(sparse.get_bytes(0, 1 << 39).is_err());
        assert_eq!(sparse.read_all(10).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(source.read_all(6).unwrap(), b"abcdef");
        let opened = Source::new(Bytes::from_static(b"abcdef"), 4);
        assert_eq!(opened.read_all(6).unwrap(), b"abcd");
    }
}
