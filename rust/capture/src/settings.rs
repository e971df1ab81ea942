use std::time::Duration;

/// How a [`Writer`](crate::Writer) uses memory, disk and time.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Upper bound of the uncompressed frame bytes of a segment; one larger message is taken alone.
    pub segment_bytes: u64,
    /// A segment is published when its first row is this old.
    pub segment_age: Duration,
    /// The journal is synced when this much was appended to it.
    pub sync_bytes: u64,
    /// A row is durable at the latest this long after it was appended, on a disk that keeps up.
    pub sync_interval: Duration,
    /// Upper bound of the rows pending in memory for the disk; past it [`Writer::has_room`](crate::Writer::has_room) is
    /// false.
    pub backlog_bytes: u64,
    /// How much of what is published is kept.
    pub keep: Keep,
    /// Less free space than this is reported as [`Progress::low_space`](crate::Progress::low_space).
    pub low_space_bytes: u64,
    /// Less than this is reported as critical.
    pub critical_space_bytes: u64,
    /// The permissions of new files and directories.
    pub access: Access,
}

/// The permissions of new files and directories. Existing ones keep theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// As the process's umask allows.
    #[default]
    Umask,
    /// For the process's user only, if files have such modes.
    Private,
}

impl Access {
    /// The same as the files in a directory have, for files that another process adds later.
    #[cfg(unix)]
    pub(crate) fn of(directory: &std::path::Path) -> Self {
        use std::os::unix::fs::PermissionsExt as _;

        // No bit is set for the group and for others.
        let is_private = |metadata: std::fs::Metadata| metadata.permissions().mode().trailing_zeros() >= 6;
        if std::fs::metadata(directory).is_ok_and(is_private) { Self::Private } else { Self::Umask }
    }

    #[cfg(not(unix))]
    pub(crate) fn of(_directory: &std::path::Path) -> Self {
        Self::Umask
    }
}

#[cfg(unix)]
impl Access {
    pub(crate) const fn file_mode(self) -> u32 {
        match self {
            Self::Umask => 0o666,
            Self::Private => 0o600,
        }
    }

    pub(crate) const fn directory_mode(self) -> u32 {
        match self {
            Self::Umask => 0o777,
            Self::Private => 0o700,
        }
    }
}

/// How much of what is published is kept: of both limits the stricter one. Segments are deleted whole, the oldest
/// first; the latest one stays, and so do all from the BOR of an open run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The bytes that all segments may take on disk.
    pub bytes: Option<u64>,
    /// The most time since a segment was published.
    pub age: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            segment_bytes: 256 << 20,
            segment_age: Duration::from_secs(60),
            sync_bytes: 64 << 20,
            sync_interval: Duration::from_secs(1),
            backlog_bytes: 64 << 20,
            keep: Keep::default(),
            low_space_bytes: 10 << 30,
            critical_space_bytes: 3 << 30,
            access: Access::default(),
        }
    }
}
