// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of a benchmark run, as stored in JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The place in which the benchmark ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// NVIDIA's libraries, no stack.
    Native,
    /// The guest libraries as front-end of the daemon, without a VM: native CPU speed.
    VirtioUser,
    /// A QEMU guest.
    Vm,
}

impl Place {
    /// Column head.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::VirtioUser => "virtio-user",
            Self::Vm => "vm",
        }
    }
}

/// One measured metric: the output of `tests/bench/measure.h`, and the external measurements during it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Name, without the size.
    pub metric: String,
    /// Bytes of a copy; 0 for calls that copy nothing.
    #[serde(default)]
    pub bytes: u64,
    /// `us`, `GB/s` or `%`.
    pub unit: String,
    /// Median of the samples.
    pub median: f64,
    /// 10th percentile.
    pub p10: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Number of samples.
    #[serde(default)]
    pub samples: u64,
    /// Calls that were made meanwhile.
    #[serde(default)]
    pub calls: u64,
    /// CPU time of the calling process per call, in microseconds.
    pub cpu_us: f64,
    /// The same of the daemon and its workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_cpu_us: Option<f64>,
    /// The same of QEMU, the guest included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_cpu_us: Option<f64>,
    /// Number of times that the calling process slept to wait for something, per call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<f64>,
    /// Interrupts of the device per call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<f64>,
    /// Notifications of the device per call: exits from the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kicks: Option<f64>,
    /// The time in which the guest's driver pinned pages, per call, in microseconds. A copy may consist of pieces in
    /// flight at the same time. This value and the next ones are sums over them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_us: Option<f64>,
    /// The same for unpinning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpin_us: Option<f64>,
    /// Time from sending a request with pages until its caller continues with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_wait_us: Option<f64>,
    /// In which the worker copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_us: Option<f64>,
    /// Percentiles of calls that were timed one by one, in microseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distribution: Vec<(f64, f64)>,
    /// The medians of the rounds, if there was more than one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<f64>,
    /// True if other work was done between the calls, so that the values of a whole guest would be meaningless.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mixed: bool,
}

impl Metric {
    /// Returns whether it is a figure of `name` for copies of `bytes` bytes.
    pub fn is_of(&self, name: &str, bytes: u64) -> bool {
        self.metric == name && self.bytes == bytes
    }

    /// Name, with the size of copies: `copy_h2d_pageable 1 MiB`.
    pub fn title(&self) -> String {
        match self.bytes {
            0 => self.metric.clone(),
            bytes => format!("{} {}", self.metric, size(bytes)),
        }
    }
}

/// A metric that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// Its name.
    pub skip: String,
    /// The reason for which there is no figure.
    pub reason: String,
}

/// All of one place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The GPU's name in the program.
    #[serde(default)]
    pub device: String,
    /// `KVM` or `TCG`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// The guest's kernel, by its name in `--kernel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The figures, in the order in which they were taken.
    pub metrics: Vec<Metric>,
    /// The missing figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skip>,
}

impl Measured {
    /// Returns the metric with that name and size.
    pub fn find(&self, name: &str, bytes: u64) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.is_of(name, bytes))
    }
}

/// A run on one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The day, as 2026-11-21.
    pub date: String,
    /// Processor and how many of them.
    pub machine: String,
    /// The figures per place.
    pub places: BTreeMap<Place, Measured>,
}

impl Report {
    /// Writes the figures as JSON.
    pub fn write(&self, file: &Path) -> Result<()> {
        std::fs::write(file, self.to_json()?).with_context(|| format!("Cannot write {}", file.display()))
    }

    /// As JSON: a line for each metric, so that two runs can be compared with diff.
    pub fn to_json(&self) -> Result<String> {
        let mut text = serde_json::to_string_pretty(&self.without_metrics())?;
        // Metrics are leaves that are read by programs; pretty-printed they would take 20 lines each.
        for (place, measured) in &self.places {
            let lines: Vec<String> =
                measured.metrics.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
            let list = format!(
                "[\n{}\n      ]",
                lines.iter().map(|l| format!("        {l}")).collect::<Vec<_>>().join(",\n")
            );
            text = text.replacen(&format!("\"@{}\"", place.name()), &list, 1);
        }
        Ok(text + "\n")
    }

    fn without_metrics(&self) -> serde_json::Value {
        let mut value = serde_json::json!(self);
        for place in self.places.keys() {
            value["places"][place.name()]["metrics"] = format!("@{}", place.name()).into();
        }
        value
    }
}

/// `64 B`, `4 KiB`, `1 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let step = (bytes.max(1).ilog2() / 10).min(3);
    format!("{} {}", bytes >> (10 * step), UNITS[step as usize])
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A metric for tests.
    pub fn metric(name: &str, bytes: u64, median: f64) -> Metric {
        let text = format!(
            r#"{{"metric":"{name}","bytes":{bytes},"unit":"us","median":{median},"p10":6,"p90":7,"samples":100,
               "calls":10,"cpu_us":6.2,"distribution":[[5,1],[25,2],[50,3],[75,4],[95,5]]}}"#
        );
        serde_json::from_str(&text).expect("a metric")
    }

    #[test]
    fn what_is_written_can_be_read() -> Result<()> {
        let measured = Measured {
            metrics: vec![metric("launch", 0, 2.5), metric("copy", 4096, 6.0)],
            ..Default::default()
        };
        let report = Report { places: [(Place::VirtioUser, measured)].into(), ..Default::default() };
        let text = report.to_json()?;
        assert_eq!(serde_json::from_str::<Report>(&text)?, report);
        let lines = text.lines().filter(|line| line.contains("\"median\"")).count();
        assert_eq!(lines, 2, "a line each");
        Ok(())
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(64), "64 B");
        assert_eq!(size(65536), "64 KiB");
        assert_eq!(size(1 << 30), "1 GiB");
    }
}
