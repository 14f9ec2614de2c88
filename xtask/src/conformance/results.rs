// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results: as JSON, which a later run can compare with, and as a table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::built::State;
use super::execute::Outcome;
use super::verdict::Verdict;
use super::ways::Way;

/// The results of one program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// Its suite.
    pub suite: String,
    /// Its name.
    pub name: String,
    /// The result of the build.
    pub built: State,
    /// The native runs. There is more than one, to detect random output.
    pub native: Vec<Outcome>,
    /// The same of the smaller problem that the emulator computes, if it has one of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub small: Vec<Outcome>,
    /// The result per way.
    pub ways: BTreeMap<Way, Fared>,
}

/// The result of a program on a way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fared {
    /// The verdict.
    pub verdict: Verdict,
    /// The duration.
    pub milliseconds: u64,
}

/// The results of all.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// In the order of the suites.
    pub entries: Vec<Entry>,
}

impl Results {
    /// Loads the results of an earlier run.
    pub fn load(file: &Path) -> Result<Self> {
        let text = fs::read(file).with_context(|| format!("Cannot read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("Cannot use {}", file.display()))
    }

    /// Writes `results.json` and `results.md` to `folder`.
    pub fn save(&self, folder: &Path) -> Result<()> {
        fs::write(folder.join("results.json"), serde_json::to_string_pretty(self)?)?;
        fs::write(folder.join("results.md"), self.table())?;
        Ok(())
    }

    /// The entry of a program.
    pub fn find(&self, suite: &str, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.suite == suite && entry.name == name)
    }

    /// Replaces or adds an entry.
    pub fn put(&mut self, entry: Entry) {
        let same = |old: &&mut Entry| old.suite == entry.suite && old.name == entry.name;
        match self.entries.iter_mut().find(same) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
        self.entries.sort_by(|a, b| (&a.suite, &a.name).cmp(&(&b.suite, &b.name)));
    }

    /// Returns whether one of our ways failed.
    pub fn any_failed(&self) -> bool {
        let ours = self.entries.iter().flat_map(|entry| &entry.ways).filter(|(way, _)| **way != Way::Native);
        ours.into_iter().any(|(_, fared)| matches!(fared.verdict, Verdict::Failed(_)))
    }

    /// A Markdown table of programs and ways, and the totals of each suite.
    pub fn table(&self) -> String {
        let ways: BTreeSet<Way> = self.entries.iter().flat_map(|entry| entry.ways.keys().copied()).collect();
        let mut text = self.totals(&ways);
        text.push_str("\n| suite | program | built |");
        for way in &ways {
            let _ = write!(text, " {} |", way.name());
        }
        text.push_str(" reason |\n");
        text.push_str(&"| --- ".repeat(ways.len() + 4));
        text.push_str("|\n");
        for entry in &self.entries {
            let _ = write!(text, "| {} | {} | {} |", entry.suite, entry.name, built(&entry.built));
            for way in &ways {
                let _ = write!(text, " {} |", entry.ways.get(way).map_or("", |fared| cell(&fared.verdict)));
            }
            let _ = writeln!(text, " {} |", entry.reason());
        }
        text
    }

    fn totals(&self, ways: &BTreeSet<Way>) -> String {
        let mut text = String::from(
            "| suite | way | passed | waived | known failures | failed | not run |\n| --- | --- | --- | --- | --- | --- | --- |\n",
        );
        let suites: BTreeSet<&str> = self.entries.iter().map(|entry| entry.suite.as_str()).collect();
        for suite in suites {
            let entries = || self.entries.iter().filter(|entry| entry.suite == suite);
            let built = entries().filter(|entry| entry.built == State::Built).count();
            let failed = entries().filter(|entry| matches!(entry.built, State::Failed(_))).count();
            let skipped = entries().count() - built - failed;
            let _ = writeln!(text, "| {suite} | built | {built} | | | {failed} | {skipped} |");
            for way in ways {
                let count = |is: fn(&Verdict) -> bool| {
                    entries()
                        .filter_map(|entry| entry.ways.get(way))
                        .filter(|fared| is(&fared.verdict))
                        .count()
                };
                let passed = count(|verdict| *verdict == Verdict::Passed);
                let waived = count(|verdict| matches!(verdict, Verdict::Waived(_)));
                let known = count(|verdict| matches!(verdict, Verdict::Known(_)));
                let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
                let not_run = entries().count() - passed - waived - known - failed;
                let _ = writeln!(
                    text,
                    "| {suite} | {} | {passed} | {waived} | {known} | {failed} | {not_run} |",
                    way.name()
                );
            }
        }
        text
    }
}

impl Entry {
    /// Returns why the program failed, or an empty text if it did not. If it failed in several ways for the same
    /// reason, the text contains the reason once.
    pub fn reason(&self) -> String {
        match &self.built {
            State::Skipped(reason) => return reason.clone(),
            State::Failed(reason) => return reason.lines().next().unwrap_or_default().replace('|', "/"),
            State::Built => {}
        }
        let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
        for (way, fared) in &self.ways {
            let (Verdict::Failed(reason)
            | Verdict::Known(reason)
            | Verdict::Waived(reason)
            | Verdict::Skipped(reason)) = &fared.verdict
            else {
                continue;
            };
            match reasons.iter_mut().find(|(_, known)| known == reason) {
                Some((ways, _)) => ways.push(way.name()),
                None => reasons.push((vec![way.name()], reason)),
            }
        }
        let reasons = reasons.into_iter().map(|(ways, reason)| format!("{}: {reason}", ways.join(", ")));
        reasons.collect::<Vec<_>>().join("; ")
    }
}

fn built(state: &State) -> &'static str {
    match state {
        State::Built => "yes",
        State::Failed(_) => "NO",
        State::Skipped(_) => "–",
    }
}

