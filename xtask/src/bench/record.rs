// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the benchmark's lines as they arrive and measures its processes at each of them.

use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::cpu::Tree;
use super::report::{Measured, Metric};

/// The processes of a program.
#[derive(Debug, Clone, Copy, Default)]
pub struct Behind {
    /// The daemon, with its workers.
    pub daemon: Option<Tree>,
    /// QEMU.
    pub qemu: Option<Tree>,
}

impl Behind {
    fn cpu_us(&self) -> (Option<f64>, Option<f64>) {
        (self.daemon.map(Tree::cpu_us), self.qemu.map(Tree::cpu_us))
    }
}

/// Collects the output of a program.
#[derive(Debug, Default)]
pub struct Recorder {
    behind: Behind,
    begun: Option<(Option<f64>, Option<f64>)>,
    partial: Vec<u8>,
    /// Lines that are no figures.
    other: String,
    measured: Measured,
}

impl Recorder {
    /// Creates a recorder that measures `behind`.
    pub fn new(behind: Behind) -> Self {
        Self { behind, ..Self::default() }
    }

    /// The measured figures.
    ///
    /// Errors: nothing was.
    pub fn finish(self) -> Result<Measured> {
        if self.measured.metrics.is_empty() {
            bail!("The benchmark printed no metric; its output was:\n{}", self.other);
        }
        Ok(self.measured)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let value: Value = match serde_json::from_str(line) {
            Ok(value) => value,
            Err(_) => {
                self.other.push_str(line);
                self.other.push('\n');
                return Ok(());
            }
        };
        if value.get("begin").is_some() {
            self.begun = Some(self.behind.cpu_us());
        } else if value.get("metric").is_some() {
            let now = self.behind.cpu_us();
            let metric = serde_json::from_value(value).with_context(|| format!("Not a metric: {line}"))?;
            let metric = self.complete(metric, now);
            self.measured.metrics.push(metric);
        } else if value.get("skip").is_some() {
            self.measured.skipped.push(serde_json::from_value(value)?);
        } else if let Some(name) = value["device"].as_str() {
            self.measured.device = name.to_owned();
        }
        Ok(())
    }

    fn complete(&mut self, mut metric: Metric, now: (Option<f64>, Option<f64>)) -> Metric {
        let Some(then) = self.begun.take() else { return metric };
        let per_call =
            |now: Option<f64>, then: Option<f64>| Some((now? - then?) / metric.calls.max(1) as f64);
        metric.host_cpu_us = per_call(now.0, then.0);
        metric.qemu_cpu_us = per_call(now.1, then.1).filter(|_| !metric.mixed);
        metric
    }
}

impl Write for Recorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            self.line(String::from_utf8_lossy(&line).trim_end()).map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"noise\n{\"device\":\"H200\",\"driver\":13000}\n{\"begin\":\"launch\"}\n\
        {\"metric\":\"launch\",\"bytes\":0,\"unit\":\"us\",\"median\":2.5,\"p10\":2,\"p90\":3,\"samples\":9,\
        \"calls\":100,\"cpu_us\":2.4}\n{\"skip\":\"graph\",\"reason\":\"cudaErrorNotSupported\"}\n";

    #[test]
    fn lines_in_pieces_become_metrics() -> Result<()> {
        let mut recorder = Recorder::new(Behind { daemon: Some(Tree(std::process::id())), qemu: None });
        for piece in LINES.chunks(7) {
            recorder.write_all(piece)?;
        }
        let measured = recorder.finish()?;
        assert_eq!((measured.device.as_str(), measured.skipped[0].skip.as_str()), ("H200", "graph"));
        let launch = measured.find("launch", 0).context("no launch")?;
        assert_eq!((launch.median, launch.calls), (2.5, 100));
        assert!(launch.host_cpu_us.is_some_and(|us| us >= 0.0) && launch.qemu_cpu_us.is_none());
        Ok(())
    }

    #[test]
    fn no_metric_is_an_error() -> Result<()> {
        let mut recorder = Recorder::default();
        recorder.write_all(b"Segmentation fault\n")?;
        assert!(recorder.finish().is_err_and(|error| error.to_string().contains("Segmentation")));
        assert!(Recorder::default().write_all(b"{\"metric\":\"x\"}\n").is_err());
        Ok(())
    }
}
