use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::ArrowError;
use trunkline_wire::system_words;

/// The kind of an error of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureErrorKind {
    /// A file of the capture does not hold what it should.
    Corrupt,
    /// The disk, the quota or the file size limit is exhausted.
    Full,
    /// Another writer holds the directory.
    Locked,
    /// There is no capture at this place.
    Missing,
    /// A value is larger than the reader's limit.
    TooLarge,
    /// The disk refused a read.
    Unreadable,
    /// The disk refused a write, a rename or a sync.
    Unwritable,
}

impl CaptureErrorKind {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 7] =
        [Self::Corrupt, Self::Full, Self::Locked, Self::Missing, Self::TooLarge, Self::Unreadable, Self::Unwritable];

    /// The kind's stable identifier.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::Full => "full",
            Self::Locked => "locked",
            Self::Missing => "missing",
            Self::TooLarge => "too_large",
            Self::Unreadable => "unreadable",
            Self::Unwritable => "unwritable",
        }
    }
}

/// Why a capture cannot be written or read.
#[derive(Clone, Debug)]
pub struct CaptureError {
    kind: CaptureErrorKind,
    path: PathBuf,
    what: String,
    source: Option<Arc<io::Error>>,
}

impl CaptureError {
    pub(crate) fn new(kind: CaptureErrorKind, path: &Path, what: impl Into<String>) -> Self {
        Self { kind, path: path.to_owned(), what: what.into(), source: None }
    }

    /// Text that may come from a file: characters that a terminal, or C, would interpret are escaped.
    pub(crate) fn corrupt(path: &Path, what: impl fmt::Display) -> Self {
        let mut words = String::new();
        for letter in what.to_string().chars() {
            if letter.is_control() { words.extend(letter.escape_default()) } else { words.push(letter) }
        }
        Self::new(CaptureErrorKind::Corrupt, path, words)
    }

    pub(crate) fn newer(path: &Path) -> Self {
        Self::corrupt(path, "was written by a newer trunkline: install its version, or a later one")
    }

    pub(crate) fn too_large(path: &Path, bytes: u64, most: u64) -> Self {
        let what = format!("a value may have {bytes} bytes, more than {most}: set max_message_bytes= to read it");
        Self::new(CaptureErrorKind::TooLarge, path, what)
    }

    pub(crate) fn reading(path: &Path, error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            return Self::corrupt(path, error);
        }
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        let kind = if is_missing { CaptureErrorKind::Missing } else { CaptureErrorKind::Unreadable };
        let what = if is_missing { "does not exist" } else { "cannot be read" };
        Self { kind, path: path.to_owned(), what: what.into(), source: Some(Arc::new(error)) }
    }

    pub(crate) fn writing(path: &Path, error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            return Self::corrupt(path, error);
        }
        let full = [
            (io::ErrorKind::StorageFull, "the disk is full"),
            (io::ErrorKind::QuotaExceeded, "the disk quota is used up"),
            (io::ErrorKind::FileTooLarge, "the file size limit is reached"),
        ];
        let (kind, what) = match full.into_iter().find(|(kind, _)| *kind == error.kind()) {
            Some((_, what)) => (CaptureErrorKind::Full, what),
            None => (CaptureErrorKind::Unwritable, "cannot be written"),
        };
        Self { kind, path: path.to_owned(), what: what.into(), source: Some(Arc::new(error)) }
    }

    pub(crate) fn columns(path: &Path, error: &ArrowError) -> Self {
        Self::corrupt(path, error)
    }

    pub fn kind(&self) -> CaptureErrorKind {
        self.kind
    }

    /// The description of the error.
    pub fn what(&self) -> String {
        match &self.source {
            Some(source) => format!("{} ({})", self.what, system_words(source)),
            None => self.what.clone(),
        }
    }

    /// The file or directory of the error.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what())
    }
}

impl Error for CaptureError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
