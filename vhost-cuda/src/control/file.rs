// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `ctl save` and `ctl restore`: the file with the contents of a session.
//!
//! The file has its name only when all of it is on the disk, and only then the session gives up what it has in host memory. The worker writes
//! and reads the contents in a file in memory: that one, if it lies in memory, or another one. Their places there go through a pipe.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use super::client::{ask, cannot_reach, connect, next_line};
use super::contents::{self, Saved};
use super::protocol::{Answer, Request};
use crate::sessions::session::saving::{contents_bytes, contents_file};

/// `TMPFS_MAGIC`.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// The maximum length of the first answer, which comes with a descriptor, in bytes.
const MAX_ANSWER: usize = 1 << 16;

/// Saves the contents of a session in a file, which must not be there yet. Returns the daemon's answer.
///
/// Errors: the session has all its contents in host memory still, and there is no file.
pub fn save(control: &Path, session: u64, timeout_ms: u32, file: &Path) -> Result<String> {
    ensure!(!file.exists(), "{} is there already", file.display());
    let writing = Writing::new(file)?;
    let cannot = || format!("Cannot write {}", writing.path.display());
    let (mut stream, pipe, answer) = begin(control, &Request::Save { session, timeout_ms })?;
    let bytes = answer.sessions.first().map_or(0, |session| session.stored_bytes);
    let memory = match is_in_memory(&writing.file)? {
        true => {
            provide(&writing.file, bytes).with_context(cannot)?;
            None
        }
        false => Some(File::from(contents_file(bytes)?)),
    };
    let theirs = memory.as_ref().unwrap_or(&writing.file);
    give(&stream, theirs)?;
    let places = contents::read_places(BufReader::new(pipe), theirs);
    checked(&next_line(control, &mut stream)?)?;
    let places = places.context("The worker's answer has no contents")?;
    contents::write(&writing.file, session, &places, memory.as_ref()).with_context(cannot)?;
    writing.finish(file)?;
    let answer = ask(control, &Request::Saved { session })?;
    if let Err(error) = checked(&answer) {
        let _ = fs::remove_file(file);
        return Err(error);
    }
    Ok(answer)
}

/// Brings a session back whose contents are in a file, and removes the file. Returns the daemon's answer.
///
/// Errors: the file is there still, unless the session has its contents in host memory.
pub fn restore(control: &Path, timeout_ms: u32, path: &Path) -> Result<String> {
    let cannot = || format!("Cannot read {}", path.display());
    let file = OpenOptions::new().read(true).write(true).open(path).with_context(cannot)?;
    let saved = Saved::of(&file).with_context(cannot)?;
    let memory = match is_in_memory(&file)? {
        true => None,
        false => Some(File::from(contents_file(saved.bytes())?)),
    };
    // The daemon waits for none of this.
    let places = saved.read(&file, memory.as_ref()).with_context(cannot)?;
    let request = Request::Restore { session: saved.session, timeout_ms };
    let (mut stream, pipe, _) = begin(control, &request)?;
    give(&stream, memory.as_ref().unwrap_or(&file))?;
    // The worker closes its end if it has seen enough: its reason comes next.
    let _ = contents::write_places(BufWriter::new(pipe), &places);
    let line = next_line(control, &mut stream)?;
    let sessions = parsed(&line)?.sessions;
    if !sessions.is_empty() && sessions.iter().all(|session| session.state != "saved") {
        fs::remove_file(path).with_context(|| format!("Cannot remove {}", path.display()))?;
    }
    checked(&line)?;
    Ok(line)
}

/// Returns whether a file lies in memory, so that its pages can be those of the contents.
fn is_in_memory(file: &File) -> io::Result<bool> {
    Ok(fstatfs(file)?.f_type as u64 == TMPFS_MAGIC)
}

/// Allocates the pages for these bytes of contents. So a full file system is an error here, and not when the worker writes to the pages.
fn provide(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = contents_bytes(bytes)?;
    file.set_len(bytes)?;
    Ok(fallocate(file, FallocateFlags::empty(), 0, bytes)?)
}

/// Gives the daemon a file for contents.
fn give(stream: &BufReader<UnixStream>, file: &File) -> Result<()> {
    stream
        .get_ref()
        .send_with_fd(&[0_u8][..], file.as_raw_fd())
        .context("The daemon does not take a file")?;
    Ok(())
}

/// A file that has another name until it is complete. Without [`Self::finish`] it is removed.
struct Writing {
    path: PathBuf,
    file: File,
}

impl Writing {
    fn new(final_path: &Path) -> Result<Self> {
        let name = final_path.file_name().context("The file has no name")?.to_string_lossy();
        let path = final_path.with_file_name(format!(".{name}.{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("Cannot create {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Gives the file its name, once it is on the disk.
    fn finish(&self, final_path: &Path) -> Result<()> {
        let folder = final_path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let named = self
            .file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, final_path))
            .and_then(|()| File::open(folder.unwrap_or(Path::new(".")))?.sync_all());
        named.with_context(|| format!("Cannot write {}", final_path.display()))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // It has another name by now if it is complete.
        let _ = fs::remove_file(&self.path);
    }
}

/// Sends a request. Returns the connection, and the pipe that comes with the first answer.
fn begin(control: &Path, request: &Request) -> Result<(BufReader<UnixStream>, File, Answer)> {
    let stream = connect(control, request)?;
    let mut line = vec![0; MAX_ANSWER];
    let received = stream.recv_with_fd(&mut line);
    let (bytes, pipe) = received.with_context(|| cannot_reach(control))?;
    line.truncate(bytes);
    let mut stream = BufReader::new(stream);
    if !line.ends_with(b"\n") {
        stream.by_ref().take(MAX_ANSWER as u64).read_until(b'\n', &mut line)?;
    }
    let line = String::from_utf8_lossy(&line);
    checked(&line)?;
    let pipe = pipe.context("The daemon's answer has no pipe")?;
    Ok((stream, pipe, parsed(&line)?))
}

fn parsed(line: &str) -> Result<Answer> {
    serde_json::from_str(line).context("The daemon's answer is not that of a daemon")
}

/// Returns the error of an answer, that of its session included.
fn checked(line: &str) -> Result<()> {
    let answer = parsed(line)?;
    let of_session = answer.sessions.into_iter().find_map(|session| session.error);
    if let Some(error) = answer.error.or(of_session) {
        bail!("{error}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let folder = vmm_sys_util::tempdir::TempDir::new().unwrap();
        let path = folder.as_path().join("saved");
        let files = || fs::read_dir(folder.as_path()).unwrap().count();
        let writing = Writing::new(&path).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&writing.file.metadata().unwrap().permissions());
        assert_eq!((mode & 0o777, path.exists(), files()), (0o600, false, 1));
        drop(writing);
        assert_eq!(files(), 0);
        let writing = Writing::new(&path).unwrap();
        (&writing.file).write_all(b"x").unwrap();
        writing.finish(&path).unwrap();
        drop(writing);
        assert_eq!((fs::read(&path).unwrap(), files()), (b"x".to_vec(), 1));
    }
}
