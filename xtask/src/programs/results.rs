// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of the programs as a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::conformance::Way;

/// The replacement for a value that was not printed.
const NOTHING: &str = "nothing";

/// The output of a program on one way, over all rounds.
#[derive(Debug, Clone, Default)]
pub struct Printed {
    /// Values that must be as natively.
    pub same: BTreeMap<String, String>,
    /// Milliseconds, a number for each round.
    pub times: BTreeMap<String, Vec<f64>>,
    /// The reason, if it failed.
    pub failed: Option<String>,
}

impl Printed {
    /// Adds the output of a round.
    pub fn add(&mut self, output: &str) {
        for line in output.lines() {
            if let Some((name, value)) = line.strip_prefix("same ").and_then(|rest| rest.split_once(": ")) {
                self.same.insert(name.to_owned(), value.to_owned());
            }
            if let Some((name, value)) = line.strip_prefix("time ").and_then(|rest| rest.split_once(": "))
                && let Ok(milliseconds) = value.trim_end_matches(" ms").parse()
            {
                self.times.entry(name.to_owned()).or_default().push(milliseconds);
            }
        }
    }

    /// Returns the names whose values differ from those of `native`, followed by those without values.
    fn different<'a>(&'a self, native: &'a Self) -> Vec<(&'a str, &'a str, &'a str)> {
        let lines = native.same.iter().map(|(name, value)| {
            (name.as_str(), value.as_str(), self.same.get(name).map_or(NOTHING, String::as_str))
        });
        let mut lines: Vec<_> = lines.filter(|(_, native, ours)| native != ours).collect();
        lines.sort_by_key(|(_, _, ours)| *ours == NOTHING);
        lines
    }
}

/// The output of one program per way.
#[derive(Debug)]
struct OfProgram {
    name: String,
    what: String,
    ways: Vec<(Way, Printed)>,
}

/// The results of all programs.
#[derive(Debug, Default)]
pub struct Results {
    programs: Vec<OfProgram>,
}

impl Results {
    /// Adds a program's, the first of which is the one that the others are compared with.
    pub fn add(&mut self, name: &str, what: &str, ways: Vec<(Way, Printed)>) {
        self.programs.push(OfProgram { name: name.to_owned(), what: what.to_owned(), ways });
    }

    /// Returns whether everything was as on the first way.
    pub fn all_same(&self) -> bool {
        self.programs.iter().all(|OfProgram { ways, .. }| {
            let (_, first) = &ways[0];
            let whole = first.failed.is_none() && !first.same.is_empty();
            whole && ways.iter().all(|(_, ours)| ours.failed.is_none() && ours.different(first).is_empty())
        })
    }

    /// As Markdown.
    pub fn text(&self) -> String {
        let mut text = String::from("# Programs\n");
        for OfProgram { name, what, ways } in &self.programs {
            // Writing to a string does not fail.
            let _ = write!(text, "\n## {name}: {what}\n\n");
            let (first_way, first) = &ways[0];
            for (way, printed) in ways {
                let _ = writeln!(text, "- {}: {}", way.name(), verdict(*first_way, first, *way, printed));
                for (name, native, ours) in printed.different(first).iter().take(50) {
                    let _ = writeln!(text, "  - {name}: `{ours}`, on {} `{native}`", first_way.name());
                }
            }
            text.push_str(&times(ways));
        }
        text
    }
}

fn verdict(first_way: Way, first: &Printed, way: Way, printed: &Printed) -> String {
    if let Some(failed) = &printed.failed {
        return failed.clone();
    }
    if way == first_way {
        return format!("{} results", printed.same.len());
    }
    let different = printed.different(first);
    let same = first.same.len() - different.len();
    let share = 100.0 * same as f64 / first.same.len().max(1) as f64;
    let missing = different.iter().filter(|(_, _, ours)| *ours == NOTHING).count();
    let missing = if missing > 0 { format!(", {missing} missing") } else { String::new() };
    format!("{same} of {} as on {} ({share:.2} %){missing}", first.same.len(), first_way.name())
}

/// Times on all ways: the best round, and how far the worst is from it.
fn times(ways: &[(Way, Printed)]) -> String {
    let (_, first) = &ways[0];
    if first.times.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n| time |");
    for (way, _) in ways {
        let _ = write!(text, " {} (ms) |", way.name());
    }
    text.push_str(" as fast |\n| --- |");
    text.push_str(&" --- |".repeat(ways.len() + 1));
    text.push('\n');
    for name in first.times.keys() {
        let _ = write!(text, "| {name} |");
        let best = |printed: &Printed| {
            printed.times.get(name).map(|rounds| rounds.iter().copied().fold(f64::INFINITY, f64::min))
        };
        for (_, printed) in ways {
            let rounds = printed.times.get(name).map_or(&[][..], Vec::as_slice);
            let worst = rounds.iter().copied().fold(0.0, f64::max);
            let _ = match best(printed) {
                Some(best) => write!(text, " {best:.3} - {worst:.3} |"),
                None => write!(text, " - |"),
            };
        }
        let ratios = ways[1..].iter().filter_map(|(_, ours)| Some(best(first)? / best(ours)?));
        let ratios: Vec<String> = ratios.map(|ratio| format!("{ratio:.2}")).collect();
        let _ = writeln!(text, " {} |", ratios.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(output: &str) -> Printed {
        let mut printed = Printed::default();
        printed.add(output);
        printed
    }

    #[test]
    fn differences_are_found() {
        let native = printed("same a: 1\nsame absent: 1\nsame b: 2\nsame c: 1\nnoise\ntime step: 4.5 ms\n");
        let ours = printed("same a: 1\nsame b: 3\nsame c: 1\ntime step: 3.0 ms\n");
        let mut results = Results::default();
        results.add("p", "what", vec![(Way::Native, native.clone()), (Way::VirtioUser, ours)]);
        assert!(!results.all_same());
        let text = results.text();
        assert!(
            text.contains(
                "2 of 4 as on native (50.00 %), 1 missing\n  - b: `3`, on native `2`\n  - absent: `nothing`"
            ),
            "{text}"
        );
        assert!(text.contains("| step | 4.500 - 4.500 | 3.000 - 3.000 | 1.50 |"), "{text}");
        let mut results = Results::default();
        results.add("p", "what", vec![(Way::Native, native.clone()), (Way::VirtioUser, native)]);
        assert!(results.all_same());
        let mut results = Results::default();
        results.add("p", "what", vec![(Way::Native, Printed::default())]);
        assert!(!results.all_same(), "a program that prints nothing shows nothing");
    }
}
