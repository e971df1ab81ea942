//! A file that is read at any place by any number of readers, and never past its end.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};

/// How much is read at a time of what is read in order.
const BUFFER_BYTES: usize = 1 << 20;
/// How much of a column is read at a time.
const COLUMN_BUFFER_BYTES: usize = 8 << 10;

/// What can be read at a place without anybody's place moving.
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

/// An open file. It stays readable when its name is gone.
#[derive(Clone)]
pub(crate) struct Source {
    file: Arc<dyn ReadAt>,
    bytes: u64,
}

impl Source {
    /// A file with so many bytes, as far as it was written when it was opened.
    pub(crate) fn new(file: impl ReadAt + 'static, bytes: u64) -> Self {
        Self { file: Arc::new(file), bytes }
    }

    /// Reads it from its start to where it ends by then.
    pub(crate) fn reader(&self) -> BufReader<SourceReader> {
        BufReader::with_capacity(BUFFER_BYTES, self.at(0))
    }

    /// All of it, unless it has more than `most` bytes.
    pub(crate) fn read_all(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut contents = Vec::new();
        self.at(0).take(most + 1).read_to_end(&mut contents)?;
        if contents.len() as u64 > most {
            let what = format!("has more than the {most} bytes that such a file may have");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(contents)
    }

    fn at(&self, at: u64) -> SourceReader {
        SourceReader { file: Arc::clone(&self.file), at }
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

/// A place in a file.
pub(crate) struct SourceReader {
    file: Arc<dyn ReadAt>,
    at: u64,
}

impl Read for SourceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
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

    /// What the file says of its own lengths is no reason to find room for them.
    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are not there")));
        }
        let mut bytes = vec![0; length];
        self.at(start).read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}
