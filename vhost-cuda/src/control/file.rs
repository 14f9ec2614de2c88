// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `ctl save` and `ctl restore`: the folder of a saved session.
//!
//! It has its name only when all of it is on the disk, and only then the session gives up what it has in host memory. The worker writes
//! and reads the contents in files of the folder. Their places there go through a pipe.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use super::client::{ask, cannot_reach, connect, next_line};
use super::contents::{self, Places};
use super::protocol::{Answer, Request};
use crate::suspend::files;

/// The file with the description of the session, beside those with its contents.
const SESSION: &str = "session";
/// The maximum length of the first answer, which comes with a descriptor, in bytes.
const MAX_ANSWER: usize = 1 << 16;

/// Saves the contents of a session in a folder, which must not be there yet. Returns the daemon's answer.
///
/// Errors: the session has all its contents in host memory still, and there is no folder.
pub fn save(control: &Path, session: u64, timeout_ms: u32, folder: &Path) -> Result<String> {
    ensure!(!folder.exists(), "{} is there already", folder.display());
    let writing = Writing::new(folder)?;
    let (mut stream, pipe) = begin(control, &Request::Save { session, timeout_ms })?;
    give(&stream, &writing.files)?;
    let places = contents::read_places(BufReader::new(pipe));
    checked(&next_line(control, &mut stream)?)?;
    let places = places.context("The worker's answer has no contents")?;
    let finished = writing.finish(folder, session, &places);
    finished.with_context(|| format!("Cannot write {}", folder.display()))?;
    let answer = ask(control, &Request::Saved { session })?;
    if let Err(error) = checked(&answer) {
        let _ = remove(folder);
        return Err(error);
    }
    Ok(answer)
}

/// Brings a session back whose contents are in a folder, and removes the folder. Returns the daemon's answer.
///
/// Errors: the folder is there still.
pub fn restore(control: &Path, timeout_ms: u32, folder: &Path) -> Result<String> {
    let cannot = || format!("Cannot read {}", folder.display());
    let description = File::open(folder.join(SESSION)).with_context(cannot)?;
    let (session, places) = contents::read(BufReader::new(description)).with_context(cannot)?;
    let files = files::open(folder).with_context(cannot)?;
    let (mut stream, pipe) = begin(control, &Request::Restore { session, timeout_ms })?;
    give(&stream, &files)?;
    // The worker closes its end if it has seen enough: its reason comes next.
    let _ = contents::write_places(BufWriter::new(pipe), &places);
    let line = next_line(control, &mut stream)?;
    checked(&line)?;
    remove(folder).with_context(|| format!("Cannot remove {}", folder.display()))?;
    Ok(line)
}

/// Gives the daemon files for contents: a byte with each, which is the number of those that follow.
fn give(stream: &BufReader<UnixStream>, files: &[File]) -> Result<()> {
    for (file, left) in files.iter().zip((0..files.len()).rev()) {
        let sent = stream.get_ref().send_with_fd(&[left as u8][..], file.as_raw_fd());
        sent.context("The daemon does not take a file")?;
    }
    Ok(())
}

/// Removes the folder of a session.
fn remove(folder: &Path) -> io::Result<()> {
    fs::remove_file(folder.join(SESSION))?;
    files::remove(folder)
}

/// A folder that has another name until it is complete. Without [`Self::finish`] it is removed.
struct Writing {
    path: PathBuf,
    files: Vec<File>,
}

impl Writing {
    fn new(final_path: &Path) -> Result<Self> {
        let name = final_path.file_name().context("The folder has no name")?.to_string_lossy();
        let path = final_path.with_file_name(format!(".{name}.{}", std::process::id()));
        let files = files::create(&path);
        let files = files.with_context(|| format!("Cannot create {}", path.display()))?;
        Ok(Self { path, files })
    }

    /// Gives the folder its name, once all is on the disk.
    fn finish(&self, final_path: &Path, session: u64, places: &Places) -> io::Result<()> {
        let description = File::create_new(self.path.join(SESSION))?;
        contents::write(BufWriter::new(&description), session, places)?;
        description.sync_all()?;
        files::sync(&self.path, &self.files)?;
        fs::rename(&self.path, final_path)?;
        files::sync(final_path, &[])
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // It has another name by now if it is complete.
        let _ = fs::remove_file(self.path.join(SESSION));
        let _ = files::remove(&self.path);
    }
}

/// Sends a request. Returns the connection, and the pipe that comes with the first answer.
fn begin(control: &Path, request: &Request) -> Result<(BufReader<UnixStream>, File)> {
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
    Ok((stream, pipe.context("The daemon's answer has no pipe")?))
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
    use vhost_cuda_common::parts::{Contents, kind, write};
    use zerocopy::IntoBytes;

    use super::*;

    /// No contents at all.
    fn places() -> Places {
        let mut stream = Vec::new();
        write(&mut stream, kind::CONTENTS, &[Contents::default().as_bytes()]).unwrap();
        write(&mut stream, kind::END, &[]).unwrap();
        contents::read_places(&stream[..]).unwrap()
    }

    #[test]
    fn a_folder_has_its_name_only_when_it_is_complete() {
        let folder = vmm_sys_util::tempdir::TempDir::new().unwrap();
        let path = folder.as_path().join("saved");
        let folders = || fs::read_dir(folder.as_path()).unwrap().count();
        let writing = Writing::new(&path).unwrap();
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&writing.path).unwrap().permissions());
        assert_eq!((mode & 0o777, path.exists(), folders()), (0o700, false, 1));
        drop(writing);
        assert_eq!(folders(), 0);
        let writing = Writing::new(&path).unwrap();
        writing.finish(&path, 9, &places()).unwrap();
        drop(writing);
        assert_eq!((path.join(SESSION).exists(), files::open(&path).is_ok(), folders()), (true, true, 1));
        fs::write(path.join("other"), "x").unwrap();
        assert!(remove(&path).is_err() && path.join("other").exists(), "it removes nothing else");
    }
}
