use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use trunkline_wire::system_words;

/// Why contents cannot be kept, or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// Another process, or another store of this one, has the directory.
    InUse { path: PathBuf },
    /// The file is no store, a damaged one, or one of a later version.
    Foreign {
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// The disk, the quota or the file size limit is exhausted.
    Full {
        path: PathBuf,
        /// The system's words for it.
        what: String,
    },
    /// The system refused to read or to write.
    Failed {
        path: PathBuf,
        /// Its words for it.
        what: String,
    },
    /// A content was put into an undefined queue.
    NoQueue,
}

impl StoreError {
    pub(crate) fn foreign(path: &Path, what: impl Into<String>) -> Self {
        Self::Foreign { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn of_system(path: &Path, error: &io::Error) -> Self {
        let (path, what) = (path.to_owned(), system_words(error));
        let is_full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        if is_full { Self::Full { path, what } } else { Self::Failed { path, what } }
    }

    pub(crate) fn of_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        let (path, what) = (path.to_owned(), printable(&error.to_string()));
        if matches!(error, E::FromSqlConversionFailure(..) | E::IntegralValueOutOfRange(..) | E::InvalidColumnType(..))
        {
            return Self::Foreign { path, what: format!("is damaged: {what}") };
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) => Self::InUse { path },
            Some(ErrorCode::NotADatabase) => Self::foreign(&path, "is not an SQLite database"),
            Some(ErrorCode::DatabaseCorrupt) => Self::Foreign { path, what: format!("is damaged: {what}") },
            Some(ErrorCode::DiskFull) => Self::Full { path, what },
            Some(ErrorCode::ConstraintViolation) => Self::NoQueue,
            _ => Self::Failed { path, what },
        }
    }
}

/// Text that may come from a file: characters that a terminal would interpret are escaped.
fn printable(words: &str) -> String {
    let mut printable = String::with_capacity(words.len());
    for letter in words.chars() {
        if letter.is_control() { printable.extend(letter.escape_default()) } else { printable.push(letter) }
    }
    printable
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path } => write!(f, "{} is in use by another server", path.display()),
            Self::Foreign { path, what } => write!(f, "{} {what}", path.display()),
            Self::Full { path, what } => write!(f, "{} cannot grow: {what}", path.display()),
            Self::Failed { path, what } => write!(f, "{} cannot be used: {what}", path.display()),
            Self::NoQueue => f.write_str("no such queue"),
        }
    }
}

impl Error for StoreError {}
