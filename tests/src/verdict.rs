// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Compares the output of a program with the table.

use anyhow::{Context, Result, bail, ensure};

use crate::cases::{Case, Stdout};
use crate::daemon::is_emulated;
use crate::running::Outcome;
use crate::stack::{Device, Way};

/// The party that answered a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// The emulator, without our driver library.
    EmulatorAlone,
    /// Our driver library with the emulator.
    EmulatedDevice,
    /// Our driver library with a GPU, or NVIDIA's.
    Gpu,
}

impl Answering {
    /// The party that answers on `way`.
    pub fn on(way: Way) -> Self {
        match (way, way.device()) {
            (Way::Emulator, _) => Self::EmulatorAlone,
            (_, Device::Emulated) => Self::EmulatedDevice,
            (_, Device::Native) => Self::Gpu,
        }
    }

    /// The party that answers through the daemons of the tests.
    pub fn behind_daemons() -> Self {
        if is_emulated() { Self::EmulatedDevice } else { Self::Gpu }
    }
}

/// Compares the end and the output of a run of `case` with the table.
pub fn check(case: &Case, outcome: &Outcome, answering: Answering) -> Result<()> {
    outcome.expect_exit(case.exit)?;
    match case.stdout {
        Stdout::OfDevice => {}
        Stdout::Expected => {
            let name = format!("tests/expected/{}.txt", case.name);
            let expected = case.expected_stdout().with_context(|| format!("There is no {name}"))?;
            if outcome.stdout != expected {
                let difference = first_difference(expected, &outcome.stdout);
                bail!("stdout is not {name}: {difference}\n{outcome}");
            }
        }
        Stdout::Rules => check_rules(outcome, Rules::Hold)?,
        Stdout::RulesOfLibrary if answering == Answering::EmulatorAlone => {
            check_rules(outcome, Rules::AreMade)?
        }
        Stdout::RulesOfLibrary => check_rules(outcome, Rules::Hold)?,
    }
    for text in case.stderr_has {
        ensure!(outcome.stderr.contains(text), "`{text}` is missing in stderr\n{outcome}");
    }
    Ok(())
}

/// The requirement on the rules of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// Each call returns the result of its rule.
    Hold,
    /// Each call was made.
    AreMade,
}

/// Fails unless the program `wrong_calls` has made at least one call, and the rules are as required.
fn check_rules(outcome: &Outcome, required: Rules) -> Result<()> {
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let (last, failed) = lines.split_last().context("wrong_calls printed nothing")?;
    let count = last.strip_suffix(" rules").and_then(|count| count.parse::<usize>().ok());
    ensure!(count.is_some_and(|count| count > 0), "wrong_calls made no call\n{outcome}");
    ensure!(failed.is_empty() || required == Rules::AreMade, "{} rules do not hold\n{outcome}", failed.len());
    Ok(())
}

fn first_difference(expected: &str, seen: &str) -> String {
    let mut seen = seen.lines();
    for (number, line) in expected.lines().enumerate() {
        match seen.next() {
            Some(other) if other == line => {}
            other => return format!("line {}: expected `{line}`, got {other:?}", number + 1),
        }
    }
    match seen.next() {
        Some(line) => format!("more than expected: `{line}`"),
        None => "the same lines, but not the same bytes".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::Ended;
    use std::time::Duration;

    fn printed(text: &str) -> Outcome {
        let (stdout, stderr) = (text.to_owned(), String::new());
        Outcome { stdout, stderr, ended: Ended::Exit(0), elapsed: Duration::ZERO }
    }

    #[test]
    fn rules_hold_or_are_made() {
        assert!(check_rules(&printed("12 rules\n"), Rules::Hold).is_ok());
        let failed = printed("cuInit 0=1: expected 1, got 0\n12 rules\n");
        assert!(check_rules(&failed, Rules::Hold).unwrap_err().to_string().contains("expected 1, got 0"));
        assert!(check_rules(&failed, Rules::AreMade).is_ok());
        for nothing in ["", "0 rules\n", "cuInit 0=1: expected 1, got 0\n"] {
            assert!(check_rules(&printed(nothing), Rules::AreMade).is_err(), "{nothing}");
        }
    }

    #[test]
    fn differences_are_named() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), "line 2: expected `b`, got Some(\"c\")");
        assert_eq!(first_difference("a\nb\n", "a\n"), "line 2: expected `b`, got None");
        assert_eq!(first_difference("a\n", "a\nb\n"), "more than expected: `b`");
        assert_eq!(first_difference("a\n", "a"), "the same lines, but not the same bytes");
    }
}
