// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `ctl save` and `ctl restore`: the file with the contents of a session.
//!
//! The file has its name only when all of it is on the disk, and only then the session gives up what it has in host memory. Its first part
//! ([`vhost_cuda_common::parts`]) names the session; the others come from the worker and go back there as they are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use vhost_cuda_common::parts::{self, kind};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use super::client::{ask, cannot_reach, connect, next_line};
use super::protocol::{Answer, Request};

/// The maximum length of the first answer, whose end comes with a descriptor, in bytes.
const MAX_ANSWER: usize = 1 << 16;
/// What the pipe takes without waiting, in bytes: as much as the kernel allows every user, unless it is told otherwise.
const PIPE_BYTES: usize = 1 << 20;

/// Saves the contents of a session in a file, which must not be there yet. Returns the daemon's answer.
///
/// Errors: the session has all its contents in host memory still, and there is no file.
pub fn save(control: &Path, session: u64, timeout_ms: u32, file: &Path) -> Result<String> {
    ensure!(!file.exists(), "{} is there already", file.display());
    let (mut stream, pipe) = begin(control, &Request::Save { session, timeout_ms })?;
    let writing = Writing::new(file)?;
    parts::write(&writing.file, kind::SESSION, &[&session.to_le_bytes()])
        .and_then(|()| io::copy(&mut File::from(pipe), &mut &writing.file))
        .with_context(|| format!("Cannot write {}", writing.path.display()))?;
    checked(&next_line(control, &mut stream)?)?;
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
    let mut file = File::open(path).with_context(cannot)?;
    let mut contents = Vec::new();
    let found = parts::read(&mut file, &mut contents).with_context(cannot)?;
    let session = <[u8; 8]>::try_from(&contents[..]).ok().filter(|_| found == kind::SESSION);
    let session = session.with_context(|| format!("{} is no saved session", path.display()))?;
    let request = Request::Restore { session: u64::from_le_bytes(session), timeout_ms };
    let (mut stream, pipe) = begin(control, &request)?;
    // The worker closes its end if it has seen enough. Its reason comes next.
    let _ = io::copy(&mut file, &mut File::from(pipe));
    let line = next_line(control, &mut stream)?;
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

/// Sends a request. Returns the connection, and the pipe that comes with the first answer.
fn begin(control: &Path, request: &Request) -> Result<(BufReader<UnixStream>, OwnedFd)> {
    let stream = connect(control, request)?;
    let mut line = vec![0; MAX_ANSWER];
    let (bytes, pipe) = stream.recv_with_fd(&mut line[..]).with_context(|| cannot_reach(control))?;
    line.truncate(bytes);
    let mut stream = BufReader::new(stream);
    if !line.ends_with(b"\n") {
        stream.by_ref().take(MAX_ANSWER as u64).read_until(b'\n', &mut line)?;
    }
    checked(&String::from_utf8_lossy(&line))?;
    let pipe: OwnedFd = pipe.context("The daemon's answer has no pipe")?.into();
    // One that stays shorter is slower: both sides wake each other more often.
    let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
    Ok((stream, pipe))
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
