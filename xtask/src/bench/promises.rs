// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares figures with the limits in `docs/specification.md`.

use anyhow::{Result, ensure};

use super::report::{Metric, Place, Report};

/// The page with the promises.
const PAGE: &str = include_str!("../../../docs/specification.md");

/// A limit of a metric's ratio to native.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    /// Of a time.
    AtMost(f64),
    /// Of a rate.
    AtLeast(f64),
}

impl Limit {
    /// Ratios are compared with two decimals, which is how the page states them.
    fn holds(self, ratio: f64) -> bool {
        let ratio = (100.0 * ratio).round() / 100.0;
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::AtLeast(limit) => ratio >= limit,
        }
    }
}

/// The rows of the page's first table: metric, limit, and its other cells (meaning, native figure, ours, link to the run).
fn promises() -> impl Iterator<Item = (&'static str, Limit, [&'static str; 4])> {
    PAGE.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [metric, meaning, limit, native, ours, run] = cells[..] else { return None };
        let metric = metric.strip_prefix('`')?.strip_suffix('`')?;
        let limit = match limit.split_once(' ')? {
            ("≤", number) => Limit::AtMost(number.parse().ok()?),
            ("≥", number) => Limit::AtLeast(number.parse().ok()?),
            _ => return None,
        };
        Some((metric, limit, [meaning, native, ours, run]))
    })
}

/// Compares `report` with the page. Prints a line for each promise that was measured.
///
/// Errors: a limit does not hold, or no promise was measured natively and over virtio-user.
pub fn check(report: &Report) -> Result<()> {
    let figure = |place, title: &str| -> Option<&Metric> {
        report.places.get(&place)?.metrics.iter().find(|metric| metric.title() == title)
    };
    let (mut checked, mut broken) = (0, Vec::new());
    for (metric, limit, _) in promises() {
        let both = figure(Place::Native, metric).zip(figure(Place::VirtioUser, metric));
        let Some((native, ours)) = both.filter(|(native, _)| native.median > 0.0) else { continue };
        let ratio = ours.median / native.median;
        checked += 1;
        println!("{metric}: {ratio:.2} of native, {limit:?}");
        if !limit.holds(ratio) {
            broken.push(format!("{metric} has {ratio:.2} of native's figure ({limit:?})"));
        }
    }
    ensure!(checked > 0, "No promise was measured natively and over virtio-user. Use a machine with a GPU");
    ensure!(broken.is_empty(), "docs/specification.md promises more: {}", broken.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use regex::Regex;
    use serde_json::Value;

    use super::super::report::{Measured, size, tests::metric};
    use super::super::table::short;
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn find<'r>(run: &'r Value, place: &str, title: &str) -> Option<&'r Value> {
        run["places"][place]["metrics"].as_array()?.iter().find(|metric| {
            let name = metric["metric"].as_str().unwrap_or_default();
            match metric["bytes"].as_u64() {
                Some(0) | None => name == title,
                Some(bytes) => format!("{name} {}", size(bytes)) == title,
            }
        })
    }

    #[test]
    fn promises_come_from_their_runs() {
        let link = Regex::new(r"\]\((\S+)\)").unwrap();
        let mut count = 0;
        for (metric, limit, [_, native, ours, run]) in promises() {
            count += 1;
            let file = &link.captures(run).expect("a link to a run")[1];
            let text = std::fs::read_to_string(root().join("docs").join(file)).expect("the run exists");
            let run: Value = serde_json::from_str(&text).expect("a run is JSON");
            let figures = ["native", "virtio-user"].map(|place| {
                find(&run, place, metric).unwrap_or_else(|| panic!("{file} has no {metric} of {place}"))
            });
            for (stated, figure) in [native, ours].into_iter().zip(figures) {
                let (median, unit) = (figure["median"].as_f64().unwrap(), figure["unit"].as_str().unwrap());
                assert_eq!(stated, format!("{} {unit}", short(median)), "{metric} of {file}");
            }
            let medians = figures.map(|figure| figure["median"].as_f64().unwrap());
            let later = figures[1]["ratios"].as_array().cloned().unwrap_or_default();
            let later = later.iter().map(|ratio| ratio.as_f64().expect("a ratio"));
            for ratio in later.chain([medians[1] / medians[0]]) {
                assert!(limit.holds(ratio), "{metric}: {ratio} in {file}, {limit:?}");
            }
        }
        assert!((10..=25).contains(&count), "{count} promises");
    }

    #[test]
    fn tests_of_promises_exist() {
        let test = Regex::new(r"`(\S+\.rs)::(\w+)`").unwrap();
        let mut count = 0;
        for found in test.captures_iter(PAGE) {
            count += 1;
            let (_, [file, name]) = found.extract();
            let text = std::fs::read_to_string(root().join(file)).expect("the file of a test");
            assert!(text.contains(&format!("fn {name}(")), "{file} has no {name}");
        }
        assert!(count >= 5, "{count} tests");
    }

    fn report(native: f64, ours: f64) -> Report {
        let place = |median| Measured { metrics: vec![metric("launch", 0, median)], ..Default::default() };
        let places = [(Place::Native, place(native)), (Place::VirtioUser, place(ours))].into();
        Report { places, ..Report::default() }
    }

    #[test]
    fn a_broken_promise_is_an_error() {
        check(&report(3.0, 0.3)).unwrap();
        assert!(check(&report(3.0, 0.6)).unwrap_err().to_string().contains("launch has 0.20 of native"));
        assert!(check(&Report::default()).is_err(), "nothing was measured");
    }

    #[test]
    fn limits_have_two_decimals() {
        assert!(Limit::AtMost(0.97).holds(0.974) && !Limit::AtMost(0.97).holds(0.976));
        assert!(Limit::AtLeast(0.99).holds(0.99) && !Limit::AtLeast(0.99).holds(0.98));
    }
}
