use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::StoreError;

const LOCK: &str = "lock";
const FILE: &str = "queues.sqlite";

/// The directory of a store, which is locked until this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The file of the store, by a path without links.
    pub(crate) file: PathBuf,
    lock: File,
    /// The directory itself, whose lock nobody can remove.
    #[cfg(unix)]
    own: File,
}

impl Directory {
    /// Makes the directory if it does not exist, and locks it.
    pub(crate) fn take(directory: &Path) -> Result<Self, StoreError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| StoreError::of_system(&path, &error)
        };
        make_directory(directory).map_err(failed(directory))?;
        // SQLite follows no link anywhere in a path, but the owner may use links above the directory.
        let directory = fs::canonicalize(directory).map_err(failed(directory))?;
        let path = directory.join(LOCK);
        let lock = locked(open_private(&path)?, &path, &directory)?;
        #[cfg(unix)]
        let own = locked(File::open(&directory).map_err(failed(&directory))?, &directory, &directory)?;
        let place = Self {
            file: directory.join(FILE),
            lock,
            #[cfg(unix)]
            own,
        };
        // Created here, so that only its owner can ever read it; SQLite copies its mode to the files beside it.
        open_private(&place.file)?;
        for beside in ["-wal", "-shm", "-journal"] {
            let beside = directory.join(format!("{FILE}{beside}"));
            if fs::symlink_metadata(&beside).is_ok_and(|found| !found.is_file()) {
                return Err(StoreError::foreign(&beside, "is not a regular file"));
            }
        }
        sync_directory(&directory).map_err(failed(&directory))?;
        Ok(place)
    }
}

impl Drop for Directory {
    /// Unlocks the directory: explicitly, since a child of this process may hold the same open file.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
        #[cfg(unix)]
        let _ = self.own.unlock();
    }
}

/// A file, locked unless another store has its lock.
fn locked(file: File, path: &Path, directory: &Path) -> Result<File, StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: directory.to_owned() }),
        Err(TryLockError::Error(error)) => Err(StoreError::of_system(path, &error)),
    }
}

/// Opens a regular file for its owner alone, and creates it if there is none.
fn open_private(path: &Path) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // Must not wait for the other end of a pipe.
        options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let opened = options.open(path).and_then(|file| {
        let is_file = file.metadata()?.is_file();
        #[cfg(unix)]
        if is_file {
            use std::os::unix::fs::PermissionsExt as _;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        Ok(is_file.then_some(file))
    });
    match opened {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(StoreError::foreign(path, "is not a regular file")),
        Err(error) if is_other(&error) => {
            Err(StoreError::foreign(path, "is a link or not a regular file, and is not opened"))
        }
        Err(error) => Err(StoreError::of_system(path, &error)),
    }
}

/// Whether something other than a file stands there.
fn is_other(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::IsADirectory
        || cfg!(unix) && matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO))
}

/// Makes a directory and its missing parents, so that they survive the loss of power.
fn make_directory(directory: &Path) -> io::Result<()> {
    let directory = std::path::absolute(directory)?;
    let missing: Vec<_> = directory.ancestors().take_while(|above| !above.exists()).collect();
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(&directory)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_directory)
}

/// Makes the names in a directory survive the loss of power, as far as the system can.
fn sync_directory(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}
