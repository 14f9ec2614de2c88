// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of a profile, as nvprof and nsys print them: total, count, average, minimum, maximum and share per name.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::event::{Batch, Kind};
use crate::names::clean;

/// The maximum number of names per table. Limits the memory: a program chooses the names. Events of further names are counted
/// under [`OTHERS`].
const MAX_NAMES: usize = 1 << 14;
/// The name of events without a line of their own.
const OTHERS: &str = "(further names)";

/// The figures of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The table.
    pub kind: Kind,
    /// The name.
    pub name: String,
    /// The sum of the durations in nanoseconds.
    pub total_ns: u64,
    /// The number of events.
    pub count: u64,
    /// The shortest duration in nanoseconds.
    pub min_ns: u64,
    /// The longest duration in nanoseconds.
    pub max_ns: u64,
    /// The sum of bytes.
    pub bytes: u64,
    /// The sum of the time for which calls have waited in their lanes at least, in nanoseconds.
    pub waited_ns: u64,
}

impl Line {
    /// Returns the average duration in nanoseconds.
    pub fn average_ns(&self) -> u64 {
        self.total_ns / self.count.max(1)
    }
}

/// Sums of a profile.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    lines: BTreeMap<Kind, BTreeMap<String, Line>>,
    dropped: u64,
    no_gpu: Option<String>,
}

impl Tables {
    /// Adds events.
    pub fn add(&mut self, batch: &Batch) {
        self.dropped = self.dropped.saturating_add(batch.dropped);
        if let Some(reason) = &batch.no_gpu {
            self.no_gpu.get_or_insert_with(|| clean(reason));
        }
        for event in &batch.events {
            let lines = self.lines.entry(event.kind).or_default();
            let name = event.title();
            let name = if lines.contains_key(&*name) { name.into_owned() } else { clean(&name) };
            let has_room = lines.len() < MAX_NAMES || lines.contains_key(&name);
            let name = if has_room { name } else { OTHERS.to_owned() };
            let line = lines.entry(name.clone()).or_insert_with(|| Line {
                kind: event.kind,
                name,
                total_ns: 0,
                count: 0,
                min_ns: u64::MAX,
                max_ns: 0,
                bytes: 0,
                waited_ns: 0,
            });
            let time = event.duration();
            line.total_ns = line.total_ns.saturating_add(time);
            line.count += 1;
            line.min_ns = line.min_ns.min(time);
            line.max_ns = line.max_ns.max(time);
            line.bytes = line.bytes.saturating_add(event.bytes);
            line.waited_ns = line.waited_ns.saturating_add(event.waited);
        }
    }

    /// Returns the number of events that were lost.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the lines of a table, the largest total first.
    pub fn lines(&self, kind: Kind) -> Vec<&Line> {
        let mut lines: Vec<&Line> = self.lines.get(&kind).into_iter().flat_map(BTreeMap::values).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.total_ns));
        lines
    }

    /// Returns the tables for people. Empty ones are left out.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for kind in Kind::ALL {
            let lines = self.lines(kind);
            if lines.is_empty() {
                continue;
            }
            let total = total(&lines);
            let has_bytes = lines.iter().any(|line| line.bytes > 0);
            let has_waited = lines.iter().any(|line| line.waited_ns > 0);
            _ = writeln!(text, "{}:", title(kind));
            _ = write!(
                text,
                "{:>7} {:>10} {:>9} {:>10} {:>10} {:>10}",
                "share", "total", "count", "average", "min", "max"
            );
            for (head, shown) in [("bytes", has_bytes), ("waited", has_waited)] {
                if shown {
                    _ = write!(text, " {head:>10}");
                }
            }
            _ = writeln!(text, "  name");
            for line in lines {
                let [sum, average, min, max] =
                    [line.total_ns, line.average_ns(), line.min_ns, line.max_ns].map(time);
                let share = share(line, total);
                _ = write!(
                    text,
                    "{share:>6.2}% {sum:>10} {:>9} {average:>10} {min:>10} {max:>10}",
                    line.count
                );
                if has_bytes {
                    _ = write!(text, " {:>10}", bytes(line.bytes));
                }
                if has_waited {
                    _ = write!(text, " {:>10}", time(line.waited_ns));
                }
                _ = writeln!(text, "  {}", line.name);
            }
            text.push('\n');
        }
        if text.is_empty() {
            text += "No events.\n";
        }
        if let Some(reason) = &self.no_gpu {
            _ = writeln!(text, "Work of GPUs was not measured: {reason}");
        }
        if self.dropped > 0 {
            _ = writeln!(text, "{} events were lost: they came faster than they were read.", self.dropped);
        }
        text
    }

    /// Returns the tables as comma-separated values with a head, durations in nanoseconds.
    pub fn to_csv(&self) -> String {
        let mut text =
            "table,share,total_ns,count,average_ns,min_ns,max_ns,bytes,waited_ns,name\n".to_owned();
        for kind in Kind::ALL {
            let lines = self.lines(kind);
            let total = total(&lines);
            for line in lines {
                let Line { total_ns, count, min_ns, max_ns, bytes, waited_ns, .. } = line;
                let (average, name) = (line.average_ns(), line.name.replace('"', "\"\""));
                _ = writeln!(
                    text,
                    "{},{:.2},{total_ns},{count},{average},{min_ns},{max_ns},{bytes},{waited_ns},\"{name}\"",
                    title(kind),
                    share(line, total)
                );
            }
        }
        text
    }

    /// Returns the tables as a JSON object.
    pub fn to_json(&self) -> String {
        let lines: Vec<&Line> = Kind::ALL.iter().flat_map(|kind| self.lines(*kind)).collect();
        let value = serde_json::json!({ "lines": lines, "dropped": self.dropped, "no_gpu": self.no_gpu });
        format!("{value}\n")
    }
}

