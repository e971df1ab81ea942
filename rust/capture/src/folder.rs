//! A directory whose files are read and written piece by piece, and without following links: what a capture is copied
//! from, and to.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk as _, DiskFile, Files as _};
use crate::layout::list_if_there;
use crate::local::{LocalDisk, make_directory};
use crate::source::Source;
use crate::{Access, CaptureError, CaptureErrorKind};

/// A directory. Names are below it.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    disk: Arc<LocalDisk>,
}

/// A file that is read.
#[derive(Debug)]
pub struct FolderFile {
    path: PathBuf,
    file: Source,
}

/// A file that is written, and gets its name when it is complete. Without that it is removed.
pub struct NewFile {
    disk: Arc<LocalDisk>,
    path: PathBuf,
    partial: PathBuf,
    file: Box<dyn DiskFile>,
    is_complete: bool,
}

impl Folder {
    /// Opens a directory. The system decides who may read it.
    pub fn open(root: &Path) -> Result<Self, CaptureError> {
        let disk = LocalDisk::open(root, Access::Umask).map_err(|error| CaptureError::reading(root, error))?;
        Ok(Self { root: root.to_owned(), disk: Arc::new(disk) })
    }

    /// Makes a directory, if there is none, and opens it.
    pub fn make(root: &Path) -> Result<Self, CaptureError> {
        make_directory(root, Access::Umask).map_err(|error| CaptureError::writing(root, error))?;
        Self::open(root)
    }

    /// Makes a directory in it, if there is none.
    pub fn make_folder(&self, name: &str) -> Result<(), CaptureError> {
        let path = self.root.join(name);
        self.disk.create_directory(&path).map_err(|error| CaptureError::writing(&path, error))
    }

    /// The regular files in a directory below, with their bytes; none if there is no such directory.
    pub fn files(&self, folder: &str) -> Result<Vec<(String, u64)>, CaptureError> {
        let folder = self.root.join(folder);
        let mut names = list_if_there(&*self.disk, &folder)?;
        names.sort_unstable();
        // What is no regular file, or gone by now, has no size.
        let size = |name: String| self.disk.size_and_time(&folder.join(&name)).ok().map(|(bytes, _)| (name, bytes));
        Ok(names.into_iter().filter_map(size).collect())
    }

    /// Opens a file for reading; `None` if there is none.
    pub fn read(&self, name: &str) -> Result<Option<FolderFile>, CaptureError> {
        let path = self.root.join(name);
        match self.disk.open(&path) {
            Ok(file) => Ok(Some(FolderFile { path, file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CaptureError::reading(&path, error)),
        }
    }

    /// Begins a file, under another name.
    pub fn write(&self, name: &str) -> Result<NewFile, CaptureError> {
        let path = self.root.join(name);
        let partial = path.with_file_name(match path.file_name().and_then(|name| name.to_str()) {
            Some(name) => format!(".{name}.partial"),
            None => return Err(CaptureError::new(CaptureErrorKind::Unwritable, &path, "is no name of a file")),
        });
        let file = self.disk.create(&partial).map_err(|error| CaptureError::writing(&partial, error))?;
        Ok(NewFile { disk: Arc::clone(&self.disk), path, partial, file, is_complete: false })
    }

    /// Removes a file; gives whether there was one.
    pub fn remove(&self, name: &str) -> Result<bool, CaptureError> {
        let path = self.root.join(name);
        match self.disk.remove(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(CaptureError::writing(&path, error)),
        }
    }
}

impl FolderFile {
    /// The bytes it had when it was opened.
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Up to so many bytes at a position; none at the end.
    pub fn read_at(&self, at: u64, length: usize) -> Result<Vec<u8>, CaptureError> {
        let mut piece = Vec::new();
        let read = self.file.at(at).take(length as u64).read_to_end(&mut piece);
        read.map_err(|error| CaptureError::reading(&self.path, error))?;
        Ok(piece)
    }
}

impl NewFile {
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), CaptureError> {
        self.file.write_all(bytes).map_err(|error| CaptureError::writing(&self.partial, error))
    }

    /// Gives it its name, once its bytes are on the disk.
    pub fn finish(mut self) -> Result<(), CaptureError> {
        let finish = |file: &mut Self| {
            file.file.sync()?;
            file.disk.rename(&file.partial, &file.path)?;
            file.is_complete = true;
            file.disk.sync_directory(file.path.parent().unwrap_or(&file.path))
        };
        finish(&mut self).map_err(|error| CaptureError::writing(&self.path, error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_complete {
            // If this fails, the next attempt replaces it.
            let _ = self.disk.remove(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Folder::make(&scratch.path().join("new")).unwrap();
        folder.make_folder("below").unwrap();
        let mut file = folder.write("below/a").unwrap();
        file.append(b"con").unwrap();
        file.append(b"tent").unwrap();
        assert!(folder.read("below/a").unwrap().is_none());
        file.finish().unwrap();
        let read = folder.read("below/a").unwrap().unwrap();
        assert_eq!(
            (read.bytes(), read.read_at(2, 3).unwrap(), read.read_at(7, 9).unwrap()),
            (7, b"nte".to_vec(), vec![])
        );
        folder.write("below/b").unwrap().append(b"x").unwrap();
        assert_eq!(folder.files("below").unwrap(), [("a".to_owned(), 7)]);
        assert!(folder.remove("below/a").unwrap() && !folder.remove("below/a").unwrap());
        assert_eq!(folder.files("nothing").unwrap(), []);
    }

    #[test]
    #[cfg(unix)]
    fn no_link_is_followed() {
        use std::os::unix::fs::symlink;
        let scratch = tempfile::tempdir().unwrap();
        let (victim, root) = (scratch.path().join("victim"), scratch.path().join("root"));
        fs::write(&victim, "kept").unwrap();
        let folder = Folder::make(&root).unwrap();
        symlink(&victim, root.join(".a.partial")).unwrap();
        symlink(&victim, root.join("b")).unwrap();
        symlink(scratch.path(), root.join("below")).unwrap();
        let mut file = folder.write("a").unwrap();
        file.append(b"new").unwrap();
        file.finish().unwrap();
        assert!(fs::symlink_metadata(root.join("a")).unwrap().is_file());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert!(folder.read("b").is_err() && folder.make_folder("below").is_err() && folder.write("below/c").is_err());
    }
}
