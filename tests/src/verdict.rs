// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Whether a program did what the table says.

use anyhow::{Context, Result, bail, ensure};

use crate::cases::{Case, Stdout};
use crate::running::Outcome;

/// Compares how a run of `case` ended and what it printed with what the table expects.
pub fn check(case: &Case, outcome: &Outcome) -> Result<()> {
    outcome.expect_exit(case.exit)?;
    if case.stdout == Stdout::Expected {
        let name = format!("tests/expected/{}.txt", case.name);
        let expected = case.expected_stdout().with_context(|| format!("There is no {name}"))?;
        if outcome.stdout != expected {
            let difference = first_difference(expected, &outcome.stdout);
            bail!("stdout is not {name}: {difference}\n{outcome}");
        }
    }
    for text in case.stderr_has {
        ensure!(outcome.stderr.contains(text), "`{text}` is missing in stderr\n{outcome}");
    }
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

    #[test]
    fn differences_are_named() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), "line 2: expected `b`, got Some(\"c\")");
        assert_eq!(first_difference("a\nb\n", "a\n"), "line 2: expected `b`, got None");
        assert_eq!(first_difference("a\n", "a\nb\n"), "more than expected: `b`");
        assert_eq!(first_difference("a\n", "a"), "the same lines, but not the same bytes");
    }
}
