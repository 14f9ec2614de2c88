// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `ctl save` and `ctl restore`: the file with the contents of a session.
//!
//! The file has its name only when all of it is on the disk, and only then the session gives up what it has in host memory. The worker has
//! the contents in a file in memory, which comes with the daemon's answer, and their places there go through a pipe.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::client::{ask, cannot_reach, connect, next_line};
use super::contents;
use super::protocol::{Answer, Request};

/// The maximum length of the first answer, which comes with descriptors, in bytes.
const MAX_ANSWER: usize = 1 << 16;

/// Saves the contents of a session in a file, which must not be there yet. Returns the daemon's answer.
///
/// Errors: the session has all its contents in host memory still, and there is no file.
pub fn save(control: &Path, session: u64, timeout_ms: u32, file: &Path) -> Result<String> {
    ensure!(!file.exists(), "{} is there already", file.display());
    let (mut stream, [pipe, memory]) = begin(control, &Request::Save { session, timeout_ms })?;
    let places = contents::read_places(BufReader::new(pipe), &memory);
    checked(&next_line(control, &mut stream)?)?;
    let places = places.context("The worker's answer has no contents")?;
    let writing = Writing::new(file)?;
    contents::write(&writing.file, session, &places, &memory)
        .with_context(|| format!("Cannot write {}", writing.path.display()))?;
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
    let file = File::open(path).with_context(cannot)?;
    let session = contents::session_of(&file).with_context(cannot)?;
    let (mut stream, [pipe, memory]) = begin(control, &Request::Restore { session, timeout_ms })?;
    let read = contents::read(&file, &memory);
    // Without them the worker refuses the contents. It closes its end if it has seen enough: its reason comes next.
    if let Ok(places) = &read {
        let _ = contents::write_places(BufWriter::new(&pipe), places);
    }
    drop(pipe);
    let line = next_line(control, &mut stream)?;
    read.with_context(cannot)?;
    let sessions = parsed(&line)?.sessions;
    if !sessions.is_empty() && sessions.iter().all(|session| session.state != "saved") {
        fs::remove_file(path).with_context(|| format!("Cannot remove {}", path.display()))?;
    }
    checked(&line)?;
    Ok(line)
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
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("Cannot create {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Gives the file its name, once it is on the disk.
    fn finish(self, final_path: &Path) -> Result<()> {
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

/// Sends a request. Returns the connection, and the pipe and the file in memory that come with the first answer.
fn begin(control: &Path, request: &Request) -> Result<(BufReader<UnixStream>, [File; 2])> {
    let stream = connect(control, request)?;
    let mut line = vec![0; MAX_ANSWER];
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control_data = RecvAncillaryBuffer::new(&mut room);
    let mut into = [IoSliceMut::new(&mut line)];
    let received = recvmsg(&stream, &mut into, &mut control_data, RecvFlags::CMSG_CLOEXEC);
    let bytes = received.with_context(|| cannot_reach(control))?.bytes;
    line.truncate(bytes);
    let mut files = Vec::new();
    for message in control_data.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some.map(File::from));
        }
    }
    let mut stream = BufReader::new(stream);
    if !line.ends_with(b"\n") {
        stream.by_ref().take(MAX_ANSWER as u64).read_until(b'\n', &mut line)?;
    }
    checked(&String::from_utf8_lossy(&line))?;
    let files = files
        .try_into()
        .ok()
        .context("The daemon's answer has no file in memory: it is of another release")?;
    Ok((stream, files))
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
        assert_eq!((fs::read(&path).unwrap(), files()), (b"x".to_vec(), 1));
    }
}
