//! The file system of the machine, below one directory.
//!
//! Each call walks from the directory that was opened at the start, one name at a time, and follows no link: a user
//! with write access to a capture cannot make it read or write outside of it, not even by exchanging names in between.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::dir::Dir;
use nix::errno::Errno;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::disk::{Disk, DiskFile, Files};
use crate::settings::Access;
use crate::source::Source;

const IS_LINK: &str = "is a symbolic link, and links are not followed";
const IS_IRREGULAR: &str = "is not a regular file";

/// A directory, by its descriptor, and what is in it.
#[derive(Debug)]
pub(crate) struct LocalDisk {
    root: PathBuf,
    directory: OwnedFd,
    access: Access,
}

/// The directory in which a name is looked up.
enum Parent<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(directory) => *directory,
            Self::Below(directory) => directory.as_fd(),
        }
    }
}

impl LocalDisk {
    /// Opens a directory. All later paths begin with this one.
    pub(crate) fn open(root: &Path, access: Access) -> io::Result<Self> {
        let flags = (OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).bits();
        let directory = OpenOptions::new().read(true).custom_flags(flags).open(root)?;
        Ok(Self { root: root.to_owned(), directory: directory.into(), access })
    }

    /// The directory of the last name of a path, and that name.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(Parent<'_>, &'a OsStr)> {
        let below = path.strip_prefix(&self.root).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut names = below.iter();
        let last = names.next_back().unwrap_or_else(|| OsStr::new("."));
        let mut parent = Parent::Root(self.directory.as_fd());
        for name in names {
            parent = Parent::Below(open_directory(&parent, name)?);
        }
        Ok((parent, last))
    }

    fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let (parent, name) = self.parent(path)?;
        open_directory(&parent, name)
    }
}

fn open_directory(parent: &impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::empty()).map_err(|error| {
        let is_other = matches!(error, Errno::ENOTDIR | Errno::ELOOP);
        if is_other { unusable(&format!("{} is not a directory", name.display())) } else { error.into() }
    })
}

fn unusable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn need_regular(stat: &FileStat) -> io::Result<()> {
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => Ok(()),
        SFlag::S_IFLNK => Err(unusable(IS_LINK)),
        _ => Err(unusable(IS_IRREGULAR)),
    }
}

fn size(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

/// Opens a file that must be regular: anything else may have effects, or no end.
fn open_regular(parent: &impl AsFd, name: &OsStr, flags: OFlag, mode: Mode) -> io::Result<(File, u64)> {
    // Must not wait for the other end of a pipe.
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = openat(parent, name, flags, mode).map_err(|error| {
        if error == Errno::ELOOP {
            unusable(IS_LINK)
        } else if matches!(error, Errno::ENXIO | Errno::EISDIR) {
            unusable(IS_IRREGULAR)
        } else {
            error.into()
        }
    })?;
    let stat = nix::sys::stat::fstat(&file)?;
    need_regular(&stat)?;
    Ok((file.into(), size(&stat)))
}

/// Opens what a writer locks: the directory, and the file of that name in it.
pub(crate) fn open_lock(directory: &Path, name: &str, access: Access) -> io::Result<(Option<File>, File)> {
    let place = LocalDisk::open(directory, access)?.directory;
    let flags = OFlag::O_RDWR | OFlag::O_CREAT;
    let (file, _) = open_regular(&place, OsStr::new(name), flags, mode(access.file_mode()))?;
    Ok((Some(place.into()), file))
}

/// Opens the file that a writer has locked, or had.
pub(crate) fn open_locked(directory: &Path, name: &str) -> io::Result<File> {
    let place = LocalDisk::open(directory, Access::Umask)?.directory;
    open_regular(&place, OsStr::new(name), OFlag::O_RDONLY, Mode::empty()).map(|(file, _)| file)
}

/// Makes a directory and its missing parents.
pub(crate) fn make_directory(directory: &Path, access: Access) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(access.directory_mode()).create(directory)
}

/// Exchanges the names of two directories atomically.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE)?)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl DiskFile for File {
    fn sync(&mut self) -> io::Result<()> {
        // The size of a file that grew is part of what `sync_data` writes.
        self.sync_data()
    }
}

impl Files for LocalDisk {
    fn open(&self, path: &Path) -> io::Result<Source> {
        let (parent, name) = self.parent(path)?;
        let (file, bytes) = open_regular(&parent, name, OFlag::O_RDONLY, Mode::empty())?;
        Ok(Source::new(file, bytes))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::from_fd(self.directory(directory)?)?.iter() {
            // A name that is not UTF-8 is not ours.
            names.extend(
                entry?.file_name().to_str().ok().filter(|name| !matches!(*name, "." | "..")).map(str::to_owned),
            );
        }
        Ok(names)
    }
}

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let (parent, name) = self.parent(path)?;
        // The old file is removed first: writing into it would also write to its other names.
        match unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let (file, _) = open_regular(&parent, name, flags, mode(self.access.file_mode()))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_parent, from) = self.parent(from)?;
        let (to_parent, to) = self.parent(to)?;
        Ok(renameat(&from_parent, from, &to_parent, to)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir)?)
    }

    fn size_and_time(&self, path: &Path) -> io::Result<(u64, SystemTime)> {
        let (parent, name) = self.parent(path)?;
        let stat = fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        need_regular(&stat)?;
        let since_1970 = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or_default());
        let nanoseconds = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or_default());
        let written = UNIX_EPOCH.checked_add(since_1970 + nanoseconds).unwrap_or(UNIX_EPOCH);
        Ok((size(&stat), written))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        match mkdirat(&parent, name, mode(self.access.directory_mode())) {
            Ok(()) => Ok(()),
            Err(Errno::EEXIST) => open_directory(&parent, name).map(drop),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(unlinkat(&parent, name, UnlinkatFlags::RemoveDir)?)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::from(self.directory(directory)?).sync_all()
    }

    fn free_bytes(&self, _directory: &Path) -> Option<u64> {
        let space = fstatvfs(&self.directory).ok()?;
        // The types of both differ between platforms.
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        Some(u64::from(space.blocks_available()).saturating_mul(space.fragment_size() as u64))
    }
}

fn mode(bits: u32) -> Mode {
    // The type is narrower on other systems; permissions fit.
    #[allow(clippy::useless_conversion)]
    Mode::from_bits_truncate(bits.try_into().unwrap_or_default())
}
