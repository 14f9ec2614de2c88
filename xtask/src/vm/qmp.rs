// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QEMU's monitor.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Time limit for an answer of QEMU.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A connection to the monitor.
pub struct Qmp {
    reader: BufReader<UnixStream>,
    events: VecDeque<Value>,
}

impl Qmp {
    /// Talks to the QEMU that has just connected.
    pub fn new(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        let mut qmp = Self { reader: BufReader::new(stream), events: VecDeque::new() };
        qmp.read()?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Executes a command, and returns its result.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        self.reader.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut message = self.read()?;
            if let Some(error) = message.get("error") {
                bail!("QEMU's {command}: {}", error["desc"].as_str().unwrap_or("failed"));
            }
            if let Some(result) = message.get_mut("return") {
                return Ok(result.take());
            }
            self.events.push_back(message);
        }
    }

    /// Waits until QEMU announces the event `name` for which `wanted` holds.
    pub fn wait_for(
        &mut self,
        name: &str,
        wanted: impl Fn(&Value) -> bool,
        limit: Duration,
    ) -> Result<Value> {
        let end = Instant::now() + limit;
        loop {
            let found = self.events.iter().position(|event| event["event"] == name && wanted(&event["data"]));
            if let Some(event) = found.and_then(|at| self.events.remove(at)) {
                return Ok(event);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("QEMU did not announce {name} within {limit:?}");
            }
            self.reader.get_ref().set_read_timeout(Some(left))?;
            let event = self.read();
            self.reader.get_ref().set_read_timeout(Some(ANSWER_LIMIT))?;
            self.events.push_back(event.with_context(|| format!("Waiting for {name}"))?);
        }
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        let count = self.reader.read_line(&mut line).context("QEMU's monitor does not answer")?;
        if count == 0 {
            bail!("QEMU has closed its monitor");
        }
        Ok(serde_json::from_str(&line)?)
    }
}
