// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Parses the tables of rules for wrong calls (`tests/rules`) for the page of covered names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The folder of the tables.
const TABLES: &str = "tests/rules";
/// The first words of lines that are not rows.
const DIRECTIVES: &[&str] = &["buffer", "call", "expect", "new", "runtime", "text", "text-of", "thread"];

/// The number of rules per function that a row names.
pub fn counts(root: &Path) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    let folder = root.join(TABLES);
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "txt") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            add(&text, &mut counts);
        }
    }
    Ok(counts)
}

fn add(table: &str, counts: &mut BTreeMap<String, usize>) {
    for row in table.replace("\n ", " ").lines() {
        let first = row.split(' ').next().unwrap_or_default();
        if row.starts_with(['#', '[']) || first.is_empty() || DIRECTIVES.contains(&first) {
            continue;
        }
        let Some((call, rules)) = row.split_once('|') else {
            for call in row.split(';') {
                let name = call.split_whitespace().next().unwrap_or_default();
                *counts.entry(name.to_owned()).or_default() += usize::from(call.contains(" = "));
            }
            continue;
        };
        let (rules, states) = rules.split_once('|').unwrap_or((rules, ""));
        // `1=null/forged:1` is a rule for each value.
        let rules = rules.split_whitespace().filter(|rule| rule.contains(':'));
        let rules: usize =
            rules.map(|rule| 1 + if rule.contains('"') { 0 } else { rule.matches('/').count() }).sum();
        let states = states.split_whitespace().filter(|answer| *answer != "-").count();
        // All words of a list of names except the last end with a comma.
        let words: Vec<&str> = call.split_whitespace().collect();
        let last = words.iter().position(|word| !word.ends_with(',')).unwrap_or_default();
        for name in
            words.iter().take(last + 1).flat_map(|word| word.split(',')).filter(|name| !name.is_empty())
        {
            let plain = name.trim_end_matches('+');
            *counts.entry(plain.to_owned()).or_default() += rules + states;
            if plain != name {
                for end in ["_ptsz", "_ptds"] {
                    *counts.entry(format!("{plain}{end}")).or_default() += rules;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions for which there is no rule, each group below its reason.
    const WITHOUT: &str = "tests/rules/without.list";

    #[test]
    fn rules_are_counted() {
        let mut counts = BTreeMap::new();
        let table = "# a comment\nnew x cuNew out\ncuA, cuB+\n    out 1 | 0=null:1\n    1=-1/2:2 | 3 - 709\ncuC x ; cuD = 1\n";
        add(table, &mut counts);
        let count = |name: &str| counts.get(name).copied();
        assert_eq!((count("cuA"), count("cuB"), count("cuB_ptsz")), (Some(5), Some(5), Some(3)));
        assert_eq!((count("cuC"), count("cuD"), count("cuNew")), (Some(0), Some(1), None));
    }

    #[test]
    fn every_function_has_a_rule_or_a_reason() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let (counts, without) = (counts(&root).unwrap(), fs::read_to_string(root.join(WITHOUT)).unwrap());
        let without: Vec<&str> = without.lines().filter(|line| !line.starts_with('#')).collect();
        let lists = [
            "protocol/names/libcuda.txt",
            "guest-lib/libcudart/names/13.0.txt",
            "guest-lib/libcudart/names/12.9.txt",
            "guest-lib/libcudart/names/11.8.txt",
        ];
        let text = lists.map(|list| fs::read_to_string(root.join(list)).unwrap()).concat();
        let has_rule = |name: &str| counts.get(name).is_some_and(|count| *count > 0);
        for name in text.lines().filter(|name| !name.is_empty()) {
            // The headers of older versions have it.
            let other = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
            let has = has_rule(name) || has_rule(other);
            assert!(
                has || without.contains(&name),
                "{name}: add a rule to tests/rules, or a reason to {WITHOUT}"
            );
            assert!(!(has_rule(name) && without.contains(&name)), "{WITHOUT}: {name} has a rule");
        }
        for name in without {
            assert!(text.lines().any(|known| known == name), "{WITHOUT}: there is no {name}");
        }
    }
}