/// Returns the title of a table.
fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Kernel => "Kernels",
        Kind::Copy => "Copies",
        Kind::Fill => "Fills",
        Kind::Api => "API calls",
        Kind::Call => "Calls in the worker",
        Kind::Gate => "Waiting at gates",
        Kind::Move => "Moves of memory",
        Kind::Range => "Ranges",
        Kind::Span => "Ranges that were started and ended",
    }
}

fn total(lines: &[&Line]) -> u64 {
    lines.iter().fold(0, |sum, line| sum.saturating_add(line.total_ns))
}

/// Returns the part of a line in the total of its table, in percent.
fn share(line: &Line, total: u64) -> f64 {
    if total == 0 { 0.0 } else { 100.0 * line.total_ns as f64 / total as f64 }
}

/// Returns a duration with a unit.
fn time(ns: u64) -> String {
    scaled(ns, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")])
}

/// Returns a number of bytes with a unit.
fn bytes(bytes: u64) -> String {
    scaled(bytes, &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")])
}

fn scaled(value: u64, units: &[(u64, &str)]) -> String {
    let (unit, name) = units.iter().find(|(unit, _)| value >= *unit).unwrap_or(&units[units.len() - 1]);
    if *unit == 1 { format!("{value}{name}") } else { format!("{:.2}{name}", value as f64 / *unit as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    fn tables() -> Tables {
        let mut copy = Event::new(Kind::Copy, "host to device", 7, [0, 2_000_000]);
        copy.bytes = 3 << 20;
        let events = vec![
            Event::new(Kind::Kernel, "add", 7, [10, 40]),
            Event::new(Kind::Kernel, "add", 7, [50, 60]),
            Event::new(Kind::Kernel, "say \"no\"\n", 7, [60, 70]),
            copy,
        ];
        let mut tables = Tables::default();
        tables.add(&Batch { events, dropped: 2, ..Batch::default() });
        tables
    }

    #[test]
    fn a_line_sums_the_events_of_a_name() {
        let tables = tables();
        let lines = tables.lines(Kind::Kernel);
        let first = lines[0];
        assert_eq!(
            (first.name.as_str(), first.total_ns, first.count, first.average_ns()),
            ("add", 40, 2, 20)
        );
        assert_eq!((first.min_ns, first.max_ns, lines[1].name.as_str()), (10, 30, "say \"no\"?"));
    }

    #[test]
    fn the_text_has_a_table_per_kind() {
        let text = tables().to_text();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["Kernels:"]);
        assert_eq!(lines[2], ["80.00%", "40ns", "2", "20ns", "10ns", "30ns", "add"]);
        assert_eq!(lines[5], ["Copies:"]);
        assert_eq!(
            lines[7][..],
            ["100.00%", "2.00ms", "1", "2.00ms", "2.00ms", "2.00ms", "3.00MiB", "host", "to", "device"]
        );
        assert!(text.contains("2 events were lost"), "{text}");
        assert_eq!(Tables::default().to_text(), "No events.\n");
    }

    #[test]
    fn csv_and_json_have_nanoseconds() {
        let csv = tables().to_csv();
        assert!(csv.contains("\nKernels,80.00,40,2,20,10,30,0,0,\"add\"\n"), "{csv}");
        assert!(csv.contains(",\"say \"\"no\"\"?\"\n"), "{csv}");
        let json: serde_json::Value = serde_json::from_str(&tables().to_json()).unwrap();
        assert_eq!((&json["lines"][0]["name"], &json["lines"][0]["total_ns"]), (&"add".into(), &40.into()));
        assert_eq!(json["dropped"], 2);
    }

    #[test]
    fn names_beyond_the_limit_share_a_line() {
        let event = |number: usize| Event::new(Kind::Api, format!("f{number}"), 1, [0, 1]);
        let mut tables = Tables::default();
        let events = (0..MAX_NAMES + 10).map(event).collect();
        tables.add(&Batch { events, ..Batch::default() });
        let lines = tables.lines(Kind::Api);
        assert_eq!(lines.len(), MAX_NAMES + 1);
        assert_eq!(lines.iter().find(|line| line.name == OTHERS).map(|line| line.count), Some(10));
    }
}
