// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of sessions that are saved with their machine, in files beside its state (`--contents`). Machines that are loaded from one
//! state map the same files, so that the host has their contents once.
//!
//! A file has the chunks one after the other, and nothing else: their places are in the state, as the name of the file is. The name is random,
//! because a state may come from anybody: one that was made up does not have the name of another machine's file. It is checked before it becomes part of a path.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use vhost_cuda_common::link::CHUNK_BYTES;
use vhost_cuda_common::parts::{HEAD_BYTES, Place, malformed};

/// The number of bytes of a name, which is written in hexadecimal digits.
const NAME_BYTES: usize = 16;
/// The length of a chunk's address, which comes before its bytes.
const ADDRESS_BYTES: usize = size_of::<u64>();

/// The folder of such files.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Errors: it is no folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        if path.is_dir() { Ok(Self(path)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Creates a file with a new name, for up to `bytes` bytes of contents.
    pub fn create(&self, bytes: u64) -> io::Result<Writing> {
        let mut random = [0; NAME_BYTES];
        getrandom::fill(&mut random).map_err(|_| io::ErrorKind::Other)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.0.join(&name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|error| named(&error, "cannot be created", &path))?;
        Ok(Writing { name, path, file, most: bytes / CHUNK_BYTES, is_kept: false })
    }

    /// Opens the file of this name, for reading.
    ///
    /// Errors: the reason for which the file cannot be used.
    pub fn find(&self, name: &str) -> Result<File, String> {
        let is_name = name.len() == 2 * NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_name {
            return Err("the name of its contents is none of this program's".to_owned());
        }
        let path = self.0.join(name);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)
            .and_then(|file| file.metadata().map(|found| (file, found.is_file())));
        match file {
            Ok((file, true)) => Ok(file),
            Ok(_) => Err(format!("its contents in {} are no file", path.display())),
            Err(error) => Err(format!("its contents in {} cannot be opened: {error}", path.display())),
        }
    }
}

fn named(error: &io::Error, what: &str, path: &Path) -> io::Error {
    io::Error::other(format!("the contents in {} {what}: {error}", path.display()))
}

/// A file that gets contents. It is removed, unless it is kept.
#[derive(Debug)]
pub struct Writing {
    /// Its name.
    pub name: String,
    path: PathBuf,
    file: File,
    /// The maximum number of chunks: a worker chooses what it sends.
    most: u64,
    is_kept: bool,
}

impl Writing {
    /// Writes the next chunk, which is a part of a worker's stream, its head included. `places` are those of the chunks before.
    ///
    /// Errors: the file's, with its name; `InvalidData` for a part of another length, or too many.
    pub fn write(&self, part: &[u8], places: &mut Vec<Place>) -> io::Result<()> {
        let contents =
            part.get(HEAD_BYTES..).and_then(|contents| contents.split_first_chunk::<ADDRESS_BYTES>());
        let chunk = contents.filter(|(_, chunk)| chunk.len() as u64 == CHUNK_BYTES);
        let (address, chunk) =
            chunk.ok_or_else(|| malformed("its worker has written a chunk of another length"))?;
        if places.len() as u64 >= self.most {
            return Err(malformed("its worker has written more contents than it had"));
        }
        let offset = places.len() as u64 * CHUNK_BYTES;
        let written = self.file.write_all_at(chunk, offset);
        written.map_err(|error| named(&error, "cannot be written", &self.path))?;
        places.push(Place { address: u64::from_le_bytes(*address), offset });
        Ok(())
    }

    /// Keeps the file, once it is on the disk.
    pub fn keep(&mut self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let written = self.file.sync_all().and_then(|()| File::open(folder)?.sync_all());
        written.map_err(|error| named(&error, "cannot be written", &self.path))?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use vhost_cuda_common::parts::{self, kind};
    use vmm_sys_util::tempdir::TempDir;

    use super::*;

    fn part(address: u64, byte: u8, bytes: usize) -> Vec<u8> {
        let mut part = Vec::new();
        parts::write(&mut part, kind::CHUNK, &[&address.to_le_bytes(), &vec![byte; bytes]]).unwrap();
        part
    }

    #[test]
    fn chunks_lie_one_after_the_other_in_a_file_that_is_kept() {
        const CHUNK: usize = CHUNK_BYTES as usize;
        let folder = TempDir::new().unwrap();
        let files = Folder::open(folder.as_path()).unwrap();
        let (mut places, mut writing) = (Vec::new(), files.create(2 * CHUNK_BYTES).unwrap());
        for wrong in [part(7, 1, CHUNK - 1), part(7, 1, 0), Vec::new()] {
            assert!(writing.write(&wrong, &mut places).is_err());
        }
        for (address, byte) in [(9 << 21, 1), (3 << 21, 2)] {
            writing.write(&part(address, byte, CHUNK), &mut places).unwrap();
        }
        let place = |address: u64, chunk: u64| Place { address, offset: chunk * CHUNK_BYTES };
        assert_eq!(places, [place(9 << 21, 0), place(3 << 21, 1)]);
        assert!(writing.write(&part(7, 1, CHUNK), &mut places).is_err(), "more than there is");
        writing.keep().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&writing.file.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let name = writing.name.clone();
        drop(writing);
        let mut all = Vec::new();
        files.find(&name).unwrap().read_to_end(&mut all).unwrap();
        assert!(all.len() == 2 * CHUNK && all[..CHUNK].iter().all(|&byte| byte == 1) && all[CHUNK] == 2);
        let lost = files.create(CHUNK_BYTES).unwrap();
        let name = lost.name.clone();
        assert!(files.find(&name).is_ok());
        drop(lost);
        assert!(files.find(&name).is_err(), "one that is not kept is removed");
    }

    #[test]
    fn a_name_leads_to_no_other_file() {
        let folder = TempDir::new().unwrap();
        let files = Folder::open(folder.as_path()).unwrap();
        let digits = "0123456789abcdef0123456789abcdef";
        let path = folder.as_path().join(digits);
        assert!(files.find(digits).is_err(), "none is there");
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(files.find(digits).is_err(), "a link");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(files.find(digits).is_err(), "a folder");
        for name in ["", "..", "/etc/passwd", "../../../../../../../../etc/passwd", &digits[1..]] {
            let error = files.find(name).unwrap_err();
            assert!(error.contains("none of this program's"), "{name}: {error}");
        }
        assert!(Folder::open(&folder.as_path().join("missing")).is_err());
        assert!(Folder::open(Path::new("/etc/passwd")).is_err());
    }
}
