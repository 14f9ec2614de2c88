// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket of a daemon, as a client uses it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A daemon's control socket.
#[derive(Clone, Debug)]
pub struct Control(PathBuf);

impl Control {
    /// The socket at `path`.
    pub fn at(path: &Path) -> Self {
        Self(path.to_path_buf())
    }

    /// Its daemon's options.
    pub fn options(&self) -> Vec<String> {
        vec!["--control".to_owned(), self.0.display().to_string()]
    }

    /// Sends a line, and returns the stream of lines that answer it.
    pub fn send(&self, line: &str) -> Result<BufReader<UnixStream>> {
        let mut stream = UnixStream::connect(&self.0)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{line}")?;
        Ok(BufReader::new(stream))
    }

    /// Sends a line, and returns the answer.
    pub fn ask(&self, line: &str) -> Result<Value> {
        let mut answer = String::new();
        self.send(line)?.read_line(&mut answer)?;
        serde_json::from_str(&answer).with_context(|| format!("{line}: {answer}"))
    }

    /// The sessions, as the daemon lists them.
    pub fn sessions(&self) -> Result<Vec<Value>> {
        let answer = self.ask(r#"{"do":"status"}"#)?;
        Ok(answer["sessions"].as_array().cloned().unwrap_or_default())
    }

    /// The session of the program with this process id, in the guest's numbers; null without one.
    pub fn session_of(&self, pid: u32) -> Result<Value> {
        Ok(self.sessions()?.into_iter().find(|session| session["pid"] == pid).unwrap_or_default())
    }

    /// Its state; empty without one.
    pub fn state_of(&self, pid: u32) -> Result<String> {
        Ok(self.session_of(pid)?["state"].as_str().unwrap_or_default().to_owned())
    }
}
