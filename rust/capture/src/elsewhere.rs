//! The file system of a machine without the calls that `local.rs` uses: a file is checked to be regular before it is
//! opened, which cannot rule out a change in between.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::disk::{Disk, DiskFile, Files};
use crate::settings::Access;
use crate::source::Source;

/// What is below a directory.
#[derive(Debug)]
pub(crate) struct LocalDisk;

impl LocalDisk {
    /// Opens a directory. The system decides who may read it.
    pub(crate) fn open(root: &Path, _access: Access) -> io::Result<Self> {
        fs::read_dir(root).map(|_| Self)
    }
}

fn need(path: &Path, is_it: impl Fn(&fs::Metadata) -> bool, what: &str) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if is_it(&found) { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidData, what)) }
}

/// Opens what a writer locks: the file of that name in a directory.
pub(crate) fn open_lock(directory: &Path, name: &str, _access: Access) -> io::Result<(Option<File>, File)> {
    let path = directory.join(name);
    match need(&path, fs::Metadata::is_file, "is not a regular file") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    Ok((None, file))
}

/// Opens the file that a writer has locked, or had.
pub(crate) fn open_locked(directory: &Path, name: &str) -> io::Result<File> {
    let path = directory.join(name);
    need(&path, fs::Metadata::is_file, "is not a regular file")?;
    File::open(path)
}

/// Makes a directory and its missing parents.
pub(crate) fn make_directory(directory: &Path, _access: Access) -> io::Result<()> {
    fs::create_dir_all(directory)
}

/// Names cannot be exchanged here.
pub(crate) fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl DiskFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

impl Files for LocalDisk {
    fn open(&self, path: &Path) -> io::Result<Source> {
        need(path, fs::Metadata::is_file, "is not a regular file")?;
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Source::new(file, bytes))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            // A name that is not UTF-8 is not ours.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }
}

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn size_and_time(&self, path: &Path) -> io::Result<(u64, SystemTime)> {
        need(path, fs::Metadata::is_file, "is not a regular file")?;
        let metadata = fs::metadata(path)?;
        Ok((metadata.len(), metadata.modified()?))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                need(path, fs::Metadata::is_dir, "is not a directory")
            }
            created => created,
        }
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_directory(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _directory: &Path) -> Option<u64> {
        None
    }
}
