// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of the time of large copies, as a Markdown table.

use std::fmt::Write as _;

use super::report::{Metric, Place, Report};
use super::table::short;

/// Copies that are taken apart: to and from these kinds of memory (`copy_h2d_…`) …
const KINDS: [&str; 3] = ["pageable", "pageable_huge", "pinned"];
/// … of so many MiB.
const SIZES: [u64; 3] = [1, 64, 256];

/// A row for each large copy in a virtual machine; empty if none was measured with its parts.
pub fn table(report: &Report) -> String {
    let metrics = report.places.get(&Place::Vm).map(|vm| vm.metrics.as_slice()).unwrap_or_default();
    let rows: Vec<String> = metrics.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads =
        "| copy in the virtual machine, us | whole | pinning | queueing | copying | unpinning | the rest |";
    let mut text = format!("{heads}\n{}|\n", "| --- ".repeat(7));
    for row in rows {
        writeln!(text, "{row}").expect("writing to a String");
    }
    text
}

fn row(metric: &Metric) -> Option<String> {
    let copying = metric.copy_us?;
    let kind = metric.metric.strip_prefix("copy_h2d_").or(metric.metric.strip_prefix("copy_d2h_"))?;
    let is_shown = KINDS.contains(&kind) && SIZES.iter().any(|mib| mib << 20 == metric.bytes);
    if !is_shown || metric.unit != "GB/s" || metric.median <= 0.0 {
        return None;
    }
    let whole = 1e-3 * metric.bytes as f64 / metric.median;
    let (pinning, unpinning) = (metric.pin_us.unwrap_or(0.0), metric.unpin_us.unwrap_or(0.0));
    // Through a lane: the driver has not seen the call.
    let queueing = metric.bulk_wait_us.unwrap_or(0.0) - copying;
    let (queueing, known) = (queueing.max(0.0), pinning + unpinning + copying + queueing.max(0.0));
    let rest = (whole - known).max(0.0);
    let parts = [whole, pinning, queueing, copying, unpinning, rest].map(|us| format!(" {} |", short(us)));
    Some(format!("| {} |{}", metric.title(), parts.concat()))
}

#[cfg(test)]
mod tests {
    use super::super::report::Measured;
    use super::super::report::tests::metric;
    use super::*;

    #[test]
    fn queueing_is_what_is_left_of_the_wait() {
        let mut ordinary = metric("copy_h2d_pageable", 1 << 20, 2.0);
        ordinary.unit = "GB/s".into();
        (ordinary.pin_us, ordinary.unpin_us) = (Some(100.0), Some(20.0));
        (ordinary.bulk_wait_us, ordinary.copy_us) = (Some(390.0), Some(340.0));
        let mut pinned = metric("copy_h2d_pinned", 1 << 20, 2.0);
        pinned.unit = "GB/s".into();
        (pinned.bulk_wait_us, pinned.copy_us) = (Some(0.0), Some(500.0));
        let vm =
            Measured { metrics: vec![metric("launch", 0, 2.0), ordinary, pinned], ..Measured::default() };
        let report = Report { places: [(Place::Vm, vm)].into(), ..Report::default() };
        let table = table(&report);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[2], "| copy_h2d_pageable 1 MiB | 524 | 100 | 50.0 | 340 | 20.0 | 14.3 |");
        assert_eq!(lines[3], "| copy_h2d_pinned 1 MiB | 524 | 0 | 0 | 500 | 0 | 24.3 |");
        assert_eq!(lines.len(), 4);
    }
}
