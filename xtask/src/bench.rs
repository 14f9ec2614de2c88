// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `cargo xtask bench`: the named metrics of `tests/bench/calls.cu`, native beside the stack.
//!
//! Ratios against native in the same run are what counts; absolute figures belong to one machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Where the benchmark ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// One measured metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Name, with the size of copies: `copy_h2d_ordinary 1 MiB`.
    pub name: String,
    /// `us` or `GB/s`.
    pub unit: String,
    /// Median of the batches.
    pub median: f64,
    /// 10th percentile.
    pub p10: f64,
    /// 90th percentile.
    pub p90: f64,
    /// CPU time of the calling process per call, in microseconds.
    pub cpu_us: f64,
}

/// Reads what `calls` printed: one JSON object a line.
pub fn parse(output: &str) -> Result<Vec<Metric>> {
    let metrics: Vec<Metric> = output
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| {
            let value: Value = serde_json::from_str(line).with_context(|| format!("Not a metric: {line}"))?;
            let number = |key: &str| {
                value[key].as_f64().with_context(|| format!("No number `{key}` in the metric {line}"))
            };
            let text = |key: &str| {
                value[key].as_str().with_context(|| format!("No text `{key}` in the metric {line}"))
            };
            let bytes = value["bytes"].as_u64().unwrap_or(0);
            let name = match bytes {
                0 => text("metric")?.to_owned(),
                _ => format!("{} {}", text("metric")?, size(bytes)),
            };
            Ok(Metric {
                name,
                unit: text("unit")?.to_owned(),
                median: number("median")?,
                p10: number("p10")?,
                p90: number("p90")?,
                cpu_us: number("cpu_us")?,
            })
        })
        .collect::<Result<_>>()?;
    if metrics.is_empty() {
        bail!("The benchmark printed no metric; its output was:\n{output}");
    }
    Ok(metrics)
}

/// `64 B`, `4 KiB`, `1 GiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let step = (bytes.ilog2() / 10).min(3);
    format!("{} {}", bytes >> (10 * step), UNITS[step as usize])
}

/// A Markdown table: a row a metric, a column a place, and the ratio to native where there is one.
pub fn table(results: &BTreeMap<Place, Vec<Metric>>) -> String {
    let mut text = String::from("| metric | unit |");
    for place in results.keys() {
        write!(text, " {} (p10 – p90; CPU) |", place.name()).expect("writing to a String");
    }
    let native = results.get(&Place::Native);
    if native.is_some() && results.contains_key(&Place::VirtioUser) {
        text.push_str(" virtio-user / native |");
    }
    let columns = text.matches('|').count() - 1;
    text.push('\n');
    text.push_str(&"| --- ".repeat(columns));
    text.push_str("|\n");
    let Some(first) = results.values().next() else { return text };
    for Metric { name, unit, .. } in first {
        write!(text, "| {name} | {unit} |").expect("writing to a String");
        let find =
            |place| results.get(&place).and_then(|all: &Vec<Metric>| all.iter().find(|m| m.name == *name));
        for place in results.keys() {
            match find(*place) {
                Some(m) => write!(
                    text,
                    " {} ({} – {}; {} us) |",
                    short(m.median),
                    short(m.p10),
                    short(m.p90),
                    short(m.cpu_us)
                ),
                None => write!(text, " – |"),
            }
            .expect("writing to a String");
        }
        if native.is_some() && results.contains_key(&Place::VirtioUser) {
            match (find(Place::VirtioUser), find(Place::Native)) {
                (Some(ours), Some(theirs)) if theirs.median > 0.0 => {
                    write!(text, " {:.2} |", ours.median / theirs.median)
                }
                _ => write!(text, " – |"),
            }
            .expect("writing to a String");
        }
        text.push('\n');
    }
    text
}

/// Three significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Writes the results as JSON.
pub fn write_json(results: &BTreeMap<Place, Vec<Metric>>, file: &Path) -> Result<()> {
    let json: serde_json::Map<String, Value> = results
        .iter()
        .map(|(place, metrics)| {
            let rows = metrics
                .iter()
                .map(|m| {
                    serde_json::json!({
                        "metric": m.name, "unit": m.unit, "median": m.median,
                        "p10": m.p10, "p90": m.p90, "cpu_us": m.cpu_us,
                    })
                })
                .collect();
            (place.name().to_owned(), Value::Array(rows))
        })
        .collect();
    let text = serde_json::to_string_pretty(&json)?;
    std::fs::write(file, text).with_context(|| format!("Cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"metric":"copy_h2d_ordinary","bytes":4096,"unit":"us","median":6.1,"p10":6,"p90":7,"samples":100,"cpu_us":6.2}"#;

    #[test]
    fn a_line_becomes_a_metric() {
        let metrics = parse(&format!("noise\n{LINE}\n")).unwrap();
        assert_eq!(metrics.len(), 1);
        assert_eq!(metrics[0].name, "copy_h2d_ordinary 4 KiB");
        assert_eq!(metrics[0].median, 6.1);
    }

    #[test]
    fn no_metric_is_an_error() {
        assert!(parse("Segmentation fault").is_err());
        assert!(parse(r#"{"metric":"x"}"#).is_err());
    }

    #[test]
    fn the_table_shows_the_ratio_to_native() {
        let native = parse(LINE).unwrap();
        let mut ours = native.clone();
        ours[0].median = 12.2;
        let results = BTreeMap::from([(Place::Native, native), (Place::VirtioUser, ours)]);
        assert!(table(&results).contains("| 2.00 |"), "{}", table(&results));
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(64), "64 B");
        assert_eq!(size(65536), "64 KiB");
        assert_eq!(size(1 << 30), "1 GiB");
    }
}
