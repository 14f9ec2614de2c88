// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs and daemons that a benchmark asks, line by line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Sends a request to a daemon's control socket, and returns the answer.
pub fn request(control: &Path, request: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(control)?;
    writeln!(stream, "{request}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).with_context(|| format!("An answer of the daemon to {request}: {line}"))
}

/// A program that obeys lines.
pub struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts it.
    pub fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("Cannot start the program")?;
        let input = child.stdin.take().context("The program has no input")?;
        let output = BufReader::new(child.stdout.take().context("The program has no output")?);
        Ok(Self { child, input, output })
    }

    /// Sends a line, and returns the answer.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        writeln!(self.input, "{line}").with_context(|| format!("The program does not take: {line}"))?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        ensure!(!answer.is_empty(), "The program has ended at: {line}");
        Ok(answer.trim_end().to_owned())
    }

    /// Closes its input. Errors: it does not end well.
    pub fn finish(self) -> Result<()> {
        let Self { mut child, input, .. } = self;
        drop(input);
        let status = child.wait()?;
        ensure!(status.success(), "The program ended with {status}");
        Ok(())
    }
}
