// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Folders with the contents of a session: those that `ctl save` makes, and those of sessions that are saved with their machine, beside its state
//! (`--contents`). Machines that are loaded from one state map the same files, so that the host has their contents once.
//!
//! A folder has several files, in which chunks lie in turn, and workers write to them at once: the kernel lets one thread at a time write to a file. Their
//! places are in the state, as the name of the folder is. That name is random, because a state may come from anybody: one that was made up does not have the
//! name of another machine's folder. It is checked before it becomes part of a path.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use vhost_cuda_common::parts::FILES;

/// The number of bytes of a name, which is written in hexadecimal digits.
const NAME_BYTES: usize = 16;

/// Creates a folder with empty files for contents.
pub fn create(folder: &Path) -> io::Result<Vec<File>> {
    DirBuilder::new().mode(0o700).create(folder)?;
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    (0..FILES).map(|index| options.open(folder.join(index.to_string()))).collect()
}

/// Opens the files of a folder, for reading.
///
/// Errors: one is not there, or no file; `folder` is a link.
pub fn open(folder: &Path) -> io::Result<Vec<File>> {
    if !folder.symlink_metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let open = |index: usize| {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(folder.join(index.to_string()))?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    };
    (0..FILES).map(open).collect()
}

/// Writes the files of a folder to the disk, and their names.
pub fn sync(folder: &Path, files: &[File]) -> io::Result<()> {
    files.iter().try_for_each(File::sync_all)?;
    File::open(folder)?.sync_all()?;
    File::open(folder.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
        .sync_all()
}

/// Removes a folder with its files, of which some may not be there.
pub fn remove(folder: &Path) -> io::Result<()> {
    (0..FILES).for_each(|index| drop(fs::remove_file(folder.join(index.to_string()))));
    fs::remove_dir(folder)
}

/// The folder of such folders.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Errors: it is no folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        if path.is_dir() { Ok(Self(path)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Creates files for contents, in a folder with a new name.
    pub fn create(&self) -> io::Result<Writing> {
        let mut random = [0; NAME_BYTES];
        getrandom::fill(&mut random).map_err(|_| io::ErrorKind::Other)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.0.join(&name);
        // Removed if not all can be created.
        let mut writing = Writing { name, path, files: Vec::new(), is_kept: false };
        writing.files = create(&writing.path).map_err(|error| writing.named(&error, "cannot be created"))?;
        Ok(writing)
    }

    /// Opens the files in the folder of this name, for reading.
    ///
    /// Errors: the reason for which they cannot be used.
    pub fn find(&self, name: &str) -> Result<Vec<File>, String> {
        let is_name = name.len() == 2 * NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_name {
            return Err("the name of its contents is none of this program's".to_owned());
        }
        let path = self.0.join(name);
        open(&path).map_err(|error| format!("its contents in {} cannot be opened: {error}", path.display()))
    }
}

/// Files that get contents. They are removed, unless they are kept.
#[derive(Debug)]
pub struct Writing {
    /// The name of their folder.
    pub name: String,
    path: PathBuf,
    files: Vec<File>,
    is_kept: bool,
}

impl Writing {
    /// The files.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Keeps the files, once they are on the disk.
    pub fn keep(&mut self) -> io::Result<()> {
        sync(&self.path, &self.files).map_err(|error| self.named(&error, "cannot be written"))?;
        self.is_kept = true;
        Ok(())
    }

    fn named(&self, error: &io::Error, what: &str) -> io::Error {
        io::Error::other(format!("the contents in {} {what}: {error}", self.path.display()))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;

    use vmm_sys_util::tempdir::TempDir;

    use super::*;

    #[test]
    fn files_that_are_not_kept_are_removed() {
        let folder = TempDir::new().unwrap();
        let files = Folder::open(folder.as_path()).unwrap();
        let mut writing = files.create().unwrap();
        assert_eq!(writing.files().len(), FILES);
        (&writing.files()[3]).write_all(b"x").unwrap();
        writing.keep().unwrap();
        let mode = |about: fs::Metadata| about.permissions().mode() & 0o777;
        assert_eq!(mode(fs::metadata(&writing.path).unwrap()), 0o700);
        assert_eq!(mode(writing.files()[0].metadata().unwrap()), 0o600);
        let name = writing.name.clone();
        drop(writing);
        let mut all = Vec::new();
        let mut found = files.find(&name).unwrap();
        for file in &mut found {
            file.read_to_end(&mut all).unwrap();
        }
        assert_eq!(all, b"x");
        assert!((&found[0]).write_all(b"x").is_err(), "they are for reading");
        let lost = files.create().unwrap();
        let name = lost.name.clone();
        assert!(files.find(&name).is_ok());
        drop(lost);
        assert!(files.find(&name).is_err());
        assert_eq!(fs::read_dir(folder.as_path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_leads_to_no_other_file() {
        let folder = TempDir::new().unwrap();
        let files = Folder::open(folder.as_path()).unwrap();
        let digits = "0123456789abcdef0123456789abcdef";
        let path = folder.as_path().join(digits);
        assert!(files.find(digits).is_err(), "none is there");
        let other = TempDir::new().unwrap();
        drop(create(&other.as_path().join("all")).unwrap());
        std::os::unix::fs::symlink(other.as_path().join("all"), &path).unwrap();
        assert!(files.find(digits).is_err(), "a link");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "x").unwrap();
        assert!(files.find(digits).is_err(), "a file");
        fs::remove_file(&path).unwrap();
        drop(create(&path).unwrap());
        assert!(files.find(digits).is_ok());
        fs::remove_file(path.join("7")).unwrap();
        assert!(files.find(digits).is_err(), "one is missing");
        std::os::unix::fs::symlink("/etc/passwd", path.join("7")).unwrap();
        assert!(files.find(digits).is_err(), "one is a link");
        fs::remove_file(path.join("7")).unwrap();
        fs::create_dir(path.join("7")).unwrap();
        assert!(files.find(digits).is_err(), "one is a folder");
        for name in ["", "..", "/etc/passwd", "../../../../../../../../etc/passwd", &digits[1..]] {
            let error = files.find(name).unwrap_err();
            assert!(error.contains("none of this program's"), "{name}: {error}");
        }
        assert!(Folder::open(&folder.as_path().join("missing")).is_err());
        assert!(Folder::open(Path::new("/etc/passwd")).is_err());
    }
}