/// A verdict in a word.
pub fn cell(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Waived(_) => "waived",
        Verdict::Known(_) => "known",
        Verdict::Failed(_) => "FAILED",
        Verdict::Skipped(_) => "–",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, ways: &[(Way, Verdict)]) -> Entry {
        let fared = |verdict: &Verdict| Fared { verdict: verdict.clone(), milliseconds: 1 };
        Entry {
            suite: "suite".to_owned(),
            name: name.to_owned(),
            built: State::Built,
            native: Vec::new(),
            small: Vec::new(),
            ways: ways.iter().map(|(way, verdict)| (*way, fared(verdict))).collect(),
        }
    }

    #[test]
    fn the_table_counts_and_says_why() {
        let mut results = Results::default();
        let failed = Verdict::Failed("wrong sum".to_owned());
        results.put(entry("b", &[(Way::Emulator, failed.clone()), (Way::VirtioUser, failed)]));
        results.put(entry("a", &[(Way::Emulator, Verdict::Passed)]));
        let table = results.table();
        assert!(table.contains("| suite | emulator | 1 | 0 | 0 | 1 | 0 |"), "{table}");
        assert!(
            table.contains("| suite | b | yes | FAILED | FAILED | emulator, virtio-user: wrong sum |"),
            "{table}"
        );
        assert!(results.any_failed());
        results.put(entry("b", &[(Way::Vm, Verdict::Known("no atomics".to_owned()))]));
        assert!(results.table().contains("| suite | vm | 0 | 0 | 1 | 0 | 1 |"), "{}", results.table());
        assert!(!results.any_failed());
        results.put(entry("b", &[]));
        assert_eq!((results.entries.len(), results.any_failed()), (2, false));
    }

    #[test]
    fn results_survive_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::default();
        results.put(entry("a", &[(Way::VirtioUser, Verdict::Waived("no".to_owned()))]));
        results.save(folder.path()).unwrap();
        let loaded = Results::load(&folder.path().join("results.json")).unwrap();
        assert_eq!(loaded.table(), results.table());
    }
}
