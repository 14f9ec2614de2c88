// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures as a Markdown table.

use std::fmt::Write as _;

use super::report::{Measured, Metric, Place, Report};

/// A row a metric; for each place the figure with its spread, CPU time per call, and the ratio to native.
pub fn table(report: &Report) -> String {
    let native = report.places.get(&Place::Native);
    let mut text = String::from("| metric |");
    let mut columns = 1;
    for &place in report.places.keys() {
        write!(text, " {} | CPU |", place.name()).expect("writing to a String");
        columns += 2;
        if has_ratio(report, place) {
            text.push_str(" ÷ native |");
            columns += 1;
        }
    }
    text.push('\n');
    text.push_str(&"| --- ".repeat(columns));
    text.push_str("|\n");
    for row in rows(report) {
        write!(text, "| {} |", row.title()).expect("writing to a String");
        for (&place, measured) in &report.places {
            let found = measured.find(&row.metric, row.bytes);
            match found {
                Some(metric) => write!(text, " {} | {} |", figure(metric), cpu(metric)),
                None => write!(text, " – | – |"),
            }
            .expect("writing to a String");
            if has_ratio(report, place) {
                let theirs = native.and_then(|native: &Measured| native.find(&row.metric, row.bytes));
                match (found, theirs) {
                    (Some(ours), Some(theirs)) if theirs.median > 0.0 => {
                        write!(text, " {:.2} |", ours.median / theirs.median)
                    }
                    _ => write!(text, " – |"),
                }
                .expect("writing to a String");
            }
        }
        text.push('\n');
    }
    for (place, measured) in &report.places {
        for skip in &measured.skipped {
            writeln!(text, "\nNot measured, {}: `{}` ({}).", place.name(), skip.skip, skip.reason)
                .expect("writing to a String");
        }
    }
    text
}

fn has_ratio(report: &Report, place: Place) -> bool {
    place != Place::Native && report.places.contains_key(&Place::Native)
}

/// Returns every metric once, in the order of the place with the most, followed by those that only others have.
fn rows(report: &Report) -> Vec<&Metric> {
    let mut places: Vec<&Measured> = report.places.values().collect();
    places.sort_by_key(|measured| std::cmp::Reverse(measured.metrics.len()));
    let mut rows: Vec<&Metric> = Vec::new();
    for metric in places.into_iter().flat_map(|measured| &measured.metrics) {
        if !rows.iter().any(|row| row.is_of(&metric.metric, metric.bytes)) {
            rows.push(metric);
        }
    }
    rows
}

fn figure(metric: &Metric) -> String {
    let Metric { median, p10, p90, unit, .. } = metric;
    let counted = |count: Option<f64>, name| count.map(|count| format!(", {} {name}", short(count)));
    let events = [counted(metric.kicks, "kicks"), counted(metric.interrupts, "irq")];
    let events: String = events.into_iter().flatten().collect();
    if p10 == p90 {
        return format!("{} {unit}{events}", short(*median));
    }
    format!("{} {unit} ({} – {}{events})", short(*median), short(*p10), short(*p90))
}

/// `calling process + daemon and workers (QEMU)`.
fn cpu(metric: &Metric) -> String {
    let mut text = short(metric.cpu_us);
    if let Some(host) = metric.host_cpu_us {
        write!(text, " + {}", short(host)).expect("writing to a String");
    }
    if let Some(qemu) = metric.qemu_cpu_us {
        write!(text, " ({})", short(qemu)).expect("writing to a String");
    }
    text
}

/// Three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::metric;
    use super::*;

    #[test]
    fn the_table_shows_the_ratio_to_native() {
        let place = |metrics| Measured { metrics, ..Default::default() };
        let native = place(vec![metric("copy", 4096, 6.1)]);
        let mut ours = place(vec![metric("copy", 4096, 12.2), metric("heap", 0, 1.0)]);
        ours.metrics[0].host_cpu_us = Some(3.0);
        let report = Report {
            places: [(Place::Native, native), (Place::VirtioUser, ours)].into(),
            ..Default::default()
        };
        let table = table(&report);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "| metric | native | CPU | virtio-user | CPU | ÷ native |");
        assert_eq!(
            lines[2],
            "| copy 4 KiB | 6.10 us (6.00 – 7.00) | 6.20 | 12.2 us (6.00 – 7.00) | 6.20 + 3.00 | 2.00 |"
        );
        assert_eq!(lines[3], "| heap | – | – | 1.00 us (6.00 – 7.00) | 6.20 | – |");
    }
}
